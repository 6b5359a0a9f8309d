r"""Reference kernel that samples random graphs around a graph.

All randomness is a hash of (seed, sample, draw), the splitmix64 generator. Sample 17 is therefore the same graph in any
batch, thread, process or backend.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from edgeproof.kernels.reference_pairs import unrank_pairs

# Constants of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
STEP, MULTIPLIER_1, MULTIPLIER_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
# Draws with at least this number decide which edges are deleted; lower numbers are gaps between added pairs.
FIRST_EDGE_DRAW = 1 << 40


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
    r"""Sample graphs in which each edge is deleted with probability :math:`p_-` and each other pair added with :math:`p_+`.

    The gaps between added pairs are geometric, so the cost of a sample grows with the number of added pairs, not of all pairs.

    Args:
        index: Ascending pair index of each edge, as in :func:`~edgeproof.kernels.reference_pairs.unrank_pairs`, shape
            ``[edges]``.
        u: Smaller node of each edge, shape ``[edges]``.
        v: Larger node of each edge, shape ``[edges]``.
        num_nodes: Number of nodes ``n``.
        p_add: Probability :math:`p_+` of adding a pair.
        p_del: Probability :math:`p_-` of deleting an edge.
        seed: Seed of the hash; any integer, used modulo :math:`2^{64}`.
        first: Number of the first sample.
        count: Number of samples.
        num_gaps: Number of gaps drawn per sample at first; more are drawn as needed. Affects the speed only.

    Returns:
        The samples as one graph of ``count * n`` nodes in CSR form with a full diagonal: ``rowptr``, ``col`` and the
        positions of the diagonal entries; and the length of the longest row, or None if it is not known on the host.
    """
    n, device, total = num_nodes, index.device, num_nodes * (num_nodes - 1) // 2
    sample = torch.arange(first, first + count, device=device)[:, None]
    keep = uniform(seed, sample, FIRST_EDGE_DRAW + torch.arange(index.numel(), device=device)) >= p_del
    copy, edge = keep.nonzero(as_tuple=True)
    pairs = [torch.stack([copy, u[edge], v[edge]])]
    if p_add:
        gaps = num_gaps or expected_gaps(total, p_add)
        while True:
            drawn = uniform(seed, sample, torch.arange(gaps, device=device))
            added = (torch.log1p(-drawn) / math.log1p(-p_add)).long().add_(1).cumsum(1) - 1
            if bool((added[:, -1] >= total).all()):
                break
            gaps *= 2
        copy, position = (added < total).nonzero(as_tuple=True)
        added = added[copy, position]
        is_new = ~torch.isin(added, index)
        pairs.append(torch.stack([copy[is_new], *unrank_pairs(added[is_new], n)]))
    copy, u, v = torch.cat(pairs, dim=1)
    diagonal = torch.arange(count * n, device=device)
    row, col = torch.cat([copy * n + u, copy * n + v, diagonal]), torch.cat([copy * n + v, copy * n + u, diagonal])
    order = (row * (count * n) + col).argsort()
    rowptr = torch.zeros(count * n + 1, dtype=torch.long, device=device)
    torch.cumsum(torch.bincount(row, minlength=count * n), dim=0, out=rowptr[1:])
    col = col[order]
    return rowptr, col, (row[order] == col).nonzero().squeeze(1), None


def expected_gaps(total: int, p: float) -> int:
    """Return a number of gaps that nearly always reaches past the last of ``total`` pairs: eight standard deviations more."""
    expected = total * p
    return int(expected + 8 * math.sqrt(expected)) + 64


def uniform(seed: int, sample: Tensor, draw: Tensor) -> Tensor:
    """Return float64 numbers in [0, 1), a hash of seed, sample and draw."""
    return _shift_right(_mix(streams(seed, sample) + draw * _signed(STEP)), 11).double() * 2.0**-53


def streams(seed: int, sample: Tensor) -> Tensor:
    """Return the state from which the draws of each sample are counted."""
    # Hashed twice: otherwise seeds that differ by a multiple of STEP would share samples.
    return _mix(_mix(torch.full_like(sample, _signed(seed))) + sample * _signed(STEP))


def _mix(x: Tensor) -> Tensor:
    """Apply the finalizer of splitmix64; int64 products wrap around as intended."""
    x = (x ^ _shift_right(x, 30)) * _signed(MULTIPLIER_1)
    x = (x ^ _shift_right(x, 27)) * _signed(MULTIPLIER_2)
    return x ^ _shift_right(x, 31)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Shift right with zeros: torch has no unsigned 64-bit shift."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(number: int) -> int:
    """Return the int64 with the same bits as the lowest 64 bits of ``number``."""
    number %= 1 << 64
    return number - (1 << 64) if number >> 63 else number
