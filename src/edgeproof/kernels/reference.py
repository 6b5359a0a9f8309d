"""Kernels in plain torch, available on any device. They define the correct results of all backends.

The kernels on pairs, thresholds, greedy selection and sampling are in the ``reference_*`` modules next to this one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from edgeproof.kernels.reference_greedy import take_largest
from edgeproof.kernels.reference_pairs import (
    gathered_dot,
    pair_scores,
    pairs_above,
    score_tile,
    table_at,
    unrank_pairs,
)
from edgeproof.kernels.reference_sampling import sample_graphs
from edgeproof.kernels.reference_thresholds import apply_threshold, bracket_threshold

__all__ = [
    "FEW_ENTRIES",
    "FEW_NUMBERS",
    "apply_threshold",
    "bracket_threshold",
    "compact",
    "devices",
    "gathered_dot",
    "half_of",
    "insert_pairs",
    "is_small",
    "join",
    "merge",
    "name",
    "normalize",
    "normalized_terms",
    "normalized_terms_by",
    "not_supported_reasons",
    "pair_scores",
    "pairs_above",
    "sample_graphs",
    "score_tile",
    "spmm",
    "summary",
    "table_at",
    "take_largest",
    "unrank_pairs",
    "weighted_median",
]

name = "reference"
# No restriction.
devices: tuple[str, ...] = ()
summary = "plain torch; any device; float32 and float64"

# Entries up to which a matrix is small: a GPU computes with it faster than the host launches kernels.
FEW_ENTRIES = 1 << 18
# Numbers up to which matrices are concatenated before anything is computed from them.
FEW_NUMBERS = 1 << 20
# Numbers gathered at once by the weighted median: bounds its memory.
_GATHERED = 1 << 22
# Rounding error of a sum of weights, in units of the machine epsilon.
_ROUNDING = 64

# torch warns once per process that CSR tensors are in beta. Users cannot act on it, so it is triggered here and ignored.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0, 0], [], [], size=(1, 1))


def not_supported_reasons(tensors: Sequence[Tensor]) -> list[str]:
    """Return the reasons why these inputs are not supported, or with no inputs, why this machine is not."""
    return [
        f"needs float32 or float64, got {tensor.dtype}"
        for tensor in tensors
        if tensor.is_floating_point() and tensor.dtype not in (torch.float32, torch.float64)
    ]


def spmm(rowptr: Tensor, col: Tensor, weight: Tensor, x: Tensor, longest: int | None = None) -> Tensor:
    r"""Return the sparse-dense product :math:`o_u = \sum_{e \in \mathrm{row}(u)} w_e x_{\mathrm{col}(e)}`.

    Args:
        rowptr: Start of each row, shape ``[rows + 1]``.
        col: Column of each entry, shape ``[entries]``.
        weight: Weight of each entry, shape ``[entries]``.
        x: Dense matrix, shape ``[columns, channels]``.
        longest: Approximate length of the longest row, if known. Affects the speed only.
    """
    if not col.numel():
        # cuSPARSE rejects a matrix without entries.
        return x.new_zeros(rowptr.numel() - 1, x.size(1))
    size = (rowptr.numel() - 1, x.size(0))
    if col.numel() > size[0] * size[1]:
        # cuSPARSE rejects more entries than positions, as repeated edges of a very small graph produce.
        row = torch.arange(size[0], device=col.device).repeat_interleave(rowptr.diff())
        return x.new_zeros(size).index_put_((row, col), weight, accumulate=True) @ x
    return torch.sparse_csr_tensor(rowptr, col, weight, size=size, check_invariants=False) @ x


def insert_pairs(
    rowptr: Tensor, col: Tensor, key: Tensor, weight: Tensor, diagonal: Tensor, u: Tensor, v: Tensor, flip: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Flip pairs partially, in both directions, in a sparse square 0/1 matrix; only the pairs are sorted.

    Every pair adds two entries, so that no shape depends on values. If the matrix already has an entry for a pair, the flip
    is subtracted from the first such entry, and the new entry gets weight 0.

    Args:
        rowptr: Start of each row, shape ``[nodes + 1]``.
        col: Column of each entry, ascending within a row, shape ``[entries]``.
        key: ``row * nodes + col`` of each entry, shape ``[entries]``.
        weight: Weight of each entry, shape ``[entries]``.
        diagonal: Positions of the diagonal entries, shape ``[nodes]``.
        u: First node of each pair, shape ``[pairs]``.
        v: Second node of each pair, shape ``[pairs]``.
        flip: Amount by which each pair is flipped, shape ``[pairs]``. Pairs may be repeated with flip 0.

    Returns:
        ``rowptr``, ``col``, ``weight`` and ``diagonal`` of the matrix with ``2 * pairs`` more entries.
    """
    n = rowptr.numel() - 1
    new, order = torch.cat([u * n + v, v * n + u]).sort(stable=True)
    flip = torch.cat([flip, flip])[order]

    # Position of each new entry among the old ones, and whether an old entry has the same key.
    before = torch.searchsorted(key, new)
    nearest = before.clamp(max=key.numel() - 1)
    exists = key[nearest] == new
    changed = weight.index_add(0, nearest, torch.where(exists, -flip, 0.0))
    added = torch.where(exists, 0.0, flip)

    # Old entry i moves up by the number of new entries before it.
    entries = torch.arange(key.numel(), device=key.device)
    old_position = entries + torch.searchsorted(before, entries, right=True)
    new_position = before + torch.arange(new.numel(), device=key.device)
    size = (key.numel() + new.numel(),)
    col = col.new_empty(size).scatter_(0, old_position, col).scatter_(0, new_position, new % n)
    weight = changed.new_empty(size).scatter(0, old_position, changed).scatter(0, new_position, added)
    rowptr = rowptr + torch.searchsorted(new, torch.arange(n + 1, device=key.device) * n)
    return rowptr, col, weight, old_position[diagonal]


