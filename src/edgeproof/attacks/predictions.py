"""Predictions of a model on flipped graphs, for searches that need nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from edgeproof.attacks.base import AttackTrace, Target


class Predictions:
    """Logits of a target under sets of flips, on models of every tier, with a count of the queries.

    It takes the place of an engine of edge gradients in :class:`~edgeproof.propagation.incremental.FullEvaluator`.

    Args:
        target: Model, graph and nodes under attack.
        trace: Counts one query per set of flips.
    """

    def __init__(self, target: Target, trace: AttackTrace | None = None) -> None:
        self._target, self._trace = target, trace
        self.data, self.nodes, self.labels, self.num_nodes = target.data, target.nodes, target.labels, target.num_nodes

    def logits_of(self, sets: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the logits under the next sets of flips, shape ``[sets, nodes, classes]``."""
        if self._trace is not None:
            self._trace.count_queries(len(sets))
        return self._target.logits_of(sets, "tanh_margin")
