r"""Search for the threshold :math:`\lambda` of the projection onto a bounded sum.

The clipped sum :math:`s(t) = \sum_i \min(\max(p_i - t, 0), 1)` falls with :math:`t` and is piecewise linear, with kinks at all
:math:`p_i` and :math:`p_i - 1`. :func:`bracket` finds two thresholds between which :math:`s` is linear and crosses the budget:
every pass over the values evaluates :math:`s` at :data:`_FANOUT` thresholds and keeps one part of the interval. On a CPU, few
passes are followed by an exact search over the remaining kinks; on a GPU, five passes reach the rounding error of the values
without a host-device sync.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from edgeproof.kernels import dispatch
from edgeproof.kernels.reference_thresholds import rounded_up, threshold_between

# Largest value for which float32 has enough fractional digits to subtract the threshold; for float64 it is MAX_VALUE.
_LARGE, MAX_VALUE = 1024.0, 2.0**30
# Thresholds evaluated per pass.
_FANOUT = 64
# Passes per device. 63**-5 of the largest value is below its rounding error; two passes leave few kinks to sort.
_PASSES = {"cpu": 2, "cuda": 5}


def bracket(
    p: Tensor, budget: Tensor, largest: Tensor, *, passes: int | None = None, sort_kinks: bool | None = None
) -> Tensor:
    """Bracket the smallest threshold >= 0 whose clipped sum is at most the budget.

    Args:
        p: Values, shape ``[b]``.
        budget: Budget in float64, shape ``[1]``.
        largest: Largest of the values.
        passes: Number of passes over all values. Default: depends on the device.
        sort_kinks: Whether an exact search over the remaining kinks follows. Default: on a CPU only.

    Returns:
        The two thresholds, and the clipped sums there, in float64, shape ``[2, 2]``.
    """
    passes = _PASSES[p.device.type] if passes is None else passes
    sort_kinks = p.device.type != "cuda" if sort_kinks is None else sort_kinks
    low, high = p.new_zeros(1, dtype=torch.float64), largest.clamp(min=0).double().view(1)
    thresholds = low + (high - low) * _fractions(p.device)
    for _ in range(passes):
        thresholds, ends = dispatch.bracket_threshold(p, thresholds, budget)
    if not sort_kinks:
        return ends

    low, high = ends[0].split(1)
    # Values below the threshold contribute nothing.
    p = p[p > low.to(p.dtype)]
    above, above_one = _SumAbove(p, low, high), _SumAbove(p, low + 1, high + 1)

    def clipped_sum(threshold: Tensor) -> Tensor:
        return above(threshold) - above_one(threshold + 1)

    for kinks in (above.values, above_one.values - 1):
        low, high = _between_kinks(clipped_sum, kinks, budget, low, high)
    return torch.cat([low, high, clipped_sum(low), clipped_sum(high)]).view(2, 2)


def subtract_threshold(p: Tensor, ends: Tensor, budget: Tensor, largest: Tensor) -> Tensor:
    """Subtract the bracketed threshold from the values and clip them to [0, 1]; with a host-device sync.

    Args:
        p: Values, shape ``[b]``.
        ends: Result of :func:`bracket`.
        budget: Budget in float64, shape ``[1]``.
        largest: Largest of the values.
    """
    threshold = threshold_between(ends, budget)
    if float(largest) > _LARGE:
        return (p.double() - threshold).clamp_(0, 1).to(p.dtype)
    # Rounded up, so that the sum stays within the budget.
    return (p - rounded_up(threshold, p.dtype)).clamp_(0, 1)


def subtract_threshold_nosync(p: Tensor, ends: Tensor, budget: Tensor, largest: Tensor) -> Tensor:
    """:func:`subtract_threshold` without a host-device sync and without gradients."""
    return dispatch.apply_threshold(p, ends, budget, largest, _LARGE)


@lru_cache
def _fractions(device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.linspace(0, 1, _FANOUT, dtype=torch.float64, device=device)


class _SumAbove:
    r"""The function :math:`t \mapsto \sum_i \max(p_i - t, 0)` for :math:`t` in an interval, from sorted values."""

    def __init__(self, p: Tensor, low: Tensor, high: Tensor) -> None:
        beyond = p[p > high]
        self.values = p[(p > low) & (p <= high)].sort().values.double()
        self.sums = torch.cat([self.values.flip(0).cumsum(0).flip(0), self.values.new_zeros(1)])
        self.sums = self.sums + beyond.sum(dtype=torch.float64)
        self.num_beyond = beyond.numel()

    def __call__(self, threshold: Tensor) -> Tensor:
        first = torch.searchsorted(self.values, threshold, right=True)
        return self.sums[first] - (self.values.numel() - first + self.num_beyond) * threshold


def _between_kinks(
    clipped_sum: Callable[[Tensor], Tensor], kinks: Tensor, budget: Tensor, low: Tensor, high: Tensor
) -> tuple[Tensor, Tensor]:
    """Shrink ``[low, high]`` until no kink lies strictly inside; each round keeps 1 / ``_FANOUT`` of the kinks."""
    remaining = kinks.numel()
    fractions = _fractions(kinks.device)
    while remaining:
        first = torch.searchsorted(kinks, low, right=True)
        last = torch.searchsorted(kinks, high) - 1
        chosen = first + ((last - first).clamp(min=0) * fractions).round().long()
        values = torch.minimum(torch.maximum(kinks[chosen.clamp(max=kinks.numel() - 1)], low), high)
        # The sum falls with the threshold: the first thresholds exceed the budget, the others do not.
        num_exceeding = (clipped_sum(values) > budget).sum()
        values = torch.cat([low, values, high])
        low, high = values[num_exceeding].view(1), values[num_exceeding + 1].view(1)
        remaining = 0 if remaining <= _FANOUT else remaining // (_FANOUT - 1) + 1
    return low, high
