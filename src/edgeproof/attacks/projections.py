"""Projections of relaxed flips onto what a budget allows: pure functions of tensors, on the tensor's own device."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from edgeproof.propagation.kernels import dispatch

# Thresholds examined at once.
_FANOUT = 64
# Passes over all values that narrow down the threshold. On a GPU they leave nothing to do: 63^-5 of the largest value is far
# below its rounding. On a CPU a few of them leave little to sort.
_PASSES = {"cpu": 8, "cuda": 5}
_SEARCHED = {"cuda"}
# Beyond this, single precision leaves too few digits behind the point.
_LARGE = 1024.0


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
        p: any finite values, shape ``[b]``.
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
    threshold = _threshold(p.detach(), float(budget), largest)
    if float(largest) > _LARGE:
        return (p.double() - threshold).clamp_(0, 1).to(p.dtype)
    # Rounded up, so that the sum stays within the budget.
    rounded = threshold.to(p.dtype)
    rounded = torch.where(rounded < threshold, torch.nextafter(rounded, torch.full_like(rounded, torch.inf)), rounded)
    return (p - rounded).clamp_(0, 1)


def _threshold(p: Tensor, budget: float, largest: Tensor) -> Tensor:
    """The smallest shift >= 0 after which the clipped values sum to at most the budget, in double precision."""
    low, high = p.new_zeros(1, dtype=torch.float64), largest.clamp(min=0).double().view(1)
    if p.device.type in _SEARCHED:
        thresholds = low + (high - low) * _steps(p.device)
        for _ in range(_PASSES["cuda"]):
            thresholds, ends = dispatch.narrow(p, thresholds, budget)
        low, high, most, least = ends.view(4, 1)
    else:
        for done in range(_PASSES["cpu"]):
            if done == _PASSES["cpu"] // 2:
                # What lies below the threshold adds nothing; by now that is nearly everything.
                p = p[p > low.to(p.dtype)]
            middle = ((low + high) / 2).to(p.dtype)
            enough = (p - middle).clamp_(0, 1).sum(dtype=torch.float64) <= budget
            low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
        above, above_one = _Above(p, low, high), _Above(p, low + 1, high + 1)

        def spent(threshold: Tensor) -> Tensor:
            return above(threshold) - above_one(threshold + 1)

        for kinks in (above.values, above_one.values - 1):
            low, high = _between_kinks(spent, kinks, budget, low, high)
        most, least = spent(low), spent(high)
    # No kink lies between the two, so the sum is linear there.
    share = ((most - budget) / (most - least).clamp(min=torch.finfo(torch.float64).tiny)).clamp(0, 1)
    return torch.where(most <= budget, low, low + share * (high - low))


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
    spent: Callable[[Tensor], Tensor], kinks: Tensor, budget: float, low: Tensor, high: Tensor
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
