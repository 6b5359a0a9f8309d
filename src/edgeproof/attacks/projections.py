"""Projections of relaxed flips onto a budget.

All functions are pure and keep tensors on their device. ``project_global_reference`` and ``project_local_reference`` are the
algorithms as stated in the paper, line by line; ``project_global`` and ``project_local`` compute the same with fast kernels
(:mod:`edgeproof.kernels`); the ``_nosync`` forms are for recorded CUDA graphs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from edgeproof._checks import check_pairs
from edgeproof.budget import Budget
from edgeproof.kernels import dispatch, threshold_search
from edgeproof.kernels.reference_greedy import cost_of, take_in_order
from edgeproof.propagation.pairs import Pairs

# The local projection counts in steps of 2**-36: sums of integers are the same in any order, on any device.
_UNIT = 1 << 36
# Bisection steps of the projection with costs: as many as double precision has bits.
_BISECTIONS = 64


def project_global_reference(p: Tensor, budget: float) -> Tensor:
    """:func:`project_global` by bisection (the paper, section 4), in double precision.

    >>> project_global_reference(torch.tensor([0.9, 0.8, -0.3]), 1.0)
    tensor([0.5500, 0.4500, 0.0000], dtype=torch.float64)
    """
    p = p.double()
    low, high = 0.0, max(float(p.max()), 0.0)
    if float(p.clamp(0, 1).sum()) <= budget:
        return p.clamp(0, 1)
    for _ in range(100):
        middle = (low + high) / 2
        if float((p - middle).clamp(0, 1).sum()) > budget:
            low = middle
        else:
            high = middle
    return (p - high).clamp(0, 1)


def project_local_reference(s: Tensor, pairs: Tensor, budget: Budget) -> Tensor:
    """:func:`project_local` as printed: Algorithm 1 of the paper, line by line, in double precision.

    >>> pairs = torch.tensor([[0, 0, 1], [1, 2, 2]])
    >>> project_local_reference(torch.tensor([1.5, 0.9, 0.4]), pairs, Budget(2, torch.tensor([1, 2, 1])))
    tensor([1.0000, 0.0000, 0.4000], dtype=torch.float64)
    """
    total = float(budget.total)
    local = [total] * _num_nodes(pairs) if budget.local is None else budget.local.double().tolist()
    p = torch.zeros_like(s, dtype=torch.float64)  # P <- 0
    s_hat = s.double().clamp(0, 1)  # S_hat <- Pi_[0,1](S)
    order = s.argsort(descending=True, stable=True)  # idx <- argsort(triu(S), 'desc', 'indices')
    for i in order.tolist():  # for (u, v) in idx do
        u, v, value = int(pairs[0, i]), int(pairs[1, i]), float(s_hat[i])
        if value == 0 or total - value < 0:  # if S_hat_uv = 0 or Delta - S_hat_uv < 0 then
            return p  # return
        room = min(total, local[u], local[v])  # Delta_uv <- min(Delta, Delta_u, Delta_v)
        if room >= value:  # if Delta_uv >= S_hat_uv then
            p[i] = value  # P_uv <- S_hat_uv
            total -= value  # Delta <- Delta - S_hat_uv
            local[u] -= value  # Delta_u <- Delta_u - S_hat_uv
            local[v] -= value  # Delta_v <- Delta_v - S_hat_uv
    return p


def project_global(p: Tensor, budget: float) -> Tensor:
    r"""Project onto the box [0, 1] with a bounded sum (Euclidean projection).

    .. math::
        \Pi(p) = \arg\min_x \lVert x - p \rVert^2 \quad\text{s.t.}\quad \sum_i x_i \le \Delta,\; 0 \le x_i \le 1.

    The solution is :math:`x_i = \min(\max(p_i - \lambda, 0), 1)` with the smallest :math:`\lambda \ge 0` that keeps the
    budget; :mod:`edgeproof.kernels.threshold_search` finds it.

    Args:
        p: Values of at most :math:`2^{30}`, shape ``[b]``.
        budget: Maximum sum :math:`\Delta \ge 0`.

    >>> project_global(torch.tensor([0.9, 0.8, -0.3]), 1.0)
    tensor([0.5500, 0.4500, 0.0000])
    """
    if not budget >= 0:
        raise ValueError(f"expected a budget >= 0, got {budget}")
    if not p.is_floating_point():
        raise ValueError(f"expected floating-point values, got {p.dtype}")
    if not p.numel():
        return p.clone()
    largest = p.detach().amax()
    if not bool(largest < torch.inf):
        raise ValueError(f"expected finite values, got {float(largest)}")
    if bool(largest > threshold_search.MAX_VALUE):
        raise ValueError(
            f"expected values of at most {threshold_search.MAX_VALUE:g} to project, got {float(largest):g}"
        )
    limit = torch.full((1,), float(budget), dtype=torch.float64, device=p.device)
    ends = threshold_search.bracket(p.detach(), limit, largest)
    return threshold_search.subtract_threshold(p, ends, limit, largest)


def project_global_costs(p: Tensor, cost: Tensor, budget: float) -> Tensor:
    r"""Project onto the box [0, 1] with a bounded sum of costs (Euclidean projection).

    .. math::
        \Pi(p) = \arg\min_x \lVert x - p \rVert^2 \quad\text{s.t.}\quad \sum_i c_i x_i \le \Delta,\; 0 \le x_i \le 1.

    The solution is :math:`x_i = \min(\max(p_i - \lambda c_i, 0), 1)` with the smallest :math:`\lambda \ge 0` that keeps the
    budget, found by bisection in double precision.

    Args:
        p: Finite values, shape ``[b]``.
        cost: Positive cost :math:`c` of each value, shape ``[b]``.
        budget: Maximum sum of costs :math:`\Delta \ge 0`.

    >>> project_global_costs(torch.tensor([0.9, 0.8, -0.3]), torch.tensor([1, 2, 1]), 1.0)
    tensor([0.6000, 0.2000, 0.0000])
    """
    if not budget >= 0:
        raise ValueError(f"expected a budget >= 0, got {budget}")
    if not bool(p.isfinite().all()):
        raise ValueError("expected finite values to project")
    positive = (p > 0).nonzero().squeeze(1)
    values, weights = p[positive].double(), cost[positive].double()
    if float((values.clamp(max=1) * weights).sum()) <= budget:
        return p.clamp(0, 1)
    low, high = values.new_zeros(()), (values / weights).amax()
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        exceeds = ((values - middle * weights).clamp(0, 1) * weights).sum() > budget
        low, high = torch.where(exceeds, middle, low), torch.where(exceeds, high, middle)
    projected = (values - high * weights).clamp(0, 1)
    return torch.zeros_like(p).index_copy_(0, positive, projected.to(p.dtype))


def project_global_nosync(p: Tensor, budget: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`project_global` without a host-device sync.

    Args:
        p: Values, shape ``[b]``, at least one.
        budget: Maximum sum >= 0 in float64, shape ``[1]``.

    Returns:
        The projection, and whether it is valid: no value is NaN, infinite or too large.
    """
    p = p.detach()
    largest = p.amax()
    valid = largest <= threshold_search.MAX_VALUE
    ends = threshold_search.bracket(p, budget, torch.where(valid, largest, 1.0))
    return threshold_search.subtract_threshold_nosync(p, ends, budget, largest), valid


