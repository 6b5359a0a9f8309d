"""At which nodes attacks succeed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from edgeproof._plotting import empty_figure
from edgeproof.analysis.degrees import draw_misclassified
from edgeproof.experiments.figures.base import Found, Need
from edgeproof.experiments.paper import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Degrees, and numbers of edges, from here on share the last column or row.
_LAST = 12


@dataclass(frozen=True)
class Degrees:
    """Nodes that fell, by degree and adversarial edges, of all seeds together.

    Args:
        row: the training.
    """

    row: Row
    over: ClassVar[str] = "sum over"

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(self.row, "degrees"),)

    def draw(self, found: Found) -> Figure:
        """A panel for each budget."""
        each = [dict(values["nodes"]) for values in found.of(self.row, "degrees")]
        epsilons = list(each[0])
        figure = empty_figure(4.6 * len(epsilons), 4.4)
        for axes, epsilon in zip(figure.subplots(1, len(epsilons), squeeze=False).flat, epsilons, strict=True):
            lines = [line for one in each for line in one[epsilon]]
            draw_misclassified(axes, _counts(lines))
            fell = sum(line[2] for line in lines)
            beyond = sum(line[2] for line in lines if line[1] > line[0])
            axes.set_title(
                f"budget {epsilon:.0%}: {fell} nodes fell, {beyond} of them beyond their degree", fontsize="small"
            )
            axes.set_xlabel(f"degree, {_LAST} stands for more")
            axes.set_ylabel(f"adversarial edges, {_LAST} stands for more")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.axes[0].legend(handles, labels, loc="upper left", fontsize="x-small")
        return figure


def _counts(lines: Sequence[Sequence[Any]]) -> torch.Tensor:
    """How many fell, by degree and adversarial edges."""
    counts = torch.zeros(_LAST + 1, _LAST + 1, dtype=torch.long)
    for degree, flips, fell, _ in lines:
        counts[min(degree, _LAST), min(flips, _LAST)] += fell
    return counts
