"""Result of a fragility search: the smallest sets of flips that change predictions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgeproof._progress import duration
from edgeproof._tables import Layout, Record, TabularResult


@dataclass(frozen=True, eq=False)
class NodeFragility:
    """Smallest set of flips found that changes the prediction for one node.

    Args:
        node: Node id.
        label: Class that the flips should change.
        class_before: Predicted class on the clean graph.
        class_after: Predicted class after the flips.
        flips: Flips in the order of the search, shape ``[2, flips]``; the strongest found if none change the prediction.
        margins: Margin of ``label`` on the clean graph, and after each flip.
        at_least: Proven lower bound on the number of flips: 2 if an exhaustive search shows that no single flip suffices, 3
            for no two.
    """

    node: int
    label: int
    class_before: int
    class_after: int
    flips: Tensor
    margins: tuple[float, ...]
    at_least: int

    @property
    def falls(self) -> bool:
        """Whether the flips change the prediction: the margin after them is not positive."""
        return not self.margins[-1] > 0

    @property
    def num_flips(self) -> int | None:
        """Number of flips that change the prediction; None if none were found."""
        return self.flips.size(1) if self.falls else None

    @property
    def exact(self) -> bool:
        """Whether fewer flips provably do not suffice."""
        return self.num_flips is not None and self.num_flips <= self.at_least


@dataclass(frozen=True, eq=False, repr=False)
class Fragility(TabularResult):
    """Result of :func:`fragility`.

    Args:
        nodes: One entry per node, in the order of the call.
        max_flips: Largest number of flips of the search.
        scope: Pairs that may be flipped: ``"direct"`` or ``"influence"``.
        evaluator: How margins were computed; see :mod:`edgeproof.propagation.incremental`.
        num_evaluations: Number of sets of flips whose effect on a node was computed.
        constraints: Description of the permitted pairs; empty if all are.
        seconds: Runtime.
    """

    nodes: tuple[NodeFragility, ...]
    max_flips: int
    scope: str
    evaluator: str
    num_evaluations: int
    constraints: str
    seconds: float

    def __getitem__(self, node: int) -> NodeFragility:
        """Return the entry of a node id."""
        for entry in self.nodes:
            if entry.node == node:
                return entry
        raise KeyError(f"node {node} is not among the {len(self.nodes)} nodes of the search")

    @property
    def num_flips(self) -> Tensor:
        """Number of flips by node; -1 where the prediction did not change within ``max_flips``."""
        return torch.tensor([-1 if entry.num_flips is None else entry.num_flips for entry in self.nodes])

    @property
    def histogram(self) -> dict[int, int]:
        """Number of nodes by the number of flips that change their prediction; 0 for predictions that are wrong at once."""
        return {k: int((self.num_flips == k).sum()) for k in range(self.max_flips + 1)}

    @property
    def num_surviving(self) -> int:
        """Number of nodes whose prediction no set of flips found changes."""
        return int((self.num_flips == -1).sum())

    @property
    def num_exact(self) -> dict[int, int]:
        """Number of entries of :attr:`histogram` for which fewer flips provably do not suffice."""
        return {k: sum(entry.exact for entry in self.nodes if entry.num_flips == k) for k in range(self.max_flips + 1)}

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} fall to {k}" for k, count in self.histogram.items())
        return f"Fragility({len(self.nodes)} nodes: {counts}, {self.num_surviving} to none of up to {self.max_flips} flips)"

    def summary(self) -> Record:
        """Return the values that occur once, as numbers, text, lists and dictionaries."""
        return {
            "max_flips": self.max_flips,
            "scope": self.scope,
            "constraints": self.constraints,
            "evaluator": self.evaluator,
            "num_evaluations": self.num_evaluations,
            "seconds": self.seconds,
            "histogram": {str(k): count for k, count in self.histogram.items()},
            "exact": {str(k): count for k, count in self.num_exact.items()},
            "surviving": self.num_surviving,
        }

    def _records(self) -> list[Record]:
        return [
            {
                "node": entry.node,
                "num_flips": entry.num_flips,
                "exact": entry.exact,
                "at_least": entry.at_least,
                "label": entry.label,
                "class_before": entry.class_before,
                "class_after": entry.class_after,
                "flips": entry.flips.T.tolist(),
                "margins": list(entry.margins),
            }
            for entry in self.nodes
        ]

    def _layout(self) -> Layout:
        total = len(self.nodes)
        counts = [(str(k), count, self.num_exact[k]) for k, count in self.histogram.items()]
        lines = [(k, str(count), f"{100 * count / total:.1f}", str(exact)) for k, count, exact in counts]
        survivors = (f"> {self.max_flips}", str(self.num_surviving), f"{100 * self.num_surviving / total:.1f}", "")
        scope = "with the node" if self.scope == "direct" else "anywhere"
        return Layout(
            title=f"Flips {scope} that change a prediction" + (f"; {self.constraints}" if self.constraints else ""),
            header=("flips", "nodes", "%", "proven fewest"),
            lines=[*lines, survivors],
            notes=[f"{self.num_evaluations:,} evaluations in {duration(self.seconds)}"],
        )
