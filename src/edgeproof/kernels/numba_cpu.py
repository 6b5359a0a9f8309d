"""Kernels for the CPU, compiled by numba on first use and cached on disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from edgeproof.kernels import _numba_kernels as loops
from edgeproof.kernels import _numba_sampling as sampling
from edgeproof.kernels import reference
from edgeproof.kernels.reference_sampling import expected_gaps
from edgeproof.kernels.reference_thresholds import bracket_from_sums

name = "numba"
devices: tuple[str, ...] = ("cpu",)
summary = (
    "compiled loops for gathered dot products, medians, projections, pair indices and samples; CPU; float32 and float64"
)

Array = np.ndarray[Any, Any]

# Number of multiplications below which one thread is faster than several.
_SMALL = 1 << 15
# Numbers in a vector register.
_LANES = 8

# Numba would be no faster than torch for these.
spmm = reference.spmm
insert_pairs = reference.insert_pairs
normalize = reference.normalize
table_at = reference.table_at
compact = reference.compact
apply_threshold = reference.apply_threshold
pairs_above = reference.pairs_above


def not_supported_reasons(tensors: Sequence[Tensor]) -> list[str]:
    """Return the reasons why these inputs are not supported, or with no inputs, why this machine is not."""
    reasons = reference.not_supported_reasons(tensors)
    reasons += [f"needs the CPU, got {tensor.device}" for tensor in tensors if tensor.device.type != "cpu"]
    return reasons


def gathered_dot(a: Tensor, b: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """See :func:`edgeproof.kernels.reference.gathered_dot`; the gathered rows are never stored."""
    out = a.new_zeros(left.numel())
    if not a.size(1):
        return out
    _set_threads(left.numel() * a.size(1))
    loops.gathered_dot(_array(a), _array(b), _array(left), _array(right), _array(out))
    return out


def row_dots(a: Tensor, b: Tensor) -> Tensor:
    """Return the row-wise dot product of two matrices."""
    rows = torch.arange(a.size(0))
    return gathered_dot(a, b, rows, rows)


def normalized_terms(
    b: Sequence[Tensor],
    h: Sequence[Tensor],
    out: Sequence[Tensor],
    grad_x: Sequence[Tensor],
    scale: Tensor,
    *,
    few_numbers: int = reference.FEW_NUMBERS,
) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`edgeproof.kernels.reference.normalized_terms`; pads the channels with zeros to whole vector registers."""
    # Rows of whole registers take half the time of rows with a remainder.
    missing = -sum(part.size(1) for part in b) % _LANES
    if missing:
        zeros = [scale.new_zeros(scale.numel(), missing)]
        b, h, out, grad_x = ([*parts, *zeros] for parts in (b, h, out, grad_x))
    return reference.normalized_terms_by(row_dots, b, h, out, grad_x, scale, few_numbers=few_numbers)


