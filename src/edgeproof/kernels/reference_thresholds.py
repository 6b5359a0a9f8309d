"""Reference kernels for the projection onto a bounded sum: find the threshold, then subtract it."""

from __future__ import annotations

import torch
from torch import Tensor


def bracket_threshold(values: Tensor, thresholds: Tensor, budget: Tensor) -> tuple[Tensor, Tensor]:
    r"""Bracket the threshold :math:`t` at which :math:`\sum_i \min(\max(x_i - t, 0), 1)` falls to the budget.

    No shape and no branch depends on a value, so no host-device sync is needed.

    Args:
        values: Values :math:`x`, shape ``[b]``.
        thresholds: Ascending float64 thresholds, shape ``[t]``.
        budget: Bound on the sum, float64, shape ``[1]``.

    Returns:
        A grid of ``t`` equally spaced thresholds inside the bracket; and the bracket, its two ends in row 0 and the sums
        there in row 1, shape ``[2, 2]``.
    """
    shifted = (values - threshold.to(values.dtype) for threshold in thresholds)
    sums = torch.stack([shift.clamp_(0, 1).sum(dtype=torch.float64) for shift in shifted])
    return bracket_from_sums(sums, thresholds, budget)


def bracket_from_sums(sums: Tensor, thresholds: Tensor, budget: Tensor) -> tuple[Tensor, Tensor]:
    """Return the result of :func:`bracket_threshold`, given the sum at each threshold."""
    num_above = (sums > budget).sum().clamp_(1, thresholds.numel() - 1)
    ends = torch.stack([thresholds, sums])[:, torch.stack([num_above - 1, num_above])]
    steps = torch.linspace(0, 1, thresholds.numel(), dtype=torch.float64, device=sums.device)
    return torch.lerp(ends[0, 0], ends[0, 1], steps), ends


def apply_threshold(values: Tensor, ends: Tensor, budget: Tensor, largest: Tensor, large: float) -> Tensor:
    """Subtract the threshold at which the sum falls to the budget, and clip to [0, 1].

    Args:
        values: Values, shape ``[b]``.
        ends: Bracket as returned by :func:`bracket_threshold`; the sum is linear inside it.
        budget: Bound on the sum, float64, shape ``[1]``.
        largest: Largest of the values.
        large: Value above which float32 is too coarse for the threshold. Up to it, the threshold is rounded up to the
            dtype of the values, so that the sum stays within the budget.
    """
    threshold = threshold_between(ends, budget)
    # The subtraction runs in float64, which is exact for both cases.
    threshold = torch.where(largest > large, threshold, rounded_up(threshold, values.dtype))
    return (values.double() - threshold).clamp_(0, 1).to(values.dtype)


def threshold_between(ends: Tensor, budget: Tensor) -> Tensor:
    """Return the threshold at which a sum that is linear inside a bracket falls to the budget."""
    low, high, sum_at_low, sum_at_high = ends.view(4, 1)
    fall = (sum_at_low - sum_at_high).clamp(min=torch.finfo(torch.float64).tiny)
    fraction = ((sum_at_low - budget) / fall).clamp(0, 1)
    return torch.where(sum_at_low <= budget, low, low + fraction * (high - low))


def rounded_up(threshold: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the smallest number of ``dtype`` that is at least ``threshold``."""
    rounded = threshold.to(dtype)
    return torch.where(rounded < threshold, torch.nextafter(rounded, torch.full_like(rounded, torch.inf)), rounded)
