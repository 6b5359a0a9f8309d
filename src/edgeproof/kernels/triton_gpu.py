"""Kernels for NVIDIA GPUs, compiled by Triton on first use."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from edgeproof._tensors import on_host
from edgeproof.kernels import reference
from edgeproof.kernels.reference_sampling import FIRST_EDGE_DRAW, expected_gaps, streams

try:
    import triton

    from edgeproof.kernels import _triton_graphs as graphs
    from edgeproof.kernels import _triton_greedy as greedy
    from edgeproof.kernels import _triton_kernels as kernels
    from edgeproof.kernels import _triton_sampling as sampling
except ImportError:
    triton = None

name = "triton"
devices: tuple[str, ...] = ("cuda",)
summary = (
    "gathered dot products, graphs with flips, projections, pair indices, samples and the search over all pairs; CUDA; float32 "
    "and float64 (search: float32)"
)

merge = reference.merge
weighted_median = reference.weighted_median

# Relative rounding error of a dot product in tf32, in units of the product of the norms: factors keep 11 bits.
TF32_SLACK = 2.0**-10 * 1.1
# Tile of the search over all pairs.
_TILE, _CHANNELS, _WARPS, _STAGES = 128, 32, 8, 4
# Values summed by one program.
_PART = 4096
# Rows per program, and the longest row for which processing rows in parallel pays off, in small and in large matrices.
_ROWS, _LONGEST_SMALL, _LONGEST_LARGE = 16, 1024, 256
# Entries per program of insert_pairs, and new entries of a row compared at once.
_OWN, _CHUNK = 64, 8
# Average number of new entries per node above which sorting is faster than ranking.
_NEW_PER_NODE = 100
# Pairs per step of fill_rows, and its warps.
_FILLED, _FILL_WARPS = 64, 2


def not_supported_reasons(tensors: Sequence[Tensor]) -> list[str]:
    """Return the reasons why these inputs are not supported, or with no inputs, why this machine is not."""
    reasons = reference.not_supported_reasons(tensors)
    if triton is None:
        reasons.append("needs the package triton, which is part of CUDA builds of torch")
    if not tensors and not torch.cuda.is_available():
        reasons.append("needs a CUDA GPU")
    reasons += [f"needs a CUDA GPU, got {tensor.device}" for tensor in tensors if tensor.device.type != "cuda"]
    return reasons


def spmm(
    rowptr: Tensor,
    col: Tensor,
    weight: Tensor,
    x: Tensor,
    longest: int | None = None,
    *,
    few_entries: int = reference.FEW_ENTRIES,
) -> Tensor:
    """See :func:`edgeproof.kernels.reference.spmm`; cuSPARSE unless :func:`rows_are_short`."""
    rows, channels, small = rowptr.numel() - 1, x.size(1), col.numel() <= few_entries
    if not rows_are_short(longest, col.numel(), few_entries) or not (rows and channels):
        return reference.spmm(rowptr, col, weight, x)
    if x.numel() >= 2**31:
        # Offsets into x have the dtype of the columns.
        col = col.long()
    rowptr, col, weight, x = _contiguous(rowptr, col, weight, x)
    out, width = x.new_empty(rows, channels), min(triton.next_power_of_2(channels), 32 if small else 64)
    # Large matrices fill the GPU even with little work per program.
    sizes = (
        {"ROWS": _ROWS, "ENTRIES": max(1, 128 // width)}
        if small
        else {"ROWS": 256 // width, "ENTRIES": 8, "num_warps": 1}
    )
    kernels.spmm[(triton.cdiv(rows, sizes["ROWS"]), triton.cdiv(channels, width))](
        rowptr, col, weight, x, out, rows, channels, CHANNELS=width, **sizes
    )
    return out


def rows_are_short(longest: int | None, entries: int, few_entries: int = reference.FEW_ENTRIES) -> bool:
    """Return whether all rows are known to be so short that several rows per program are faster than cuSPARSE.

    Args:
        longest: Length of the longest row, if known.
        entries: Number of entries of the matrix.
        few_entries: Number of entries up to which the matrix is small.
    """
    return longest is not None and longest <= (_LONGEST_SMALL if entries <= few_entries else _LONGEST_LARGE)


def insert_pairs(
    rowptr: Tensor,
    col: Tensor,
    key: Tensor,
    weight: Tensor,
    diagonal: Tensor,
    u: Tensor,
    v: Tensor,
    flip: Tensor,
    *,
    few_entries: int = reference.FEW_ENTRIES,
    new_per_node: int = _NEW_PER_NODE,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See :func:`edgeproof.kernels.reference.insert_pairs`; ranks instead of sorting if :func:`ranking_is_faster`."""
    nodes, entries, pairs = diagonal.numel(), col.numel(), u.numel()
    size = 2 * pairs + entries + nodes + 1
    fast = ranking_is_faster(nodes, entries, pairs, few_entries=few_entries, new_per_node=new_per_node)
    if not pairs or not fast or weight.requires_grad or flip.requires_grad:
        return reference.insert_pairs(rowptr, col, key, weight, diagonal, u, v, flip)
    before = _contiguous(rowptr, col, key, weight, diagonal, u, v, flip)
    *_, u, v, _ = before
    count = torch.zeros(nodes, dtype=torch.int32, device=col.device)
    begin = count.new_zeros(nodes + 1)
    partner, position = count.new_empty(2 * pairs), count.new_empty(2 * pairs)
    graphs.count_ends[(triton.cdiv(pairs, 256),)](u, v, count, pairs, PART=256)
    torch.cumsum(count, dim=0, dtype=torch.int32, out=begin[1:])
    graphs.list_ends[(triton.cdiv(2 * pairs, 256),)](u, v, count, begin, partner, position, pairs, PART=256)
    new_rowptr, new_diagonal = rowptr.new_empty(nodes + 1), diagonal.new_empty(nodes)
    new_col, new_weight = col.new_empty(entries + 2 * pairs), weight.new_empty(entries + 2 * pairs)
    after, sizes = (new_rowptr, new_col, new_weight, new_diagonal), (nodes, entries, pairs)
    graphs.insert_pairs[(triton.cdiv(size, _OWN),)](
        *before, begin, partner, position, *after, *sizes, OWN=_OWN, CHUNK=_CHUNK
    )
    return after


