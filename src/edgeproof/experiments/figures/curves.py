"""Accuracy under attack, as curves over the budget."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from edgeproof._plotting import COLOURS, LINES, MARKERS, empty_figure
from edgeproof.experiments.compare import Figure as Mean
from edgeproof.experiments.figures.base import Found, Need
from edgeproof.experiments.paper import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Percentage points: what varies by less than the one is drawn on an axis of the other.
_FLAT, _WINDOW = 15.0, 30.0


@dataclass(frozen=True)
class Curve:
    """Accuracy of one way of training under one attack.

    Args:
        name: in the legend; curves of one name look alike in all panels.
        row: the training.
        kind: the attack; ``"clean"`` for a level that no attack changes.
    """

    name: str
    row: Row
    kind: str


@dataclass(frozen=True)
class Panel:
    """Curves that share their axes.

    Args:
        title: above them.
        curves: what to compare.
    """

    title: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Curves:
    """Panels of curves.

    Args:
        panels: row by row.
        columns: panels in a row.
    """

    panels: tuple[Panel, ...]
    columns: int
    over: ClassVar[str] = "mean and standard error over"

    @property
    def needs(self) -> tuple[Need, ...]:
        """Clean accuracy, and that under attack, of every curve."""
        curves = (curve for panel in self.panels for curve in panel.curves)
        return tuple(dict.fromkeys(Need(curve.row, kind) for curve in curves for kind in ("clean", curve.kind)))

    def draw(self, found: Found) -> Figure:
        """Means over seeds, standard errors as bars."""
        rows = -(-len(self.panels) // self.columns)
        figure = empty_figure((2.0 if self.columns > 3 else 2.5) * self.columns + 2.2, 2.5 * rows + 0.9)
        grid = figure.subplots(rows, self.columns, sharex=True, sharey=True, squeeze=False)
        names = list(dict.fromkeys(curve.name for panel in self.panels for curve in panel.curves))
        shown: dict[str, Any] = {}
        for axes, panel in zip(grid.flat, self.panels, strict=True):
            axes.set_title(panel.title, fontsize="medium")
            axes.grid(alpha=0.3)
            drawn = {curve.name: _draw(axes, curve, names.index(curve.name), found) for curve in panel.curves}
            shown |= {name: handle for name, handle in drawn.items() if handle is not None}
            if not any(drawn.values()):
                axes.text(0.5, 0.5, "not run yet", transform=axes.transAxes, ha="center", color="0.5")
        for axes in grid[-1]:
            axes.set_xlabel(r"changed edges $\epsilon$, %")
        low, high = grid[0, 0].get_ylim()
        if high - low < _FLAT:
            # A loss of a few points is not to look like a collapse.
            middle = (low + high) / 2
            grid[0, 0].set_ylim(max(0.0, middle - _WINDOW / 2), min(100.0, middle + _WINDOW / 2))
        for axes in grid[:, 0]:
            axes.set_ylabel("test accuracy, %")
        order = [name for name in names if name in shown]
        figure.legend([shown[name] for name in order], order, loc="outside right center", frameon=False)
        return figure


def _draw(axes: Axes, curve: Curve, number: int, found: Found) -> Any:
    """The curve, and what stands for it in a legend; none if there is nothing to draw."""
    attacked = points(found, curve.row, curve.kind)
    colour, line = COLOURS[number % len(COLOURS)], LINES[number % len(LINES)]
    if not attacked:
        return None
    if curve.kind == "clean":
        return axes.axhline(attacked[0.0].mean, color=colour, linestyle=line)
    at = points(found, curve.row, "clean") | attacked
    # A single seed says nothing about its error.
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


def points(found: Found, row: Row, kind: str) -> dict[float, Mean]:
    """Accuracy in percent by budget, over the seeds that are there."""
    each = [dict(values["accuracy"]) for values in found.of(row, kind)]
    budgets = dict.fromkeys(epsilon for one in each for epsilon in one)
    return {epsilon: Mean(tuple(100 * one[epsilon] for one in each if epsilon in one)) for epsilon in budgets}
