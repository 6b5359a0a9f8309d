"""Loops for the CPU that take the largest values that fit: the paper's Algorithm 1, without sorting what is never looked at."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

Array = np.ndarray[Any, Any]

# Values are first put into buckets, by the upper bits of their single-precision form: those of positive ones ascend with them,
# and those of negative ones are below 0.
_SHIFT = 14
BUCKETS = 1 << (31 - _SHIFT)


@numba.njit(cache=True)
def size_of(value: float, unit: int, whole: bool) -> int:
    """How much room a value above 0 takes, in whole numbers, rounded up."""
    return unit if whole else np.int64(np.ceil(min(np.float64(value), 1.0) * unit))


@numba.njit(cache=True)
def count(bits: Array, counts: Array) -> None:
    """How many values there are in each bucket, by the bits of their single-precision form.

    Values below 0 are counted behind all others: a branch on their sign, which nobody can foresee, would take longer.
    """
    for e in range(bits.size):
        counts[max(bits[e] >> _SHIFT, -1)] += 1


@numba.njit(cache=True)
def lowest_bucket(counts: Array, high: int, wanted: int) -> int:
    """The bucket down to which there are so many values, from below another one on; 0 if there are fewer."""
    bucket = high
    while bucket > 0 and wanted > 0:
        bucket -= 1
        wanted -= counts[bucket]
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
    """Take what fits of the values in the buckets from ``low`` to below ``high``, those above having been looked at.

    A value that does not fit at its ends when its bucket comes up never will, and need not be sorted. The first value that does
    not fit into the common box ends it all, whether or not its ends have room. Values descend, so this can only be the one
    behind a value that was taken, and only where less is left than that one took.

    Returns:
        What is left in the common box; -1 if it has ended it.
    """
    begin = np.empty(high - low, dtype=np.int64)
    total = 0
    for bucket in range(high - 1, low - 1, -1):
        begin[bucket - low] = total
        total += counts[bucket]
    end, places = begin.copy(), np.empty(total, dtype=np.int64)
    for e in range(values.size):
        bucket = bits[e] >> _SHIFT
        if low <= bucket < high:
            places[end[bucket - low]] = e
            end[bucket - low] += 1
    for bucket in range(high - 1, low - 1, -1):
        first = fits = begin[bucket - low]
        for place in range(first, end[bucket - low]):
            e = places[place]
            size = size_of(values[e], unit, whole)
            if values[e] > 0 and room[u[e]] >= size and room[v[e]] >= size:
                places[fits] = e
                fits += 1
        if fits == first:
            continue
        candidates = places[first:fits]
        for i in np.argsort(-values[candidates], kind="mergesort"):
            e = candidates[i]
            size = size_of(values[e], unit, whole)
            if room[u[e]] < size or room[v[e]] < size:
                continue
            taken[e] = True
            left -= size
            room[u[e]] -= size
            room[v[e]] -= size
            if left < size:
                behind = _behind(values, e)
                if behind <= 0 or size_of(behind, unit, whole) > left:
                    return -1
    return left


@numba.njit(cache=True)
def _behind(values: Array, at: int) -> float:
    """The value behind one in descending order, equal ones in their own order; 0 if there is none above 0."""
    largest = 0.0
    for e in range(values.size):
        value = values[e]
        if value > largest and (value < values[at] or (value == values[at] and e > at)):
            largest = value
    return largest
