r"""Random graphs around a graph: each edge deleted with probability :math:`p_-`, each other pair added with :math:`p_+`.

Random numbers are hashes of (seed, sample, draw), so a sample is the same graph in every batch, thread, process and machine.
The gaps between added pairs are geometrically distributed: the cost of a sample is linear in the number of added pairs.
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
        edges, noise = self.edges, self.noise
        pattern = Pattern(
            *dispatch.sample_graphs(
                *(edges.number, edges.u, edges.v, self.num_nodes, noise.p_add, noise.p_del, self.seed, first, count)
            )
        )
        weight = torch.ones(pattern.col.numel(), dtype=dtype, device=pattern.col.device)
        return Adjacency(pattern, weight.index_fill_(0, pattern.diagonal, 0.0), symmetric=True, rule=Plain())


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
