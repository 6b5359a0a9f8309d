"""Kernels for NVIDIA GPUs, compiled by Triton on first use."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from edgeproof.kernels import reference

try:
    import triton

    from edgeproof.kernels import _triton_graphs as graphs
    from edgeproof.kernels import _triton_greedy as greedy
    from edgeproof.kernels import _triton_kernels as programs
except ImportError:
    triton = None

name = "triton"
summary = (
    "gathered dot products, graphs with flips, projections, numbers of pairs and the search over all of them; CUDA; float32 "
    "(but for the search float64)"
)

merge = reference.merge
weighted_median = reference.weighted_median

# Rounding of a dot product in tf32, relative to the product of the two rows' norms: each factor keeps 11 bits.
_SLACK = 2.0**-10 * 1.1
_TILE = 128
# Values that one program adds up.
_PART = 4096
_WARPS, _STAGES, _CHANNELS = 8, 4, 32
# Rows side by side in a product with few entries; and how long the longest may be, with few and with more.
_ROWS, _LONG, _LONG_OF_MANY = 16, 1024, 256
# Of pairs put into a matrix: so many entries are placed by a program, and compared with so many of their row at once. With more
# of them at a node, on average, or many entries, it is faster to sort.
_OWN, _CHUNK, _LISTED = 64, 8, 100
# Of values that are taken one after another: how many are looked at together, and of those that fit, how many.
_WIDE, _GROUP = 2048, 32


def not_supported_reasons(tensors: Sequence[Tensor]) -> list[str]:
    """Why these inputs cannot be served; empty if they can. With no inputs: why this machine cannot."""
    reasons = reference.not_supported_reasons(tensors)
    if triton is None:
        reasons.append("needs the package triton, which CUDA builds of torch bring along")
    if not tensors and not torch.cuda.is_available():
        reasons.append("needs a CUDA GPU")
    reasons += [f"needs a CUDA GPU, got {tensor.device}" for tensor in tensors if tensor.device.type != "cuda"]
    return reasons


def spmm(rowptr: Tensor, col: Tensor, weight: Tensor, x: Tensor, longest: int | None = None) -> Tensor:
    """See :func:`edgeproof.kernels.reference.spmm`.

    cuSPARSE's, unless rows are known to be short: then several of them, side by side, are twice as fast.
    """
    rows, channels, few = rowptr.numel() - 1, x.size(1), col.numel() <= reference.FEW_ENTRIES
    if longest is None or longest > (_LONG if few else _LONG_OF_MANY) or not (rows and channels):
        return reference.spmm(rowptr, col, weight, x)
    if x.numel() >= 2**31:
        # Places in it are counted in the type of columns.
        col = col.long()
    rowptr, col, weight, x = _gapless(rowptr, col, weight, x)
    out, width = x.new_empty(rows, channels), min(triton.next_power_of_2(channels), 32 if few else 64)
    # Many rows leave no part of a GPU idle, however little a program does.
    sizes = (
        {"ROWS": _ROWS, "ENTRIES": max(1, 128 // width)}
        if few
        else {"ROWS": 256 // width, "ENTRIES": 8, "num_warps": 1}
    )
    programs.spmm[(triton.cdiv(rows, sizes["ROWS"]), triton.cdiv(channels, width))](
        rowptr, col, weight, x, out, rows, channels, CHANNELS=width, **sizes
    )
    return out


def insert_pairs(
    rowptr: Tensor, col: Tensor, key: Tensor, weight: Tensor, diagonal: Tensor, u: Tensor, v: Tensor, flip: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See :func:`edgeproof.kernels.reference.insert_pairs`.

    Where there are not very many at a node, they are not sorted but listed by node, and ranked within its list.
    """
    nodes, entries, pairs = diagonal.numel(), col.numel(), u.numel()
    placed = 2 * pairs + entries + nodes + 1
    many = entries > reference.FEW_ENTRIES or 2 * pairs > _LISTED * nodes
    if not pairs or many or weight.requires_grad or flip.requires_grad:
        return reference.insert_pairs(rowptr, col, key, weight, diagonal, u, v, flip)
    before = _gapless(rowptr, col, key, weight, diagonal, u, v, flip)
    *_, u, v, _ = before
    count = torch.zeros(nodes, dtype=torch.int32, device=col.device)
    begin = count.new_zeros(nodes + 1)
    sender, place = count.new_empty(2 * pairs), count.new_empty(2 * pairs)
    graphs.count_ends[(triton.cdiv(pairs, 256),)](u, v, count, pairs, PART=256)
    torch.cumsum(count, dim=0, dtype=torch.int32, out=begin[1:])
    graphs.list_ends[(triton.cdiv(2 * pairs, 256),)](u, v, count, begin, sender, place, pairs, PART=256)
    new_rowptr, new_diagonal = rowptr.new_empty(nodes + 1), diagonal.new_empty(nodes)
    new_col, new_weight = col.new_empty(entries + 2 * pairs), weight.new_empty(entries + 2 * pairs)
    after, sizes = (new_rowptr, new_col, new_weight, new_diagonal), (nodes, entries, pairs)
    graphs.insert_pairs[(triton.cdiv(placed, _OWN),)](
        *before, begin, sender, place, *after, *sizes, OWN=_OWN, CHUNK=_CHUNK
    )
    return after


