"""Accuracy under attack, as curves over the budget."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from edgeproof._plotting import COLOURS, LINES, MARKERS, empty_figure
from edgeproof.experiments.summary import SeedMean
from edgeproof.paper.figures.base import FigureData, FigureInput
from edgeproof.paper.numbers import PaperRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Curves that vary by less than _FLAT percentage points are drawn on an axis of _WINDOW points.
_FLAT, _WINDOW = 15.0, 30.0


@dataclass(frozen=True)
class Curve:
    """Accuracy of one training under one attack.

    Args:
        name: Name in the legend; curves with the same name look the same in all panels.
        row: The training.
        kind: The attack; ``"clean"`` for a horizontal line at the clean accuracy.
    """

    name: str
    row: PaperRow
    kind: str


@dataclass(frozen=True)
class Panel:
    """Curves that share their axes.

    Args:
        title: Title of the panel.
        curves: The curves.
    """

    title: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Curves:
    """Panels of curves.

    Args:
        panels: The panels, row by row.
        columns: Number of panels per row.
    """

    panels: tuple[Panel, ...]
    columns: int
    over: ClassVar[str] = "mean and standard error over"

    @property
    def inputs(self) -> tuple[FigureInput, ...]:
        """Clean and attacked accuracy of every curve."""
        curves = (curve for panel in self.panels for curve in panel.curves)
        return tuple(dict.fromkeys(FigureInput(curve.row, kind) for curve in curves for kind in ("clean", curve.kind)))

    def draw(self, data: FigureData) -> Figure:
        """Draw means over seeds with standard errors as bars."""
        rows = -(-len(self.panels) // self.columns)
        figure = empty_figure((2.0 if self.columns > 3 else 2.5) * self.columns + 2.2, 2.5 * rows + 0.9)
        grid = figure.subplots(rows, self.columns, sharex=True, sharey=True, squeeze=False)
        names = list(dict.fromkeys(curve.name for panel in self.panels for curve in panel.curves))
        shown: dict[str, Any] = {}
        for axes, panel in zip(grid.flat, self.panels, strict=True):
            axes.set_title(panel.title, fontsize="medium")
            axes.grid(alpha=0.3)
            drawn = {curve.name: _draw(axes, curve, names.index(curve.name), data) for curve in panel.curves}
            shown |= {name: handle for name, handle in drawn.items() if handle is not None}
            if not any(drawn.values()):
                axes.text(0.5, 0.5, "not run yet", transform=axes.transAxes, ha="center", color="0.5")
        for axes in grid[-1]:
            axes.set_xlabel(r"changed edges $\epsilon$, %")
        low, high = grid[0, 0].get_ylim()
        if high - low < _FLAT:
            # A loss of a few points must not look like a collapse.
            middle = (low + high) / 2
            grid[0, 0].set_ylim(max(0.0, middle - _WINDOW / 2), min(100.0, middle + _WINDOW / 2))
        for axes in grid[:, 0]:
            axes.set_ylabel("test accuracy, %")
        order = [name for name in names if name in shown]
        figure.legend([shown[name] for name in order], order, loc="outside right center", frameon=False)
        return figure


def _draw(axes: Axes, curve: Curve, number: int, data: FigureData) -> Any:
    """Draw a curve and return its handle for the legend; None without data."""
    attacked = points(data, curve.row, curve.kind)
    colour, line = COLOURS[number % len(COLOURS)], LINES[number % len(LINES)]
    if not attacked:
        return None
    if curve.kind == "clean":
        return axes.axhline(attacked[0.0].mean, color=colour, linestyle=line)
    at = points(data, curve.row, "clean") | attacked
    # A single seed has no error.
    errors = [at[epsilon].error if len(at[epsilon].values) > 1 else math.nan for epsilon in sorted(at)]
    return axes.errorbar(
        [100 * epsilon for epsilon in sorted(at)],
        [at[epsilon].mean for epsilon in sorted(at)],
        yerr=None if all(map(math.isnan, errors)) else errors,
        color=colour,
        linestyle=line,
        marker=MARKERS[number % len(MARKERS)],
        markersize=4,
        linewidth=1.3,
        capsize=2.5,
    )


def points(data: FigureData, row: PaperRow, kind: str) -> dict[float, SeedMean]:
    """Return the accuracy in percent by budget, over all stored seeds."""
    each = [dict(values["accuracy"]) for values in data.of(row, kind)]
    budgets = dict.fromkeys(epsilon for accuracies in each for epsilon in accuracies)
    return {
        epsilon: SeedMean(tuple(100 * accuracies[epsilon] for accuracies in each if epsilon in accuracies))
        for epsilon in budgets
    }
