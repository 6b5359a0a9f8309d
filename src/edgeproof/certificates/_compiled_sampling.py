"""Compiled loops behind :mod:`~edgeproof.certificates.sampling`, a sample per thread."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

Array = np.ndarray[Any, Any]

# Of splitmix64 (Steele, Lea and Flood, 2014): the odd step, and the two multipliers of its finalizer.
STEP, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
# Draws that decide about edges are numbered from here; those before are gaps.
EDGES = 1 << 40


@numba.njit(inline="always")
def _mix64(x: Any) -> Any:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(FIRST)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(SECOND)
    return x ^ (x >> np.uint64(31))


@numba.njit(inline="always")
def _uniform64(stream: Any, draw: int) -> Any:
    return np.float64(_mix64(stream + np.uint64(draw) * np.uint64(STEP)) >> np.uint64(11)) * 2.0**-53


@numba.njit(parallel=True, cache=True)
def draw_pairs(
    edges: Array,
    n: int,
    p_add: float,
    p_del: float,
    seed: int,
    first: int,
    pairs: Array,
    size: Array,
    lower: Array,
    degree: Array,
) -> None:
    """The pairs of every sample, ascending, and how many neighbours each node has, in all and before itself."""
    total = n * (n - 1) // 2
    scale = 1.0 / np.log1p(-p_add) if p_add > 0 else 0.0
    for s in numba.prange(len(size)):
        stream = _mix64(_mix64(seed) + np.uint64(first + s) * np.uint64(STEP))
        draw, edge, found = 0, 0, 0
        added = total if p_add == 0 else -1
        if p_add > 0:
            added = np.int64(np.log1p(-_uniform64(stream, draw)) * scale)
            draw += 1
        # The pair in whose row we are, and the number of the first pair of the next row.
        u, row, row_end = 0, 0, n - 1
        while added < total or edge < len(edges):
            is_edge = edge < len(edges) and edges[edge] <= added
            number = edges[edge] if is_edge else added
            keep = True
            if is_edge:
                keep = _uniform64(stream, EDGES + edge) >= p_del
                edge += 1
            if number == added:
                # Of a pair that is an edge already, the edge decides.
                added += np.int64(np.log1p(-_uniform64(stream, draw)) * scale) + 1
                draw += 1
            if not keep:
                continue
            while number >= row_end:
                u += 1
                row = row_end
                row_end += n - 1 - u
            v = number - row + u + 1
            if found < pairs.shape[1]:
                pairs[s, found, 0], pairs[s, found, 1] = u, v
                degree[s, u] += 1
                degree[s, v] += 1
                lower[s, v] += 1
            found += 1
        size[s] = found


@numba.njit(parallel=True, cache=True)
def fill_rows(pairs: Array, size: Array, n: int, rowptr: Array, diagonal: Array, col: Array) -> None:
    """Columns row by row. Pairs ascend, so each row gets its smaller neighbours first, then itself, then the larger ones."""
    for s in numba.prange(len(size)):
        smaller, larger = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        for e in range(size[s]):
            u, v = pairs[s, e, 0], pairs[s, e, 1]
            at_u, at_v = s * n + u, s * n + v
            col[diagonal[at_u] + 1 + larger[u]] = at_v
            col[rowptr[at_v] + smaller[v]] = at_u
            larger[u] += 1
            smaller[v] += 1
        for node in range(s * n, (s + 1) * n):
            col[diagonal[node]] = node
