"""Compiled CPU loops of the greedy selection in the paper's Algorithm 1, which sort only the values they examine."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

Array = np.ndarray[Any, Any]

# The bucket of a value is the upper bits of its float32 form: ascending for positive values, negative for negative ones.
_SHIFT = 14
BUCKETS = 1 << (31 - _SHIFT)


@numba.njit(cache=True)
def cost_of(value: float, unit: int, whole: bool) -> int:
    """Return the integer cost of a positive value, rounded up."""
    return unit if whole else np.int64(np.ceil(min(np.float64(value), 1.0) * unit))


@numba.njit(cache=True)
def count(bits: Array, counts: Array) -> None:
    """Count the values in each bucket, given the bits of their float32 form.

    Negative values are counted in the last element: branching on their unpredictable sign would be slower.
    """
    for e in range(bits.size):
        counts[max(bits[e] >> _SHIFT, -1)] += 1


@numba.njit(cache=True)
def lowest_bucket(counts: Array, high: int, num_values: int) -> int:
    """Return the lowest of the buckets just below ``high`` that together hold ``num_values`` values; at least 0."""
    bucket = high
    while bucket > 0 and num_values > 0:
        bucket -= 1
        num_values -= counts[bucket]
    return bucket


@numba.njit(cache=True)
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

    A value that does not fit at its nodes when its bucket is reached never will, and need not be sorted. The first value that
    exceeds what remains of the total budget ends the selection, whether or not it fits at its nodes. Values descend, so this
    can only be the successor of a selected value, and only if less remains than that value cost.

    Returns:
        What remains of the total budget; -1 if the selection ended.
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


@numba.njit(cache=True)
def _successor(values: Array, at: int) -> float:
    """Return the value after the one at ``at`` in stable descending order; 0 if it is not positive."""
    largest = 0.0
    for e in range(values.size):
        value = values[e]
        if value > largest and (value < values[at] or (value == values[at] and e > at)):
            largest = value
    return largest