def normalize(
    rowptr: Tensor, col: Tensor, weight: Tensor, diagonal: Tensor, *, self_loops: bool, longest: int | None = None
) -> tuple[Tensor, Tensor]:
    """See :func:`edgeproof.kernels.reference.normalize`; rows that are known to be short, side by side."""
    rows = diagonal.numel()
    if longest is None or longest > _LONG or weight.requires_grad or not rows:
        return reference.normalize(rowptr, col, weight, diagonal, self_loops=self_loops)
    rowptr, col, weight, diagonal = _gapless(rowptr, col, weight, diagonal)
    scale, out, grid = weight.new_empty(rows), torch.empty_like(weight), (triton.cdiv(rows, _ROWS),)
    graphs.inverse_roots[grid](rowptr, weight, scale, rows, SELF_LOOPS=self_loops, ROWS=_ROWS, ENTRIES=16)
    graphs.scaled[grid](rowptr, col, weight, diagonal, scale, out, rows, SELF_LOOPS=self_loops, ROWS=_ROWS, ENTRIES=16)
    return out, scale


def normalized_terms(
    b: Sequence[Tensor], h: Sequence[Tensor], out: Sequence[Tensor], grad_x: Sequence[Tensor], scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`edgeproof.kernels.reference.normalized_terms`; what a call left is read once."""
    if reference.are_few(b):
        return reference.normalized_terms(b, h, out, grad_x, scale)
    rows, widths, scale = scale.numel(), [part.size(1) for part in b], scale.contiguous()
    joined_b, joined_h = scale.new_empty(rows, sum(widths)), scale.new_empty(rows, sum(widths))
    blame, start = torch.zeros_like(scale), 0
    for call, width in enumerate(widths):
        parts = _gapless(b[call], h[call], out[call], grad_x[call])
        places = (joined_b[:, start:], joined_h[:, start:], blame)
        if rows and width:
            size = min(triton.next_power_of_2(width), 64)
            programs.normalized_terms[(triton.cdiv(rows, 8),)](
                *parts, scale, *places, rows, width, sum(widths), ROWS=8, CHANNELS=size
            )
        start += width
    return joined_b, joined_h, blame


def table_at(table: Tensor, node: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """See :func:`edgeproof.kernels.reference.table_at`."""
    out = table.new_empty(u.numel())
    if out.numel():
        grid = (triton.cdiv(out.numel(), 1024),)
        graphs.table_at[grid](*_gapless(table, node, u, v), out, out.numel(), table.size(1), PART=1024)
    return out


def compact(there: Tensor, number: Tensor, flip: Tensor, kept_number: Tensor, kept_flip: Tensor) -> Tensor:
    """See :func:`edgeproof.kernels.reference.compact`."""
    up_to = there.cumsum(0, dtype=torch.int32)
    kept_flip.zero_()
    grid = (triton.cdiv(flip.numel(), 1024),)
    items = _gapless(there, up_to, number, flip)
    graphs.compact[grid](*items, kept_number, kept_flip, flip.numel(), kept_flip.numel(), PART=1024)
    return up_to[-1]


def gathered_dot(a: Tensor, b: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """See :func:`edgeproof.kernels.reference.gathered_dot`."""
    out = a.new_empty(left.numel())
    if out.numel():
        sizes = _sizes(a.size(1))
        programs.gathered_dot[(triton.cdiv(out.numel(), sizes["PAIRS"]),)](
            *_gapless(a, b, left, right), out, out.numel(), a.size(1), **sizes
        )
    return out


def pair_scores(b: Tensor, h: Tensor, node: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """See :func:`edgeproof.kernels.reference.pair_scores`."""
    out = b.new_empty(u.numel())
    if out.numel():
        sizes = _sizes(b.size(1))
        programs.pair_scores[(triton.cdiv(out.numel(), sizes["PAIRS"]),)](
            *_gapless(b, h, node, u, v), out, out.numel(), b.size(1), **sizes
        )
    return out


def pairs_above(b: Tensor, h: Tensor, node: Tensor, threshold: Tensor, capacity: int) -> tuple[Tensor, int]:
    """Keys of all pairs whose score may exceed a threshold, in no order, and how many there are.

    Products are rounded to tf32, and every pair is kept that could exceed the threshold without the rounding: none is
    missed, some may be too many. If there are more than ``capacity``, only the count is of use.
    """
    if b.dtype != torch.float32:
        return reference.pairs_above(b, h, node, threshold, capacity)
    nodes, channels = b.size(0), 2 * b.size(1)
    left, right = torch.cat([b, h], dim=1), torch.cat([h, b], dim=1)
    keys = torch.empty(capacity, dtype=torch.long, device=b.device)
    found = torch.zeros(1, dtype=torch.long, device=b.device)
    tiles = triton.cdiv(nodes, _TILE)
    programs.pairs_above[(tiles * tiles,)](
        left,
        right,
        node.contiguous(),
        b.norm(dim=1),
        h.norm(dim=1),
        threshold,
        _SLACK,
        found,
        capacity,
        keys,
        nodes,
        tiles,
        channels,
        ROWS=_TILE,
        COLS=_TILE,
        CHANNELS=_CHANNELS,
        GROUP=8,
        PRECISION="tf32",
        num_warps=_WARPS,
        num_stages=_STAGES,
    )
    count = int(found)
    return keys[: min(count, capacity)], count


def unrank_pairs(number: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """See :func:`edgeproof.kernels.reference.unrank_pairs`."""
    number = number.contiguous()
    u, v = torch.empty_like(number), torch.empty_like(number)
    if number.numel():
        grid = (triton.cdiv(number.numel(), 1024),)
        programs.unrank_pairs[grid](number, num_nodes, u, v, number.numel(), PART=1024)
    return u, v


def bracket_threshold(values: Tensor, thresholds: Tensor, budget: Tensor) -> tuple[Tensor, Tensor]:
    """See :func:`edgeproof.kernels.reference.bracket_threshold`; parts are added up in a fixed order."""
    values, thresholds = _gapless(values, thresholds)
    parts, count = triton.cdiv(values.numel(), _PART), thresholds.numel()
    sums = torch.empty(parts, count, dtype=torch.float64, device=values.device)
    programs.clipped_sums[(parts,)](values, thresholds, sums, values.numel(), PART=_PART, STEP=128, THRESHOLDS=count)
    divided, ends = torch.empty_like(thresholds), thresholds.new_empty(2, 2)
    programs.bracket_threshold[(1,)](
        sums, thresholds, budget, divided, ends, parts, ROWS=128, THRESHOLDS=count, num_warps=8
    )
    return divided, ends


def apply_threshold(values: Tensor, ends: Tensor, budget: Tensor, largest: Tensor, large: float) -> Tensor:
    """See :func:`edgeproof.kernels.reference.apply_threshold`."""
    values, ends = _gapless(values, ends)
    out = torch.empty_like(values)
    if out.numel():
        grid = (triton.cdiv(out.numel(), 1024),)
        programs.apply_threshold[grid](values, ends, budget, largest, out, out.numel(), LARGE=large, PART=1024)
    return out


def take_largest(
    p: Tensor, u: Tensor, v: Tensor, total: Tensor, local: Tensor, unit: int, *, whole: bool
) -> tuple[Tensor, Tensor]:
    """See :func:`edgeproof.kernels.reference.take_largest`: all are sorted, then one program goes through a row."""
    p, u, v = _gapless(p, u, v)
    rows, count = p.shape
    value, position = p.sort(dim=1, descending=True, stable=True)
    finite = torch.empty(rows, dtype=torch.bool, device=p.device)
    room, taken = local.repeat(rows, 1), torch.zeros_like(p, dtype=torch.bool)
    disputed = room.new_empty(rows, 4, _WIDE)
    buffers = (value, position, u, v, total, room, torch.zeros_like(room), disputed, taken, finite)
    sizes = {"WIDE": _WIDE, "GROUP": _GROUP, "num_warps": min(16, _WIDE // 32)}
    greedy.take[(rows,)](*buffers, unit, count, local.numel(), WHOLE=whole, **sizes)
    return taken, finite.all()


def _gapless(*tensors: Tensor) -> list[Tensor]:
    """Tensors as programs read them, which know of no strides."""
    return [tensor.contiguous() for tensor in tensors]


def _sizes(channels: int) -> dict[str, int]:
    """Pairs and channels per program."""
    width = min(triton.next_power_of_2(max(1, channels)), 32 if channels < 128 else 64)
    return {"PAIRS": 8, "CHANNELS": width}
