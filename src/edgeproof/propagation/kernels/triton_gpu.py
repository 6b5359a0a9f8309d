"""Kernels for NVIDIA GPUs, compiled by Triton on first use."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from edgeproof._tensors import on_host
from edgeproof.propagation.kernels import numba_cpu, reference

try:
    import triton

    from edgeproof.propagation.kernels import _triton_greedy as greedy
    from edgeproof.propagation.kernels import _triton_kernels as programs
except ImportError:
    triton = None

name = "triton"
summary = "gathered dot products and the search over all pairs; CUDA; float32 (and float64 but for the search)"

merge = reference.merge
weighted_median = reference.weighted_median

# Rounding of a dot product in tf32, relative to the product of the two rows' norms: each factor keeps 11 bits.
_SLACK = 2.0**-10 * 1.1
_TILE = 128
# Values that one program adds up.
_PART = 4096
_WARPS, _STAGES, _CHANNELS = 8, 4, 32
# Rows side by side in a product, and how long the longest may be.
_ROWS, _LONG = 16, 1024
# Of values taken on the GPU: how many are looked at in a round (about half of these) and at once, and sampled for that; rounds
# beside those that it takes to look at so many as are taken; where the host waits, rounds after which it looks, and how often.
_CAPACITY, _AT_ONCE, _SAMPLE, _MORE_ROUNDS, _ROUNDS, _TRIES = 8192, 1024, 8192, 4, 10, 12


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
    """See :func:`edgeproof.propagation.kernels.reference.spmm`.

    cuSPARSE's, unless rows are known to be short: then several of them, side by side, are twice as fast.
    """
    rows, channels = rowptr.numel() - 1, x.size(1)
    if longest is None or longest > _LONG or not (rows and channels):
        return reference.spmm(rowptr, col, weight, x)
    out, width = x.new_empty(rows, channels), min(triton.next_power_of_2(channels), 32)
    entries = max(1, 128 // width)
    programs.spmm[(triton.cdiv(rows, _ROWS), triton.cdiv(channels, width))](
        rowptr, col, weight, x.contiguous(), out, rows, channels, ROWS=_ROWS, ENTRIES=entries, CHANNELS=width
    )
    return out


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


def narrow(values: Tensor, thresholds: Tensor, budget: Tensor) -> tuple[Tensor, Tensor]:
    """See :func:`edgeproof.propagation.kernels.reference.narrow`; parts are added up in a fixed order."""
    parts, count = triton.cdiv(values.numel(), _PART), thresholds.numel()
    sums = torch.empty(parts, count, dtype=torch.float64, device=values.device)
    programs.clipped_sums[(parts,)](values, thresholds, sums, values.numel(), PART=_PART, STEP=256, THRESHOLDS=count)
    divided, ends = torch.empty_like(thresholds), thresholds.new_empty(2, 2)
    programs.narrow[(1,)](sums, thresholds, budget, divided, ends, parts, ROWS=32, THRESHOLDS=count)
    return divided, ends


def take_above(
    p: Tensor, least: Tensor, u: Tensor, v: Tensor, total: int, local: Tensor, unit: int, *, whole: bool, wanted: int
) -> tuple[Tensor, list[bool]]:
    """See :func:`edgeproof.propagation.kernels.reference.take_above`.

    The GPU finds the largest values and sorts them. To take them one after another is the CPU's: each depends on those before
    it, and they are few.
    """
    rows, count = p.shape
    if p.dtype != torch.float32 or not count:
        return reference.take_above(p, least, u, v, total, local, unit, whole=whole, wanted=wanted)
    capacity = 2 * min(wanted, count)
    keys = torch.full((rows, capacity), torch.iinfo(torch.long).max, device=p.device)
    report = torch.zeros(rows, 2, dtype=torch.long, device=p.device)
    programs.keys_above[(triton.cdiv(count, 1024), rows)](
        p.contiguous(), least, keys, report, count, capacity, PART=1024
    )
    keys = keys.sort(dim=1).values
    position = (keys & 0xFFFFFFFF).clamp_(max=count - 1)
    ends = (u[position] << 32) | v[position]
    everything = (least <= 0).long()[:, None]
    # All in one piece: the host waits once.
    parts = (report, everything, keys, ends, local.expand(rows, -1))
    report, everything, keys, ends, room = on_host(torch.cat(parts, dim=1)).split(
        [part.size(1) for part in parts], dim=1
    )
    reference.check_finite(not report[:, 1].any())
    found = report[:, 0].clamp(max=capacity)
    positions, ended = numba_cpu.take_keys(keys, ends, found, total, room, unit, whole=whole)
    places = torch.cat([row * count + chosen for row, chosen in enumerate(positions)]).to(p.device)
    taken = torch.zeros(rows * count, dtype=torch.bool, device=p.device).index_fill_(0, places, True).view(rows, count)
    return taken, ((report[:, 0] <= capacity) & (ended | (everything[:, 0] > 0))).tolist()


def take_largest(p: Tensor, u: Tensor, v: Tensor, total: int, local: Tensor, unit: int) -> Tensor | None:
    """See :func:`edgeproof.propagation.kernels.reference.take_largest`."""
    if p.dtype != torch.float32 or not p.numel():
        return None
    taking = _Taking(p, u, v, torch.full((1,), total, device=p.device), local, unit)
    for _ in range(_TRIES):
        taking.go_on(_ROUNDS)
        done, finite = torch.stack([taking.done, taking.finite]).tolist()
        reference.check_finite(finite)
        if done:
            return taking.taken
    return None


def take_unattended(
    p: Tensor, u: Tensor, v: Tensor, total: Tensor, local: Tensor, unit: int, effort: int
) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`edgeproof.propagation.kernels.reference.take_unattended`."""
    taking = _Taking(p, u, v, total, local, unit)
    taking.go_on(_MORE_ROUNDS + effort // (_CAPACITY // 2))
    return taking.taken, taking.done, taking.finite


class _Taking:
    """Values that are taken in rounds; see :mod:`edgeproof.propagation.kernels._triton_greedy`, and for the arguments
    :func:`edgeproof.propagation.kernels.reference.take_unattended`."""

    def __init__(self, p: Tensor, u: Tensor, v: Tensor, total: Tensor, local: Tensor, unit: int) -> None:
        device = p.device
        self.p, self.u, self.v, self.unit, self.room = p.contiguous(), u, v, unit, local.clone()
        self.state = torch.zeros(5, dtype=torch.int32, device=device)
        self.state[0] = torch.where(total[0] < unit, greedy.STRICT.value, greedy.PASSING.value)
        self.ledger = torch.cat([total, torch.full((1,), greedy.BEYOND.value, device=device)])
        self.keys = torch.empty(2, _CAPACITY, dtype=torch.long, device=device)
        self.first_at = torch.full(local.shape, greedy.LATE.value, dtype=torch.int32, device=device)
        self.asked_at = torch.zeros_like(local)
        self.taken = torch.zeros(p.numel(), dtype=torch.bool, device=device)

    def go_on(self, rounds: int) -> None:
        count, at_once = self.p.numel(), min(_AT_ONCE, _CAPACITY)
        stride = triton.cdiv(count, _SAMPLE)
        wanted = triton.cdiv(_CAPACITY // 2, stride)
        found, ordered = self.keys
        shared = (self.p, self.u, self.v, self.room, self.state, self.ledger, self.unit)
        taking = (self.u, self.v, self.room, self.state, self.ledger, ordered, self.taken, self.first_at, self.asked_at)
        for _ in range(rounds):
            greedy.set_threshold[(1,)](*shared, count, stride, wanted, SAMPLE=_SAMPLE, num_warps=32)
            greedy.gather_keys[(triton.cdiv(count, 1024),)](*shared, found, count, _CAPACITY, PART=1024)
            greedy.order_keys[(triton.cdiv(_CAPACITY, 32),)](
                self.state, found, ordered, _CAPACITY, PART=32, AGAINST=256
            )
            greedy.take[(1,)](*taking, self.unit, CAPACITY=_CAPACITY, PART=at_once, num_warps=at_once // 32)

    @property
    def done(self) -> Tensor:
        done: Tensor = self.state[0] == greedy.DONE.value
        return done

    @property
    def finite(self) -> Tensor:
        return self.state[2] == 0


def _sizes(channels: int) -> dict[str, int]:
    """Pairs and channels per program."""
    width = min(triton.next_power_of_2(channels), 32 if channels < 128 else 64)
    return {"PAIRS": 8, "CHANNELS": width}
