from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_dense_adj

from edgeproof.propagation import Adjacency, as_adjacency, propagate


def random_edges(seed: int, nodes: int, edges: int) -> tuple[Tensor, Tensor]:
    """Directed, weighted edges with repeats."""
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, nodes, (2, edges), generator=generator)
    return edge_index, torch.rand(edges, generator=generator, dtype=torch.float64)


def dense_of(edge_index: Tensor, weight: Tensor, nodes: int) -> Tensor:
    """Dense matrix with receivers in rows, by a loop."""
    matrix = torch.zeros(nodes, nodes, dtype=weight.dtype)
    for (sender, receiver), value in zip(edge_index.T.tolist(), weight, strict=True):
        matrix[receiver, sender] += value
    return matrix


def reference_normalized(matrix: Tensor, self_loops: bool) -> Tensor:
    matrix = matrix + torch.eye(len(matrix)) if self_loops else matrix
    degree = matrix.sum(dim=1)
    root = torch.where(degree > 0, degree.clamp(min=1e-300) ** -0.5, 0.0)
    return root[:, None] * matrix * root[None, :]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), nodes=st.integers(1, 9), edges=st.integers(0, 30))
def test_adjacency_matches_dense_matrix(seed: int, nodes: int, edges: int) -> None:
    edge_index, weight = random_edges(seed, nodes, edges)
    adjacency = Adjacency.from_edge_index(edge_index, weight, num_nodes=nodes, dtype=torch.float64)
    dense = dense_of(edge_index, weight, nodes)
    torch.testing.assert_close(adjacency.dense(), dense)
    torch.testing.assert_close(adjacency.transposed.dense(), dense.T)
    torch.testing.assert_close(adjacency.with_self_loops.dense(), dense + torch.eye(nodes))
    torch.testing.assert_close(adjacency.degree, dense.sum(dim=1))
    for self_loops in (True, False):
        expected = reference_normalized(dense, self_loops)
        torch.testing.assert_close(adjacency.normalized(self_loops=self_loops).dense(), expected)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), nodes=st.integers(1, 9), edges=st.integers(0, 30))
def test_pattern_is_sorted_csr_with_diagonal(seed: int, nodes: int, edges: int) -> None:
    edge_index, weight = random_edges(seed, nodes, edges)
    pattern = Adjacency.from_edge_index(edge_index, weight, num_nodes=nodes).pattern
    key = pattern.row * nodes + pattern.col
    assert torch.equal(key, key.sort().values)
    assert pattern.rowptr[0] == 0
    assert pattern.rowptr[-1] == edges + nodes
    assert torch.equal(pattern.rowptr.diff(), torch.bincount(edge_index[1], minlength=nodes) + 1)
    for rows in (pattern, pattern.transposed[0]):
        assert torch.equal(rows.row[rows.diagonal], torch.arange(nodes))
        assert torch.equal(rows.col[rows.diagonal], torch.arange(nodes))


def test_normalized_matches_gcn_norm(graph: Data) -> None:
    weight = torch.rand(10, generator=torch.Generator().manual_seed(2)) + 0.1
    edge_index, expected = gcn_norm(graph.edge_index, weight, num_nodes=7)
    adjacency = Adjacency.from_edge_index(graph.edge_index, weight, num_nodes=7)
    # PyG's dense matrices have senders in rows.
    dense = to_dense_adj(edge_index, edge_attr=expected, max_num_nodes=7)[0].T
    torch.testing.assert_close(adjacency.normalized(self_loops=True).dense(), dense)


@pytest.mark.parametrize("self_loops", [True, False])
def test_normalized_passes_gradcheck(self_loops: bool, graph: Data) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = (torch.rand(10, generator=generator, dtype=torch.float64) + 0.1).requires_grad_()

    def dense(weight: Tensor) -> Tensor:
        adjacency = Adjacency.from_edge_index(graph.edge_index, weight, num_nodes=7, dtype=torch.float64)
        return adjacency.normalized(self_loops=self_loops).dense()

    assert torch.autograd.gradcheck(dense, weight)


def test_normalized_gradient_is_finite_at_isolated_nodes(graph: Data) -> None:
    weight = torch.zeros(10, requires_grad=True)
    adjacency = Adjacency.from_edge_index(graph.edge_index, weight, num_nodes=7)
    adjacency.normalized(self_loops=False).dense().sum().backward()
    assert weight.grad is not None
    assert weight.grad.isfinite().all()


def test_normalized_is_cached_for_constant_weights(graph: Data) -> None:
    adjacency = Adjacency.from_data(graph)
    assert adjacency.normalized(self_loops=True) is adjacency.normalized(self_loops=True)
    assert adjacency.normalized(self_loops=True) is not adjacency.normalized(self_loops=False)
    assert adjacency.pattern.transposed is adjacency.pattern.transposed


def test_normalized_is_not_cached_for_weights_that_require_grad(graph: Data) -> None:
    adjacency = Adjacency.from_data(graph)
    adjacency = adjacency.with_weight(torch.ones_like(adjacency.weight).requires_grad_())
    for _ in range(2):
        adjacency.normalized(self_loops=True).weight.sum().backward()


def test_normalized_cached_in_inference_mode_is_differentiable(graph: Data) -> None:
    adjacency = Adjacency.from_data(graph)
    with torch.inference_mode():
        adjacency.normalized(self_loops=True)
    x = graph.x.requires_grad_()
    propagate(adjacency.normalized(self_loops=True), x).sum().backward()
    assert x.grad is not None


def test_invalid_edges_raise(graph: Data) -> None:
    with pytest.raises(ValueError, match="between 0 and 2, got 0 to 5"):
        Adjacency.from_edge_index(graph.edge_index, num_nodes=3)
    with pytest.raises(ValueError, match=r"edge_index of shape \[2, edges\]"):
        Adjacency.from_edge_index(graph.edge_index[0], num_nodes=7)
    with pytest.raises(ValueError, match=r"one weight per edge, shape \[10\], got \[3\]"):
        Adjacency.from_edge_index(graph.edge_index, torch.ones(3), num_nodes=7)


def test_as_adjacency_passes_adjacency_through(graph: Data) -> None:
    adjacency = Adjacency.from_data(graph)
    assert as_adjacency(adjacency, None, num_nodes=7, dtype=torch.float32) is adjacency
    with pytest.raises(ValueError, match="which contains its own weights"):
        as_adjacency(adjacency, torch.ones(10), num_nodes=7, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"Adjacency of dtype torch\.float64, .* got torch\.float32"):
        as_adjacency(adjacency, None, num_nodes=7, dtype=torch.float64)
    with pytest.raises(ValueError, match="Adjacency of 8 nodes, got 7"):
        as_adjacency(adjacency, None, num_nodes=8, dtype=torch.float32)