def project_local(p: Tensor, pairs: Pairs | Tensor, budget: Budget) -> Tensor:
    r"""Project onto a global budget and local budgets with the greedy heuristic of the paper (Algorithm 1).

    The heuristic approximates the knapsack problem

    .. math::
        \max_{S \subseteq \text{pairs}} \sum_{(u,v) \in S} \hat p_{uv} \quad\text{s.t.}\quad
        \sum_{(u,v) \in S} \hat p_{uv} \le \Delta, \quad \sum_{v : (u,v) \in S} \hat p_{uv} \le \Delta^{(l)}_u
        \;\text{ for all } u, \quad \hat p = \min(\max(p, 0), 1),

    and either keeps :math:`\hat p_{uv}` or sets it to 0. Pairs are visited in descending order of :math:`p`, ties in their
    given order, until one does not fit into the remaining global budget. Time :math:`O(b \log b)`. Values are counted in
    steps of :math:`2^{-36}`, rounded up. With costs, values count with their costs, pairs are visited in descending order of
    :math:`p` per cost, and those that do not fit are skipped.

    Args:
        p: Finite values, shape ``[b]``.
        pairs: Pair of each value, as :class:`~edgeproof.propagation.pairs.Pairs` or a tensor of shape ``[2, b]``.
        budget: Global budget, and local budgets if any.

    >>> pairs = torch.tensor([[0, 0, 1], [1, 2, 2]])
    >>> project_local(torch.tensor([1.5, 0.9, 0.4]), pairs, Budget(2, torch.tensor([1, 2, 1])))
    tensor([1.0000, 0.0000, 0.4000])
    """
    kept = _greedy_mask(p[None], pairs, budget, whole=False)[0]
    return p.clamp(0, 1) * kept


