"""Kernels for the CPU, compiled by numba on first use and kept on disk.

A sparse-dense product is as fast in torch; what torch lacks is the gathered dot product without the gathered rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from edgeproof._threads import share_with_torch
from edgeproof.kernels import _numba_greedy as greedy
from edgeproof.kernels import _plain_projections as projections
from edgeproof.kernels import reference

name = "numba"
summary = (
    "compiled loops for gathered dot products, medians, projections and numbers of pairs; CPU; float32 and float64"
)

Array = np.ndarray[Any, Any]

# Fewer multiplications than this are done before the threads have woken up.
_SMALL = 1 << 15
_STRETCH = 4096
# Values that are added up together: however many threads there are, always the same ones.
_PART = 1 << 15
# Numbers in a register.
_LANES = 8

spmm = reference.spmm
insert_pairs = reference.insert_pairs
normalize = reference.normalize
table_at = reference.table_at
compact = reference.compact
apply_threshold = reference.apply_threshold
pairs_above = reference.pairs_above


def not_supported_reasons(tensors: Sequence[Tensor]) -> list[str]:
    """Why these inputs cannot be served; empty if they can."""
    reasons = reference.not_supported_reasons(tensors)
    reasons += [f"needs the CPU, got {tensor.device}" for tensor in tensors if tensor.device.type != "cpu"]
    return reasons


def gathered_dot(a: Tensor, b: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """See :func:`edgeproof.kernels.reference.gathered_dot`."""
    out = a.new_zeros(left.numel())
    if not a.size(1):
        return out
    _set_threads(left.numel() * a.size(1))
    _gathered_dot(_array(a), _array(b), _array(left), _array(right), _array(out))
    return out


def row_dots(a: Tensor, b: Tensor) -> Tensor:
    """The dot products of two matrices, row by row."""
    everyone = torch.arange(a.size(0))
    return gathered_dot(a, b, everyone, everyone)


# Dot products of whole registers take half the time of those with a rest.
normalized_terms = partial(reference.normalized_terms, dot=row_dots, multiple=_LANES)


def pair_scores(b: Tensor, h: Tensor, node: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """See :func:`edgeproof.kernels.reference.pair_scores`."""
    out = b.new_empty(u.numel())
    _set_threads(u.numel() * b.size(1))
    _pair_scores(_array(b), _array(h), _array(node), _array(u), _array(v), _array(out))
    return out


def weighted_median(x: Tensor, values: Tensor, index: Tensor) -> Tensor:
    """See :func:`edgeproof.kernels.reference.weighted_median`; nothing is sorted, and no row is gathered twice."""
    out = index.new_empty(index.size(0), x.size(1))
    _set_threads(index.numel() * x.size(1))
    half = reference.half_of(values.sum(dim=1))
    _weighted_median(_array(x), _array(values), _array(index), _array(half), _array(out))
    return out


def unrank_pairs(number: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """See :func:`edgeproof.kernels.reference.unrank_pairs`."""
    u, v = torch.empty_like(number), torch.empty_like(number)
    _set_threads(number.numel())
    _unrank_pairs(_array(number), num_nodes, _array(u), _array(v))
    return u, v


def merge(few: Tensor, many: Tensor) -> tuple[Tensor, Tensor]:
    """See :func:`edgeproof.kernels.reference.merge`."""
    merged, place = few.new_empty(few.numel() + many.numel()), torch.empty_like(few)
    size = _merge(_array(few), _array(many), _array(merged), _array(place))
    return merged[:size], place


def bracket_threshold(values: Tensor, thresholds: Tensor, budget: Tensor) -> tuple[Tensor, Tensor]:
    """See :func:`edgeproof.kernels.reference.bracket_threshold`; one pass, whatever the number of thresholds."""
    _set_threads(values.numel())
    sums = _clipped_sums(_array(values), _array(thresholds))
    return projections.divide(torch.from_numpy(sums), thresholds, budget)


def take_largest(
    p: Tensor, u: Tensor, v: Tensor, total: Tensor, local: Tensor, unit: int, *, whole: bool
) -> tuple[Tensor, Tensor]:
    """See :func:`edgeproof.kernels.reference.take_largest`.

    Values are put into buckets, and of the largest, bucket by bucket, only what still fits at both ends is sorted: most nodes
    are soon full.
    """
    finite, taken = torch.stack(torch.aminmax(p)).isfinite().all(), torch.zeros(p.shape, dtype=torch.bool)
    if not bool(finite):
        return taken, finite
    ends = _array(u), _array(v)
    for row, found in zip(p, taken, strict=True):
        values, room, left = _array(row), _array(local.clone()), int(total)
        largest = float(row.max())
        if largest <= 0 or greedy.size_of(largest, unit, whole) > left:
            continue
        bits, counts = _array(row.float()).view(np.int32), np.zeros(greedy.BUCKETS + 1, dtype=np.int32)
        greedy.count(bits, counts)
        wanted, high = projections.looked_at_first(left // unit, p.size(1)), greedy.BUCKETS
        while left >= 0 and high > 0:
            low = greedy.lowest_bucket(counts, high, wanted)
            left = greedy.take(values, bits, counts, low, high, *ends, room, left, unit, whole, _array(found))
            wanted, high = 4 * wanted, low
    return taken, finite


@numba.njit(cache=True)
def _last_below(thresholds: Array, value: float, per_unit: float) -> int:
    """The last of the ascending thresholds that is below a value; the first one is.

    They are, but for rounding, equally far apart, so there is a good guess.
    """
    guess = (value - thresholds[0]) * per_unit
    # What is no number is not below anything.
    last = int(guess) if guess < thresholds.size - 1 else thresholds.size - 1
    while last + 1 < thresholds.size and thresholds[last + 1] < value:
        last += 1
    while last > 0 and thresholds[last] >= value:
        last -= 1
    return last


@numba.njit(parallel=True, cache=True)
def _clipped_sums(values: Array, thresholds: Array) -> Array:
    """Sum of min(max(value - t, 0), 1) for each threshold t, from how many values lie between which two, and their sums."""
    parts = (values.size + _PART - 1) // _PART
    width = thresholds[-1] - thresholds[0]
    per_unit = (thresholds.size - 1) / width if width > 0 else 0.0
    # Of values above t, and of those above t + 1: how many, and their sum.
    found = np.zeros((parts, 4, thresholds.size))
    for part in numba.prange(parts):
        for e in range(part * _PART, min((part + 1) * _PART, values.size)):
            value = np.float64(values[e])
            if value > thresholds[0]:
                last = _last_below(thresholds, value, per_unit)
                found[part, 0, last] += 1
                found[part, 1, last] += value
                if value - 1 > thresholds[0]:
                    last = _last_below(thresholds, value - 1, per_unit)
                    found[part, 2, last] += 1
                    found[part, 3, last] += value - 1
    sums = np.zeros(thresholds.size)
    many = total = many_beyond = total_beyond = 0.0
    for t in range(thresholds.size - 1, -1, -1):
        for part in range(parts):
            many += found[part, 0, t]
            total += found[part, 1, t]
            many_beyond += found[part, 2, t]
            total_beyond += found[part, 3, t]
        sums[t] = (total - many * thresholds[t]) - (total_beyond - many_beyond * thresholds[t])
    return sums


@numba.njit(cache=True)
def _merge(few: Array, many: Array, merged: Array, place: Array) -> int:
    size = taken = 0
    for number in many:
        while taken < few.size and few[taken] <= number:
            merged[size] = few[taken]
            place[taken] = size
            size += 1
            taken += 1
        if taken == 0 or few[taken - 1] != number:
            merged[size] = number
            size += 1
    while taken < few.size:
        merged[size] = few[taken]
        place[taken] = size
        size += 1
        taken += 1
    return size


@numba.njit(parallel=True, fastmath=True, cache=True)
def _gathered_dot(a: Array, b: Array, left: Array, right: Array, out: Array) -> None:
    for e in numba.prange(left.size):
        i, j = left[e], right[e]
        total = a[i, 0] * b[j, 0]
        for c in range(1, a.shape[1]):
            total += a[i, c] * b[j, c]
        out[e] = total


@numba.njit(parallel=True, fastmath=True, cache=True)
def _pair_scores(b: Array, h: Array, node: Array, u: Array, v: Array, out: Array) -> None:
    for e in numba.prange(u.size):
        i, j = u[e], v[e]
        total = node[i] + node[j]
        for c in range(b.shape[1]):
            total += b[i, c] * h[j, c] + h[i, c] * b[j, c]
        out[e] = total


@numba.njit(parallel=True, cache=True)
def _weighted_median(x: Array, values: Array, index: Array, half: Array, out: Array) -> None:
    rows, k = index.shape
    for row in numba.prange(rows):
        value, weight = np.empty(k, dtype=x.dtype), np.empty(k, dtype=np.float64)
        for c in range(x.shape[1]):
            size = 0
            for slot in range(k):
                if values[row, slot] > 0:
                    value[size], weight[size] = x[index[row, slot], c], values[row, slot]
                    size += 1
            below, median = 0.0, x.dtype.type(0)
            # Those on one side of a value in the middle go, with all their weight, until that value is the one.
            while size:
                median = value[size // 2]
                less, equal, smaller = 0.0, 0.0, 0
                for e in range(size):
                    if value[e] < median:
                        less += weight[e]
                        smaller += 1
                    elif not value[e] > median:
                        equal += weight[e]
                down = smaller > 0 and below + less >= half[row]
                if not down:
                    below += less + equal
                    if below >= half[row]:
                        break
                left = 0
                for e in range(size):
                    if (value[e] < median) if down else (value[e] > median):
                        value[left], weight[left] = value[e], weight[e]
                        left += 1
                size = left
            out[row, c] = index[row, 0]
            for slot in range(k):
                if values[row, slot] > 0 and x[index[row, slot], c] == median:
                    out[row, c] = index[row, slot]
                    break


@numba.njit(parallel=True, cache=True)
def _unrank_pairs(number: Array, n: int, u: Array, v: Array) -> None:
    # Numbers mostly ascend, so the row of one is near the row of the next: walk, after a first guess per stretch.
    stretches = (number.size + _STRETCH - 1) // _STRETCH
    for stretch in numba.prange(stretches):
        i = np.int64(0)
        row_start, row_end = np.int64(0), np.int64(n - 1)
        for e in range(stretch * _STRETCH, min((stretch + 1) * _STRETCH, number.size)):
            c = number[e]
            if not row_start <= c < row_end + 4 * n:
                i = np.int64(n - 0.5 - np.sqrt(max((n - 0.5) ** 2 - 2.0 * c, 0.0)))
                i = min(max(i, 0), n - 2)
                row_start = (i * (2 * n - i - 1)) >> 1
                row_end = row_start + n - 1 - i
            while c < row_start:
                i -= 1
                row_end = row_start
                row_start -= n - 1 - i
            while c >= row_end:
                i += 1
                row_start = row_end
                row_end += n - 1 - i
            u[e] = i
            v[e] = c - row_start + i + 1


def _array(tensor: Tensor) -> Array:
    array: Array = tensor.detach().contiguous().numpy()
    return array


def _set_threads(work: int) -> None:
    """As many threads as torch has; one where more would not have woken up.

    The arithmetic of a pair is the same however many pairs and threads there are, and so is its rounding.
    """
    share_with_torch(1 if work < _SMALL else None)
