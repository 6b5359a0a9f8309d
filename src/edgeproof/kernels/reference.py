"""The kernels in plain torch: always available, on any device, and the definition of correct."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from edgeproof.kernels import _plain_projections as projections

name = "reference"
summary = "plain torch; any device; float32 and float64"

bracket_threshold = projections.bracket_threshold
apply_threshold = projections.apply_threshold
take_largest = projections.take_largest

# Pairs per slice of a gathered dot product: bounds the memory of the gathered rows.
_SLICE = 1 << 18
# Entries of a matrix that a GPU is done with before the host has asked for more.
FEW_ENTRIES = 1 << 18
# Numbers of all calls together that are joined before anything is computed from them.
FEW_NUMBERS = 1 << 20
# Units of rounding by which a sum of weights may be wrong.
_ROUNDING = 64

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


def normalized_terms(
    b: Sequence[Tensor],
    h: Sequence[Tensor],
    out: Sequence[Tensor],
    grad_x: Sequence[Tensor],
    scale: Tensor,
    dot: Callable[[Tensor, Tensor], Tensor] = torch.linalg.vecdot,
    multiple: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""What the gradient of a normalised matrix is made from: :math:`s_u b_k[u]` and :math:`s_u h_k[u]` of all calls side by
    side, and :math:`\sum_k b_k[u] \cdot o_k[u] + (\hat A^\top b_k)[u] \cdot h_k[u]`.

    Few numbers are joined first, for a GPU would spend its time on launches; many are not, for their products would need
    several times the memory of the result.

    Args:
        b: of each call, shape ``[nodes, channels]``, as are the next three.
        h: what went in.
        out: what came out.
        grad_x: what went back.
        scale: :math:`s`, shape ``[nodes]``.
        dot: the dot products of two matrices, row by row.
        multiple: rows are filled up with zeros to a multiple of so many channels.
    """
    missing = -sum(part.size(1) for part in b) % multiple
    if missing:
        zeros = [scale.new_zeros(scale.numel(), missing)]
        b, h, out, grad_x = ([*parts, *zeros] for parts in (b, h, out, grad_x))
    if are_few(b):
        column, joined_b, joined_h = scale[:, None], join(b), join(h)
        blame = torch.addcmul(joined_b * join(out), join(grad_x), joined_h).sum(dim=1)
        return joined_b * column, joined_h * column, blame
    blame = torch.zeros_like(scale)
    for left, right in zip([*b, *grad_x], [*out, *h], strict=True):
        blame += dot(left, right)
    return _join_scaled(b, scale), _join_scaled(h, scale), blame


def are_few(parts: Sequence[Tensor]) -> bool:
    """Whether these are matrices of few numbers, all together."""
    return bool(parts) and sum(part.numel() for part in parts) <= FEW_NUMBERS


def join(parts: Sequence[Tensor]) -> Tensor:
    """Matrices side by side."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=1)


def _join_scaled(parts: Sequence[Tensor], scale: Tensor) -> Tensor:
    widths = [part.size(1) for part in parts]
    joined = scale.new_empty(scale.numel(), sum(widths))
    for part, place in zip(parts, joined.split(widths, dim=1), strict=True):
        torch.mul(part, scale[:, None], out=place)
    return joined


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
