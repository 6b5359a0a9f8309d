"""Predictions of a model on flipped graphs, for searches that need nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgeproof.attacks.base import AttackTrace, Target
from edgeproof.graph import flip_pairs
from edgeproof.models.base import predict
from edgeproof.propagation.autograd_path import batching_is_exact, probe_pairs
from edgeproof.propagation.incremental.base import margins_of


class Predictions:
    """Logits of a target under sets of flips, on models of every tier, with a count of the queries.

    Where copies of the graph in one batch get the same logits as each copy alone, many sets are evaluated at once. It takes
    the place of an engine of edge gradients in :class:`~edgeproof.propagation.incremental.FullEvaluator`.

    Args:
        target: Model, graph and nodes under attack.
        trace: Counts one query per set of flips.
        max_batch_nodes: Largest number of nodes of all copies together.
    """

    def __init__(self, target: Target, trace: AttackTrace | None = None, *, max_batch_nodes: int = 1 << 17) -> None:
        self._target, self._trace = target, trace
        self.data, self.nodes, self.labels, self.num_nodes = target.data, target.nodes, target.labels, target.num_nodes
        self._batch_size = 1
        if target.tier == "black_box" and self.num_nodes > 1 and max_batch_nodes >= 2 * self.num_nodes:
            # Two different graphs: a mean over two copies of one graph would equal that of one.
            flips = probe_pairs(self.data).both
            sets = [flips[:, :0], flips]
            if batching_is_exact(lambda: torch.cat([self._batch([each]) for each in sets]), lambda: self._batch(sets)):
                self._batch_size = max_batch_nodes // self.num_nodes

    def logits_of(self, sets: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the logits under the next sets of flips, shape ``[sets, nodes, classes]``."""
        if self._trace is not None:
            self._trace.count_queries(len(sets))
        if self._target.tier != "black_box":
            yield from self._target.logits_of(sets, "tanh_margin")
            return
        for start in range(0, len(sets), self._batch_size):
            yield self._batch(sets[start : start + self._batch_size])

    def margins(self, sets: Sequence[Tensor]) -> Tensor:
        """Return the margins of the target nodes under each set of flips, shape ``[sets, targets]``; -Inf if not finite."""
        found = [logits[:, self.nodes].double() for logits in self.logits_of(sets)]
        flat = torch.cat(found).flatten(0, 1)
        margins = margins_of(flat, self.labels.repeat(len(sets))).nan_to_num(nan=-torch.inf)
        return margins.view(len(sets), self.nodes.numel())

    def _batch(self, sets: Sequence[Tensor]) -> Tensor:
        """Run the model once on a graph of one copy per set."""
        n, count = self.num_nodes, len(sets)
        batch = _copies(self.data, count)
        flips = torch.cat([pairs + number * n for number, pairs in enumerate(sets)], dim=1)
        return predict(self._target.model, flip_pairs(batch, flips)).view(count, n, -1)


def _copies(data: Data, count: int) -> Data:
    """Return a graph of disconnected copies."""
    if count == 1:
        return data
    n = data.x.size(0)
    start = n * torch.arange(count, device=data.edge_index.device).repeat_interleave(data.edge_index.size(1))
    batch = copy(data)
    batch.x = torch.cat([data.x] * count)
    batch.edge_index = data.edge_index.repeat(1, count) + start
    batch.y = None
    return batch
