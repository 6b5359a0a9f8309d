"""Reference kernel of the greedy selection in the paper's Algorithm 1."""

from __future__ import annotations

import torch
from torch import Tensor


def take_largest(
    p: Tensor,
    u: Tensor,
    v: Tensor,
    total: Tensor,
    local: Tensor,
    unit: int,
    *,
    whole: bool,
    chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Select positive values greedily in descending order, subject to a total and a local budget (Algorithm 1).

    Equal values are visited in their own order; see :func:`take_in_order` for the rule. Costs are integers, so the result
    does not depend on the order of additions.

    Args:
        p: Values, one problem per row, shape ``[rows, b]`` with ``b >= 1``.
        u: First node of each pair, shape ``[b]``.
        v: Second node of each pair, shape ``[b]``.
        total: Total budget of a row, shape ``[1]``.
        local: Budget of each node, the same for every row, shape ``[nodes]``.
        unit: Cost of a value of 1. A value ``p`` costs ``ceil(min(p, 1) * unit)``.
        whole: Whether every positive value costs ``unit``.
        chunk: Number of largest values examined at first, or at once. Affects the speed only.

    Returns:
        Mask of the selected values, shape ``[rows, b]``; and whether all values are finite. If not, the mask is undefined.
    """
    finite = torch.stack(torch.aminmax(p)).isfinite().all()
    taken = torch.zeros_like(p, dtype=torch.bool)
    if not bool(finite):
        return taken, finite
    budget = int(total)
    for values, row_taken in zip(p, taken, strict=True):
        order = values.argsort(descending=True, stable=True)
        order = order[: int((values > 0).sum())]
        # The largest values usually exhaust the total budget.
        size, exhausted = chunk or max(1024, 64 * (budget // unit)), False
        while not exhausted:
            examined = order[:size]
            cost = cost_of(values[examined], unit, whole)
            row_taken[examined], exhausted = take_in_order(cost, u[examined], v[examined], budget, local)
            exhausted, size = exhausted or size >= order.numel(), 8 * size
    return taken, finite


def cost_of(value: Tensor, unit: int, whole: bool) -> Tensor:
    """Return the integer cost of each value, rounded up."""
    return (torch.ones_like(value) if whole else value.clamp(max=1)).double().mul_(unit).ceil_().long()


def take_in_order(cost: Tensor, u: Tensor, v: Tensor, total: int, local: Tensor) -> tuple[Tensor, bool]:
    """Select items one after another, subject to a total budget and the budgets of both end nodes.

    An item is selected if its cost fits into all three remaining budgets. The first item that exceeds the remaining total
    budget ends the selection, whether or not it fits the budgets of its nodes.

    All items are processed in parallel, round by round. An item is certain to be selected if it fits even when all earlier
    undecided items are selected, and certain to be rejected if it does not fit even when none of them is. Every round
    decides at least the first undecided item; for items in random order few rounds decide all (Blelloch, Fineman and Shun,
    "Greedy sequential maximal independent set and matching are parallel on average", 2012).

    Args:
        cost: Integer cost of each item, shape ``[m]``.
        u: First node of each item, shape ``[m]``.
        v: Second node of each item, shape ``[m]``.
        total: Total budget.
        local: Budget of each node, shape ``[nodes]``.

    Returns:
        Mask of the selected items, shape ``[m]``; and whether the total budget ended the selection.
    """
    m = cost.numel()
    item = torch.arange(m, device=cost.device)
    # Both ends of all items, sorted by node and then by item.
    key, order = torch.cat([u * m + item, v * m + item]).sort()
    item, node = order % max(m, 1), key // max(m, 1)
    # Position of the first end at the same node.
    first = torch.searchsorted(node, node)
    remaining, end_cost = local[node], cost[item]
    taken, rejected = torch.zeros(m, dtype=torch.bool, device=cost.device), local.new_zeros(m, dtype=torch.bool)
    while not bool((taken | rejected).all()):
        certain = _sum_before(end_cost * taken[item], first)
        possible = _sum_before(end_cost * ~rejected[item], first)
        fits, fails = possible + end_cost <= remaining, certain + end_cost > remaining
        num_fitting_ends = torch.zeros_like(cost).index_add_(0, item, fits.long())
        taken |= (num_fitting_ends == 2) & ~rejected
        rejected |= torch.zeros_like(cost).index_add_(0, item, fails.long()) > 0
        rejected &= ~taken
    return _end_at_total(taken, cost, total)


def _end_at_total(taken: Tensor, cost: Tensor, total: int) -> tuple[Tensor, bool]:
    """Deselect all items from the first one, selected or not, that exceeds the remaining total budget."""
    used = (cost * taken).cumsum(0)
    exceeds = used + cost * ~taken > total
    return taken & (exceeds.cumsum(0) == 0), bool(exceeds.any())


def _sum_before(values: Tensor, first: Tensor) -> Tensor:
    """Return the exclusive prefix sums within each group, given the position of its first member."""
    sums = values.cumsum(0) - values
    return sums - sums[first]
