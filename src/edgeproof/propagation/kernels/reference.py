"""The kernels in plain torch: always available, on any device, and the definition of correct."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

name = "reference"
summary = "plain torch; any device; float32 and float64"

# Pairs per slice of a gathered dot product: bounds the memory of the gathered rows.
_SLICE = 1 << 18
# Units of rounding by which a sum of weights may be wrong.
_ROUNDING = 64
# Largest values that are looked at first when they are taken, at least, for each unit of room, and as a share of all; on most
# occasions they use up the room.
_LOOKED_AT_FIRST, _LOOKED_AT_PER_FLIP, _LOOKED_AT_SHARE = 1024, 64, 1 / 16
# Values that tell which are the largest.
_SAMPLED = 1 << 16

# torch says once a process that CSR tensors are in beta. Their product with a dense matrix is tested here, and
# a user can do nothing about the message, so it is spent at import.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0, 0], [], [], size=(1, 1))


def not_supported_reasons(tensors: Sequence[Tensor]) -> list[str]:
    """Why these inputs cannot be served; empty if they can. With no inputs: why this machine cannot."""
    reasons = []
    for tensor in tensors:
        if tensor.is_floating_point() and tensor.dtype not in (torch.float32, torch.float64):
            reasons.append(f"needs float32 or float64, got {tensor.dtype}")
    return reasons


def spmm(rowptr: Tensor, col: Tensor, weight: Tensor, x: Tensor, longest: int | None = None) -> Tensor:
    r"""Sparse-dense product :math:`o_u = \sum_{e \in \mathrm{row}(u)} w_e x_{\mathrm{col}(e)}`.

    ``longest`` is the length of the longest row, where it is known, for backends that choose their way by it.
    """
    if not col.numel():
        # cuSPARSE refuses a matrix without entries.
        return x.new_zeros(rowptr.numel() - 1, x.size(1))
    size = (rowptr.numel() - 1, x.size(0))
    if col.numel() > size[0] * size[1]:
        # cuSPARSE refuses one with more entries than places, which repeated entries make of a very small graph.
        row = torch.arange(size[0], device=col.device).repeat_interleave(rowptr.diff())
        return x.new_zeros(size).index_put_((row, col), weight, accumulate=True) @ x
    return torch.sparse_csr_tensor(rowptr, col, weight, size=size, check_invariants=False) @ x


def insert_pairs(
    rowptr: Tensor, col: Tensor, key: Tensor, weight: Tensor, diagonal: Tensor, u: Tensor, v: Tensor, flip: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A sparse square matrix of ones with pairs flipped in part, in both directions; only the pairs are sorted.

    A pair that has an entry takes its flip from the weight of the first one and gets another of weight 0, so that no size
    depends on what the pairs are.

    Args:
        rowptr: where rows begin, shape ``[nodes + 1]``.
        col: the column of each entry, ascending in each row, shape ``[entries]``.
        key: ``row * nodes + col`` of each entry.
        weight: of each entry.
        diagonal: where the diagonal's entries stand, shape ``[nodes]``.
        u: one end of each pair, shape ``[pairs]``.
        v: its other end.
        flip: by how much each pair is flipped. A pair may be there again with 0.

    Returns:
        The first two, the weights and the diagonal's places of the matrix with ``2 * pairs`` more entries.
    """
    n = rowptr.numel() - 1
    new, order = torch.cat([u * n + v, v * n + u]).sort(stable=True)
    flip = torch.cat([flip, flip])[order]

    # Where each new entry goes among the old ones, and whether it is there already.
    before = torch.searchsorted(key, new)
    nearest = before.clamp(max=key.numel() - 1)
    known = key[nearest] == new
    changed = weight.index_add(0, nearest, torch.where(known, -flip, 0.0))
    added = torch.where(known, 0.0, flip)

    # Entry i moves up by the number of new entries that come before it.
    entries = torch.arange(key.numel(), device=key.device)
    old_place = entries + torch.searchsorted(before, entries, right=True)
    new_place = before + torch.arange(new.numel(), device=key.device)
    size = (key.numel() + new.numel(),)
    col = col.new_empty(size).scatter_(0, old_place, col).scatter_(0, new_place, new % n)
    weight = changed.new_empty(size).scatter(0, old_place, changed).scatter(0, new_place, added)
    rowptr = rowptr + torch.searchsorted(new, torch.arange(n + 1, device=key.device) * n)
    return rowptr, col, weight, old_place[diagonal]


