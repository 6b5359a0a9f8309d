"""Weighted reductions over edges: values equal to those of discrete graphs, and gradients, for PyG's and users' layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.nn import aggr
from torch_geometric.utils import add_self_loops, degree, softmax, to_dense_adj, to_undirected

from edgeproof.propagation.expected_max import expected_max
from edgeproof.propagation.relaxation import RelaxedModel

NODES, CHANNELS = 9, 4


class GCNFromTutorial(pyg.MessagePassing):
    """Normalizes by degrees that it counts itself."""

    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.lin = nn.Linear(CHANNELS, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        row, col = edge_index
        scale = degree(col, x.size(0), dtype=x.dtype).pow(-0.5)
        out: Tensor = self.propagate(edge_index, x=self.lin(x), norm=scale[row] * scale[col])
        return out

    def message(self, x_j: Tensor, norm: Tensor) -> Tensor:
        return norm.view(-1, 1) * x_j


class OwnMessages(nn.Module):
    """Sums, counts and attention without PyG."""

    def __init__(self, count: str) -> None:
        super().__init__()
        self.count, self.lin = count, nn.Linear(CHANNELS, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h, (sender, receiver) = self.lin(x), edge_index
        messages = h[sender] * softmax((h[sender] * h[receiver]).sum(-1), receiver, num_nodes=x.size(0))[:, None]
        out = torch.zeros_like(h).index_add(0, receiver, messages)
        if self.count == "bincount":
            number = torch.bincount(receiver, minlength=x.size(0))
        elif self.count == "scatter_reduce":
            number = x.new_zeros(x.size(0)).scatter_reduce(
                0, receiver, x.new_ones(sender.numel()), "sum", include_self=False
            )
        else:
            number = degree(edge_index.flip(0)[0], x.size(0))
        return out / (1 + number)[:, None]


class Dense(nn.Module):
    """Computes with a dense or sparse adjacency matrix of its own."""

    def __init__(self, build: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.build, self.lin = build, nn.Linear(CHANNELS, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.build(x, edge_index) @ self.lin(x)
        return out


def assigned(x: Tensor, edge_index: Tensor) -> Tensor:
    matrix = torch.eye(x.size(0), dtype=x.dtype)
    matrix[edge_index[0], edge_index[1]] = 1.0
    return matrix / matrix.sum(dim=1, keepdim=True)


def accumulated(x: Tensor, edge_index: Tensor) -> Tensor:
    return torch.eye(x.size(0), dtype=x.dtype).index_put(
        (edge_index[1], edge_index[0]), x.new_ones(()), accumulate=True
    )


def sparse(x: Tensor, edge_index: Tensor) -> Tensor:
    return torch.sparse_coo_tensor(edge_index[[1, 0]], x.new_ones(edge_index.size(1)), (x.size(0), x.size(0)))


def flat(x: Tensor, edge_index: Tensor) -> Tensor:
    position = edge_index[0] * x.size(0) + edge_index[1]
    return x.new_zeros(x.size(0) ** 2).scatter_add(0, position, x.new_ones(position.numel())).view(x.size(0), -1)


def weighted_aggr() -> aggr.MultiAggregation:
    return aggr.MultiAggregation(["mean", "max", "min", "std", "var", "sum", "softmax", "powermean", "mul"])


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "GCNConv": lambda: pyg.GCNConv(4, 3),
    "GCNConv, improved": lambda: pyg.GCNConv(4, 3, improved=True),
    "GCNConv, means": lambda: pyg.GCNConv(4, 3, aggr="mean"),
    "SAGEConv, mean": lambda: pyg.SAGEConv(4, 3),
    "SAGEConv, max": lambda: pyg.SAGEConv(4, 3, aggr="max"),
    "SAGEConv, sum": lambda: pyg.SAGEConv(4, 3, aggr="sum", project=True),
    "SAGEConv, all aggregations": lambda: pyg.SAGEConv(4, 3, aggr=weighted_aggr()),
    "GINConv": lambda: pyg.GINConv(nn.Linear(4, 3)),
    "GATConv": lambda: pyg.GATConv(4, 3, heads=2),
    "GATConv, no self-loops": lambda: pyg.GATConv(4, 3, add_self_loops=False),
    "GATv2Conv": lambda: pyg.GATv2Conv(4, 3, heads=2),
    "TransformerConv": lambda: pyg.TransformerConv(4, 3, heads=2, beta=True),
    "TAGConv": lambda: pyg.TAGConv(4, 3),
    "SGConv": lambda: pyg.SGConv(4, 3, K=2),
    "APPNP": lambda: pyg.APPNP(3, 0.1),
    "ChebConv": lambda: pyg.ChebConv(4, 3, 3),
    "ARMAConv": lambda: pyg.ARMAConv(4, 3, 2, 2),
    "GraphConv": lambda: pyg.GraphConv(4, 3),
    "GraphConv, mean": lambda: pyg.GraphConv(4, 3, aggr="mean"),
    "LEConv": lambda: pyg.LEConv(4, 3),
    "ResGatedGraphConv": lambda: pyg.ResGatedGraphConv(4, 3),
    "ClusterGCNConv": lambda: pyg.ClusterGCNConv(4, 3, diag_lambda=0.3),
    "AGNNConv": lambda: pyg.AGNNConv(),
    "EdgeConv": lambda: pyg.EdgeConv(nn.Linear(8, 3)),
    "GENConv": lambda: pyg.GENConv(4, 3, norm="layer"),
    "PNAConv": lambda: pyg.PNAConv(
        4,
        3,
        ["mean", "min", "max", "std"],
        ["amplification", "attenuation", "linear"],
        torch.tensor([0, 1, 3, 3, 2, 1]),
    ),
    "EGConv": lambda: pyg.EGConv(4, 4, ["sum", "symnorm", "std", "max"], num_heads=2, num_bases=2),
    "GPSConv": lambda: pyg.GPSConv(4, pyg.GATv2Conv(4, 4), heads=2, norm=None),
    "GCN of the tutorial": GCNFromTutorial,
    "own messages, degree": lambda: OwnMessages("degree"),
    "own messages, bincount": lambda: OwnMessages("bincount"),
    "own messages, scatter_reduce": lambda: OwnMessages("scatter_reduce"),
    "matrix, assigned": lambda: Dense(assigned),
    "matrix, accumulated": lambda: Dense(accumulated),
    "matrix, sparse": lambda: Dense(sparse),
    "matrix, flat": lambda: Dense(flat),
    "matrix, to_dense_adj": lambda: Dense(lambda x, edge_index: to_dense_adj(edge_index, max_num_nodes=x.size(0))[0]),
    "undirected again": lambda: Dense(lambda x, edge_index: accumulated(x, to_undirected(edge_index))),
}
# The first edge of a node has the same effect whatever its weight, or one that grows with the root of the weight.
NO_DERIVATIVE_AT_ISOLATED_NODES = ("TAGConv", "ChebConv", "ARMAConv")


@pytest.fixture(autouse=True)
def _double_precision() -> Iterator[None]:
    """PyG counts degrees in the default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture(scope="module")