def pair_scores(b: Tensor, h: Tensor, node: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """See :func:`edgeproof.kernels.reference.pair_scores`."""
    out = b.new_empty(u.numel())
    _set_threads(u.numel() * b.size(1))
    loops.pair_scores(_array(b), _array(h), _array(node), _array(u), _array(v), _array(out))
    return out


def weighted_median(x: Tensor, values: Tensor, index: Tensor) -> Tensor:
    """See :func:`edgeproof.kernels.reference.weighted_median`; selects instead of sorting."""
    out = index.new_empty(index.size(0), x.size(1))
    _set_threads(index.numel() * x.size(1))
    half = reference.half_of(values.sum(dim=1))
    loops.weighted_median(_array(x), _array(values), _array(index), _array(half), _array(out))
    return out


def unrank_pairs(index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """See :func:`edgeproof.kernels.reference.unrank_pairs`."""
    u, v = torch.empty_like(index), torch.empty_like(index)
    _set_threads(index.numel())
    loops.unrank_pairs(_array(index), num_nodes, _array(u), _array(v))
    return u, v


def merge(few: Tensor, many: Tensor) -> tuple[Tensor, Tensor]:
    """See :func:`edgeproof.kernels.reference.merge`."""
    merged, position = few.new_empty(few.numel() + many.numel()), torch.empty_like(few)
    size = loops.merge(_array(few), _array(many), _array(merged), _array(position))
    return merged[:size], position


def bracket_threshold(values: Tensor, thresholds: Tensor, budget: Tensor) -> tuple[Tensor, Tensor]:
    """See :func:`edgeproof.kernels.reference.bracket_threshold`; one pass for any number of thresholds."""
    _set_threads(values.numel())
    sums = loops.clipped_sums(_array(values), _array(thresholds))
    return bracket_from_sums(torch.from_numpy(sums), thresholds, budget)


def take_largest(
    p: Tensor,
    u: Tensor,
    v: Tensor,
    total: Tensor,
    local: Tensor,
    unit: int,
    *,
    whole: bool,
    chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    """See :func:`edgeproof.kernels.reference.take_largest`.

    Values are put into buckets. Starting from the highest bucket, only the values that still fit at both nodes are sorted:
    most nodes soon have no budget left.
    """
    finite, taken = torch.stack(torch.aminmax(p)).isfinite().all(), torch.zeros(p.shape, dtype=torch.bool)
    if not bool(finite):
        return taken, finite
    nodes = _array(u), _array(v)
    for row, row_taken in zip(p, taken, strict=True):
        values, room, left = _array(row), _array(local.clone()), int(total)
        largest = float(row.max())
        if largest <= 0 or loops.cost_of(largest, unit, whole) > left:
            continue
        bits, counts = _array(row.float()).view(np.int32), np.zeros(loops.BUCKETS + 1, dtype=np.int32)
        loops.count(bits, counts)
        # The largest values usually exhaust the total budget.
        num_values = chunk or max(1024, min(64 * (left // unit), p.size(1) // 16))
        high = loops.BUCKETS
        while left >= 0 and high > 0:
            low = loops.lowest_bucket(counts, high, num_values)
            left = loops.take(values, bits, counts, low, high, *nodes, room, left, unit, whole, _array(row_taken))
            num_values, high = 4 * num_values, low
    return taken, finite


def sample_graphs(
    index: Tensor,
    u: Tensor,
    v: Tensor,
    num_nodes: int,
    p_add: float,
    p_del: float,
    seed: int,
    first: int,
    count: int,
    *,
    num_gaps: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, int | None]:
    """See :func:`edgeproof.kernels.reference.sample_graphs`; one sample per thread, without sorting."""
    _set_threads()
    n, edges = num_nodes, _array(index)
    capacity = edges.size + (num_gaps or expected_gaps(n * (n - 1) // 2, p_add))
    while True:
        pairs, size = np.empty((count, capacity, 2), dtype=np.int32), np.zeros(count, dtype=np.int64)
        lower, degree = np.zeros((count, n), dtype=np.int64), np.zeros((count, n), dtype=np.int64)
        stream = np.uint64(seed % 2**64)
        sampling.draw_pairs(edges, n, p_add, p_del, stream, first, pairs, size, lower, degree)
        if size.max(initial=0) <= capacity:
            break
        capacity = int(size.max())
    rowptr = np.zeros(count * n + 1, dtype=np.int64)
    np.cumsum((degree + 1).reshape(-1), out=rowptr[1:])
    col, diagonal = np.empty(rowptr[-1], dtype=np.int64), rowptr[:-1] + lower.reshape(-1)
    sampling.fill_rows(pairs, size, n, rowptr, diagonal, col)
    return torch.from_numpy(rowptr), torch.from_numpy(col), torch.from_numpy(diagonal), None


def _array(tensor: Tensor) -> Array:
    array: Array = tensor.detach().contiguous().numpy()
    return array


def _set_threads(work: int | None = None) -> None:
    """Set the number of Numba threads to that of torch, or to one for little work. The rounding does not depend on
    it."""
    torch_threads = torch.get_num_threads()
    threads = 1 if work is not None and work < _SMALL else torch_threads
    # Not numba.get_num_threads, which would start the thread pool.
    numba.set_num_threads(min(threads, int(numba.config.NUMBA_NUM_THREADS)))  # type: ignore[attr-defined]
    if torch.get_num_threads() != torch_threads:
        # Starting Numba's thread pool also sets the number of OpenMP threads, which torch shares.
        torch.set_num_threads(torch_threads)
