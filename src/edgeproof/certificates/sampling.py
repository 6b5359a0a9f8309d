r"""Random graphs around a graph: each edge deleted with probability :math:`p_-`, each other pair added with :math:`p_+`.

Random numbers are hashes of (seed, sample, draw), so a sample is the same graph in every batch, thread, process and machine.
The gaps between added pairs are geometrically distributed: the cost of a sample is linear in the number of added pairs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from edgeproof._tensors import on_host
from edgeproof._threads import share_with_torch
from edgeproof.certificates import _compiled_sampling as compiled
from edgeproof.certificates._compiled_sampling import EDGES, FIRST, SECOND, STEP
from edgeproof.certificates.regions import Noise
from edgeproof.propagation.adjacency import Adjacency, Pattern
from edgeproof.propagation.message_rules import Plain
from edgeproof.propagation.pairs import Pairs, num_pairs

try:
    import triton

    from edgeproof.certificates import _triton_sampling as programs
except ImportError:
    triton = None

# Pairs that a program of the GPU puts into rows at a time, and the warps that do it.
_PART, _WARPS = 64, 2


@dataclass(frozen=True, eq=False)
class Sampler:
    """Sampler of random graphs around one graph.

    Args:
        num_nodes: Number of nodes of the graph.
        edges: Pairs that are edges, ascending.
        noise: Probabilities of flips.
        seed: Random seed.
    """

    num_nodes: int
    edges: Pairs
    noise: Noise
    seed: int

    @classmethod
    def of(cls, data: Data, noise: Noise, seed: int) -> Sampler:
        """Create the sampler of a graph."""
        n = int(data.x.size(0))
        row, col = data.edge_index
        return cls(n, Pairs.of(data.edge_index[:, row < col], n), noise, seed)

    def draw(self, first: int, count: int, dtype: torch.dtype = torch.float32) -> Adjacency:
        """Return samples ``first`` to ``first + count - 1`` as one disconnected graph of ``count * num_nodes`` nodes."""
        if not self.edges.u.is_cuda:
            draw = self._draw_compiled
        else:
            draw = self._draw_with_torch if triton is None else self._draw_with_triton
        pattern = draw(first, count)
        weight = torch.ones(pattern.col.numel(), dtype=dtype, device=pattern.col.device)
        return Adjacency(pattern, weight.index_fill_(0, pattern.diagonal, 0.0), symmetric=True, rule=Plain())

    def _draw_with_torch(self, first: int, count: int) -> Pattern:
        """The plain version, on any device; the definition of correct."""
        n, device, total = self.num_nodes, self.edges.u.device, num_pairs(self.num_nodes)
        sample = torch.arange(first, first + count, device=device)[:, None]
        keep = uniform(self.seed, sample, EDGES + torch.arange(len(self.edges), device=device)) >= self.noise.p_del
        copy, edge = keep.nonzero(as_tuple=True)
        pairs = [torch.stack([copy, self.edges.u[edge], self.edges.v[edge]])]
        if self.noise.p_add:
            gaps = _most_gaps(total, self.noise.p_add)
            while True:
                drawn = uniform(self.seed, sample, torch.arange(gaps, device=device))
                number = (torch.log1p(-drawn) / math.log1p(-self.noise.p_add)).long().add_(1).cumsum(1) - 1
                if bool((number[:, -1] >= total).all()):
                    break
                gaps *= 2
            copy, place = (number < total).nonzero(as_tuple=True)
            number = number[copy, place]
            new = ~torch.isin(number, self.edges.number)
            added = torch.empty_like(number[new])
            order = number[new].argsort(stable=True)
            ascending = Pairs.from_number(number[new][order], n)
            u, v = added.clone().scatter_(0, order, ascending.u), added.scatter_(0, order, ascending.v)
            pairs.append(torch.stack([copy[new], u, v]))
        copy, u, v = torch.cat(pairs, dim=1)
        own = torch.arange(count * n, device=device)
        row, col = torch.cat([copy * n + u, copy * n + v, own]), torch.cat([copy * n + v, copy * n + u, own])
        order = (row * (count * n) + col).argsort()
        rowptr = torch.zeros(count * n + 1, dtype=torch.long, device=device)
        torch.cumsum(torch.bincount(row, minlength=count * n), dim=0, out=rowptr[1:])
        col = col[order]
        return Pattern(rowptr, col, (row[order] == col).nonzero().squeeze(1))

    def _draw_compiled(self, first: int, count: int) -> Pattern:
        """The same by compiled loops, a sample per thread; nothing is sorted."""
        share_with_torch()
        n, number = self.num_nodes, self.edges.number.numpy()
        capacity = len(number) + _most_gaps(num_pairs(n), self.noise.p_add)
        while True:
            pairs, size = np.empty((count, capacity, 2), dtype=np.int32), np.zeros(count, dtype=np.int64)
            lower, degree = np.zeros((count, n), dtype=np.int64), np.zeros((count, n), dtype=np.int64)
            compiled.draw_pairs(
                *(number, n, self.noise.p_add, self.noise.p_del, np.uint64(self.seed % 2**64), first),
                *(pairs, size, lower, degree),
            )
            if size.max(initial=0) <= capacity:
                break
            capacity = int(size.max())
        rowptr = np.zeros(count * n + 1, dtype=np.int64)
        np.cumsum((degree + 1).reshape(-1), out=rowptr[1:])
        col, diagonal = np.empty(rowptr[-1], dtype=np.int64), rowptr[:-1] + lower.reshape(-1)
        compiled.fill_rows(pairs, size, n, rowptr, diagonal, col)
        return Pattern(torch.from_numpy(rowptr), torch.from_numpy(col), torch.from_numpy(diagonal))

    def _draw_with_triton(self, first: int, count: int) -> Pattern:
        """The same on a GPU, a sample per program; nothing is sorted there either."""
        n, edges, total = self.num_nodes, len(self.edges), num_pairs(self.num_nodes)
        device = self.edges.u.device
        streams = _streams(self.seed, torch.arange(first, first + count, device=device))
        gaps = _most_gaps(total, self.noise.p_add) if self.noise.p_add else 0
        while True:
            u, v = torch.empty(2, count, gaps + edges, dtype=torch.int32, device=device)
            numbers, last = (torch.empty(count, many, dtype=torch.long, device=device) for many in (gaps, 1))
            upper, lower = torch.zeros(2, count * n, dtype=torch.long, device=device)
            programs.draw_pairs[(count,)](
                *(streams, self.edges.number, self.edges.u, self.edges.v, edges, EDGES, n, total, self.noise.p_del),
                *(1 / math.log1p(-self.noise.p_add) if gaps else 0.0, gaps, edges.bit_length(), gaps.bit_length()),
                *(numbers, u, v, upper, lower, last),
                PART=1024,
            )
            length = upper + lower + 1
            rowptr = torch.zeros(count * n + 1, dtype=torch.long, device=device)
            torch.cumsum(length, dim=0, out=rowptr[1:])
            # The host waits once, for all three.
            entries, longest, reached = on_host(torch.stack([rowptr[-1], length.amax(), last.amin()])).tolist()
            if not gaps or reached >= total:
                break
            gaps *= 2
        diagonal = rowptr[:-1] + lower
        col = torch.empty(entries, dtype=torch.long, device=device)
        col[diagonal] = torch.arange(count * n, device=device)
        ahead = upper.cumsum(0) - upper
        programs.fill_rows[(count,)](
            *(u, v, ahead, diagonal + 1 - ahead, rowptr[:-1].clone(), col, n, gaps + edges),
            PART=_PART,
            num_warps=_WARPS,
        )
        return Pattern(rowptr, col, diagonal, longest)


def split_batch(graphs: Adjacency, count: int) -> Iterator[Adjacency]:
    """Yield each of ``count`` equally large graphs of a disconnected graph."""
    pattern = graphs.pattern
    n = pattern.num_nodes // count
    starts = on_host(pattern.rowptr[::n]).tolist()
    for index, (start, end) in enumerate(itertools.pairwise(starts)):
        first = index * n
        graph = Pattern(
            pattern.rowptr[first : first + n + 1] - start,
            pattern.col[start:end] - first,
            pattern.diagonal[first : first + n] - start,
            pattern.longest,
        )
        yield Adjacency(graph, graphs.weight[start:end], graphs.symmetric, graphs.rule)


def uniform(seed: int, sample: Tensor, draw: Tensor) -> Tensor:
    """Numbers in [0, 1) from a hash of seed, sample and draw, in double precision."""
    return _shift(_mix(_streams(seed, sample) + draw * _signed(STEP)), 11).double() * 2.0**-53


def _streams(seed: int, sample: Tensor) -> Tensor:
    """What the draws of each sample are counted from."""
    # Seeds that follow each other, or are a step apart, must not have the same samples in another order.
    return _mix(_mix(torch.full_like(sample, _signed(seed))) + sample * _signed(STEP))


def _mix(x: Tensor) -> Tensor:
    """The finalizer of splitmix64; products of 64-bit integers wrap around, as they should."""
    x = (x ^ _shift(x, 30)) * _signed(FIRST)
    x = (x ^ _shift(x, 27)) * _signed(SECOND)
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """To the right, filled up with zeros: torch has no unsigned 64-bit shift."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(number: int) -> int:
    number %= 1 << 64
    return number - (1 << 64) if number >> 63 else number


def _most_gaps(total: int, p: float) -> int:
    """Gaps that pass the end but for one chance in many billions."""
    expected = total * p
    return int(expected + 8 * math.sqrt(expected)) + 64
