r"""Maximum over the edges of each node as a function of edge weights.

If every edge :math:`e` of a node exists independently with probability :math:`w_e`, its expected maximum is

.. math::
    \max\nolimits_w m = \sum_k m_{(k)} \, w_{(k)} \prod_{j < k} (1 - w_{(j)}),

with the messages in descending order. The function is linear in every weight. For weights of 0 and 1 it is the maximum over the
edges of weight 1, and its gradient is the exact change that adding or removing one edge makes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# Entries processed at once; intermediate results take several times their memory.
_MAX_ENTRIES = 1 << 24


def expected_max(src: Tensor, weight: Tensor, index: Tensor, num_groups: int) -> Tensor:
    """Return the expected maximum of each group, separately for each channel; 0 for groups without entries.

    Args:
        src: Messages, shape ``[entries, channels]``.
        weight: Weight of each entry, in [0, 1], shape ``[entries]``.
        index: Group of each entry, shape ``[entries]``.
        num_groups: Number of groups.

    Returns:
        Maxima, shape ``[groups, channels]``, differentiable in ``src`` and ``weight``.

    >>> messages = torch.tensor([[3.0], [2.0], [1.0]])
    >>> expected_max(messages, torch.tensor([0.0, 1.0, 1.0]), torch.tensor([0, 0, 0]), 1)
    tensor([[2.]])
    >>> expected_max(messages, torch.tensor([0.5, 1.0, 1.0]), torch.tensor([0, 0, 0]), 1)
    tensor([[2.5000]])
    """
    width = max(1, _MAX_ENTRIES // max(1, src.size(0)))
    parts = [_ExpectedMax.apply(part, weight, index, num_groups) for part in src.split(width, dim=1)]  # type: ignore[no-untyped-call]
    return torch.cat(parts, dim=1) if parts else src.new_zeros(num_groups, 0)


class _ExpectedMax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, src: Tensor, weight: Tensor, index: Tensor, num_groups: int) -> Tensor:
        by_value = src.argsort(dim=0, descending=True)
        order = by_value.gather(0, index[by_value].argsort(dim=0, stable=True))
        # The groups are in the same order in every channel.
        group = index.sort().values
        m, w = src.gather(0, order), weight[order]
        # None of the larger messages of the group exists.
        larger_missing = _products_before(1 - w, group)
        ctx.save_for_backward(m, w, larger_missing, order, group)
        return src.new_zeros(num_groups, src.size(1)).index_add_(0, group, w * larger_missing * m)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        m, w, larger_missing, order, group = ctx.saved_tensors
        grad = grad[group] * larger_missing
        grad_src = torch.empty_like(m).scatter_(0, order, grad * w)
        grad_weight = torch.empty_like(m).scatter_(0, order, grad * (m - _maxima_after(m, w, group)))
        return grad_src, grad_weight.sum(dim=1), None, None


def _products_before(factor: Tensor, group: Tensor) -> Tensor:
    """Return, at each entry, the product of the factors before it in its group."""
    same = torch.zeros_like(group, dtype=torch.bool)
    same[1:] = group[1:] == group[:-1]
    product = torch.where(same[:, None], factor.roll(1, dims=0), 1.0)
    step = 1
    while step < factor.size(0) and bool((same := group[step:] == group[:-step]).any()):
        shifted = torch.where(same[:, None], product[:-step], 1.0)
        product = torch.cat([product[:step], product[step:] * shifted])
        step *= 2
    return product


def _maxima_after(m: Tensor, w: Tensor, group: Tensor) -> Tensor:
    """Return, at each entry, the expected maximum of the entries after it in its group."""
    # The maximum from an entry on is an affine function, `offset + slope * maximum after`, and these are composed.
    offset, slope, step = w * m, 1 - w, 1
    while step < m.size(0) and bool((same := (group[step:] == group[:-step])[:, None]).any()):
        later_offset = torch.where(same, offset[step:], 0.0)
        later_slope = torch.where(same, slope[step:], 1.0)
        offset = torch.cat([offset[:-step] + slope[:-step] * later_offset, offset[-step:]])
        slope = torch.cat([slope[:-step] * later_slope, slope[-step:]])
        step *= 2
    after = torch.zeros_like(offset)
    after[:-1] = torch.where((group[1:] == group[:-1])[:, None], offset[1:], 0.0)
    return after
