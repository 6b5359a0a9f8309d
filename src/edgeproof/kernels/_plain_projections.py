"""The kernels behind projections, in plain torch: sums above thresholds, and values taken as far as they fit."""

from __future__ import annotations

import torch
from torch import Tensor

# Largest values that are looked at first when they are taken, at least, for each unit of room, and as a share of all; on most
# occasions they use up the room.
_LOOKED_AT_FIRST, _LOOKED_AT_PER_FLIP, _LOOKED_AT_SHARE = 1024, 64, 1 / 16
# Values that tell which are the largest.
_SAMPLED = 1 << 16


def bracket_threshold(values: Tensor, thresholds: Tensor, budget: Tensor) -> tuple[Tensor, Tensor]:
    r"""Between which thresholds :math:`t` the sum :math:`\sum_i \min(\max(x_i - t, 0), 1)` falls to the budget.

    No size and no branch depends on a value, so a GPU need not wait for the host.

    Args:
        values: :math:`x`, shape ``[b]``.
        thresholds: ascending, in double precision, shape ``[t]``.
        budget: what the sum may be, in double precision, shape ``[1]``.

    Returns:
        As many thresholds again, dividing the part found equally; and its two ends, with the sums there below them,
        shape ``[2, 2]``.
    """
    shifted = (values - threshold.to(values.dtype) for threshold in thresholds)
    return divide(torch.stack([shift.clamp_(0, 1).sum(dtype=torch.float64) for shift in shifted]), thresholds, budget)


def divide(sums: Tensor, thresholds: Tensor, budget: Tensor) -> tuple[Tensor, Tensor]:
    """What :func:`narrow` returns, from the sum at each threshold."""
    overspending = (sums > budget).sum().clamp_(1, thresholds.numel() - 1)
    ends = torch.stack([thresholds, sums])[:, torch.stack([overspending - 1, overspending])]
    steps = torch.linspace(0, 1, thresholds.numel(), dtype=torch.float64, device=sums.device)
    return torch.lerp(ends[0, 0], ends[0, 1], steps), ends


def apply_threshold(values: Tensor, ends: Tensor, budget: Tensor, largest: Tensor, large: float) -> Tensor:
    """The values less the threshold at which the sum of :func:`narrow` falls to the budget, no less than 0 and no more than 1.

    Args:
        values: shape ``[b]``.
        ends: two thresholds and the sums there, between which the sum is linear, in double precision, shape ``[2, 2]``.
        budget: what the sum may be, in double precision, shape ``[1]``.
        largest: of the values.
        large: beyond this, single precision leaves too few digits behind the point; otherwise the threshold is rounded up, so
            that the sum stays within the budget.
    """
    threshold = threshold_between(ends, budget)
    # In double precision no digit is lost either way, so that one way serves both.
    threshold = torch.where(largest > large, threshold, rounded_up(threshold, values.dtype))
    return (values.double() - threshold).clamp_(0, 1).to(values.dtype)


def threshold_between(ends: Tensor, budget: Tensor) -> Tensor:
    """The threshold at which a sum that is linear between two of them falls to the budget."""
    low, high, most, least = ends.view(4, 1)
    share = ((most - budget) / (most - least).clamp(min=torch.finfo(torch.float64).tiny)).clamp(0, 1)
    return torch.where(most <= budget, low, low + share * (high - low))


def rounded_up(threshold: Tensor, dtype: torch.dtype) -> Tensor:
    """The nearest number of a type that is not smaller."""
    rounded = threshold.to(dtype)
    return torch.where(rounded < threshold, torch.nextafter(rounded, torch.full_like(rounded, torch.inf)), rounded)


