"""Models of PyG's layers: the same logits, and the fast gradient equal to the slow one, without a line of theirs changed."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof import losses
from edgeproof.models import EdgeWeighted
from edgeproof.propagation import EdgeGradientEngine
from edgeproof.propagation.adopt import CannotAdoptError, adopt


class Stack(nn.Module):
    """Layers one after another, some of PyG; these take edge weights."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(x) if isinstance(layer, (nn.Linear, nn.ReLU, nn.Tanh)) else layer(x, edge_index, edge_weight)
        return x


class Weightless(Stack):
    """The same; these take none."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        for layer in self.layers:
            x = layer(x) if isinstance(layer, (nn.Linear, nn.ReLU, nn.Tanh)) else layer(x, edge_index)
        return x


def perceptron(channels: int) -> nn.Module:
    return nn.Sequential(nn.Linear(channels, 6), nn.Tanh(), nn.Linear(6, 2))


# Models that have edge weights of their own, which the slow path uses as they are.
WEIGHTED: dict[str, Callable[[], nn.Module]] = {
    "GCN": lambda: pyg.models.GCN(5, 4, 2, 2),
    "GCN, batch norm, jumping knowledge": lambda: pyg.models.GCN(5, 4, 3, 2, norm="batch_norm", jk="cat"),
    "GCNConv without self-loops, without bias": lambda: Stack(pyg.GCNConv(5, 2, add_self_loops=False, bias=False)),
    "GCNConv without normalisation": lambda: Stack(pyg.GCNConv(5, 4, normalize=False), nn.Tanh(), pyg.GCNConv(4, 2)),
    "SGConv": lambda: Stack(pyg.SGConv(5, 2, K=3)),
    "APPNP": lambda: Stack(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2), pyg.APPNP(K=4, alpha=0.2, dropout=0.5)),
    "GraphConv": lambda: Stack(pyg.GraphConv(5, 4), nn.Tanh(), pyg.GraphConv(4, 2)),
    "one layer twice": lambda: Stack(*[pyg.GCNConv(5, 5)] * 2, nn.Linear(5, 2)),
}
# Models that have none.
WEIGHTLESS: dict[str, Callable[[], nn.Module]] = {
    "GAT": lambda: pyg.models.GAT(5, 4, 2, 2),
    "GAT, heads": lambda: pyg.models.GAT(5, 8, 3, 2, heads=4, dropout=0.3),
    "Sequential": lambda: Weightless(
        pyg.Sequential("x, edge_index", [(pyg.GCNConv(5, 2), "x, edge_index -> x"), nn.ELU()])
    ),
    "GATConv, mean of heads, residual": lambda: Weightless(pyg.GATConv(5, 2, heads=3, concat=False, residual=True)),
}
WRAPPED: dict[str, Callable[[], nn.Module]] = {
    "GraphSAGE": lambda: pyg.models.GraphSAGE(5, 4, 2, 2),
    "SAGEConv, sums": lambda: Weightless(pyg.SAGEConv(5, 2, aggr="sum", project=True, normalize=True)),
    "SAGEConv, no root": lambda: Weightless(pyg.SAGEConv(5, 2, root_weight=False)),
    "GIN": lambda: pyg.models.GIN(5, 4, 2, 2),
    "GINConv, eps": lambda: Weightless(pyg.GINConv(perceptron(5), eps=0.3, train_eps=True)),
}


@pytest.fixture
def data(graph: Data) -> Data:
    graph.x = graph.x.double()
    graph.y = graph.y % 2
    return graph


def made(build: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    model = build().double()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.uniform_(-1, 1)
            module.running_var.uniform_(0.5, 2)
    return model


def all_pairs(nodes: int) -> Tensor:
    return torch.triu_indices(nodes, nodes, offset=1)


def by_autograd(model: nn.Module, data: Data, pairs: Tensor, flip: Tensor) -> tuple[Tensor, Tensor]:
    """Loss and its gradient at all pairs, each of them an edge of its own weight."""
    n = int(data.num_nodes or 0)
    u, v = all_pairs(n)
    clean, start = torch.zeros(2, n, n, dtype=torch.float64)
    clean[data.edge_index[0], data.edge_index[1]] = 1
    start[pairs[0], pairs[1]] = flip
    p = start[u, v].requires_grad_()
    weight = clean[u, v] + (1 - 2 * clean[u, v]) * p
    edges = torch.cat([torch.stack([u, v]), torch.stack([v, u])], dim=1)
    loss = losses.tanh_margin(model(data.x, edges, torch.cat([weight, weight])), data.y)
    return loss.detach(), torch.autograd.grad(loss, p)[0]


@pytest.mark.parametrize("name", [*WEIGHTED, *WEIGHTLESS])
def test_the_fast_gradient_is_the_slow_one(name: str, data: Data) -> None:
    model = made((WEIGHTED | WEIGHTLESS)[name]).eval()
    n = int(data.num_nodes or 0)
    flips, weight = torch.tensor([[0, 1, 2], [1, 4, 6]]), torch.tensor([0.5, 0.25, 1.0], dtype=torch.float64)
    engine = EdgeGradientEngine(model, data, torch.arange(n))
    assert engine.path == "propagate"
    found = engine(flips, weight)
    # Of a model with weights of its own the slow path asks the model itself; of any other the wrapped one.
    slow = model if name in WEIGHTED else EdgeWeighted(model).eval()
    loss, expected = by_autograd(slow, data, flips, weight)
    torch.testing.assert_close(found.loss, loss, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.at(all_pairs(n)), expected, rtol=1e-8, atol=1e-11)
    assert bool(expected.any())
    forced = EdgeGradientEngine(model, data, torch.arange(n), path="autograd")
    assert forced.path == "autograd"
    torch.testing.assert_close(forced(flips, weight).at(all_pairs(n)), expected, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("name", WRAPPED)
def test_models_without_weights_are_refused_until_they_are_wrapped(name: str, data: Data) -> None:
    model = made(WRAPPED[name]).eval()
    n = int(data.num_nodes or 0)
    with pytest.raises(ValueError, match=r"takes no edge weights; edgeproof\.models\.EdgeWeighted\(model\)"):
        EdgeGradientEngine(model, data, torch.arange(n))
    wrapped = EdgeWeighted(model).eval()
    torch.testing.assert_close(wrapped(data.x, data.edge_index), model(data.x, data.edge_index))
    # An edge of weight 0 is no edge.
    kept = torch.ones(data.edge_index.size(1), dtype=torch.float64)
    removed = (data.edge_index == torch.tensor([[0], [1]])).all(0) | (data.edge_index == torch.tensor([[1], [0]])).all(
        0
    )
    assert int(removed.sum()) == 2
    torch.testing.assert_close(
        wrapped(data.x, data.edge_index, kept.masked_fill(removed, 0.0)), model(data.x, data.edge_index[:, ~removed])
    )
    flips, weight = torch.tensor([[0, 2], [1, 6]]), torch.tensor([0.5, 0.25], dtype=torch.float64)
    engine = EdgeGradientEngine(wrapped, data, torch.arange(n))
    assert engine.path == "propagate"
    found = engine(flips, weight)
    loss, expected = by_autograd(wrapped, data, flips, weight)
    torch.testing.assert_close(found.loss, loss, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.at(all_pairs(n)), expected, rtol=1e-8, atol=1e-11)


def test_parameters_are_shared(data: Data) -> None:
    model = made(WEIGHTED["GCN"])
    adopted = adopt(model, data)
    assert {id(p) for p in adopted.parameters()} == {id(p) for p in model.parameters()}
    assert adopt(model, data) is adopted
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
    with torch.no_grad():
        torch.testing.assert_close(adopted.eval()(data.x, data.edge_index), model.eval()(data.x, data.edge_index))


def test_training_with_dropout_inside_a_layer_drops_messages(data: Data) -> None:
    model = EdgeWeighted(made(lambda: Weightless(pyg.GATConv(5, 2, dropout=0.5))).train())
    assert model.training
    assert not torch.equal(model(data.x, data.edge_index), model(data.x, data.edge_index))
    model.eval()
    assert torch.equal(model(data.x, data.edge_index), model(data.x, data.edge_index))


class Looks(nn.Module):
    """Hands its layer a graph of its own making."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = pyg.GCNConv(5, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        if edge_weight is None:
            edge_weight = x.new_ones(edge_index.size(1))
        out: Tensor = self.layer(x, edge_index, edge_weight)
        return out