def normalize(
    rowptr: Tensor, col: Tensor, weight: Tensor, diagonal: Tensor, *, self_loops: bool, longest: int | None = None
) -> tuple[Tensor, Tensor]:
    r"""Return the weights :math:`s_u \tilde A_{uv} s_v` and the scale :math:`s = d^{-1/2}`, 0 where the degree :math:`d` is 0.

    Differentiable in the weights.

    Args:
        rowptr: Start of each row, shape ``[nodes + 1]``.
        col: Column of each entry, shape ``[entries]``.
        weight: Weight of each entry, shape ``[entries]``.
        diagonal: Positions of the diagonal entries, shape ``[nodes]``.
        self_loops: Whether :math:`\tilde A` is the matrix plus the identity instead of the matrix itself.
        longest: Approximate length of the longest row, if known. Affects the speed only.
    """
    if self_loops:
        weight = weight.index_add(0, diagonal, weight.new_ones(diagonal.numel()))
    if weight.requires_grad:
        degree = torch.segment_reduce(weight, "sum", offsets=rowptr, initial=0.0, unsafe=True)
    else:
        # On a GPU, unlike segment_reduce, as fast for rows of very different lengths.
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
    *,
    few_numbers: int = FEW_NUMBERS,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return the terms of the gradient of a normalised matrix that is used in several products :math:`o_k = \hat A h_k`.

    Args:
        b: Output gradient :math:`b_k` of each product, shape ``[nodes, channels]`` each.
        h: Input :math:`h_k` of each product.
        out: Output :math:`o_k` of each product.
        grad_x: Input gradient :math:`\hat A^\top b_k` of each product.
        scale: Scale :math:`s`, shape ``[nodes]``.
        few_numbers: Numbers up to which the matrices are concatenated first: fewer kernel launches, but more memory.

    Returns:
        :math:`s_u b_k[u]` of all products side by side; :math:`s_u h_k[u]` likewise; and
        :math:`\sum_k b_k[u] \cdot o_k[u] + (\hat A^\top b_k)[u] \cdot h_k[u]`, shape ``[nodes]``.
    """
    return normalized_terms_by(torch.linalg.vecdot, b, h, out, grad_x, scale, few_numbers=few_numbers)


def normalized_terms_by(
    dot: Callable[[Tensor, Tensor], Tensor],
    b: Sequence[Tensor],
    h: Sequence[Tensor],
    out: Sequence[Tensor],
    grad_x: Sequence[Tensor],
    scale: Tensor,
    *,
    few_numbers: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return :func:`normalized_terms`, given a row-wise dot product of two matrices."""
    if is_small(b, few_numbers):
        column, joined_b, joined_h = scale[:, None], join(b), join(h)
        dots = torch.addcmul(joined_b * join(out), join(grad_x), joined_h).sum(dim=1)
        return joined_b * column, joined_h * column, dots
    dots = torch.zeros_like(scale)
    for left, right in zip([*b, *grad_x], [*out, *h], strict=True):
        dots += dot(left, right)
    return _join_scaled(b, scale), _join_scaled(h, scale), dots


