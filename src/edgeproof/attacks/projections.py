"""Projections of relaxed flips onto what a budget allows: pure functions of tensors, on the tensor's own device."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from edgeproof._checks import check_pairs
from edgeproof.budget import Budget
from edgeproof.kernels import dispatch
from edgeproof.kernels.reference_thresholds import rounded_up, threshold_between
from edgeproof.propagation.pairs import Pairs

# Thresholds examined at once.
_FANOUT = 64
# Passes over all values that narrow down the threshold. On a GPU they leave nothing to do: 63^-5 of the largest value is far
# below its rounding. On a CPU two of them leave little to sort.
_PASSES = {"cpu": 2, "cuda": 5}
_SEARCHED = {"cuda"}
# Values are counted in steps of this size, rounded up: sums of whole numbers are the same in any order, on any device.
_STEPS_PER_UNIT = 1 << 36
# Beyond this, single precision leaves too few digits behind the point; and beyond that, double precision does.
_LARGE, _TOO_LARGE = 1024.0, 2.0**30


def project_global(p: Tensor, budget: float) -> Tensor:
    r"""The nearest point of the box with a bounded sum.

    .. math::
        \Pi(p) = \arg\min_x \lVert x - p \rVert^2 \quad\text{s.t.}\quad \sum_i x_i \le \Delta,\; 0 \le x_i \le 1.

    The solution is :math:`x_i = \min(\max(p_i - \lambda, 0), 1)` with the smallest :math:`\lambda \ge 0` that keeps the
    budget. The sum is piecewise linear in :math:`\lambda`, with kinks at all :math:`p_i` and :math:`p_i - 1`; sorting and
    cumulative sums give its value at any kink, a search over them the piece that :math:`\lambda` lies on, and that piece
    the exact :math:`\lambda`. On a GPU the search goes over equal parts of an interval instead, down to the rounding of
    the values.

    Args:
        p: values of at most :math:`2^{30}`, shape ``[b]``.
        budget: :math:`\Delta \ge 0`.

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
    if bool(largest > _TOO_LARGE):
        raise ValueError(f"expected values of at most {_TOO_LARGE:g} to project, got {float(largest):g}")
    limit = torch.full((1,), float(budget), dtype=torch.float64, device=p.device)
    threshold = threshold_between(_around_threshold(p.detach(), limit, largest), limit)
    if float(largest) > _LARGE:
        return (p.double() - threshold).clamp_(0, 1).to(p.dtype)
    # Rounded up, so that the sum stays within the budget.
    return (p - rounded_up(threshold, p.dtype)).clamp_(0, 1)