def project_local_nosync(p: Tensor, pairs: Pairs, total: Tensor, local: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`project_local` without a host-device sync.

    Args:
        p: Values, shape ``[b]``, at least one.
        pairs: Pair of each value.
        total: Global budget from :func:`fixed_point_budget`.
        local: Local budgets from :func:`fixed_point_budget`.

    Returns:
        The projection, and whether it is valid: all values are finite.
    """
    (kept,), finite = dispatch.take_largest(p[None], pairs.u, pairs.v, total, local, _UNIT, whole=False)
    return p.clamp(0, 1) * kept, finite


def fixed_point_budget(budget: Budget, num_nodes: int, num_pairs: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Convert a budget to the fixed-point steps of :func:`project_local`.

    Args:
        budget: The budget.
        num_nodes: Number of nodes of the graph.
        num_pairs: Number of pairs to project, an upper bound on the number of flips.
        device: Device of the result.

    Returns:
        The global budget, shape ``[1]``, and the local budgets, shape ``[nodes]``.
    """
    total = min(budget.total, num_pairs)
    if total > torch.iinfo(torch.long).max // _UNIT:
        raise ValueError(f"expected a budget that fits 64-bit fixed-point sums, got {budget.total} flips")
    local = torch.full((num_nodes,), total, device=device) if budget.local is None else budget.local.clamp(max=total)
    return torch.full((1,), total * _UNIT, device=device), local * _UNIT


def discretize(p: Tensor, pairs: Pairs | Tensor, budget: Budget) -> Tensor:
    r"""Choose at most :math:`\Delta` discrete flips: those of largest ``p > 0`` that fit the budget.

    Greedy like :func:`project_local`, but every pair has weight 1. Without local budgets and costs, the result is exact: the
    :math:`\Delta` largest values. Pairs that the budget's constraints do not permit are never chosen.

    Args:
        p: Finite values, shape ``[b]``.
        pairs: Pair of each value, as :class:`~edgeproof.propagation.pairs.Pairs` or a tensor of shape ``[2, b]``.
        budget: Global budget, and local budgets if any.

    Returns:
        Positions in ``p``, ascending.

    >>> pairs = torch.tensor([[0, 0, 1], [1, 2, 2]])
    >>> discretize(torch.tensor([0.5, 0.9, 0.4]), pairs, Budget(2, torch.tensor([1, 2, 2])))
    tensor([1, 2])
    """
    return discretize_rows(p[None], pairs, budget)[0]


def discretize_rows(p: Tensor, pairs: Pairs | Tensor, budget: Budget) -> list[Tensor]:
    """Apply :func:`discretize` to every row of ``p``, shape ``[rows, b]``, without a host-device sync per row."""
    if budget.permitted is not None:
        both = pairs.both if isinstance(pairs, Pairs) else pairs
        p = torch.where(budget.permits(both), p, torch.zeros_like(p))
    kept = _greedy_mask(p, pairs, budget, whole=True)
    return list(kept.nonzero()[:, 1].split(kept.sum(dim=1).tolist()))


def _greedy_mask(p: Tensor, pairs: Pairs | Tensor, budget: Budget, *, whole: bool) -> Tensor:
    """Return the mask of pairs that Algorithm 1 keeps, for every row; with ``whole``, every pair has weight 1."""
    if not p.is_floating_point():
        raise ValueError(f"expected floating-point values, got {p.dtype}")
    if isinstance(pairs, Pairs):
        u, v, num_nodes = pairs.u, pairs.v, pairs.num_nodes
    else:
        num_nodes = _num_nodes(pairs) if budget.local is None else budget.local.numel()
        check_pairs(pairs, num_nodes)
        u, v = pairs
    if p.shape[1:] != u.shape:
        raise ValueError(f"expected one value per pair, shape {list(u.shape)}, got {list(p.shape[1:])}")
    if not p.numel():
        return torch.zeros_like(p, dtype=torch.bool)
    if not budget.unit_costs:
        cost = budget.cost(torch.stack([u, v]))
        return torch.stack([_take_by_cost(row, cost, u, v, budget, num_nodes, whole) for row in p])
    total, local = fixed_point_budget(budget, num_nodes, u.numel(), p.device)
    kept, finite = dispatch.take_largest(p.detach(), u, v, total, local, _UNIT, whole=whole)
    if not bool(finite):
        raise ValueError("expected finite values to project")
    return kept


def _take_by_cost(p: Tensor, cost: Tensor, u: Tensor, v: Tensor, budget: Budget, num_nodes: int, whole: bool) -> Tensor:
    """Return the mask of pairs taken in descending order of value per cost; pairs that do not fit are skipped."""
    if not bool(p.isfinite().all()):
        raise ValueError("expected finite values to project")
    total, local = fixed_point_budget(budget, num_nodes, int(cost.sum()), p.device)
    left, kept = int(total), torch.zeros_like(p, dtype=torch.bool)
    order = (p / cost).argsort(descending=True, stable=True)
    # Costs above the total do not fit, and their products could overflow.
    order = order[(p[order] > 0) & (cost[order] <= budget.total)]
    units = cost_of(p[order], _UNIT, whole) * cost[order]
    exhausted = True
    while exhausted and order.numel():
        # The search ends at the first pair that exceeds the total: continue with the pairs that still fit.
        taken, exhausted = take_in_order(units, u[order], v[order], left, local)
        kept[order[taken]] = True
        left -= int(units[taken].sum())
        ends = torch.cat([u[order[taken]], v[order[taken]]])
        local = local.index_add(0, ends, -units[taken].repeat(2))
        fits = ~taken & (units <= left) & (units <= local[u[order]]) & (units <= local[v[order]])
        order, units = order[fits], units[fits]
    return kept


def _num_nodes(pairs: object) -> int:
    """Return the number of nodes of the smallest graph that contains these pairs."""
    return int(pairs.max()) + 1 if isinstance(pairs, Tensor) and pairs.numel() else 0