def ranking_is_faster(
    nodes: int,
    entries: int,
    pairs: int,
    *,
    few_entries: int = reference.FEW_ENTRIES,
    new_per_node: int = _NEW_PER_NODE,
) -> bool:
    """Return whether inserted pairs are ranked within a list per node, which is faster than sorting unless there are many.

    Args:
        nodes: Number of nodes.
        entries: Number of entries of the matrix.
        pairs: Number of pairs to insert.
        few_entries: Maximum number of entries.
        new_per_node: Maximum average number of new entries per node.
    """
    return entries <= few_entries and 2 * pairs <= new_per_node * nodes


def normalize(
    rowptr: Tensor, col: Tensor, weight: Tensor, diagonal: Tensor, *, self_loops: bool, longest: int | None = None
) -> tuple[Tensor, Tensor]:
    """See :func:`edgeproof.kernels.reference.normalize`; two kernels if all rows are known to be short."""
    rows = diagonal.numel()
    if longest is None or longest > _LONGEST_SMALL or weight.requires_grad or not rows:
        return reference.normalize(rowptr, col, weight, diagonal, self_loops=self_loops)
    rowptr, col, weight, diagonal = _contiguous(rowptr, col, weight, diagonal)
    scale, out, grid = weight.new_empty(rows), torch.empty_like(weight), (triton.cdiv(rows, _ROWS),)
    graphs.inverse_roots[grid](rowptr, weight, scale, rows, SELF_LOOPS=self_loops, ROWS=_ROWS, ENTRIES=16)
    graphs.scaled[grid](rowptr, col, weight, diagonal, scale, out, rows, SELF_LOOPS=self_loops, ROWS=_ROWS, ENTRIES=16)
    return out, scale