def project_global_nosync(p: Tensor, budget: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`project_global` without a word to the host: a GPU need not wait.

    Args:
        p: any values, shape ``[b]``, at least one.
        budget: in double precision, shape ``[1]``, not negative.

    Returns:
        The projection; and whether all values can be projected: minus infinity can, what is very large cannot. If not, the
        projection is of no use.
    """
    largest = p.detach().amax()
    finite = largest <= _TOO_LARGE
    ends = _around_threshold(p.detach(), budget, torch.where(finite, largest, 1.0))
    return dispatch.apply_threshold(p.detach(), ends, budget, largest, _LARGE), finite


def project_local_nosync(p: Tensor, pairs: Pairs, total: Tensor, local: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`project_local` without a word to the host.

    Args:
        p: any values, shape ``[b]``, at least one.
        pairs: which pair each belongs to.
        total: the budget in all, as :func:`boxes` gives it.
        local: and at each node, likewise.

    Returns:
        The projection; and whether all values are finite. If not, the projection is of no use.
    """
    (taken,), finite = dispatch.take_largest(p[None], pairs.u, pairs.v, total, local, _STEPS_PER_UNIT, whole=False)
    return p.clamp(0, 1) * taken, finite


def boxes(budget: Budget, num_nodes: int, most: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The budget in the steps that values are counted in: in all, shape ``[1]``, and at each node, shape ``[nodes]``.

    Args:
        budget: the budget.
        num_nodes: nodes of the graph.
        most: pairs that are looked at.
        device: where to.
    """
    # No more can be spent, in all or at a node.
    total = min(budget.total, most)
    if total > torch.iinfo(torch.long).max // _STEPS_PER_UNIT:
        raise ValueError(f"expected a budget that can be counted, got {budget.total} flips")
    local = torch.full((num_nodes,), total, device=device) if budget.local is None else budget.local.clamp(max=total)
    return torch.full((1,), total * _STEPS_PER_UNIT, device=device), local * _STEPS_PER_UNIT


def project_local(p: Tensor, pairs: Pairs | Tensor, budget: Budget) -> Tensor:
    r"""A point with bounded sums in all and at each node, close to ``p``: the paper's Algorithm 1.

    A greedy heuristic for the knapsack

    .. math::
        \max_{S \subseteq \text{pairs}} \sum_{(u,v) \in S} \hat p_{uv} \quad\text{s.t.}\quad
        \sum_{(u,v) \in S} \hat p_{uv} \le \Delta, \quad \sum_{v : (u,v) \in S} \hat p_{uv} \le \Delta^{(l)}_u
        \;\text{ for all } u, \quad \hat p = \min(\max(p, 0), 1),

    which keeps :math:`\hat p_{uv}` whole or sets it to 0. Pairs are visited in descending order of :math:`p`, equal ones in
    their own order. The first pair that does not fit into what is left of :math:`\Delta` ends it. Time
    :math:`O(b \log b)`. Values are counted in steps of :math:`2^{-36}`, rounded up.

    Args:
        p: any finite values, shape ``[b]``.
        pairs: which pair each belongs to, as :class:`~edgeproof.propagation.pairs.Pairs` or shape ``[2, b]``.
        budget: without a local part only the total counts.

    >>> pairs = torch.tensor([[0, 0, 1], [1, 2, 2]])
    >>> project_local(torch.tensor([1.5, 0.9, 0.4]), pairs, Budget(2, torch.tensor([1, 2, 1])))
    tensor([1.0000, 0.0000, 0.4000])
    """
    taken = _greedy(p[None], pairs, budget, whole=False)[0]
    return p.clamp(0, 1) * taken


def discretize(p: Tensor, pairs: Pairs | Tensor, budget: Budget) -> Tensor:
    r"""Whole flips from relaxed ones: positions of up to :math:`\Delta` pairs, those of largest ``p > 0`` that fit.

    Greedy, as :func:`project_local`, but every pair counts 1. Without local budgets it is exact: the :math:`\Delta` largest.

    Returns:
        Positions in ``p``, ascending.

    >>> pairs = torch.tensor([[0, 0, 1], [1, 2, 2]])
    >>> discretize(torch.tensor([0.5, 0.9, 0.4]), pairs, Budget(2, torch.tensor([1, 2, 2])))
    tensor([1, 2])
    """
    return discretize_all(p[None], pairs, budget)[0]


def discretize_all(p: Tensor, pairs: Pairs | Tensor, budget: Budget) -> list[Tensor]:
    """:func:`discretize` of every row of ``p``, shape ``[rows, b]``."""
    taken = _greedy(p, pairs, budget, whole=True)
    # All at once: a GPU is not waited for row by row.
    return list(taken.nonzero()[:, 1].split(taken.sum(dim=1).tolist()))


def _greedy(p: Tensor, pairs: Pairs | Tensor, budget: Budget, *, whole: bool) -> Tensor:
    """Which pairs Algorithm 1 takes, for every row of values."""
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
    total, room = boxes(budget, num_nodes, u.numel(), p.device)
    # Alg. 1: clip to [0, 1], and visit in descending order.
    taken, finite = dispatch.take_largest(p.detach(), u, v, total, room, _STEPS_PER_UNIT, whole=whole)
    if not bool(finite):
        raise ValueError("expected finite values to project")
    return taken


def _num_nodes(pairs: Tensor) -> int:
    """Of the smallest graph that has these pairs."""
    return int(pairs.max()) + 1 if isinstance(pairs, Tensor) and pairs.numel() else 0


def _around_threshold(p: Tensor, budget: Tensor, largest: Tensor) -> Tensor:
    """Two shifts around the smallest one >= 0 after which the clipped values sum to at most the budget, and the sums there.

    No kink lies between the two, so the sum is linear there. In double precision, shape ``[2, 2]``.
    """
    low, high = p.new_zeros(1, dtype=torch.float64), largest.clamp(min=0).double().view(1)
    thresholds = low + (high - low) * _steps(p.device)
    for _ in range(_PASSES[p.device.type]):
        thresholds, ends = dispatch.bracket_threshold(p, thresholds, budget)
    if p.device.type not in _SEARCHED:
        low, high = ends[0].split(1)
        # What lies below the threshold adds nothing.
        p = p[p > low.to(p.dtype)]
        above, above_one = _Above(p, low, high), _Above(p, low + 1, high + 1)

        def spent(threshold: Tensor) -> Tensor:
            return above(threshold) - above_one(threshold + 1)

        for kinks in (above.values, above_one.values - 1):
            low, high = _between_kinks(spent, kinks, budget, low, high)
        ends = torch.cat([low, high, spent(low), spent(high)]).view(2, 2)
    return ends


@lru_cache
def _steps(device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.linspace(0, 1, _FANOUT, dtype=torch.float64, device=device)


class _Above:
    r"""The function :math:`t \mapsto \sum_i \max(p_i - t, 0)` for :math:`t` in an interval, from sorted values."""

    def __init__(self, p: Tensor, low: Tensor, high: Tensor) -> None:
        beyond = p[p > high]
        self.values = p[(p > low) & (p <= high)].sort().values.double()
        self.sums = torch.cat([self.values.flip(0).cumsum(0).flip(0), self.values.new_zeros(1)])
        self.sums = self.sums + beyond.sum(dtype=torch.float64)
        self.beyond = beyond.numel()

    def __call__(self, threshold: Tensor) -> Tensor:
        first = torch.searchsorted(self.values, threshold, right=True)
        return self.sums[first] - (self.values.numel() - first + self.beyond) * threshold


def _between_kinks(
    spent: Callable[[Tensor], Tensor], kinks: Tensor, budget: Tensor, low: Tensor, high: Tensor
) -> tuple[Tensor, Tensor]:
    """Narrow ``[low, high]`` until no kink lies strictly inside; every round leaves a fraction 1 / ``_FANOUT`` of them."""
    remaining = kinks.numel()
    steps = _steps(kinks.device)
    while remaining:
        first = torch.searchsorted(kinks, low, right=True)
        last = torch.searchsorted(kinks, high) - 1
        chosen = first + ((last - first).clamp(min=0) * steps).round().long()
        values = torch.minimum(torch.maximum(kinks[chosen.clamp(max=kinks.numel() - 1)], low), high)
        # The sum falls with the threshold: the first kinks overspend, the others do not.
        overspending = (spent(values) > budget).sum()
        values = torch.cat([low, values, high])
        low, high = values[overspending].view(1), values[overspending + 1].view(1)
        remaining = 0 if remaining <= _FANOUT else remaining // (_FANOUT - 1) + 1
    return low, high
