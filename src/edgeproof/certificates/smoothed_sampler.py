"""A model that is asked about random graphs, many at a time."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch_geometric.data import Data

from edgeproof._modules import eval_mode
from edgeproof._tensors import on_host
from edgeproof.certificates.class_counts import ClassCounts
from edgeproof.certificates.sampling import Sampler, one_by_one
from edgeproof.models.base import GraphModel
from edgeproof.propagation.adjacency import Adjacency
from edgeproof.propagation.autograd_path import EncodeDiffuse

# Samples that choose a class are numbered from here: never among those that bound its probability.
_CHOOSING = 1 << 48
# Share of what is free that is taken by default, and on a CPU most bytes: more would fit into no cache, and gain nothing.
_SHARE, _ON_CPU = 0.5, 1 << 28
# How far logits of the same graph may differ, relative to the largest.
_SAME = {torch.float32: 1e-4, torch.float64: 1e-9}
# Most graphs at a time: side by side, and where the model sees them one by one.
_MOST, _MOST_ALONE = 4096, 64


class SmoothedSampler:
    """A model and the random graphs that it is asked about.

    Args:
        model: the model.
        data: the graph.
        nodes: the nodes that count.
        sampler: draws the graphs.
        memory: gigabytes that a batch may take; by default half of what is free, but on a CPU no more than a quarter of one.
    """

    def __init__(self, model: nn.Module, data: Data, nodes: Tensor, sampler: Sampler, memory: float | None) -> None:
        self.model, self.data, self.nodes, self.sampler = model, data, nodes, sampler
        self.encoded = self._encode()
        self.side_by_side = not isinstance(model, GraphModel) or model.side_by_side
        self.batch = self._batch_size(memory)
        self.side_by_side = self.side_by_side and (self.batch == 1 or self._keeps_apart())

    def continue_with(self, votes: ClassCounts, choosing: int, bounding: int, classes: int) -> Iterator[ClassCounts]:
        """ClassCounts with more and more samples, until there are as many as wanted of each kind."""
        (seed,) = votes.streams
        for kind, wanted in enumerate((choosing, bounding)):
            left = range(votes.streams[seed][kind], wanted)
            for count, counts in self.counts(left, classes, choosing=kind == 0):
                streams = list(votes.streams[seed])
                streams[kind] += count
                votes = replace(
                    votes,
                    choosing=votes.choosing + counts if kind == 0 else votes.choosing,
                    bounding=votes.bounding + counts if kind == 1 else votes.bounding,
                    streams={seed: (streams[0], streams[1])},
                )
                yield votes

    def counts(self, samples: range, classes: int, *, choosing: bool) -> Iterator[tuple[int, Tensor]]:
        """How often each class is answered at each node, on some samples of one kind: batch by batch, with its size."""
        done, offset = samples.start, _CHOOSING if choosing else 0
        while done < samples.stop:
            count = min(self.batch, samples.stop - done)
            try:
                found = self._ask(offset + done, count, classes)
            except torch.OutOfMemoryError:
                if self.batch == 1:
                    raise
                self.batch //= 2
                continue
            done += count
            yield count, found

    def _ask(self, first: int, count: int, classes: int) -> Tensor:
        """How often each class is answered at each node."""
        logits = self._logits(self.sampler.draw(first, count, self.data.x.dtype), count)
        logits = logits.view(count, -1, classes)[:, self.nodes]
        if not bool(logits.isfinite().all()):
            raise ValueError(
                f"expected finite logits from {type(self.model).__name__}, got NaN or Inf on a random graph"
            )
        answers = logits.argmax(dim=2)
        return on_host((answers[:, :, None] == torch.arange(classes, device=answers.device)).sum(dim=0))

    def _logits(self, graphs: Adjacency, count: int) -> Tensor:
        if not self.side_by_side and count > 1:
            return torch.cat([self._logits(graph, 1) for graph in one_by_one(graphs, count)])
        with eval_mode(self.model), torch.no_grad():
            if self.encoded is not None:
                assert isinstance(self.model, EncodeDiffuse)
                return self.model.diffuse(self.encoded.repeat(count, 1), graphs)
            pattern = graphs.pattern
            edges = torch.stack([pattern.col, pattern.row])[:, graphs.weight > 0]
            logits: Tensor = self.model(self.data.x.repeat(count, 1), edges)
            return logits

    def _encode(self) -> Tensor | None:
        """What the first half of the model makes of the features; none for a model whose two halves are not all of it."""
        if not isinstance(self.model, EncodeDiffuse):
            return None
        with eval_mode(self.model), torch.no_grad():
            encoded = self.model.encode(self.data.x)
            halves = self.model.diffuse(encoded, Adjacency.from_data(self.data))
            whole = self.model(self.data.x, self.data.edge_index)
        return encoded if self._same(halves, whole) else None

    def _batch_size(self, memory: float | None) -> int:
        """As many graphs as fit by what one of them takes."""
        graph = self.sampler.draw(0, 1, self.data.x.dtype)
        # Columns, rows, weights before and after normalisation.
        size = graph.pattern.col.numel() * 40
        if self.encoded is not None:
            # Hidden states of a few steps.
            size += self.encoded.numel() * self.encoded.element_size() * 16
        else:
            # All that a look at one graph makes, whether or not it is freed on the way.
            with _Made() as made:  # type: ignore[no-untyped-call]
                self._logits(graph, 1)
            size += made.bytes
        if memory is not None:
            free = memory * 1e9
        elif self.data.x.is_cuda:
            free = _SHARE * torch.cuda.mem_get_info(self.data.x.device)[0]
        else:
            free = min(_ON_CPU, _SHARE * _free_in_main_memory())
        return max(1, min(_MOST if self.side_by_side else _MOST_ALONE, int(free / size)))

    def _keeps_apart(self) -> bool:
        """Whether two graphs side by side get the logits that each gets alone: a norm over all nodes would mix them."""
        dtype = self.data.x.dtype
        alone = torch.cat([self._logits(self.sampler.draw(one, 1, dtype), 1) for one in range(2)])
        try:
            together = self._logits(self.sampler.draw(0, 2, dtype), 2)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            # Something in the model has the size of the graph.
            return False
        return self._same(together, alone)

    def _same(self, one: Tensor, other: Tensor) -> bool:
        if one.shape != other.shape:
            return False
        return bool((one - other).abs().max() <= _SAME[self.data.x.dtype] * other.abs().max())


class _Made(TorchDispatchMode):
    """Counts the bytes of everything that operations return while it is on."""

    bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        returned = func(*args, **(kwargs or {}))
        self.bytes += sum(one.numel() * one.element_size() for one in tree_leaves(returned) if isinstance(one, Tensor))
        return returned


def _free_in_main_memory() -> float:
    """Bytes; any number where the system does not say."""
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return math.inf