def x() -> Tensor:
    return torch.randn(NODES, CHANNELS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def random_edges(seed: int, density: float = 0.4) -> Tensor:
    """Edges of an undirected graph whose last node is isolated."""
    u, v = torch.triu_indices(NODES - 1, NODES - 1, 1)
    kept = torch.rand(u.numel(), generator=torch.Generator().manual_seed(seed)) < density
    return torch.cat([torch.stack([u, v]), torch.stack([v, u])], dim=1)[:, kept.repeat(2)]


def all_edges_weighted(edges: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """All ordered pairs of nodes in random order; weight 1 for the edges and 0 for the others."""
    pairs = torch.cartesian_prod(torch.arange(NODES), torch.arange(NODES)).T
    pairs = pairs[:, pairs[0] != pairs[1]]
    pairs = pairs[:, torch.randperm(pairs.size(1), generator=torch.Generator().manual_seed(seed))]
    matrix = torch.zeros(NODES, NODES, dtype=torch.float64)
    matrix[edges[0], edges[1]] = 1
    return pairs, matrix[pairs[0], pairs[1]]


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    return LAYERS[name]().double().eval()


@pytest.mark.parametrize("name", LAYERS)
def test_weights_of_zero_and_one_equal_discrete_graphs(name: str, x: Tensor) -> None:
    layer = build(name)
    relaxed = RelaxedModel(layer).eval()
    for seed in range(3):
        edges = random_edges(seed)
        expected = layer(x, edges)
        torch.testing.assert_close(relaxed(x, edges, x.new_ones(edges.size(1))), expected, rtol=1e-9, atol=1e-11)
        pairs, weight = all_edges_weighted(edges, seed)
        torch.testing.assert_close(relaxed(x, pairs, weight), expected, rtol=1e-9, atol=1e-11)
    assert not torch.allclose(layer(x, random_edges(0)), layer(x, random_edges(1)))


@pytest.mark.parametrize("name", LAYERS)
def test_gradient_equals_difference_quotient(name: str, x: Tensor) -> None:
    relaxed, edges = RelaxedModel(build(name)).eval(), random_edges(5, density=0.6)
    pairs, weight = all_edges_weighted(edges, 0)
    cosines = torch.arange(NODES * NODES, dtype=x.dtype).cos()

    def loss(weight: Tensor) -> Tensor:
        logits: Tensor = relaxed(x, pairs, weight).flatten()
        return (logits * cosines[torch.arange(logits.numel()) % cosines.numel()]).sum()

    variable = weight.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(variable), variable)
    assert bool(gradient.isfinite().all())
    # Towards the inside of [0, 1], and nodes with at least two edges, where no relaxation has a kink.
    degrees = torch.zeros(NODES).index_add(0, pairs[1], weight)
    smooth = ((degrees[pairs] > 1).all(dim=0)).nonzero().squeeze(1)
    step = 1e-6
    for edge in smooth[:: max(1, smooth.numel() // 12)].tolist():
        moved = weight.clone()
        moved[edge] += step if weight[edge] == 0 else -step
        quotient = (loss(moved) - loss(weight)) / (moved[edge] - weight[edge])
        torch.testing.assert_close(gradient[edge], quotient, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in LAYERS if name not in NO_DERIVATIVE_AT_ISOLATED_NODES])
def test_gradient_of_the_first_edge_of_a_node_is_moderate(name: str, x: Tensor) -> None:
    relaxed, edges = RelaxedModel(build(name)).eval(), random_edges(5, density=0.6)
    pairs, weight = all_edges_weighted(edges, 0)
    variable = weight.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(relaxed(x, pairs, variable).sin().sum(), variable)
    first = (pairs[1] == NODES - 1).nonzero().squeeze(1)
    assert bool(gradient[first].any())
    assert float(gradient[first].abs().max()) < 1e3


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    entries=st.integers(1, 12),
    groups=st.integers(1, 4),
    discrete=st.booleans(),
    ties=st.booleans(),
)
def test_expected_max_is_the_mean_over_all_subsets(
    seed: int, entries: int, groups: int, discrete: bool, ties: bool
) -> None:
    """Each entry exists independently with its weight as the probability."""
    generator = torch.Generator().manual_seed(seed)
    src = torch.randn(entries, 2, dtype=torch.float64, generator=generator)
    src = src.round() if ties else src
    weight = torch.rand(entries, dtype=torch.float64, generator=generator)
    weight = weight.round() if discrete else weight
    index = torch.randint(groups, (entries,), generator=generator)
    present = torch.cartesian_prod(*[torch.tensor([False, True])] * entries).view(2**entries, entries)
    probability = torch.where(present, weight, 1 - weight).prod(dim=1)
    expected = torch.zeros(groups, 2, dtype=torch.float64)
    for group in range(groups):
        member = index == group
        if bool(member.any()):
            maxima = src[member].masked_fill(~present[:, member, None], -torch.inf).amax(dim=1)
            expected[group] = (probability[:, None] * maxima.masked_fill(maxima == -torch.inf, 0.0)).sum(dim=0)
    torch.testing.assert_close(expected_max(src, weight, index, groups), expected, rtol=1e-9, atol=1e-11)


def test_expected_max_gradients() -> None:
    torch.manual_seed(0)
    src = torch.randn(8, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([0.5, 1.0, 0.0, 0.3, 0.9, 0.2, 1.0, 0.0], dtype=torch.float64, requires_grad=True)
    index = torch.tensor([0, 2, 2, 0, 0, 2, 3, 3])
    assert torch.autograd.gradcheck(lambda s, w: expected_max(s, w, index, 5), (src, weight))


def test_gradient_of_maximum_is_the_change_by_one_flip(x: Tensor) -> None:
    relaxed, layer = RelaxedModel(pyg.SimpleConv(aggr="max")), pyg.SimpleConv(aggr="max")
    edges = random_edges(1)
    pairs, weight = all_edges_weighted(edges, 1)
    variable = weight.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(relaxed(x, pairs, variable).sum(), variable)
    for edge in range(0, pairs.size(1), 5):
        flipped = weight.clone()
        flipped[edge] = 1 - flipped[edge]
        change = layer(x, pairs[:, flipped == 1]).sum() - layer(x, edges).sum()
        torch.testing.assert_close(gradient[edge] * (flipped[edge] - weight[edge]), change)


@pytest.mark.parametrize("layer", [lambda: pyg.MFConv(4, 3), lambda: pyg.SAGEConv(4, 3, aggr="median")])
def test_unknown_reductions_do_not_pass_as_exact(layer: Callable[[], nn.Module], x: Tensor) -> None:
    """The engine's probes must see either an error or different logits."""
    torch.manual_seed(0)
    conv = layer().double().eval()
    edges = random_edges(0)
    pairs, weight = all_edges_weighted(edges, 0)
    try:
        logits = RelaxedModel(conv).eval()(x, pairs, weight)
    except RuntimeError:
        return
    assert not torch.allclose(logits, conv(x, edges))


def test_relaxation_ends_with_its_context(x: Tensor) -> None:
    relaxed, edges = RelaxedModel(build("SAGEConv, sum")).eval(), random_edges(0)
    before = relaxed(x, edges)
    relaxed(x, edges, x.new_zeros(edges.size(1)))
    torch.testing.assert_close(relaxed(x, edges), before)
