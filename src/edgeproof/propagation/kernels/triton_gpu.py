"""Kernels for NVIDIA GPUs, compiled by Triton on first use."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from edgeproof.propagation.kernels import reference

try:
    import triton

    from edgeproof.propagation.kernels import _triton_kernels as programs
except ImportError:
    triton = None

name = "triton"
summary = "gathered dot products and the search over all pairs; CUDA; float32 (and float64 but for the search)"

merge = reference.merge
# cuSPARSE's: a product of our own, a row per program, was slower.
spmm = reference.spmm

# Rounding of a dot product in tf32, relative to the product of the two rows' norms: each factor keeps 11 bits.
_SLACK = 2.0**-10 * 1.1
_TILE = 128
# Items that a program takes in order at once, and a place after all items.
_GROUP, _LATE = 2048, 2**31 - 1
# Values that one program adds up.
_PART = 4096
_WARPS, _STAGES, _CHANNELS = 8, 4, 32


def not_supported_reasons(tensors: Sequence[Tensor]) -> list[str]:
    """Why these inputs cannot be served; empty if they can. With no inputs: why this machine cannot."""
    reasons = reference.not_supported_reasons(tensors)
    if triton is None:
        reasons.append("needs the package triton, which CUDA builds of torch bring along")
    if not tensors and not torch.cuda.is_available():
        reasons.append("needs a CUDA GPU")
    reasons += [f"needs a CUDA GPU, got {tensor.device}" for tensor in tensors if tensor.device.type != "cuda"]
    return reasons


def gathered_dot(a: Tensor, b: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """See :func:`edgeproof.propagation.kernels.reference.gathered_dot`."""
    out = a.new_empty(left.numel())
    if out.numel():
        sizes = _sizes(a.size(1))
        programs.gathered_dot[(triton.cdiv(out.numel(), sizes["PAIRS"]),)](
            a.contiguous(), b.contiguous(), left, right, out, out.numel(), a.size(1), **sizes
        )
    return out


def pair_scores(b: Tensor, h: Tensor, node: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """See :func:`edgeproof.propagation.kernels.reference.pair_scores`."""
    out = b.new_empty(u.numel())
    if out.numel():
        sizes = _sizes(b.size(1))
        programs.pair_scores[(triton.cdiv(out.numel(), sizes["PAIRS"]),)](
            b.contiguous(), h.contiguous(), node, u, v, out, out.numel(), b.size(1), **sizes
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
        node,
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
    """See :func:`edgeproof.propagation.kernels.reference.unrank_pairs`."""
    u, v = torch.empty_like(number), torch.empty_like(number)
    if number.numel():
        grid = (triton.cdiv(number.numel(), 1024),)
        programs.unrank_pairs[grid](number, num_nodes, u, v, number.numel(), PART=1024)
    return u, v


def narrow(values: Tensor, thresholds: Tensor, budget: float) -> tuple[Tensor, Tensor]:
    """See :func:`edgeproof.propagation.kernels.reference.narrow`; parts are added up in a fixed order."""
    parts, count = triton.cdiv(values.numel(), _PART), thresholds.numel()
    sums = torch.empty(parts, count, dtype=torch.float64, device=values.device)
    programs.clipped_sums[(parts,)](values, thresholds, sums, values.numel(), PART=_PART, STEP=256, THRESHOLDS=count)
    divided, ends = torch.empty_like(thresholds), thresholds.new_empty(2, 2)
    programs.narrow[(1,)](sums, thresholds, float(budget), divided, ends, parts, ROWS=32, THRESHOLDS=count)
    return divided, ends


def take_in_order(size: Tensor, u: Tensor, v: Tensor, total: int, local: Tensor) -> tuple[Tensor, bool]:
    """See :func:`edgeproof.propagation.kernels.reference.take_in_order`; by one program, a group of items after another."""
    taken, ended = torch.zeros_like(size, dtype=torch.int8), torch.zeros_like(size[:1])
    if not size.numel():
        return taken.bool(), False
    waiting, first = torch.empty_like(local), torch.empty_like(local, dtype=torch.int32)
    programs.take_in_order[(1,)](
        *(size, u, v, local.clone(), waiting, first, taken, ended, total, size.numel()),
        LATE=_LATE,
        ITEMS=_GROUP,
        num_warps=16,
    )
    return taken.bool(), bool(ended)


def take_above(
    p: Tensor, least: Tensor, u: Tensor, v: Tensor, total: int, local: Tensor, unit: int, *, whole: bool, wanted: int
) -> tuple[Tensor, list[bool]]:
    """See :func:`edgeproof.propagation.kernels.reference.take_above`; the host waits only once."""
    rows, count = p.shape
    if p.dtype != torch.float32 or not count:
        return reference.take_above(p, least, u, v, total, local, unit, whole=whole, wanted=wanted, take=take_in_order)
    p, capacity = p.contiguous(), 2 * min(wanted, count)
    keys = torch.full((rows, capacity), torch.iinfo(torch.long).max, device=p.device)
    report = torch.zeros(rows, 3, dtype=torch.long, device=p.device)
    programs.keys_above[(triton.cdiv(count, 1024), rows)](p, least, keys, report, count, capacity, PART=1024)
    room = local.expand(rows, -1).contiguous()
    waiting, first = torch.empty_like(room), torch.empty_like(room, dtype=torch.int32)
    taken = torch.zeros(p.shape, dtype=torch.int8, device=p.device)
    programs.take_above[(rows,)](
        *(keys.sort(dim=1).values, p, u, v, room, waiting, first, taken, report),
        *(total, unit, count, local.numel(), capacity),
        WHOLE=whole,
        LATE=_LATE,
        ITEMS=_GROUP,
        num_warps=16,
    )
    done = []
    for row in torch.cat([report, (least <= 0).long()[:, None]], dim=1).tolist():
        found, odd, ended, everything = row
        reference.check_finite(not odd)
        done.append(found <= capacity and bool(ended or everything))
    return taken.bool(), done


def _sizes(channels: int) -> dict[str, int]:
    """Pairs and channels per program."""
    width = min(triton.next_power_of_2(channels), 32 if channels < 128 else 64)
    return {"PAIRS": 8, "CHANNELS": width}
