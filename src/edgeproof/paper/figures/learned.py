"""Figures of the diffusion learned by GPRGNN: coefficients and filters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from edgeproof._plotting import COLOURS, LINES, empty_figure, zero_line
from edgeproof.analysis import Coefficients
from edgeproof.paper.figures.base import FigureData, FigureInput
from edgeproof.paper.numbers import PaperRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HATCHES = ("", "///", "...", "xxx")


@dataclass(frozen=True)
class Learned:
    """Learned diffusion after several trainings on several graphs.

    Args:
        graphs: Title of each graph, with the name and row of each training.
        view: ``"gamma"`` for the coefficients, ``"spectrum"`` for the response to each frequency.
        columns: Number of graphs per row.
    """

    graphs: tuple[tuple[str, tuple[tuple[str, PaperRow], ...]], ...]
    view: str
    columns: int
    over: ClassVar[str] = "mean and standard error over"

    @property
    def inputs(self) -> tuple[FigureInput, ...]:
        """Filters of all models."""
        return tuple(FigureInput(row, "filter") for _, trainings in self.graphs for _, row in trainings)

    def draw(self, data: FigureData) -> Figure:
        """Draw one panel per graph."""
        rows = -(-len(self.graphs) // self.columns)
        figure = empty_figure(4.2 * self.columns + 1.6, 2.6 * rows + 0.8)
        grid = figure.subplots(rows, self.columns, squeeze=False)
        panel = _bars if self.view == "gamma" else _responses
        shown: dict[str, Any] = {}
        for axes, (title, trainings) in zip(grid.flat, self.graphs, strict=True):
            axes.set_title(title, fontsize="medium")
            filters = {
                (number, name): data.of(row, "filter")
                for number, (name, row) in enumerate(trainings)
                if data.of(row, "filter")
            }
            shown |= panel(axes, filters, len(trainings))
            if not filters:
                axes.text(0.5, 0.5, "not run yet", transform=axes.transAxes, ha="center", color="0.5")
                axes.set(xticks=[], yticks=[])
        figure.legend(list(shown.values()), list(shown), loc="outside right center", frameon=False)
        return figure


Filters = dict[tuple[int, str], tuple[dict[str, Any], ...]]


def _bars(axes: Axes, by_training: Filters, places: int) -> dict[str, Any]:
    """Draw means of the coefficients side by side, with standard errors as bars."""
    shown: dict[str, Any] = {}
    for (number, name), filters in by_training.items():
        gamma = torch.tensor([learned["gamma"] for learned in filters], dtype=torch.float64)
        place = torch.arange(gamma.size(1)) + (number - (places - 1) / 2) * 0.8 / places
        shown[name] = axes.bar(
            place.numpy(),
            gamma.mean(dim=0).numpy(),
            width=0.8 / places,
            yerr=_error(gamma).numpy(),
            color=COLOURS[number],
            hatch=_HATCHES[number],
            edgecolor="white",
            linewidth=0,
            error_kw={"linewidth": 0.8, "capsize": 1.2},
        )
        axes.set_xticks(range(gamma.size(1)))
    zero_line(axes)
    axes.set_xlabel("steps k")
    axes.set_ylabel(r"$\gamma_k$, sum of sizes 1")
    return shown


def _responses(axes: Axes, by_training: Filters, _: int) -> dict[str, Any]:
    """Draw responses scaled to a maximum of 1, with standard errors as bands; below, the histogram of frequencies."""
    shown: dict[str, Any] = {}
    for (number, name), filters in by_training.items():
        density = torch.tensor(filters[0]["density"])
        width = 2 / density.numel()
        # The graph has no frequencies beyond its largest one.
        frequency = torch.linspace(0, width * (int(density.nonzero().max()) + 1), 200, dtype=torch.float64)
        each = torch.stack(
            [
                Coefficients.of(learned["gamma"], self_loops=learned["self_loops"]).response(frequency)
                for learned in filters
            ]
        )
        each = each / each.abs().amax(dim=1, keepdim=True)
        mean, error = each.mean(dim=0), _error(each)
        colour = COLOURS[number]
        (shown[name],) = axes.plot(
            frequency.numpy(), mean.numpy(), color=colour, linestyle=LINES[number], linewidth=1.5
        )
        axes.fill_between(
            frequency.numpy(), (mean - error).numpy(), (mean + error).numpy(), color=colour, alpha=0.2, linewidth=0
        )
    zero_line(axes)
    if by_training:
        low, high = axes.get_ylim()
        # The histogram below has its own scale.
        axes.set_yticks([tick for tick in axes.get_yticks() if low <= tick <= high])
        axes.set_ylim(low - 0.2 * (high - low), high)
        below = axes.inset_axes((0, 0, 1, 0.15), sharex=axes, zorder=-1)
        below.axis("off")
        centres = (torch.arange(density.numel()) + 0.5) * width
        shown["frequencies of the graph"] = below.bar(centres.numpy(), density.numpy(), width=width, color="0.8")
        scale = f"highest bar {float(density.max()):.0%}"
        axes.text(0.99, 0.16, scale, transform=axes.transAxes, ha="right", fontsize="xx-small", color="0.4")
        axes.set_xlim(0, float(frequency[-1]))
    axes.patch.set_visible(False)
    axes.set_xlabel(r"frequency $\lambda$ of the graph with self-loops")
    axes.set_ylabel(r"response $g(\lambda)$, largest 1")
    return shown


def _error(values: torch.Tensor) -> torch.Tensor:
    """Return the standard error over the first dimension; NaN for a single entry."""
    if values.size(0) == 1:
        return torch.full_like(values[0], math.nan)
    return values.std(dim=0).div(values.size(0) ** 0.5)