def is_small(parts: Sequence[Tensor], few_numbers: int) -> bool:
    """Return whether there are tensors and they have at most ``few_numbers`` elements in total."""
    return bool(parts) and sum(part.numel() for part in parts) <= few_numbers


def join(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate matrices along their columns."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=1)


def _join_scaled(parts: Sequence[Tensor], scale: Tensor) -> Tensor:
    widths = [part.size(1) for part in parts]
    joined = scale.new_empty(scale.numel(), sum(widths))
    for part, columns in zip(parts, joined.split(widths, dim=1), strict=True):
        torch.mul(part, scale[:, None], out=columns)
    return joined


def weighted_median(x: Tensor, values: Tensor, index: Tensor) -> Tensor:
    r"""Return the neighbour whose value is the weighted median of each row's neighbours, per channel.

    The weighted median is the smallest value such that it and the values below it have at least half of the total weight, up
    to rounding. Ties go to the first neighbour. Neighbours of weight 0 are ignored, unless all weights are 0.

    Args:
        x: Node values, shape ``[nodes, channels]``.
        values: Non-negative weight of each neighbour, shape ``[rows, k]``.
        index: Node id of each neighbour, shape ``[rows, k]``.

    Returns:
        Node ids, shape ``[rows, channels]``.
    """
    medians = []
    size = max(1, _GATHERED // max(1, index.size(1) * x.size(1)))
    for weight, nodes in zip(values.split(size), index.split(size), strict=True):
        # The neighbour dimension is last, because sort and cumsum run along it.
        gathered = x[nodes].transpose(1, 2).contiguous()
        ordered, order = gathered.sort(dim=2)
        cumulative = weight[:, None].expand_as(gathered).gather(2, order).cumsum_(dim=2)
        position = (cumulative < half_of(cumulative[:, :, -1:])).sum(dim=2, keepdim=True)
        is_median = (gathered == ordered.gather(2, position)) & (weight > 0)[:, None]
        # argmax returns the first of several maxima.
        medians.append(nodes.gather(1, is_median.byte().argmax(dim=2)))
    return torch.cat(medians) if medians else index.new_empty(0, x.size(1))


def half_of(total: Tensor) -> Tensor:
    """Return half of a sum of weights, minus its rounding error: the median of four equal weights is the second."""
    return total * (0.5 - _ROUNDING * torch.finfo(total.dtype).eps)


def merge(few: Tensor, many: Tensor) -> tuple[Tensor, Tensor]:
    """Merge two ascending lists of distinct integers.

    Args:
        few: First list, shape ``[m]``.
        many: Second list, shape ``[n]``.

    Returns:
        The ascending union; and the positions in it of the first list, shape ``[m]``.
    """
    if few.numel() and many.numel():
        position = torch.searchsorted(many, few).clamp_(max=many.numel() - 1)
        in_both = position[many[position] == few]
        many = many[torch.ones_like(many, dtype=torch.bool).index_fill_(0, in_both, False)]
    # Each integer moves up by the number of smaller ones in the other list.
    few_position = torch.searchsorted(many, few) + torch.arange(few.numel(), device=few.device)
    many_position = torch.searchsorted(few, many) + torch.arange(many.numel(), device=few.device)
    merged = few.new_empty(few.numel() + many.numel())
    return merged.scatter_(0, few_position, few).scatter_(0, many_position, many), few_position


def compact(mask: Tensor, index: Tensor, flip: Tensor, out_index: Tensor, out_flip: Tensor) -> Tensor:
    """Gather the masked items in order into buffers of fixed capacity, padded with flips of 0.

    Args:
        mask: Items to gather, shape ``[b]`` with ``b >= 1``.
        index: Pair index of each item, shape ``[b]``.
        flip: Flip of each item, shape ``[b]``.
        out_index: Output buffer, shape ``[capacity]``; undefined behind the gathered items.
        out_flip: Output buffer, shape ``[capacity]``.

    Returns:
        The number of masked items, which may exceed the capacity.
    """
    rank = mask.cumsum(0, dtype=torch.int32)
    position = torch.searchsorted(rank, torch.arange(1, out_flip.numel() + 1, dtype=torch.int32, device=flip.device))
    inside = position < flip.numel()
    position.clamp_(max=flip.numel() - 1)
    out_index.copy_(index[position])
    out_flip.copy_(torch.where(inside, flip[position], 0.0))
    return rank[-1]
