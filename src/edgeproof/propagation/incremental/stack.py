r"""Stacks of graph convolutions on a CPU: only the rows within reach of a flip are computed, by compiled loops.

The model is :math:`X_{l+1} = \mathrm{ReLU}(\hat A X_l + b_l) W_{l+1}`, :math:`X_1 = X W_1`, with the logits
:math:`\hat A X_L + b_L` and :math:`\hat A = D^{-1/2} (A + I) D^{-1/2}`. Depth and widths are arbitrary.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from edgeproof.kernels import _numba_incremental as loops
from edgeproof.kernels import dispatch
from edgeproof.propagation.autograd_path import probe_pairs, same_logits
from edgeproof.propagation.incremental.base import Scan, margins_of, toggled

if TYPE_CHECKING:
    from edgeproof.propagation.edge_gradient import EdgeGradientEngine

Array = np.ndarray[Any, Any]

# Largest number of entries of a scan that are computed at once by a thread, and smallest number that is worth a thread.
_MAX_ENTRIES, _MIN_ENTRIES = 1 << 21, 1 << 12


@runtime_checkable
class WithConvolutions(Protocol):
    """Model that can be a stack of graph convolutions with ReLU between them."""

    def convolutions(self) -> list[tuple[Tensor, Tensor]]:
        """Return weight, shape ``[in, out]``, and bias of each convolution; an empty list if there are other layers."""


class _Targets(NamedTuple):
    """Target nodes of a scan.

    Args:
        position: Position of each node among the target nodes, or -1.
        near: Whether a target node is a neighbor of each node, or the node itself.
        reach: Upper bound on the number of target nodes that a flip at each node can change.
        total: Number of target nodes.
    """

    position: Array
    near: Array
    reach: Array
    total: int


class StackEvaluator:
    """Recompute the rows within reach of a flip, layer by layer. See :class:`IncrementalEvaluator`.

    ``logits`` are those of all nodes in the current state. All computations are in float64.

    Args:
        engine: Model, graph, target nodes and labels, on a CPU.
        convolutions: Weight and bias of each convolution.
    """

    name = "stack"

    @torch.no_grad()
    def __init__(self, engine: EdgeGradientEngine, convolutions: list[tuple[Tensor, Tensor]]) -> None:
        self._nodes, self._labels, n = engine.nodes, engine.labels, engine.num_nodes
        self.num_hops: int | None = len(convolutions)
        # One dtype for the compiled loops, and the more accurate one.
        self._input = (engine.data.x @ convolutions[0][0]).double()
        self._weights = [weight.detach().double() for weight, _ in convolutions]
        self._bias = torch.cat([bias.detach().double() for _, bias in convolutions])
        self._start = np.cumsum([0, *(weight.size(1) for weight in self._weights)])
        flat = [self._input.new_empty(0), *(weight.flatten() for weight in self._weights[1:])]
        self._flat = torch.cat(flat).numpy()
        self._flat_start = np.cumsum([0, *(weight.numel() for weight in self._weights[1:])])
        self._position = np.full(n, -1)
        self._position[self._nodes.numpy()] = np.arange(self._nodes.numel())
        row, col = engine.data.edge_index
        diagonal = torch.arange(n)
        self._keys = torch.cat([row * n + col, diagonal * (n + 1)]).sort().values.numpy()
        self.flips = engine.data.edge_index.new_empty(2, 0)
        self._compute()

    def scan(self, candidates: Tensor, only: int | None = None) -> Scan:
        targets = self._targets if only is None else self._one_target(only)
        pairs = np.ascontiguousarray(candidates.numpy())
        reach = np.minimum(targets.reach[pairs].sum(axis=0), targets.total)
        total, threads = int(reach.sum()), torch.get_num_threads()
        size = min(_MAX_ENTRIES, max(_MIN_ENTRIES, -(-total // threads)))
        # Each part has at most about this many entries.
        bounds = [0, *(np.flatnonzero(np.diff(np.cumsum(reach) // size)) + 1).tolist(), pairs.shape[1]]
        parts = [(pairs[:, first:end], reach[first:end]) for first, end in pairwise(bounds) if first < end]
        with ThreadPoolExecutor(threads) as pool:
            scanned = list(pool.map(lambda part: self._scan_part(targets, *part), parts))
        counts = [np.zeros(1, dtype=np.int64), *(count for count, _, _ in scanned)]
        positions = [np.empty(0, dtype=np.int64), *(position for _, position, _ in scanned)]
        margins = [np.empty(0), *(margin for _, _, margin in scanned)]
        return Scan(
            torch.from_numpy(np.cumsum(np.concatenate(counts))),
            torch.from_numpy(np.concatenate(positions)),
            torch.from_numpy(np.concatenate(margins)),
            self.margins,
        )

    def apply(self, flips: Tensor) -> None:
        n = self._position.size
        self.flips = toggled(self.flips, flips, n)
        u, v = flips.numpy()
        self._keys = np.setxor1d(self._keys, np.concatenate([u * n + v, v * n + u]), assume_unique=True)
        self._compute()

    def _one_target(self, position: int) -> _Targets:
        node, n = int(self._nodes[position]), self._position.size
        positions, near = np.full(n, -1), np.zeros(n, dtype=np.bool_)
        positions[node] = position
        near[self._col[self._rowptr[node] : self._rowptr[node + 1]]] = True
        return _Targets(positions, near, np.ones(n, dtype=np.int64), 1)

    def _scan_part(self, targets: _Targets, pairs: Array, reach: Array) -> tuple[Array, Array, Array]:
        u, v = np.ascontiguousarray(pairs)
        key = u * self._position.size + v
        is_edge = self._keys[np.searchsorted(self._keys, key).clip(max=self._keys.size - 1)] == key
        offset = np.concatenate([[0], np.cumsum(reach)])
        capacity = max(2, min(self._position.size, int(self._rows[pairs].sum(axis=0).max())), int(reach.max()))
        count, position = np.zeros(u.size, dtype=np.int64), np.empty(offset[-1], dtype=np.int64)
        margin = np.empty(offset[-1])
        loops.scan_stack(
            self._rowptr,
            self._col,
            self._scale,
            self._scaled,
            self._sums,
            self._start,
            self._flat,
            self._flat_start,
            self._bias.numpy(),
            targets.position,
            targets.near,
            self._labels.numpy(),
            u,
            v,
            is_edge,
            offset[:-1],
            capacity,
            count,
            position,
            margin,
        )
        used = np.arange(offset[-1]) - np.repeat(offset[:-1], reach) < np.repeat(count, reach)
        return count, position[used], margin[used]

    @torch.no_grad()
    def _compute(self) -> None:
        """Run the model in the current state and store what scans need."""
        n = self._position.size
        row, self._col = self._keys // n, self._keys % n
        self._rowptr = np.searchsorted(row, np.arange(n + 1))
        self._scale = 1 / np.sqrt(np.diff(self._rowptr))
        scale = torch.from_numpy(self._scale)[:, None]
        scaled, sums, x = [], [], self._input
        for layer, (first, end) in enumerate(pairwise(self._start.tolist())):
            scaled.append(scale * x)
            sums.append(self._sum_neighbors(scaled[-1]))
            x = scale * sums[-1] + self._bias[first:end]
            if layer + 1 < len(self._weights):
                x = x.relu() @ self._weights[layer + 1]
        self._scaled, self._sums = torch.cat(scaled, dim=1).numpy(), torch.cat(sums, dim=1).numpy()
        self.logits = x
        self.margins = margins_of(x[self._nodes], self._labels)
        # Upper bounds by numbers of walks: target nodes and, one layer earlier, rows that a flip at a node can change.
        reach, rows = torch.from_numpy(self._position >= 0).double()[:, None], torch.ones(n, 1, dtype=torch.float64)
        for layer in range(len(self._weights)):
            reach = self._sum_neighbors(reach).clamp(max=self._nodes.numel())
            if layer == 0:
                near = (reach[:, 0] > 0).numpy()
            else:
                rows = self._sum_neighbors(rows).clamp(max=n)
        self._rows = rows[:, 0].long().numpy()
        self._targets = _Targets(self._position, near, reach[:, 0].long().numpy(), self._nodes.numel())

    def _sum_neighbors(self, x: Tensor) -> Tensor:
        rowptr, col = torch.from_numpy(self._rowptr), torch.from_numpy(self._col)
        return dispatch.spmm(rowptr, col, x.new_ones(col.numel()), x)


@torch.no_grad()
def stack_evaluator(engine: EdgeGradientEngine) -> StackEvaluator | None:
    """Return the evaluator if the model is a stack of graph convolutions, which its logits on two graphs confirm."""
    on_cpu = engine.data.x.device.type == "cpu" and engine.data.x.dtype in (torch.float32, torch.float64)
    if not on_cpu or engine.path != "propagate" or not isinstance(engine.model, WithConvolutions):
        return None
    convolutions = engine.model.convolutions()
    widths = [tuple(weight.shape) for weight, _ in convolutions]
    if not widths or [w for _, w in widths[:-1]] != [w for w, _ in widths[1:]]:
        return None
    if any(bias.shape != (weight.size(1),) for weight, bias in convolutions) or engine.num_nodes < 2:
        return None
    if engine.data.x.size(1) != widths[0][0]:
        return None
    evaluator = StackEvaluator(engine, convolutions)
    probed = probe_pairs(engine.data).both
    flip = engine.adjacency.weight.new_ones(probed.size(1))
    equal = same_logits(evaluator.logits.to(flip.dtype), engine.logits())
    evaluator.apply(probed)
    equal &= same_logits(evaluator.logits.to(flip.dtype), engine.logits(probed, flip))
    evaluator.apply(probed)
    return evaluator if equal else None
