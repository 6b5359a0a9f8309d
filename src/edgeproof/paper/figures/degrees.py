"""Figures of misclassified nodes by degree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from edgeproof._plotting import empty_figure
from edgeproof.analysis.degrees import draw_misclassified
from edgeproof.paper.figures.base import FigureData, FigureInput
from edgeproof.paper.numbers import PaperRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Larger degrees and numbers of edges share the last column or row.
_LAST = 12


@dataclass(frozen=True)
class Degrees:
    """Misclassified nodes by degree and adversarial edges, summed over seeds.

    Args:
        row: The training.
    """

    row: PaperRow
    over: ClassVar[str] = "sum over"

    @property
    def inputs(self) -> tuple[FigureInput, ...]:
        return (FigureInput(self.row, "degrees"),)

    def draw(self, data: FigureData) -> Figure:
        """Draw one panel per budget."""
        each = [dict(values["nodes"]) for values in data.of(self.row, "degrees")]
        epsilons = list(each[0])
        figure = empty_figure(4.6 * len(epsilons), 4.4)
        for axes, epsilon in zip(figure.subplots(1, len(epsilons), squeeze=False).flat, epsilons, strict=True):
            lines = [line for by_budget in each for line in by_budget[epsilon]]
            draw_misclassified(axes, _counts(lines))
            misclassified = sum(line[2] for line in lines)
            beyond = sum(line[2] for line in lines if line[1] > line[0])
            title = f"budget {epsilon:.0%}: {misclassified} misclassified, {beyond} with more flips than edges"
            axes.set_title(title, fontsize="small")
            axes.set_xlabel(f"degree ({_LAST}: at least {_LAST})")
            axes.set_ylabel(f"adversarial edges ({_LAST}: at least {_LAST})")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.axes[0].legend(handles, labels, loc="upper left", fontsize="x-small")
        return figure


def _counts(lines: Sequence[Sequence[Any]]) -> torch.Tensor:
    """Return the number of misclassified nodes by degree and adversarial edges."""
    counts = torch.zeros(_LAST + 1, _LAST + 1, dtype=torch.long)
    for degree, flips, misclassified, _ in lines:
        counts[min(degree, _LAST), min(flips, _LAST)] += misclassified
    return counts
