r"""Random graphs around a graph: every edge deleted with probability :math:`p_-`, every other pair added with :math:`p_+`.

All randomness comes from a hash of (seed, sample, draw), so sample number 17 is the same graph in whatever batch, thread or
process it is drawn, and samples drawn on several machines add up. Added pairs are found by the gaps between them, which are
geometric: the cost of a sample grows with the pairs that it adds, not with all pairs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch_geometric.data import Data

from edgeproof._tensors import on_host
from edgeproof.certificates.regions import Noise
from edgeproof.kernels import dispatch
from edgeproof.propagation.adjacency import Adjacency, Pattern
from edgeproof.propagation.message_rules import Plain
from edgeproof.propagation.pairs import Pairs


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
        edges, noise = self.edges, self.noise
        pattern = Pattern(
            *dispatch.sample_graphs(
                *(edges.number, edges.u, edges.v, self.num_nodes, noise.p_add, noise.p_del, self.seed, first, count)
            )
        )
        weight = torch.ones(pattern.col.numel(), dtype=dtype, device=pattern.col.device)
        return Adjacency(pattern, weight.index_fill_(0, pattern.diagonal, 0.0), symmetric=True, rule=Plain())


def one_by_one(graphs: Adjacency, count: int) -> Iterator[Adjacency]:
    """Graphs that stand side by side, each alone."""
    pattern = graphs.pattern
    n = pattern.num_nodes // count
    starts = on_host(pattern.rowptr[::n]).tolist()
    for number, (start, end) in enumerate(itertools.pairwise(starts)):
        first = number * n
        alone = Pattern(
            pattern.rowptr[first : first + n + 1] - start,
            pattern.col[start:end] - first,
            pattern.diagonal[first : first + n] - start,
            pattern.longest,
        )
        yield Adjacency(alone, graphs.weight[start:end], graphs.symmetric, graphs.rule)