def normalized_terms(
    b: Sequence[Tensor],
    h: Sequence[Tensor],
    out: Sequence[Tensor],
    grad_x: Sequence[Tensor],
    scale: Tensor,
    *,
    few_numbers: int = reference.FEW_NUMBERS,
) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`edgeproof.kernels.reference.normalized_terms`; reads every input once."""
    if reference.is_small(b, few_numbers):
        return reference.normalized_terms(b, h, out, grad_x, scale, few_numbers=few_numbers)
    rows, widths, scale = scale.numel(), [part.size(1) for part in b], scale.contiguous()
    joined_b, joined_h = scale.new_empty(rows, sum(widths)), scale.new_empty(rows, sum(widths))
    dots, start = torch.zeros_like(scale), 0
    for k, width in enumerate(widths):
        inputs = _contiguous(b[k], h[k], out[k], grad_x[k])
        outputs = (joined_b[:, start:], joined_h[:, start:], dots)
        if rows and width:
            size = min(triton.next_power_of_2(width), 64)
            kernels.normalized_terms[(triton.cdiv(rows, 8),)](
                *inputs, scale, *outputs, rows, width, sum(widths), ROWS=8, CHANNELS=size
            )
        start += width
    return joined_b, joined_h, dots


def table_at(table: Tensor, node: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """See :func:`edgeproof.kernels.reference.table_at`."""
    out = table.new_empty(u.numel())
    if out.numel():
        grid = (triton.cdiv(out.numel(), 1024),)
        graphs.table_at[grid](*_contiguous(table, node, u, v), out, out.numel(), table.size(1), PART=1024)
    return out


def compact(mask: Tensor, index: Tensor, flip: Tensor, out_index: Tensor, out_flip: Tensor) -> Tensor:
    """See :func:`edgeproof.kernels.reference.compact`."""
    rank = mask.cumsum(0, dtype=torch.int32)
    out_flip.zero_()
    grid = (triton.cdiv(flip.numel(), 1024),)
    items = _contiguous(mask, rank, index, flip)
    graphs.compact[grid](*items, out_index, out_flip, flip.numel(), out_flip.numel(), PART=1024)
    return rank[-1]


def gathered_dot(a: Tensor, b: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """See :func:`edgeproof.kernels.reference.gathered_dot`."""
    out = a.new_empty(left.numel())
    if out.numel():
        sizes = _sizes(a.size(1))
        kernels.gathered_dot[(triton.cdiv(out.numel(), sizes["PAIRS"]),)](
            *_contiguous(a, b, left, right), out, out.numel(), a.size(1), **sizes
        )
    return out


def pair_scores(b: Tensor, h: Tensor, node: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """See :func:`edgeproof.kernels.reference.pair_scores`."""
    out = b.new_empty(u.numel())
    if out.numel():
        sizes = _sizes(b.size(1))
        kernels.pair_scores[(triton.cdiv(out.numel(), sizes["PAIRS"]),)](
            *_contiguous(b, h, node, u, v), out, out.numel(), b.size(1), **sizes
        )
    return out


def pairs_above(b: Tensor, h: Tensor, node: Tensor, threshold: Tensor, capacity: int) -> tuple[Tensor, int]:
    """See :func:`edgeproof.kernels.reference.pairs_above`; may return more pairs.

    Products are rounded to tf32. All pairs that could exceed the threshold without the rounding are returned: none is missing,
    but some may be below the threshold.
    """
    if b.dtype != torch.float32:
        return reference.pairs_above(b, h, node, threshold, capacity)
    nodes, channels = b.size(0), 2 * b.size(1)
    left, right = torch.cat([b, h], dim=1), torch.cat([h, b], dim=1)
    keys = torch.empty(capacity, dtype=torch.long, device=b.device)
    num_found = torch.zeros(1, dtype=torch.long, device=b.device)
    tiles = triton.cdiv(nodes, _TILE)
    kernels.pairs_above[(tiles * tiles,)](
        left,
        right,
        node.contiguous(),
        b.norm(dim=1),
        h.norm(dim=1),
        threshold,
        TF32_SLACK,
        num_found,
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
    count = int(num_found)
    return keys[: min(count, capacity)], count


def unrank_pairs(index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """See :func:`edgeproof.kernels.reference.unrank_pairs`."""
    index = index.contiguous()
    u, v = torch.empty_like(index), torch.empty_like(index)
    if index.numel():
        grid = (triton.cdiv(index.numel(), 1024),)
        kernels.unrank_pairs[grid](index, num_nodes, u, v, index.numel(), PART=1024)
    return u, v


def bracket_threshold(values: Tensor, thresholds: Tensor, budget: Tensor) -> tuple[Tensor, Tensor]:
    """See :func:`edgeproof.kernels.reference.bracket_threshold`; partial sums are added in a fixed order."""
    values, thresholds = _contiguous(values, thresholds)
    parts, count = triton.cdiv(values.numel(), _PART), thresholds.numel()
    sums = torch.empty(parts, count, dtype=torch.float64, device=values.device)
    kernels.clipped_sums[(parts,)](values, thresholds, sums, values.numel(), PART=_PART, STEP=128, THRESHOLDS=count)
    divided, ends = torch.empty_like(thresholds), thresholds.new_empty(2, 2)
    kernels.bracket_threshold[(1,)](
        sums, thresholds, budget, divided, ends, parts, ROWS=128, THRESHOLDS=count, num_warps=8
    )
    return divided, ends


def apply_threshold(values: Tensor, ends: Tensor, budget: Tensor, largest: Tensor, large: float) -> Tensor:
    """See :func:`edgeproof.kernels.reference.apply_threshold`."""
    values, ends = _contiguous(values, ends)
    out = torch.empty_like(values)
    if out.numel():
        grid = (triton.cdiv(out.numel(), 1024),)
        kernels.apply_threshold[grid](values, ends, budget, largest, out, out.numel(), LARGE=large, PART=1024)
    return out


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
    group: int = 32,
) -> tuple[Tensor, Tensor]:
    """See :func:`edgeproof.kernels.reference.take_largest`; sorts all values, then runs one program per row.

    ``chunk`` values are examined at once, and those that compete for a budget in groups of ``group``; both are powers of 2.
    """
    window = chunk or 2048
    p, u, v = _contiguous(p, u, v)
    rows, count = p.shape
    value, position = p.sort(dim=1, descending=True, stable=True)
    finite = torch.empty(rows, dtype=torch.bool, device=p.device)
    room, taken = local.repeat(rows, 1), torch.zeros_like(p, dtype=torch.bool)
    contested = room.new_empty(rows, 4, window)
    buffers = (value, position, u, v, total, room, torch.zeros_like(room), contested, taken, finite)
    sizes = {"WINDOW": window, "GROUP": group, "num_warps": min(16, window // 32)}
    greedy.take[(rows,)](*buffers, unit, count, local.numel(), WHOLE=whole, **sizes)
    return taken, finite.all()


def sample_graphs(
    index: Tensor,
    u: Tensor,
    v: Tensor,
    num_nodes: int,
    p_add: float,
    p_del: float,
    seed: int,
    first: int,
    count: int,
    *,
    num_gaps: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, int | None]:
    """See :func:`edgeproof.kernels.reference.sample_graphs`; one sample per program, without sorting."""
    n, edges, total, device = num_nodes, index.numel(), num_nodes * (num_nodes - 1) // 2, index.device
    index, u, v = _contiguous(index, u, v)
    stream = streams(seed, torch.arange(first, first + count, device=device))
    gaps = (num_gaps or expected_gaps(total, p_add)) if p_add else 0
    while True:
        pair_u, pair_v = torch.empty(2, count, gaps + edges, dtype=torch.int32, device=device)
        drawn, last = (torch.empty(count, size, dtype=torch.long, device=device) for size in (gaps, 1))
        upper, lower = torch.zeros(2, count * n, dtype=torch.long, device=device)
        scale, edge_steps, gap_steps = 1 / math.log1p(-p_add) if gaps else 0.0, edges.bit_length(), gaps.bit_length()
        sampling.draw_pairs[(count,)](
            *(stream, index, u, v, edges, FIRST_EDGE_DRAW, n, total, p_del, scale, gaps, edge_steps, gap_steps),
            *(drawn, pair_u, pair_v, upper, lower, last),
            PART=1024,
        )
        length = upper + lower + 1
        rowptr = torch.zeros(count * n + 1, dtype=torch.long, device=device)
        torch.cumsum(length, dim=0, out=rowptr[1:])
        # One host-device sync for all three.
        entries, longest, reached = on_host(torch.stack([rowptr[-1], length.amax(), last.amin()])).tolist()
        if not gaps or reached >= total:
            break
        gaps *= 2
    diagonal = rowptr[:-1] + lower
    col = torch.empty(entries, dtype=torch.long, device=device)
    col[diagonal] = torch.arange(count * n, device=device)
    ahead = upper.cumsum(0) - upper
    sampling.fill_rows[(count,)](
        *(pair_u, pair_v, ahead, diagonal + 1 - ahead, rowptr[:-1].clone(), col, n, gaps + edges),
        PART=_FILLED,
        num_warps=_FILL_WARPS,
    )
    return rowptr, col, diagonal, longest


def _contiguous(*tensors: Tensor) -> list[Tensor]:
    """Return contiguous tensors: the kernels take no strides."""
    return [tensor.contiguous() for tensor in tensors]


def _sizes(channels: int) -> dict[str, int]:
    """Return the number of pairs and channels per program."""
    width = min(triton.next_power_of_2(max(1, channels)), 32 if channels < 128 else 64)
    return {"PAIRS": 8, "CHANNELS": width}