def normalize(
    rowptr: Tensor, col: Tensor, weight: Tensor, diagonal: Tensor, *, self_loops: bool, longest: int | None = None
) -> tuple[Tensor, Tensor]:
    r"""Weights :math:`s_u \tilde A_{uv} s_v`, and the scale :math:`s = d^{-1/2}`, 0 where the degree :math:`d` is 0.

    Differentiable in the weights, where they need a gradient.

    Args:
        rowptr: where rows begin.
        col: the column of each entry.
        weight: of each entry.
        diagonal: where the diagonal's entries stand.
        self_loops: whether :math:`\tilde A` is the matrix plus the identity, or the matrix itself.
        longest: about how many entries the longest row has, where that is known.
    """
    if self_loops:
        weight = weight.index_add(0, diagonal, weight.new_ones(diagonal.numel()))
    if weight.requires_grad:
        degree = torch.segment_reduce(weight, "sum", offsets=rowptr, initial=0.0, unsafe=True)
    else:
        # On a GPU it does not mind rows that are much longer than others.
        degree = spmm(rowptr, col, weight, weight.new_ones(diagonal.numel(), 1)).squeeze(1)
    connected = degree > 0
    # The inner where keeps the gradient of 1/sqrt finite at degree 0, where the outer one discards it.
    scale = torch.where(connected, torch.where(connected, degree, 1.0).rsqrt(), 0.0)
    row = torch.arange(diagonal.numel(), device=col.device).repeat_interleave(rowptr.diff(), output_size=col.numel())
    return scale[row] * weight * scale[col], scale


