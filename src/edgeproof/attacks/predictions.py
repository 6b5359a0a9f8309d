"""Predictions of a target on flipped graphs, for searches that need nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from edgeproof.attacks.base import AttackTrace, Target
from edgeproof.propagation.incremental.base import margins_of


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

    def margins(self, sets: Sequence[Tensor]) -> Tensor:
        """Return the margins of the target nodes under each set of flips, shape ``[sets, targets]``; -Inf if not finite."""
        found = [logits[:, self.nodes].double() for logits in self.logits_of(sets)]
        if not found:
            return torch.empty(0, self.nodes.numel(), dtype=torch.double, device=self.nodes.device)
        margins = margins_of(torch.cat(found).flatten(0, 1), self.labels.repeat(len(sets))).nan_to_num(nan=-torch.inf)
        return margins.view(len(sets), self.nodes.numel())
