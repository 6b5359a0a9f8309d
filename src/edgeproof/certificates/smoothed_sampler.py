"""Sampling of the smoothed model: class counts of a model on random graphs, many graphs per batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch_geometric.data import Data

from edgeproof._features import for_model, repeat_rows
from edgeproof._memory import free_main_memory
from edgeproof._tensors import on_host
from edgeproof.certificates.class_counts import ClassCounts
from edgeproof.certificates.sampling import Sampler, split_batch
from edgeproof.models.adapt import adapt
from edgeproof.models.base import GraphModel
from edgeproof.models.model_probe import batching_is_exact, encode_once
from edgeproof.propagation.adjacency import Adjacency
from edgeproof.propagation.autograd_path import EncodeDiffuse, eval_mode

# First number of the samples that select classes, so that they never coincide with those that bound probabilities.
_CHOOSING_OFFSET = 1 << 48
# Default memory of a batch: this fraction of the free memory, on a CPU at most this number of bytes, to stay within caches.
_MEMORY_FRACTION, _CPU_BATCH_BYTES = 0.5, 1 << 28
# Largest number of graphs per batch: if the model processes a batch in one call, and if it needs one call per graph.
_MAX_BATCHED, _MAX_UNBATCHED = 4096, 64


class SmoothedSampler:
    """Samples class counts of a model on random graphs around one graph.

    Args:
        model: Model to smooth.
        data: Graph.
        nodes: Nodes to count the predictions of.
        sampler: Sampler of random graphs.
        memory: Memory of a batch in gigabytes. Default: half of the free memory, on a CPU at most a quarter of a gigabyte.
    """

    def __init__(self, model: nn.Module, data: Data, nodes: Tensor, sampler: Sampler, memory: float | None) -> None:
        model = adapt(model, data)
        data = for_model(data, model)
        self.model, self.data, self.nodes, self.sampler = model, data, nodes, sampler
        self.encoded = encode_once(model, data)
        self.batched = not isinstance(model, GraphModel) or model.side_by_side
        self.batch_size = self._batch_size(memory)
        self.batched = self.batched and (self.batch_size == 1 or self._is_batchable())

    def extend(self, counts: ClassCounts, choosing: int, bounding: int) -> Iterator[ClassCounts]:
        """Yield the counts after each further batch, up to the requested numbers of samples.

        Args:
            counts: Class counts of the sampler's seed to continue.
            choosing: Number of samples to select classes.
            bounding: Number of samples to bound probabilities.
        """
        ((num_choosing, num_bounding),) = counts.streams.values()
        num_classes = counts.choosing.size(1)
        for missing, is_choosing in ((range(num_choosing, choosing), True), (range(num_bounding, bounding), False)):
            for batch_size, batch in self.counts(missing, num_classes, choosing=is_choosing):
                counts = counts.with_batch(batch, batch_size, choosing=is_choosing)
                yield counts

    def counts(self, samples: range, num_classes: int, *, choosing: bool) -> Iterator[tuple[int, Tensor]]:
        """Yield the number of samples and the class counts of each batch.

        Args:
            samples: Sample numbers.
            num_classes: Number of classes.
            choosing: Whether to use the samples that select classes (True) or those that bound probabilities (False).
        """
        start, offset = samples.start, _CHOOSING_OFFSET if choosing else 0
        while start < samples.stop:
            size = min(self.batch_size, samples.stop - start)
            try:
                batch = self._count_batch(offset + start, size, num_classes)
            except torch.OutOfMemoryError:
                if self.batch_size == 1:
                    raise
                self.batch_size //= 2
                continue
            start += size
            yield size, batch

    def _count_batch(self, first: int, size: int, num_classes: int) -> Tensor:
        """Return the class counts of consecutive samples, shape ``[nodes, classes]``, in main memory."""
        logits = self._logits(self.sampler.draw(first, size, self.data.x.dtype), size)
        logits = logits.view(size, -1, num_classes)[:, self.nodes]
        if not bool(logits.isfinite().all()):
            raise ValueError(
                f"expected finite logits from {type(self.model).__name__}, got NaN or Inf on a random graph"
            )
        predictions = logits.argmax(dim=2)
        classes = torch.arange(num_classes, device=predictions.device)
        return on_host((predictions[:, :, None] == classes).sum(dim=0))

    def _logits(self, graphs: Adjacency, size: int) -> Tensor:
        """Return the logits of ``size`` graphs in one disconnected graph, shape ``[size * nodes, classes]``."""
        if not self.batched and size > 1:
            return torch.cat([self._logits(graph, 1) for graph in split_batch(graphs, size)])
        with eval_mode(self.model), torch.no_grad():
            if self.encoded is not None:
                assert isinstance(self.model, EncodeDiffuse)
                return self.model.diffuse(self.encoded.repeat(size, 1), graphs)
            pattern = graphs.pattern
            edges = torch.stack([pattern.col, pattern.row])[:, graphs.weight > 0]
            logits: Tensor = self.model(repeat_rows(self.data.x, size), edges)
            return logits

    def _batch_size(self, memory: float | None) -> int:
        """Return the number of graphs that fit into the memory of a batch, from an estimate for one graph."""
        graph = self.sampler.draw(0, 1, self.data.x.dtype)
        # Columns, rows, and weights before and after normalization.
        graph_bytes = graph.pattern.col.numel() * 40
        if self.encoded is not None:
            # Hidden states of a few propagation steps.
            graph_bytes += self.encoded.numel() * self.encoded.element_size() * 16
        else:
            # All allocations of a forward pass on one graph, including tensors that are freed during the pass.
            with _OutputBytes() as outputs:  # type: ignore[no-untyped-call]
                self._logits(graph, 1)
            graph_bytes += outputs.bytes
        limit = default_batch_bytes(self.data.x.device) if memory is None else memory * 1e9
        return max(1, min(_MAX_BATCHED if self.batched else _MAX_UNBATCHED, int(limit / graph_bytes)))

    def _is_batchable(self) -> bool:
        """Whether two graphs in one batch get the same logits as each alone."""
        dtype = self.data.x.dtype
        return batching_is_exact(
            lambda: torch.cat([self._logits(self.sampler.draw(sample, 1, dtype), 1) for sample in range(2)]),
            lambda: self._logits(self.sampler.draw(0, 2, dtype), 2),
        )


def default_batch_bytes(device: torch.device, free: float | None = None) -> float:
    """Return the default memory of a batch in bytes.

    Args:
        device: Device of the graph.
        free: Free bytes on the device. Default: as reported by the driver or the operating system.
    """
    if device.type == "cuda":
        return _MEMORY_FRACTION * (torch.cuda.mem_get_info(device)[0] if free is None else free)
    return min(_CPU_BATCH_BYTES, _MEMORY_FRACTION * (free_main_memory() if free is None else free))


class _OutputBytes(TorchDispatchMode):
    """Counts the bytes of all tensors that operations return in its context."""

    bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]
        self.bytes += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return output
