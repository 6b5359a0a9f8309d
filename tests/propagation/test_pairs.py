from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from edgeproof.propagation import Adjacency, Pairs
from edgeproof.propagation.pairs import num_pairs


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 10**6), nodes=st.integers(2, 9), density=st.floats(0, 1), flipped=st.integers(0, 20))
def test_perturbed_matches_formula(seed: int, nodes: int, density: float, flipped: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    candidates = torch.triu_indices(nodes, nodes, offset=1)
    edges = candidates[:, torch.rand(candidates.size(1), generator=generator) < density]
    base = Adjacency.from_edge_index(
        to_undirected(edges, num_nodes=nodes), num_nodes=nodes, dtype=torch.float64, symmetric=True
    )
    pairs = candidates[:, torch.randperm(candidates.size(1), generator=generator)[:flipped]]
    flip = torch.rand(pairs.size(1), generator=generator, dtype=torch.float64)
    merged = base.perturbed(pairs, flip)

    p = torch.zeros(nodes, nodes, dtype=torch.float64)
    p[pairs[0], pairs[1]] = flip
    p = p + p.T
    dense = base.dense()
    torch.testing.assert_close(merged.dense(), dense + (1 - 2 * dense) * p)
    # The pattern is sorted, has all entries and its diagonal, and is symmetric.
    pattern = merged.pattern
    assert torch.equal(pattern.key, pattern.key.sort().values)
    assert pattern.rowptr[-1] == pattern.col.numel() == base.pattern.col.numel() + 2 * pairs.size(1)
    assert torch.equal(pattern.col[pattern.diagonal], torch.arange(nodes))
    assert torch.equal(pattern.row[pattern.diagonal], torch.arange(nodes))
    torch.testing.assert_close(merged.with_self_loops.dense(), merged.dense() + torch.eye(nodes))
    assert torch.equal(merged.dense(), merged.dense().T)


def test_perturbed_requires_plain_undirected_adjacency(graph: Data) -> None:
    adjacency = Adjacency.from_data(graph)
    for wrong in (adjacency.normalized(self_loops=True), Adjacency.from_edge_index(graph.edge_index, num_nodes=7)):
        with pytest.raises(ValueError, match="plain adjacency matrix of an undirected graph"):
            wrong.perturbed(torch.tensor([[0], [1]]), torch.tensor([1.0]))


@pytest.mark.parametrize("nodes", [2, 3, 7, 50])
def test_pair_numbers_are_one_to_one(nodes: int) -> None:
    pairs = Pairs.from_number(torch.arange(num_pairs(nodes)), nodes)
    assert torch.equal(pairs.both, torch.triu_indices(nodes, nodes, offset=1))
    assert torch.equal(pairs.number, torch.arange(num_pairs(nodes)))
    assert torch.equal(Pairs.from_key(pairs.key, nodes).both, pairs.both)


@pytest.mark.parametrize("nodes", [169_343, 3_000_000])
def test_pair_numbers_are_exact_for_large_graphs(nodes: int) -> None:
    generator = torch.Generator().manual_seed(0)
    number = torch.randint(0, num_pairs(nodes), (100_000,), generator=generator).sort().values
    edges = torch.tensor([0, 1, nodes - 2, nodes - 1, num_pairs(nodes) - 2, num_pairs(nodes) - 1])
    for numbers in (number, edges):
        pairs = Pairs.from_number(numbers, nodes)
        assert torch.equal(pairs.number, numbers)
        assert bool((pairs.u < pairs.v).all())
        assert bool((pairs.u >= 0).all())
        assert bool((pairs.v < nodes).all())
