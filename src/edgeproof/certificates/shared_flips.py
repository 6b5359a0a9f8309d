r"""Upper bounds on the number of nodes of a one-hop model that one budget can misclassify together.

A flip counts once in the global budget, and helps an attack at its two ends. :func:`most_lost_by_count` lets every flip count
fully at both ends. :func:`most_lost_by_program` knows which pairs of nodes help at which end, and how much.

**Weights.** Let node :math:`v` have the gap :math:`F = f_{vy} - f_{vc}`, the gate :math:`g`, the degree :math:`D` and the sum
:math:`T`. After :math:`a` additions and :math:`d` deletions it is misclassified as :math:`c` only if

.. math::
    F (D + a - d) + g (T - \sum_{\text{deleted}} t_u + \sum_{\text{added}} t_u) \le 0

for :math:`F > 0`, because the denominator is at least the degree; for :math:`F \le 0` only if this holds with :math:`D + k` in
place of :math:`D`. So the flips need a total weight of at least the left-hand side without flips, where an addition has the
weight :math:`-(g t_u + F)` and a deletion :math:`g t_u + F`. Divided by that left-hand side, flips need a total weight of 1.
With the largest weight over all classes :math:`c`, the condition is necessary for every misclassification. For :math:`k = 1`,
flips of negative weight can be left out, and the node is still misclassified.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.optimize import linprog
from scipy.sparse import coo_matrix
from torch import Tensor

from edgeproof.propagation.one_hop import OneHopWorstCase

# A node's own flips are bounded one by one up to this multiple of its fewest flips; further ones have the last weight.
_SEGMENTS = 3
# Rounding error of the optimum.
_ROUNDING = 1e-6
# Added to all weights, so that flips without any effect count as useful.
_TIES = 1e-9

Array = np.ndarray[Any, Any]


def most_lost_by_count(fewest: Tensor, total: int) -> int:
    r"""Return the largest number of nodes with :math:`\sum_v k_v \le 2 \Delta`, where every flip counts at both ends.

    Args:
        fewest: Fewest flips :math:`k_v` of each node that can be misclassified, at least 1.
        total: Global budget :math:`\Delta`.

    >>> most_lost_by_count(torch.tensor([1, 3, 1, 2]), 2)
    3
    """
    capacity = 2 * total if fewest.numel() > 1 else total
    return int((fewest.sort().values.cumsum(0) <= capacity).sum())


def most_lost_by_program(search: OneHopWorstCase, fewest: Tensor, most: Tensor, total: int, threshold: Tensor) -> int:
    r"""Return an upper bound on the number of lost nodes by a linear program; at most :func:`most_lost_by_count`.

    With :math:`x_v \in [0, 1]` for a lost node, :math:`y_{uv} \in [0, 1]` for a flip between two examined nodes and
    :math:`z_{vi} \in [0, 1]` for the :math:`i`-th best flip to any other node,

    .. math::
        \max \sum_v x_v \quad \text{s.t.} \quad
        \sum_u y_{uv} + \sum_i z_{vi} \ge k_v x_v, \quad
        \sum_u w_{vu} y_{uv} + \sum_i w_{vi} z_{vi} \ge x_v, \quad
        \sum_u y_{uv} + \sum_i z_{vi} \le b_v, \quad
        \sum y + \sum z \le \Delta.

    Every set of flips within the budget gives a feasible point, so the optimum is an upper bound. The number of variables grows
    with the square of the number of nodes: meant for a few hundred of them.

    Args:
        search: Worst flips at exactly the nodes that can be misclassified.
        fewest: Fewest flips :math:`k_v` of each of them, at least 1.
        most: Budget :math:`b_v` of each of them.
        total: Global budget :math:`\Delta`.
        threshold: Margin at which each node counts as misclassified.
    """
    by_count, num_lost = most_lost_by_count(fewest, total), fewest.numel()
    if by_count == 0:
        return 0
    weight = _weights(search, threshold)
    k, b = fewest.cpu().numpy(), most.cpu().numpy()
    inside = weight[:, search.nodes.cpu().numpy()]
    # With k > 1, flips without weight may still be needed, so all pairs count at both ends.
    mutual = (inside > 0) & (inside.T > 0) if search.terms.least == 1 else ~np.eye(num_lost, dtype=bool)
    outside = weight.copy()
    outside[:, search.nodes.cpu().numpy()] = np.where(mutual, 0, inside)
    first, second = np.nonzero(np.triu(mutual, 1))
    owner, own_weight, own_limit = _own_flips(outside, k, b)
    num_shared, num_own = first.size, owner.size
    # Variables: x, then y, then z. Rows: counts, weights, budgets of nodes, the global budget.
    x, y = np.arange(num_lost), num_lost + np.arange(num_shared)
    z = num_lost + num_shared + np.arange(num_own)
    ones, node = np.ones(num_shared), np.arange(num_lost)
    entries = [
        (node, x, k.astype(float)),
        (first, y, -ones),
        (second, y, -ones),
        (owner, z, -np.ones(num_own)),
        (num_lost + node, x, np.ones(num_lost)),
        (num_lost + first, y, -inside[first, second]),
        (num_lost + second, y, -inside[second, first]),
        (num_lost + owner, z, -own_weight),
        (2 * num_lost + first, y, ones),
        (2 * num_lost + second, y, ones),
        (2 * num_lost + owner, z, np.ones(num_own)),
        (np.full(num_shared, 3 * num_lost), y, ones),
        (np.full(num_own, 3 * num_lost), z, np.ones(num_own)),
    ]
    rows, columns, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    size = num_lost + num_shared + num_own
    matrix = coo_matrix((values, (rows, columns)), shape=(3 * num_lost + 1, size)).tocsr()
    right = np.concatenate([np.zeros(2 * num_lost), b.astype(float), [float(total)]])
    upper = np.concatenate([np.ones(num_lost + num_shared), own_limit])
    cost = np.zeros(size)
    cost[:num_lost] = -1
    found = linprog(cost, A_ub=matrix, b_ub=right, bounds=np.stack([np.zeros(size), upper], axis=1), method="highs")
    # Without an optimum, for example after an interrupt of the solver, the other bound holds.
    return by_count if found.status != 0 else min(by_count, int(np.floor(-found.fun + _ROUNDING)))


def _weights(search: OneHopWorstCase, threshold: Tensor) -> Array:
    """Return the largest weight over classes of flipping each node with each other one, shape ``[t, nodes]``.

    A weight of 1 or more suffices alone, so larger ones are cut. Nodes with a class that needs no weight get 1 everywhere.
    """
    terms, neighbors = search.terms, search.neighbors
    result = terms.own.new_zeros(search.nodes.numel(), terms.own.size(0))
    everyone = torch.arange(terms.own.size(0), device=result.device)
    for row, (node, label) in enumerate(zip(search.nodes, search.labels, strict=True)):
        gap = terms.own[node, label] - terms.own[node] - threshold[row]
        gain = terms.gate[node] * (terms.message[:, label, None] - terms.message)
        is_neighbor = neighbors.contain(node, everyone)
        degree = neighbors.degree[node] + torch.where(gap > 0, 0, terms.least)
        needed = gap * degree + gain[is_neighbor].sum(dim=0)
        weight = torch.where(is_neighbor[:, None], 1, -1) * (gain + gap)
        other = torch.arange(gap.numel(), device=gap.device) != label
        weight = torch.where(needed > 0, weight / needed.clamp(min=torch.finfo(needed.dtype).tiny), 1.0)
        result[row] = (torch.where(other, weight, -torch.inf).amax(dim=1) + _TIES).clamp(0, 1)
        result[row, node] = 0
    return torch.where(search.permitted, result, 0.0).cpu().numpy()


def _own_flips(outside: Array, k: Array, b: Array) -> tuple[Array, Array, Array]:
    """Return the flips of each node to nodes that they do not help: node, weight, and how often they may be used."""
    owner, weight, limit = [], [], []
    for node, row in enumerate(outside):
        useful = -np.sort(-row[row > 0])
        best = useful[: _SEGMENTS * int(k[node])]
        number = np.ones(best.size)
        if best.size < useful.size:
            # All further flips have at most the last weight.
            number[-1] = b[node]
        owner.append(np.full(best.size, node))
        weight.append(best)
        limit.append(number)
    return np.concatenate(owner), np.concatenate(weight), np.concatenate(limit)