class Secret(nn.Module):
    """Has messages beside those of its layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = pyg.GCNConv(5, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.layer(x, edge_index, edge_weight)
        if isinstance(edge_index, Tensor):
            weight = x.new_ones(edge_index.size(1)) if edge_weight is None else edge_weight
            out = out + out.new_zeros(out.shape).index_add(0, edge_index[1], weight[:, None] * x[edge_index[0], :2])
        return out


@pytest.mark.parametrize("build", [Looks, Secret, lambda: Stack(pyg.GCNConv(5, 2, improved=True))])
def test_what_cannot_be_replaced_takes_the_slow_path(build: Callable[[], nn.Module], data: Data) -> None:
    model = made(build).eval()
    with pytest.raises(CannotAdoptError):
        adopt(model, data)
    n = int(data.num_nodes or 0)
    engine = EdgeGradientEngine(model, data, torch.arange(n))
    assert engine.path == "autograd"
    nothing = torch.empty(2, 0, dtype=torch.long), torch.empty(0, dtype=torch.float64)
    expected = by_autograd(model, data, *nothing)[1]
    torch.testing.assert_close(engine().at(all_pairs(n)), expected, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (lambda: pyg.SAGEConv(5, 2, aggr="max"), "aggr='max', expected 'mean' or 'sum'"),
        (lambda: pyg.TransformerConv(5, 2), "TransformerConv is none of GCNConv"),
        (lambda: pyg.GATConv(5, 2, add_self_loops=False), "add_self_loops=False, expected True"),
        (lambda: pyg.GCNConv(5, 2, flow="target_to_source"), "flow='target_to_source'"),
        (lambda: nn.Linear(5, 2), "no layers of torch_geometric"),
    ],
)
def test_reasons(layer: Callable[[], nn.Module], reason: str) -> None:
    with pytest.raises(CannotAdoptError, match=reason):
        EdgeWeighted(Stack(layer()))


@pytest.mark.parametrize("layer", [lambda: pyg.GCNConv(5, 2, cached=True), lambda: pyg.SGConv(5, 2, cached=True)])
def test_layers_that_remember_their_first_graph_are_refused(layer: Callable[[], nn.Module], data: Data) -> None:
    model = made(lambda: Stack(layer()))
    untouched = copy.deepcopy(model)
    with pytest.raises(ValueError, match=r"with cached=True, which answers every graph with the first one it saw"):
        EdgeGradientEngine(model, data, torch.arange(7))
    # And nothing was remembered by asking.
    fewer = data.edge_index[:, 2:]
    assert torch.equal(model.eval()(data.x, fewer), untouched.eval()(data.x, fewer))


@pytest.mark.parametrize("name", ["GCN", "GAT"])
def test_a_users_model_is_attacked_on_the_fast_path(name: str) -> None:
    data = ep.datasets.load("csbm")
    torch.manual_seed(0)
    model = getattr(pyg.models, name)(data.num_features, 16, 2, 2)
    split = ep.splits.inductive(data, seed=0)
    ep.train(model, split, max_epochs=30, progress=False)
    budget = ep.Budget.from_epsilon(split.test.data, split.test.nodes, 0.25, local=0.5)
    result = ep.attacks.LRBCD(steps=20, block_size=5_000)(model, split.test.data, split.test.nodes, budget, seed=0)
    assert result.path == "propagate"
    assert result.accuracy < result.clean_accuracy
