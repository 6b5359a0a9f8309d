"""What training has made of GPRGNN's diffusion: its coefficients, and the filter that they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from edgeproof._plotting import COLOURS, LINES, empty_figure, zero_line
from edgeproof.analysis import Coefficients
from edgeproof.experiments.figures.base import Found, Need
from edgeproof.experiments.paper import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HATCHES = ("", "///", "...", "xxx")


@dataclass(frozen=True)
class Learned:
    """Several trainings on several graphs.

    Args:
        graphs: by title, and for each the trainings by name.
        view: ``"gamma"``, the coefficients; or ``"spectrum"``, the response to each frequency.
        columns: graphs in a row.
    """

    graphs: tuple[tuple[str, tuple[tuple[str, Row], ...]], ...]
    view: str
    columns: int
    over: ClassVar[str] = "mean and standard error over"

    @property
    def needs(self) -> tuple[Need, ...]:
        """The filters of all models."""
        return tuple(Need(row, "filter") for _, trainings in self.graphs for _, row in trainings)

    def draw(self, found: Found) -> Figure:
        """A panel for each graph."""
        rows = -(-len(self.graphs) // self.columns)
        figure = empty_figure(4.2 * self.columns + 1.6, 2.6 * rows + 0.8)
        grid = figure.subplots(rows, self.columns, squeeze=False)
        panel = _bars if self.view == "gamma" else _responses
        shown: dict[str, Any] = {}
        for axes, (title, trainings) in zip(grid.flat, self.graphs, strict=True):
            axes.set_title(title, fontsize="medium")
            there = {
                (number, name): found.of(row, "filter")
                for number, (name, row) in enumerate(trainings)
                if found.of(row, "filter")
            }
            shown |= panel(axes, there, len(trainings))
            if not there:
                axes.text(0.5, 0.5, "not run yet", transform=axes.transAxes, ha="center", color="0.5")
                axes.set(xticks=[], yticks=[])
        figure.legend(list(shown.values()), list(shown), loc="outside right center", frameon=False)
        return figure


Filters = dict[tuple[int, str], tuple[dict[str, Any], ...]]


def _bars(axes: Axes, there: Filters, places: int) -> dict[str, Any]:
    """Means of the coefficients side by side, standard errors as bars."""
    shown: dict[str, Any] = {}
    for (number, name), filters in there.items():
        gamma = torch.tensor([one["gamma"] for one in filters], dtype=torch.float64)
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


def _responses(axes: Axes, there: Filters, _: int) -> dict[str, Any]:
    """Responses with the largest at 1, standard errors as bands; below, where the graph's frequencies are."""
    shown: dict[str, Any] = {}
    for (number, name), filters in there.items():
        density = torch.tensor(filters[0]["density"])
        width = 2 / density.numel()
        # Beyond the graph's largest frequency there is nothing that a filter could answer.
        frequency = torch.linspace(0, width * (int(density.nonzero().max()) + 1), 200, dtype=torch.float64)
        each = torch.stack(
            [Coefficients.of(one["gamma"], self_loops=one["self_loops"]).response(frequency) for one in filters]
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
    if there:
        low, high = axes.get_ylim()
        # Below there is no response: the bars have a scale of their own.
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
    """Standard error over the first dimension; of a single one there is none."""
    if values.size(0) == 1:
        return torch.full_like(values[0], math.nan)
    return values.std(dim=0).div(values.size(0) ** 0.5)
