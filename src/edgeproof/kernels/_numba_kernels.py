"""Compiled CPU loops: pairs, thresholds, medians, sorted lists, and the greedy selection of the paper's Algorithm 1."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from edgeproof.kernels._compile import compiled

Array = np.ndarray[Any, Any]

# Consecutive pair indices handled by one thread.
_STRETCH = 4096
# Values summed by one thread: independent of the number of threads, and so are the sums.
_PART = 1 << 15
# The bucket of a value is the upper bits of its float32 form: ascending for positive values, negative for negative ones.
_SHIFT = 14
BUCKETS = 1 << (31 - _SHIFT)


@compiled(parallel=True, fastmath=True)
def gathered_dot(a: Array, b: Array, left: Array, right: Array, out: Array) -> None:
    for e in numba.prange(left.size):
        i, j = left[e], right[e]
        total = a[i, 0] * b[j, 0]
        for c in range(1, a.shape[1]):
            total += a[i, c] * b[j, c]
        out[e] = total


@compiled(parallel=True, fastmath=True)
def pair_scores(b: Array, h: Array, node: Array, u: Array, v: Array, out: Array) -> None:
    for e in numba.prange(u.size):
        i, j = u[e], v[e]
        total = node[i] + node[j]
        for c in range(b.shape[1]):
            total += b[i, c] * h[j, c] + h[i, c] * b[j, c]
        out[e] = total


@compiled(parallel=True)
def unrank_pairs(index: Array, n: int, u: Array, v: Array) -> None:
    # Indices are mostly ascending: guess the row once per stretch, then move to neighbouring rows.
    stretches = (index.size + _STRETCH - 1) // _STRETCH
    for stretch in numba.prange(stretches):
        i = np.int64(0)
        row_start, row_end = np.int64(0), np.int64(n - 1)
        for e in range(stretch * _STRETCH, min((stretch + 1) * _STRETCH, index.size)):
            c = index[e]
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


@compiled(parallel=True)
def weighted_median(x: Array, values: Array, index: Array, half: Array, out: Array) -> None:
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
            # Quickselect: discard one side of a pivot, with its total weight, until the pivot is the median.
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


@compiled()
def merge(few: Array, many: Array, merged: Array, position: Array) -> int:
    size = taken = 0
    for number in many:
        while taken < few.size and few[taken] <= number:
            merged[size] = few[taken]
            position[taken] = size
            size += 1
            taken += 1
        if taken == 0 or few[taken - 1] != number:
            merged[size] = number
            size += 1
    while taken < few.size:
        merged[size] = few[taken]
        position[taken] = size
        size += 1
        taken += 1
    return size


@compiled()
def last_below(thresholds: Array, value: float, per_unit: float) -> int:
    """Return the position of the last of the ascending thresholds below ``value``, which exceeds the first one.

    The thresholds are nearly equally spaced, ``per_unit`` of them per unit, so the first guess is nearly exact.
    """
    guess = (value - thresholds[0]) * per_unit
    # Comparisons with NaN are false.
    last = int(guess) if guess < thresholds.size - 1 else thresholds.size - 1
    while last + 1 < thresholds.size and thresholds[last + 1] < value:
        last += 1
    while last > 0 and thresholds[last] >= value:
        last -= 1
    return last


@compiled(parallel=True)
def clipped_sums(values: Array, thresholds: Array) -> Array:
    """Return the sum of min(max(value - t, 0), 1) for each threshold t, from a histogram over the thresholds."""
    parts = (values.size + _PART - 1) // _PART
    width = thresholds[-1] - thresholds[0]
    per_unit = (thresholds.size - 1) / width if width > 0 else 0.0
    # Per bin: number and sum of the values above t, and of the values minus 1 above t.
    bins = np.zeros((parts, 4, thresholds.size))
    for part in numba.prange(parts):
        for e in range(part * _PART, min((part + 1) * _PART, values.size)):
            value = np.float64(values[e])
            if value > thresholds[0]:
                last = last_below(thresholds, value, per_unit)
                bins[part, 0, last] += 1
                bins[part, 1, last] += value
                if value - 1 > thresholds[0]:
                    last = last_below(thresholds, value - 1, per_unit)
                    bins[part, 2, last] += 1
                    bins[part, 3, last] += value - 1
    sums = np.zeros(thresholds.size)
    count = total = count_beyond = total_beyond = 0.0
    for t in range(thresholds.size - 1, -1, -1):
        for part in range(parts):
            count += bins[part, 0, t]
            total += bins[part, 1, t]
            count_beyond += bins[part, 2, t]
            total_beyond += bins[part, 3, t]
        sums[t] = (total - count * thresholds[t]) - (total_beyond - count_beyond * thresholds[t])
    return sums


@compiled()
def cost_of(value: float, unit: int, whole: bool) -> int:
    """Return the integer cost of a positive value, rounded up."""
    return unit if whole else np.int64(np.ceil(min(np.float64(value), 1.0) * unit))


@compiled()
def count(bits: Array, counts: Array) -> None:
    """Count the values in each bucket, given the bits of their float32 form.

    Negative values are counted in the last element: branching on their unpredictable sign would be slower.
    """
    for e in range(bits.size):
        counts[max(bits[e] >> _SHIFT, -1)] += 1


@compiled()
def lowest_bucket(counts: Array, high: int, num_values: int) -> int:
    """Return the lowest of the buckets just below ``high`` that together hold ``num_values`` values; at least 0."""
    bucket = high
    while bucket > 0 and num_values > 0:
        bucket -= 1
        num_values -= counts[bucket]
    return bucket


@compiled()
def take(
    values: Array,
    bits: Array,
    counts: Array,
    low: int,
    high: int,
    u: Array,
    v: Array,
    room: Array,
    left: int,
    unit: int,
    whole: bool,
    taken: Array,
) -> int:
    """Select from the values in the buckets from ``low`` to below ``high``, after all higher buckets.

    A value that exceeds the budget of a node when its bucket is reached exceeds it later, too, and need not be sorted. The
    first value that exceeds the remaining total budget ends the selection, whether or not it fits at its nodes. Values
    descend, so this can only be the successor of a selected value, and only if the remaining budget is less than the cost of
    that value.

    Returns:
        The remaining total budget; -1 if the selection ended.
    """
    begin = np.empty(high - low, dtype=np.int64)
    total = 0
    for bucket in range(high - 1, low - 1, -1):
        begin[bucket - low] = total
        total += counts[bucket]
    end, slots = begin.copy(), np.empty(total, dtype=np.int64)
    for e in range(values.size):
        bucket = bits[e] >> _SHIFT
        if low <= bucket < high:
            slots[end[bucket - low]] = e
            end[bucket - low] += 1
    for bucket in range(high - 1, low - 1, -1):
        first = fits = begin[bucket - low]
        for slot in range(first, end[bucket - low]):
            e = slots[slot]
            cost = cost_of(values[e], unit, whole)
            if values[e] > 0 and room[u[e]] >= cost and room[v[e]] >= cost:
                slots[fits] = e
                fits += 1
        if fits == first:
            continue
        candidates = slots[first:fits]
        for i in np.argsort(-values[candidates], kind="mergesort"):
            e = candidates[i]
            cost = cost_of(values[e], unit, whole)
            if room[u[e]] < cost or room[v[e]] < cost:
                continue
            taken[e] = True
            left -= cost
            room[u[e]] -= cost
            room[v[e]] -= cost
            if left < cost:
                successor = _successor(values, e)
                if successor <= 0 or cost_of(successor, unit, whole) > left:
                    return -1
    return left


@compiled()
def _successor(values: Array, at: int) -> float:
    """Return the value after the one at ``at`` in stable descending order; 0 if it is not positive."""
    largest = 0.0
    for e in range(values.size):
        value = values[e]
        if value > largest and (value < values[at] or (value == values[at] and e > at)):
            largest = value
    return largest
