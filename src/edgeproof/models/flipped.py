"""Predictions of any model on many flipped graphs, in batches where the model allows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof.graph import flip_pairs
from edgeproof.models.base import predict
from edgeproof.propagation.autograd_path import batching_is_exact, probe_pairs


class FlippedGraphs:
    """Logits of a model under sets of flips.

    Where copies of the graph in one batch get the same logits as each copy alone, many sets are evaluated at once.

    Args:
        model: Any model.
        data: Clean graph.
        max_batch_nodes: Largest number of nodes of all copies together.

    >>> from edgeproof import datasets, models
    >>> data = datasets.load("karate")
    >>> flipped = FlippedGraphs(models.GCN(data.num_features, 2), data)
    >>> [batch.shape for batch in flipped.logits_of([torch.tensor([[0], [9]]), torch.tensor([[3, 4], [5, 6]])])]
    [torch.Size([2, 34, 2])]
    """

    def __init__(self, model: nn.Module, data: Data, *, max_batch_nodes: int = 1 << 17) -> None:
        self._model, self._data, self._num_nodes = model, data, int(data.x.size(0))
        self._batch_size = 1
        if self._num_nodes > 1 and max_batch_nodes >= 2 * self._num_nodes:
            # Two different graphs: a mean over two copies of one graph would equal that of one.
            flips = probe_pairs(data).both
            sets = [flips[:, :0], flips]
            if batching_is_exact(lambda: torch.cat([self._batch([each]) for each in sets]), lambda: self._batch(sets)):
                self._batch_size = max_batch_nodes // self._num_nodes

    def logits_of(self, sets: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the logits under the next sets of flips, shape ``[sets, nodes, classes]``."""
        for start in range(0, len(sets), self._batch_size):
            yield self._batch(sets[start : start + self._batch_size])

    def _batch(self, sets: Sequence[Tensor]) -> Tensor:
        """Run the model once on a graph of one copy per set."""
        n, count = self._num_nodes, len(sets)
        flips = torch.cat([pairs + number * n for number, pairs in enumerate(sets)], dim=1)
        return predict(self._model, flip_pairs(_copies(self._data, count), flips)).view(count, n, -1)


def _copies(data: Data, count: int) -> Data:
    """Return a graph of disconnected copies, without labels."""
    if count == 1:
        return data
    start = data.x.size(0) * torch.arange(count, device=data.edge_index.device)
    edge_index = data.edge_index.repeat(1, count) + start.repeat_interleave(data.edge_index.size(1))
    batch = copy(data)
    batch.x, batch.edge_index, batch.y = torch.cat([data.x] * count), edge_index, None
    return batch