def take_in_order(size: Tensor, u: Tensor, v: Tensor, total: int, local: Tensor) -> tuple[Tensor, bool]:
    """Which items fit into two kinds of boxes, taken in their order: one box for all, and one at each end of an item.

    An item is taken if it fits into what is left of the boxes at its ends. The first that does not fit into what is left of
    the common box, whether or not its ends have room, ends it all.

    Here all items are looked at together, round after round. An item is certain to be taken if it fits even when all earlier
    undecided ones are taken, and certain to be left if it does not fit even when none of them is. Every round decides at least
    the first undecided item; with items in random order few rounds decide them all (Blelloch, Fineman and Shun, 2012).

    Args:
        size: of each item, in whole numbers, shape ``[m]``.
        u: one end of each, shape ``[m]``.
        v: its other end, shape ``[m]``.
        total: the common box.
        local: the box of each node, shape ``[nodes]``.

    Returns:
        Whether each item is taken, shape ``[m]``; and whether the common box ended it.
    """
    m = size.numel()
    item = torch.arange(m, device=size.device)
    # Both ends of all items, node by node, and in the items' order at each node.
    key, order = torch.cat([u * m + item, v * m + item]).sort()
    item, node = order % max(m, 1), key // max(m, 1)
    # The place of the first end at the same node.
    first = torch.searchsorted(node, node)
    room, width = local[node], size[item]
    taken, left = torch.zeros(m, dtype=torch.bool, device=size.device), local.new_zeros(m, dtype=torch.bool)
    while not bool((taken | left).all()):
        certain = _before(width * taken[item], first)
        possible = _before(width * ~left[item], first)
        fits, fails = possible + width <= room, certain + width > room
        ends_that_fit = torch.zeros_like(size).index_add_(0, item, fits.long())
        taken |= (ends_that_fit == 2) & ~left
        left |= torch.zeros_like(size).index_add_(0, item, fails.long()) > 0
        left &= ~taken
    return end_at(taken, size, total)


def take_largest(
    p: Tensor,
    u: Tensor,
    v: Tensor,
    total: Tensor,
    local: Tensor,
    unit: int,
    *,
    whole: bool,
) -> tuple[Tensor, Tensor]:
    """Which values fit, taken in descending order, equal ones in their own order; see :func:`take_in_order`.

    Only positive values are taken. A GPU that serves this does not wait for the host, which knows nothing of what is asked or
    found; here the largest values are looked at first, on most occasions enough of them.

    Args:
        p: values, one set of them per row, shape ``[rows, b]``, at least one in each.
        u: one end of each, shape ``[b]``.
        v: its other end, shape ``[b]``.
        total: the common box of a row, shape ``[1]``.
        local: the box of each node, for every row anew, shape ``[nodes]``.
        unit: how much room a value of 1 takes; a larger one takes as much.
        whole: whether every value takes as much.

    Returns:
        Which were taken, shape ``[rows, b]``; and whether all values are finite. If not, what was taken is of no use.
    """
    finite = torch.stack(torch.aminmax(p)).isfinite().all()
    taken = torch.zeros_like(p, dtype=torch.bool)
    if not bool(finite):
        return taken, finite
    box = int(total)
    first = looked_at_first(box // unit, p.size(1))
    for values, found in zip(p, taken, strict=True):
        wanted, ended = first, False
        while not ended:
            least = _estimate(values, wanted)
            positions = (values >= least if least > 0 else values > 0).nonzero().squeeze(1)
            positions = positions[values[positions].argsort(descending=True, stable=True)]
            fits, ended = take_in_order(
                steps_of(values[positions], unit, whole), u[positions], v[positions], box, local
            )
            ended, wanted = ended or least <= 0, 8 * wanted
        found[positions] = fits
    return taken, finite


def looked_at_first(flips: int, among: int) -> int:
    """How many of the largest values are looked at first, where there is room for so many flips."""
    return max(_LOOKED_AT_FIRST, min(_LOOKED_AT_PER_FLIP * flips, int(_LOOKED_AT_SHARE * among)))


def _estimate(p: Tensor, wanted: int) -> float:
    """A value that about so many lie above; 0 if that may be all of them. Whoever needs more asks again."""
    stride = max(1, p.numel() // _SAMPLED)
    among, sample = wanted // stride + 1, p[::stride]
    return 0.0 if among >= sample.numel() else float(sample.topk(among, sorted=False).values.amin())


def steps_of(value: Tensor, unit: int, whole: bool) -> Tensor:
    """How much room each value takes, in whole numbers, rounded up."""
    return (torch.ones_like(value) if whole else value.clamp(max=1)).double().mul_(unit).ceil_().long()


def end_at(taken: Tensor, size: Tensor, total: int) -> tuple[Tensor, bool]:
    """Of the items taken, those before the first item, taken or not, for which no room is left in the common box."""
    used = (size * taken).cumsum(0)
    beyond = used + size * ~taken > total
    return taken & (beyond.cumsum(0) == 0), bool(beyond.any())


def _before(values: Tensor, first: Tensor) -> Tensor:
    """For each value the sum of those before it, back to the first of its group."""
    sums = values.cumsum(0) - values
    return sums - sums[first]
