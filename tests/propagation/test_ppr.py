"""Personalised PageRank against a plain inverse, and the two ways to it against each other."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof.propagation import Adjacency, EdgeGradientEngine, as_adjacency, ppr, top_ppr


def random_graph(nodes: int, edges: int, *, directed: bool = False) -> tuple[Tensor, Tensor]:
    """Weighted edges, each once or in both directions; the last node has none."""
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


@pytest.fixture(params=["inverse", "blocks"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways on small graphs, the second a few columns at a time."""
    if request.param == "blocks":
        monkeypatch.setattr(ppr, "_SMALL_GRAPH", 0)
        monkeypatch.setattr(ppr, "_BLOCK", 300)
    return str(request.param)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("alpha", [0.15, 0.5])
def test_the_largest_entries_of_a_plain_inverse(alpha: float, directed: bool, way: str) -> None:
    adjacency = normalized(*random_graph(40, 150, directed=directed), 40)
    pi = by_inverse(adjacency.dense(), alpha)
    values, index = top_ppr(adjacency, alpha, 7)
    torch.testing.assert_close(values, pi.gather(1, index))
    torch.testing.assert_close(values.sort(dim=1, descending=True).values, pi.topk(7).values)
    assert bool((index.diff(dim=1) > 0).all())


@pytest.mark.parametrize("directed", [False, True])
def test_both_ways_have_one_value_choice_and_gradient(directed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    edge_index, weight = random_graph(40, 150, directed=directed)
    upstream = torch.randn(40, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = []
    for small in (5_000, 0):
        monkeypatch.setattr(ppr, "_SMALL_GRAPH", small)
        leaf = weight.clone().requires_grad_()
        values, index = top_ppr(normalized(edge_index, leaf, 40), 0.15, 7)
        found.append((values.detach(), index, *torch.autograd.grad(values, leaf, upstream)))
    (values, index, gradient), (same_values, same_index, same_gradient) = found
    torch.testing.assert_close(values, same_values)
    assert torch.equal(index, same_index)
    torch.testing.assert_close(gradient, same_gradient)


@pytest.mark.parametrize("k", [2, 7])
def test_gradcheck(k: int, graph: Data, way: str) -> None:
    """With an isolated node, and every direction a weight of its own."""
    generator = torch.Generator().manual_seed(0)
    weight = (torch.rand(10, generator=generator, dtype=torch.float64) + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda w: top_ppr(normalized(graph.edge_index, w, 7), 0.15, k)[0], weight)


def test_the_gradient_of_an_absent_edge_is_autograds(graph: Data, way: str) -> None:
    """All pairs are entries, most of them of weight 0; autograd goes through the inverse itself."""
    edge_index = torch.cartesian_prod(torch.arange(7), torch.arange(7)).T
    weight = torch.zeros(7, 7, dtype=torch.float64)
    weight[graph.edge_index[1], graph.edge_index[0]] = 1
    leaf = weight.T.flatten().requires_grad_()
    adjacency = normalized(edge_index, leaf, 7)
    values, index = top_ppr(adjacency, 0.15, 4)
    upstream = torch.randn(7, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (mine,) = torch.autograd.grad(values, leaf, upstream, retain_graph=True)
    (expected,) = torch.autograd.grad(by_inverse(adjacency.dense(), 0.15).gather(1, index), leaf, upstream)
    torch.testing.assert_close(mine, expected)


class Diffused(nn.Module):
    """Sums over the largest entries as they are: their rows do not sum to 1, so every part of their gradient counts."""

    def encode(self, x: Tensor) -> Tensor:
        return x

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        values, index = top_ppr(adjacency.normalized(self_loops=True), 0.15, 4)
        return torch.einsum("rk,rkc->rc", values, h[index])

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.diffuse(x, as_adjacency(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype))


def test_what_a_tape_records_is_the_gradient_of_every_pair(graph: Data) -> None:
    graph.x = graph.x.double()
    pairs, flips = torch.triu_indices(7, 7, offset=1), torch.tensor([[0, 1], [3, 6]])
    weight = torch.tensor([0.3, 0.6], dtype=torch.float64)
    fast, slow = (
        EdgeGradientEngine(Diffused(), graph, torch.arange(7), path=path)(flips, weight).at(pairs)
        for path in ("propagate", "autograd")
    )
    assert bool(slow.any())
    torch.testing.assert_close(fast, slow)


def test_equal_entries_are_taken_in_the_order_of_their_nodes(way: str) -> None:
    """A star: all leaves are alike, and rounding must not choose between them."""
    leaves = torch.arange(1, 10)
    hub = torch.zeros_like(leaves)
    edge_index = torch.cat([torch.stack([hub, leaves]), torch.stack([leaves, hub])], dim=1)
    for dtype in (torch.float32, torch.float64):
        _, index = top_ppr(normalized(edge_index, torch.ones(18, dtype=dtype), 10), 0.15, 4)
        assert index[0].tolist() == [0, 1, 2, 3]
        assert index[2].tolist() == [0, 1, 2, 3]
        assert index[9].tolist() == [0, 1, 2, 9]


def test_short_rows_are_filled_with_zeros(graph: Data, way: str) -> None:
    adjacency = normalized(graph.edge_index, torch.ones(10, dtype=torch.float64), 7)
    values, index = top_ppr(adjacency, 0.15, 4)
    assert values[4].count_nonzero() == 2
    assert (values[6].tolist(), index[6].tolist()) == ([0, 0, 0, pytest.approx(1.0)], [0, 1, 2, 6])


def test_more_entries_than_nodes_are_all(graph: Data, way: str) -> None:
    adjacency = normalized(graph.edge_index, torch.ones(10, dtype=torch.float64), 7)
    values, index = top_ppr(adjacency, 0.15, 64)
    assert torch.equal(index, torch.arange(7).expand(7, 7))
    torch.testing.assert_close(values, by_inverse(adjacency.dense(), 0.15))


def test_single_precision(way: str) -> None:
    edge_index, weight = random_graph(40, 150)
    values, index = top_ppr(normalized(edge_index, weight, 40), 0.15, 7)
    single, same_index = top_ppr(normalized(edge_index, weight.float(), 40), 0.15, 7)
    assert single.dtype == torch.float32
    assert torch.equal(index, same_index)
    torch.testing.assert_close(single, values.float())


def test_symmetric_matrices_are_recognised_without_being_told() -> None:
    """They take fewer steps."""
    symmetric = normalized(*random_graph(40, 150), 40)
    assert not symmetric.symmetric
    assert ppr._constant(symmetric, symmetric.weight).symmetric
    directed = normalized(*random_graph(40, 150, directed=True), 40)
    assert not ppr._constant(directed, directed.weight).symmetric


def test_constant_weights_are_diffused_once(graph: Data) -> None:
    adjacency = Adjacency.from_data(graph).normalized(self_loops=True)
    with torch.inference_mode():
        values, index = top_ppr(adjacency, 0.15, 3)
    assert not values.is_inference()
    assert top_ppr(adjacency, 0.15, 3)[0] is values
    assert top_ppr(adjacency, 0.15, 2)[0] is not values
    assert top_ppr(adjacency, 0.2, 3)[0] is not values
    assert index.shape == (7, 3)


def test_what_is_remembered_goes_with_its_adjacency(graph: Data) -> None:
    adjacency = Adjacency.from_data(graph).normalized(self_loops=True)
    top_ppr(adjacency, 0.15, 3)
    assert adjacency in ppr._REMEMBERED
    gc.collect()
    before = len(ppr._REMEMBERED)
    del adjacency
    gc.collect()
    assert len(ppr._REMEMBERED) == before - 1


def test_weights_that_need_a_gradient_are_never_remembered(graph: Data) -> None:
    weight = torch.ones(10, dtype=torch.float64, requires_grad=True)
    adjacency = normalized(graph.edge_index, weight, 7)
    for _ in range(2):
        top_ppr(adjacency, 0.15, 3)[0].sum().backward(retain_graph=True)
    assert adjacency not in ppr._REMEMBERED


@pytest.mark.parametrize("alpha", [0, 1.0, -0.1, "a"])
def test_bad_alphas_raise(alpha: float, graph: Data) -> None:
    with pytest.raises(ValueError, match=f"expected 0 < alpha < 1, got {alpha!r}"):
        top_ppr(Adjacency.from_data(graph), alpha, 3)


@pytest.mark.parametrize("k", [0, 1.5, True])
def test_bad_ks_raise(k: int, graph: Data) -> None:
    with pytest.raises(ValueError, match=f"expected k to be a whole number >= 1, got {k!r}"):
        top_ppr(Adjacency.from_data(graph), 0.15, k)
