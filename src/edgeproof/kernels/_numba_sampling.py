"""Compiled CPU loops that sample random graphs, one sample per thread."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from edgeproof.kernels._compile import compiled
from edgeproof.kernels.reference_sampling import FIRST_EDGE_DRAW, MULTIPLIER_1, MULTIPLIER_2, STEP

Array = np.ndarray[Any, Any]


@numba.njit(inline="always")
def _mix64(x: Any) -> Any:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(MULTIPLIER_1)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(MULTIPLIER_2)
    return x ^ (x >> np.uint64(31))


@numba.njit(inline="always")
def _uniform64(stream: Any, draw: int) -> Any:
    return np.float64(_mix64(stream + np.uint64(draw) * np.uint64(STEP)) >> np.uint64(11)) * 2.0**-53


@compiled(parallel=True)
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
    """Draw the pairs of every sample in ascending order, and count each node's neighbours and smaller neighbours.

    Args:
        edges: Pair index of each edge, ascending.
        n: Number of nodes.
        p_add: Probability of adding a pair.
        p_del: Probability of deleting an edge.
        seed: Seed, uint64.
        first: Number of the first sample.
        pairs: Output, shape ``[samples, capacity, 2]``.
        size: Output, number of pairs of each sample; the pairs are incomplete if it exceeds the capacity.
        lower: Zeros; output, number of smaller neighbours, shape ``[samples, nodes]``.
        degree: Zeros; output, number of neighbours, shape ``[samples, nodes]``.
    """
    total = n * (n - 1) // 2
    scale = 1.0 / np.log1p(-p_add) if p_add > 0 else 0.0
    for s in numba.prange(len(size)):
        stream = _mix64(_mix64(seed) + np.uint64(first + s) * np.uint64(STEP))
        draw, edge, count = 0, 0, 0
        added = total if p_add == 0 else -1
        if p_add > 0:
            added = np.int64(np.log1p(-_uniform64(stream, draw)) * scale)
            draw += 1
        # Row of the current pair, and pair indices at which this row and the next one start.
        u, row, row_end = 0, 0, n - 1
        while added < total or edge < len(edges):
            is_edge = edge < len(edges) and edges[edge] <= added
            index = edges[edge] if is_edge else added
            keep = True
            if is_edge:
                keep = _uniform64(stream, FIRST_EDGE_DRAW + edge) >= p_del
                edge += 1
            if index == added:
                # If the added pair is an edge, only the draw of the edge counts.
                added += np.int64(np.log1p(-_uniform64(stream, draw)) * scale) + 1
                draw += 1
            if not keep:
                continue
            while index >= row_end:
                u += 1
                row = row_end
                row_end += n - 1 - u
            v = index - row + u + 1
            if count < pairs.shape[1]:
                pairs[s, count, 0], pairs[s, count, 1] = u, v
                degree[s, u] += 1
                degree[s, v] += 1
                lower[s, v] += 1
            count += 1
        size[s] = count


@compiled(parallel=True)
def fill_rows(pairs: Array, size: Array, n: int, rowptr: Array, diagonal: Array, col: Array) -> None:
    """Write the columns of every row. Pairs ascend, so the smaller and the larger neighbours of a row are each in order."""
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