def unrank_pairs(number: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """The two ends of the pairs with these numbers; see :mod:`edgeproof.propagation.pairs`."""
    n = num_nodes
    u = (n - 0.5 - ((n - 0.5) ** 2 - 2 * number.double()).clamp(min=0).sqrt()).long().clamp(0, n - 2)
    # The root can be off by one in floating point.
    u = u - (u * (2 * n - u - 1) // 2 > number).long()
    u = u + ((u + 1) * (2 * n - u - 2) // 2 <= number).long()
    return u, number - u * (2 * n - u - 1) // 2 + u + 1


def pair_scores(b: Tensor, h: Tensor, node: Tensor, u: Tensor, v: Tensor) -> Tensor:
    r"""The bilinear form :math:`b_u \cdot h_v + h_u \cdot b_v + \delta_u + \delta_v` of each pair."""
    return gathered_dot(b, h, u, v) + gathered_dot(h, b, u, v) + node[u] + node[v]


def gathered_dot(a: Tensor, b: Tensor, left: Tensor, right: Tensor) -> Tensor:
    r"""Dot products of gathered rows, :math:`s_e = \langle a_{\mathrm{left}(e)}, b_{\mathrm{right}(e)} \rangle`."""
    slices = zip(left.split(_SLICE), right.split(_SLICE), strict=True)
    return torch.cat([(a[i] * b[j]).sum(dim=1) for i, j in slices])


def table_at(table: Tensor, node: Tensor, u: Tensor, v: Tensor) -> Tensor:
    r"""The bilinear form of :func:`pair_scores` from a table of all :math:`b_u \cdot h_v`."""
    return table[u, v] + table[v, u] + node[u] + node[v]


def weighted_median(x: Tensor, values: Tensor, index: Tensor) -> Tensor:
    r"""Whose value is the weighted median of each row's neighbours, dimension by dimension.

    It is the smallest value such that it and those below it have half of the weight, as far as rounding can tell. Of several
    neighbours with that value the first is named. A neighbour of weight 0 is none, unless all are.

    Args:
        x: what each node says, shape ``[nodes, channels]``.
        values: how much each neighbour counts, not negative, shape ``[rows, k]``.
        index: who the neighbours are, shape ``[rows, k]``.

    Returns:
        Nodes, shape ``[rows, channels]``.
    """
    found = []
    size = max(1, _SLICE * 16 // max(1, index.size(1) * x.size(1)))
    for weight, nodes in zip(values.split(size), index.split(size), strict=True):
        # Neighbours last: that is the way they are sorted and added up.
        heard = x[nodes].transpose(1, 2).contiguous()
        ordered, order = heard.sort(dim=2)
        reached = weight[:, None].expand_as(heard).gather(2, order).cumsum_(dim=2)
        place = (reached < half_of(reached[:, :, -1:])).sum(dim=2, keepdim=True)
        is_median = (heard == ordered.gather(2, place)) & (weight > 0)[:, None]
        # The largest of 0 and 1: the first of them where there are several.
        found.append(nodes.gather(1, is_median.byte().argmax(dim=2)))
    return torch.cat(found) if found else index.new_empty(0, x.size(1))


def half_of(total: Tensor) -> Tensor:
    """Half a sum of weights, less what rounding may have taken from it: four equal weights have their half at the second."""
    return total * (0.5 - _ROUNDING * torch.finfo(total.dtype).eps)


def score_tile(b: Tensor, h: Tensor, node: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    """The bilinear form of :func:`pair_scores` for all pairs of ``rows`` and ``cols``, as a dense matrix."""
    above, beside = node[rows][:, None], node[cols][:, None]
    # The degrees' terms are two more channels.
    left = torch.cat([b[rows], h[rows], above, torch.ones_like(above)], dim=1)
    return left @ torch.cat([h[cols], b[cols], torch.ones_like(beside), beside], dim=1).T


def pairs_above(b: Tensor, h: Tensor, node: Tensor, threshold: Tensor, capacity: int) -> tuple[Tensor, int]:
    """Keys of all pairs whose score exceeds a threshold, in no order, and how many there are.

    If there are more than ``capacity``, only the count is of use.
    """
    nodes = torch.arange(b.size(0), device=b.device)
    found: list[Tensor] = []
    count = 0
    size = max(1, _SLICE * 16 // b.size(0))
    for start in range(0, b.size(0), size):
        rows, cols = nodes[start : start + size], nodes[start:]
        i, j = (score_tile(b, h, node, rows, cols) > threshold).triu_(diagonal=1).nonzero(as_tuple=True)
        count += i.numel()
        if count <= capacity:
            found.append(rows[i] * b.size(0) + cols[j])
    return torch.cat(found) if found else nodes[:0], count


def narrow(values: Tensor, thresholds: Tensor, budget: Tensor) -> tuple[Tensor, Tensor]:
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


def lowered(values: Tensor, ends: Tensor, budget: Tensor, largest: Tensor, large: float) -> Tensor:
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


def merge(few: Tensor, many: Tensor) -> tuple[Tensor, Tensor]:
    """The union of two ascending lists of distinct numbers, ascending, and where in it the first list's numbers stand."""
    if few.numel() and many.numel():
        place = torch.searchsorted(many, few).clamp_(max=many.numel() - 1)
        in_both = place[many[place] == few]
        many = many[torch.ones_like(many, dtype=torch.bool).index_fill_(0, in_both, False)]
    # Each number moves up by the numbers of the other list before it.
    few_place = torch.searchsorted(many, few) + torch.arange(few.numel(), device=few.device)
    many_place = torch.searchsorted(few, many) + torch.arange(many.numel(), device=few.device)
    merged = few.new_empty(few.numel() + many.numel())
    return merged.scatter_(0, few_place, few).scatter_(0, many_place, many), few_place


def compact(there: Tensor, number: Tensor, flip: Tensor, kept_number: Tensor, kept_flip: Tensor) -> Tensor:
    """Gather the items that are there, in their order, as many as there is room for; behind them flips of 0.

    Args:
        there: which items to gather, shape ``[b]``, at least one.
        number: of each item.
        flip: of each item.
        kept_number: is written to; what stands behind the gathered items is of no use.
        kept_flip: is written to.

    Returns:
        How many are there.
    """
    up_to = there.cumsum(0, dtype=torch.int32)
    place = torch.searchsorted(up_to, torch.arange(1, kept_flip.numel() + 1, dtype=torch.int32, device=flip.device))
    inside = place < flip.numel()
    place.clamp_(max=flip.numel() - 1)
    kept_number.copy_(number[place])
    kept_flip.copy_(torch.where(inside, flip[place], 0.0))
    return up_to[-1]


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
    take: Callable[[Tensor, Tensor, Tensor, int, Tensor], tuple[Tensor, bool]] = take_in_order,
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
        take: takes items in order.

    Returns:
        Which were taken, shape ``[rows, b]``; and whether all values are finite. If not, what was taken is of no use.
    """
    finite = torch.stack(torch.aminmax(p)).isfinite().all()
    taken = torch.zeros_like(p, dtype=torch.bool)
    if not bool(finite):
        return taken, finite
    box = int(total)
    first = max(_LOOKED_AT_FIRST, min(_LOOKED_AT_PER_FLIP * (box // unit), int(_LOOKED_AT_SHARE * p.size(1))))
    for values, found in zip(p, taken, strict=True):
        wanted, ended = first, False
        while not ended:
            least = _estimate(values, wanted)
            positions = (values >= least if least > 0 else values > 0).nonzero().squeeze(1)
            positions = positions[values[positions].argsort(descending=True, stable=True)]
            fits, ended = take(steps_of(values[positions], unit, whole), u[positions], v[positions], box, local)
            ended, wanted = ended or least <= 0, 8 * wanted
        found[positions] = fits
    return taken, finite


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
