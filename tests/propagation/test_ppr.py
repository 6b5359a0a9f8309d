"""Personalized PageRank against a plain inverse."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof.propagation import Adjacency, EdgeGradientEngine, as_adjacency, top_ppr
from edgeproof.propagation.ppr import constant_adjacency


def random_graph(nodes: int, edges: int, *, directed: bool = False) -> tuple[Tensor, Tensor]:
    """Weighted edges, in one or both directions; the last node is isolated."""
    generator = torch.Generator().manual_seed(nodes + edges)
    pairs = torch.randint(0, nodes - 1, (2, edges), generator=generator)
    pairs = pairs[:, pairs[0] != pairs[1]].unique(dim=1)
    pairs = pairs if directed else pairs[:, pairs[0] < pairs[1]]
    weight = torch.rand(pairs.size(1), generator=generator, dtype=torch.float64) + 0.1
    if directed:
        return pairs, weight
    return torch.cat([pairs, pairs.flip(0)], dim=1), torch.cat([weight, weight])


def normalized(edge_index: Tensor, weight: Tensor, nodes: int) -> Adjacency:
    adjacency = Adjacency.from_edge_index(edge_index, weight, num_nodes=nodes, dtype=weight.dtype)
    return adjacency.normalized(self_loops=True)


def by_inverse(matrix: Tensor, alpha: float) -> Tensor:
    return alpha * torch.linalg.inv(torch.eye(len(matrix), dtype=matrix.dtype) - (1 - alpha) * matrix)


Options = dict[str, int]
# Small graphs with the inverse, and with a few columns at a time.
METHODS: dict[str, Options] = {"inverse": {}, "blocks": {"dense_limit": 0, "block_size": 300}}


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> Options:
    return METHODS[request.param]


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("alpha", [0.15, 0.5])
def test_top_ppr_matches_plain_inverse(alpha: float, directed: bool, method: Options) -> None:
    adjacency = normalized(*random_graph(40, 150, directed=directed), 40)
    pi = by_inverse(adjacency.dense(), alpha)
    values, index = top_ppr(adjacency, alpha, 7, **method)
    torch.testing.assert_close(values, pi.gather(1, index))
    torch.testing.assert_close(values.sort(dim=1, descending=True).values, pi.topk(7).values)
    assert bool((index.diff(dim=1) > 0).all())


@pytest.mark.parametrize("directed", [False, True])
def test_methods_agree_in_values_choice_and_gradient(directed: bool) -> None:
    edge_index, weight = random_graph(40, 150, directed=directed)
    upstream = torch.randn(40, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    results = []
    for options in ({}, {"dense_limit": 0}):
        leaf = weight.clone().requires_grad_()
        values, index = top_ppr(normalized(edge_index, leaf, 40), 0.15, 7, **options)
        results.append((values.detach(), index, *torch.autograd.grad(values, leaf, upstream)))
    (values, index, gradient), (block_values, block_index, block_gradient) = results
    torch.testing.assert_close(values, block_values)
    assert torch.equal(index, block_index)
    torch.testing.assert_close(gradient, block_gradient)


@pytest.mark.parametrize("k", [2, 7])
def test_top_ppr_passes_gradcheck(k: int, graph: Data, method: Options) -> None:
    """The graph is directed and has an isolated node."""
    generator = torch.Generator().manual_seed(0)
    weight = (torch.rand(10, generator=generator, dtype=torch.float64) + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda w: top_ppr(normalized(graph.edge_index, w, 7), 0.15, k, **method)[0], weight)


def test_gradient_of_missing_edges_matches_autograd(graph: Data, method: Options) -> None:
    """All pairs are entries, most of weight 0; autograd differentiates the inverse."""
    edge_index = torch.cartesian_prod(torch.arange(7), torch.arange(7)).T
    weight = torch.zeros(7, 7, dtype=torch.float64)
    weight[graph.edge_index[1], graph.edge_index[0]] = 1
    leaf = weight.T.flatten().requires_grad_()
    adjacency = normalized(edge_index, leaf, 7)
    values, index = top_ppr(adjacency, 0.15, 4, **method)
    upstream = torch.randn(7, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (gradient,) = torch.autograd.grad(values, leaf, upstream, retain_graph=True)
    (expected,) = torch.autograd.grad(by_inverse(adjacency.dense(), 0.15).gather(1, index), leaf, upstream)
    torch.testing.assert_close(gradient, expected)


class Diffused(nn.Module):
    """Sums over the largest entries without normalizing rows, so that every part of their gradient counts."""

    def encode(self, x: Tensor) -> Tensor:
        return x

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        values, index = top_ppr(adjacency.normalized(self_loops=True), 0.15, 4)
        return torch.einsum("rk,rkc->rc", values, h[index])

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.diffuse(x, as_adjacency(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype))


def test_propagate_path_through_diffusion_matches_autograd(graph: Data) -> None:
    graph.x = graph.x.double()
    pairs, flips = torch.triu_indices(7, 7, offset=1), torch.tensor([[0, 1], [3, 6]])
    weight = torch.tensor([0.3, 0.6], dtype=torch.float64)
    fast, slow = (
        EdgeGradientEngine(Diffused(), graph, torch.arange(7), path=path)(flips, weight).at(pairs)
        for path in ("propagate", "autograd")
    )
    assert bool(slow.any())
    torch.testing.assert_close(fast, slow)


def test_ties_are_taken_in_order_of_node_ids(method: Options) -> None:
    """All leaves of a star have equal entries; rounding must not choose between them."""
    leaves = torch.arange(1, 10)
    hub = torch.zeros_like(leaves)
    edge_index = torch.cat([torch.stack([hub, leaves]), torch.stack([leaves, hub])], dim=1)
    for dtype in (torch.float32, torch.float64):
        _, index = top_ppr(normalized(edge_index, torch.ones(18, dtype=dtype), 10), 0.15, 4, **method)
        assert index[0].tolist() == [0, 1, 2, 3]
        assert index[2].tolist() == [0, 1, 2, 3]
        assert index[9].tolist() == [0, 1, 2, 9]


def test_short_rows_are_padded_with_zeros(graph: Data, method: Options) -> None:
    adjacency = normalized(graph.edge_index, torch.ones(10, dtype=torch.float64), 7)
    values, index = top_ppr(adjacency, 0.15, 4, **method)
    assert values[4].count_nonzero() == 2
    assert (values[6].tolist(), index[6].tolist()) == ([0, 0, 0, pytest.approx(1.0)], [0, 1, 2, 6])


def test_k_larger_than_graph_keeps_all_entries(graph: Data, method: Options) -> None:
    adjacency = normalized(graph.edge_index, torch.ones(10, dtype=torch.float64), 7)
    values, index = top_ppr(adjacency, 0.15, 64, **method)
    assert torch.equal(index, torch.arange(7).expand(7, 7))
    torch.testing.assert_close(values, by_inverse(adjacency.dense(), 0.15))


def test_float32_matches_float64(method: Options) -> None:
    edge_index, weight = random_graph(40, 150)
    values, index = top_ppr(normalized(edge_index, weight, 40), 0.15, 7, **method)
    single, single_index = top_ppr(normalized(edge_index, weight.float(), 40), 0.15, 7, **method)
    assert single.dtype == torch.float32
    assert torch.equal(index, single_index)
    torch.testing.assert_close(single, values.float())


def test_symmetric_matrices_are_detected() -> None:
    """Symmetric matrices need fewer iterations."""
    symmetric = normalized(*random_graph(40, 150), 40)
    assert not symmetric.symmetric
    assert constant_adjacency(symmetric, symmetric.weight).symmetric
    directed = normalized(*random_graph(40, 150, directed=True), 40)
    assert not constant_adjacency(directed, directed.weight).symmetric


def test_result_is_cached_for_constant_weights(graph: Data) -> None:
    adjacency = Adjacency.from_data(graph).normalized(self_loops=True)
    with torch.inference_mode():
        values, index = top_ppr(adjacency, 0.15, 3)
    assert not values.is_inference()
    assert top_ppr(adjacency, 0.15, 3)[0] is values
    assert top_ppr(adjacency, 0.15, 2)[0] is not values
    assert top_ppr(adjacency, 0.2, 3)[0] is not values
    assert index.shape == (7, 3)


def test_cached_result_is_freed_with_its_adjacency(graph: Data) -> None:
    adjacency = Adjacency.from_data(graph).normalized(self_loops=True)
    values = weakref.ref(top_ppr(adjacency, 0.15, 3)[0])
    gc.collect()
    assert values() is not None
    del adjacency
    gc.collect()
    assert values() is None


def test_result_is_not_cached_for_weights_that_require_grad(graph: Data) -> None:
    weight = torch.ones(10, dtype=torch.float64, requires_grad=True)
    adjacency = normalized(graph.edge_index, weight, 7)
    first, second = (top_ppr(adjacency, 0.15, 3)[0] for _ in range(2))
    assert first is not second
    for values in (first, second):
        values.sum().backward(retain_graph=True)


@pytest.mark.parametrize("alpha", [0, 1.0, -0.1, "a"])
def test_invalid_alpha_raises(alpha: float, graph: Data) -> None:
    with pytest.raises(ValueError, match=f"expected 0 < alpha < 1, got {alpha!r}"):
        top_ppr(Adjacency.from_data(graph), alpha, 3)


@pytest.mark.parametrize("k", [0, 1.5, True])
def test_invalid_k_raises(k: int, graph: Data) -> None:
    with pytest.raises(ValueError, match=f"expected k to be an integer >= 1, got {k!r}"):
        top_ppr(Adjacency.from_data(graph), 0.15, k)
