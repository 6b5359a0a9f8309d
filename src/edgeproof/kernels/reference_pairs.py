"""Reference kernels that score pairs of nodes and enumerate them."""

from __future__ import annotations

import torch
from torch import Tensor

# Pairs per slice of a gathered dot product: bounds the memory of the gathered rows.
_SLICE = 1 << 18
# Entries of a dense tile of scores.
_TILE = 1 << 22


def gathered_dot(a: Tensor, b: Tensor, left: Tensor, right: Tensor) -> Tensor:
    r"""Return dot products of gathered rows, :math:`s_e = \langle a_{\mathrm{left}(e)}, b_{\mathrm{right}(e)} \rangle`."""
    slices = zip(left.split(_SLICE), right.split(_SLICE), strict=True)
    return torch.cat([(a[i] * b[j]).sum(dim=1) for i, j in slices])


def pair_scores(b: Tensor, h: Tensor, node: Tensor, u: Tensor, v: Tensor) -> Tensor:
    r"""Return the bilinear form :math:`b_u \cdot h_v + h_u \cdot b_v + \delta_u + \delta_v` of each pair.

    Args:
        b: Left factors, shape ``[nodes, channels]``.
        h: Right factors, shape ``[nodes, channels]``.
        node: Node terms :math:`\delta`, shape ``[nodes]``.
        u: First node of each pair, shape ``[pairs]``.
        v: Second node of each pair, shape ``[pairs]``.
    """
    return gathered_dot(b, h, u, v) + gathered_dot(h, b, u, v) + node[u] + node[v]


def table_at(table: Tensor, node: Tensor, u: Tensor, v: Tensor) -> Tensor:
    r"""Return :func:`pair_scores` from a precomputed table of all :math:`b_u \cdot h_v`, shape ``[nodes, nodes]``."""
    return table[u, v] + table[v, u] + node[u] + node[v]


def score_tile(b: Tensor, h: Tensor, node: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    """Return :func:`pair_scores` of all pairs of ``rows`` and ``cols`` as a dense matrix."""
    row_term, col_term = node[rows][:, None], node[cols][:, None]
    # The node terms are two more channels.
    left = torch.cat([b[rows], h[rows], row_term, torch.ones_like(row_term)], dim=1)
    return left @ torch.cat([h[cols], b[cols], torch.ones_like(col_term), col_term], dim=1).T


def pairs_above(b: Tensor, h: Tensor, node: Tensor, threshold: Tensor, capacity: int) -> tuple[Tensor, int]:
    """Return the keys ``u * nodes + v`` of all pairs whose :func:`pair_scores` exceeds a threshold, in any order.

    Args:
        b: Left factors, shape ``[nodes, channels]``.
        h: Right factors, shape ``[nodes, channels]``.
        node: Node terms, shape ``[nodes]``.
        threshold: Threshold, shape ``[1]``.
        capacity: Maximum number of keys to return.

    Returns:
        The keys and their number. If the number exceeds ``capacity``, the keys are incomplete.
    """
    nodes = torch.arange(b.size(0), device=b.device)
    keys: list[Tensor] = []
    count = 0
    size = max(1, _TILE // b.size(0))
    for start in range(0, b.size(0), size):
        rows, cols = nodes[start : start + size], nodes[start:]
        i, j = (score_tile(b, h, node, rows, cols) > threshold).triu_(diagonal=1).nonzero(as_tuple=True)
        count += i.numel()
        if count <= capacity:
            keys.append(rows[i] * b.size(0) + cols[j])
    return torch.cat(keys) if keys else nodes[:0], count


def unrank_pairs(index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Return the two nodes of each pair, given its index.

    Pairs ``u < v`` are indexed from 0 to ``num_nodes * (num_nodes - 1) / 2 - 1`` in lexicographic order.
    """
    n = num_nodes
    u = (n - 0.5 - ((n - 0.5) ** 2 - 2 * index.double()).clamp(min=0).sqrt()).long().clamp(0, n - 2)
    # The root can be off by one in floating point.
    u = u - (u * (2 * n - u - 1) // 2 > index).long()
    u = u + ((u + 1) * (2 * n - u - 2) // 2 <= index).long()
    return u, index - u * (2 * n - u - 1) // 2 + u + 1
