r"""Random graphs around a graph: every edge deleted with probability :math:`p_-`, every other pair added with :math:`p_+`.

All randomness comes from a hash of (seed, sample, draw), so sample number 17 is the same graph in whatever batch, thread or
process it is drawn, and samples drawn on several machines add up. Added pairs are found by the gaps between them, which are
geometric: the cost of a sample grows with the pairs that it adds, not with all pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from edgeproof.certificates.regions import Noise
from edgeproof.propagation.adjacency import Adjacency, Pattern
from edgeproof.propagation.pairs import Pairs, num_pairs
from edgeproof.propagation.rules import Plain

Array = np.ndarray[Any, Any]

# Of splitmix64 (Steele, Lea and Flood, 2014): the odd step, and the two multipliers of its finalizer.
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
# Draws that decide about edges are numbered from here; those before are gaps.
_EDGES = 1 << 40


@dataclass(frozen=True, eq=False)
class Sampler:
    """Random graphs around one graph.

    Args:
        num_nodes: nodes of the graph.
        edges: the pairs that are edges, ascending.
        noise: how likely pairs are flipped.
        seed: which samples.
    """

    num_nodes: int
    edges: Pairs
    noise: Noise
    seed: int

    @classmethod
    def of(cls, data: Data, noise: Noise, seed: int) -> Sampler:
        """Around a graph."""
        n = int(data.x.size(0))
        row, col = data.edge_index
        return cls(n, Pairs.of(data.edge_index[:, row < col], n), noise, seed)

    def draw(self, first: int, count: int, dtype: torch.dtype = torch.float32) -> Adjacency:
        """Samples number ``first`` to ``first + count - 1``, side by side as one graph of ``count * num_nodes`` nodes."""
        if self.edges.u.is_cuda:
            rowptr, col, diagonal = self._draw_with_torch(first, count)
        else:
            rowptr, col, diagonal = self._draw_compiled(first, count)
        weight = torch.ones(col.numel(), dtype=dtype, device=col.device).index_fill_(0, diagonal, 0.0)
        return Adjacency(Pattern(rowptr, col, diagonal), weight, symmetric=True, rule=Plain())

    def _draw_with_torch(self, first: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """The plain version, on any device; the definition of correct."""
        n, device, total = self.num_nodes, self.edges.u.device, num_pairs(self.num_nodes)
        sample = torch.arange(first, first + count, device=device)[:, None]
        keep = uniform(self.seed, sample, _EDGES + torch.arange(len(self.edges), device=device)) >= self.noise.p_del
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
        return rowptr, col, (row[order] == col).nonzero().squeeze(1)

    def _draw_compiled(self, first: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """The same by compiled loops, a sample per thread; nothing is sorted."""
        n, number = self.num_nodes, self.edges.number.numpy()
        capacity = len(number) + _most_gaps(num_pairs(n), self.noise.p_add)
        while True:
            pairs, size = np.empty((count, capacity, 2), dtype=np.int32), np.zeros(count, dtype=np.int64)
            lower, degree = np.zeros((count, n), dtype=np.int64), np.zeros((count, n), dtype=np.int64)
            _draw_pairs(
                *(number, n, self.noise.p_add, self.noise.p_del, np.uint64(self.seed % 2**64), first),
                *(pairs, size, lower, degree),
            )
            if size.max(initial=0) <= capacity:
                break
            capacity = int(size.max())
        rowptr = np.zeros(count * n + 1, dtype=np.int64)
        np.cumsum((degree + 1).reshape(-1), out=rowptr[1:])
        col, diagonal = np.empty(rowptr[-1], dtype=np.int64), rowptr[:-1] + lower.reshape(-1)
        _fill_rows(pairs, size, n, rowptr, diagonal, col)
        return torch.from_numpy(rowptr), torch.from_numpy(col), torch.from_numpy(diagonal)


def uniform(seed: int, sample: Tensor, draw: Tensor) -> Tensor:
    """Numbers in [0, 1) from a hash of seed, sample and draw, in double precision."""
    mixed = _mix(_mix(torch.full_like(draw[:1], _signed(seed)) + sample * _signed(_STEP)) + draw * _signed(_STEP))
    return _shift(mixed, 11).double() * 2.0**-53


def _mix(x: Tensor) -> Tensor:
    """The finalizer of splitmix64; products of 64-bit integers wrap around, as they should."""
    x = (x ^ _shift(x, 30)) * _signed(_FIRST)
    x = (x ^ _shift(x, 27)) * _signed(_SECOND)
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


@numba.njit(inline="always")
def _mix64(x: Any) -> Any:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(_FIRST)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(_SECOND)
    return x ^ (x >> np.uint64(31))


@numba.njit(inline="always")
def _uniform64(stream: Any, draw: int) -> Any:
    return np.float64(_mix64(stream + np.uint64(draw) * np.uint64(_STEP)) >> np.uint64(11)) * 2.0**-53


@numba.njit(parallel=True, cache=True)
def _draw_pairs(
    edges: Array,
    n: int,
    p_add: float,
    p_del: float,
    seed: int,
    first: int,
    pairs: Array,
    size: Array,
    lower: Array,
    degree: Array,
) -> None:
    """The pairs of every sample, ascending, and how many neighbours each node has, in all and before itself."""
    total = n * (n - 1) // 2
    scale = 1.0 / np.log1p(-p_add) if p_add > 0 else 0.0
    for s in numba.prange(len(size)):
        stream = _mix64(seed + np.uint64(first + s) * np.uint64(_STEP))
        draw, edge, found = 0, 0, 0
        added = total if p_add == 0 else -1
        if p_add > 0:
            added = np.int64(np.log1p(-_uniform64(stream, draw)) * scale)
            draw += 1
        # The pair in whose row we are, and the number of the first pair of the next row.
        u, row, row_end = 0, 0, n - 1
        while added < total or edge < len(edges):
            is_edge = edge < len(edges) and edges[edge] <= added
            number = edges[edge] if is_edge else added
            keep = True
            if is_edge:
                keep = _uniform64(stream, _EDGES + edge) >= p_del
                edge += 1
            if number == added:
                # Of a pair that is an edge already, the edge decides.
                added += np.int64(np.log1p(-_uniform64(stream, draw)) * scale) + 1
                draw += 1
            if not keep:
                continue
            while number >= row_end:
                u += 1
                row = row_end
                row_end += n - 1 - u
            v = number - row + u + 1
            if found < pairs.shape[1]:
                pairs[s, found, 0], pairs[s, found, 1] = u, v
                degree[s, u] += 1
                degree[s, v] += 1
                lower[s, v] += 1
            found += 1
        size[s] = found


@numba.njit(parallel=True, cache=True)
def _fill_rows(pairs: Array, size: Array, n: int, rowptr: Array, diagonal: Array, col: Array) -> None:
    """Columns row by row. Pairs ascend, so each row gets its smaller neighbours first, then itself, then the larger ones."""
    for s in numba.prange(len(size)):
        smaller, larger = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        for e in range(size[s]):
            u, v = pairs[s, e, 0], pairs[s, e, 1]
            at_u, at_v = s * n + u, s * n + v
            col[diagonal[at_u] + 1 + larger[u]] = at_v
            col[rowptr[at_v] + smaller[v]] = at_u
            larger[u] += 1
            smaller[v] += 1
        for node in range(s * n, (s + 1) * n):
            col[diagonal[node]] = node
