"""Conversion of models of PyG layers: equal logits, and a fast gradient equal to that of autograd."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof import losses
from edgeproof.models import EdgeWeighted
from edgeproof.propagation import EdgeGradientEngine
from edgeproof.propagation.layer_rules import UnsupportedLayerError, convert_pyg_layers


class Stack(nn.Module):
    """Sequence of layers that takes edge weights."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(x) if isinstance(layer, (nn.Linear, nn.ReLU, nn.Tanh)) else layer(x, edge_index, edge_weight)
        return x


class Weightless(Stack):
    """Sequence of layers that takes no edge weights."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        for layer in self.layers:
            x = layer(x) if isinstance(layer, (nn.Linear, nn.ReLU, nn.Tanh)) else layer(x, edge_index)
        return x


class Residual(nn.Module):
    """GCNII: every layer also gets the input of the first."""

    def __init__(self, shared_weights: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            pyg.GCN2Conv(5, 0.2, theta=0.5, layer=number, shared_weights=shared_weights) for number in (1, 2)
        )
        self.head = nn.Linear(5, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        h = x
        for layer in self.layers:
            h = layer(h, x, edge_index, edge_weight).tanh()
        out: Tensor = self.head(h)
        return out


def perceptron(channels: int) -> nn.Module:
    return nn.Sequential(nn.Linear(channels, 6), nn.Tanh(), nn.Linear(6, 2))


# Models with edge weights: the autograd path uses them directly.
WEIGHTED: dict[str, Callable[[], nn.Module]] = {
    "GCN": lambda: pyg.models.GCN(5, 4, 2, 2),
    "GCN, batch norm, jumping knowledge": lambda: pyg.models.GCN(5, 4, 3, 2, norm="batch_norm", jk="cat"),
    "GCNConv without self-loops, without bias": lambda: Stack(pyg.GCNConv(5, 2, add_self_loops=False, bias=False)),
    "GCNConv without normalisation": lambda: Stack(pyg.GCNConv(5, 4, normalize=False), nn.Tanh(), pyg.GCNConv(4, 2)),
    "SGConv": lambda: Stack(pyg.SGConv(5, 2, K=3)),
    "APPNP": lambda: Stack(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2), pyg.APPNP(K=4, alpha=0.2, dropout=0.5)),
    "GraphConv": lambda: Stack(pyg.GraphConv(5, 4), nn.Tanh(), pyg.GraphConv(4, 2)),
    "TAGConv": lambda: Stack(pyg.TAGConv(5, 4, K=2), nn.Tanh(), pyg.TAGConv(4, 2, normalize=False)),
    "ChebConv": lambda: Stack(pyg.ChebConv(5, 4, K=3), nn.Tanh(), pyg.ChebConv(4, 2, K=1)),
    "ARMAConv": lambda: Stack(pyg.ARMAConv(5, 4, 2, 2), pyg.ARMAConv(4, 2, 1, 2, shared_weights=True, dropout=0.5)),
    "LEConv": lambda: Stack(pyg.LEConv(5, 4), nn.Tanh(), pyg.LEConv(4, 2)),
    "GCN2Conv": lambda: Residual(shared_weights=True),
    "GCN2Conv, two weights": lambda: Residual(shared_weights=False),
    "one layer twice": lambda: Stack(*[pyg.GCNConv(5, 5)] * 2, nn.Linear(5, 2)),
}
# Models without edge weights.
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
    "GraphConv, means": lambda: Weightless(pyg.GraphConv(5, 2, aggr="mean")),
    "GINConv, eps": lambda: Weightless(pyg.GINConv(perceptron(5), eps=0.3, train_eps=True)),
}


@pytest.fixture
def data(graph: Data) -> Data:
    graph.x = graph.x.double()
    graph.y = graph.y % 2
    return graph


def build_model(build: Callable[[], nn.Module]) -> nn.Module:
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
    """Loss and its gradient at all pairs, each an edge of its own weight."""
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
def test_propagate_path_matches_autograd(name: str, data: Data) -> None:
    model = build_model((WEIGHTED | WEIGHTLESS)[name]).eval()
    n = int(data.num_nodes or 0)
    flips, weight = torch.tensor([[0, 1, 2], [1, 4, 6]]), torch.tensor([0.5, 0.25, 1.0], dtype=torch.float64)
    engine = EdgeGradientEngine(model, data, torch.arange(n))
    assert engine.path == "propagate"
    gradient = engine(flips, weight)
    # Models without edge weights are differentiated in their converted form.
    reference = model if name in WEIGHTED else EdgeWeighted(model).eval()
    loss, expected = by_autograd(reference, data, flips, weight)
    torch.testing.assert_close(gradient.loss, loss, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gradient.at(all_pairs(n)), expected, rtol=1e-9, atol=1e-11)
    assert bool(expected.any())
    forced = EdgeGradientEngine(model, data, torch.arange(n), path="autograd")
    assert forced.path == "autograd"
    torch.testing.assert_close(forced(flips, weight).at(all_pairs(n)), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", WRAPPED)
def test_weightless_layers_need_no_adapter(name: str, data: Data) -> None:
    model = build_model(WRAPPED[name]).eval()
    n = int(data.num_nodes or 0)
    wrapped = EdgeWeighted(model).eval()
    torch.testing.assert_close(wrapped(data.x, data.edge_index), model(data.x, data.edge_index))
    # An edge of weight 0 equals no edge.
    kept = torch.ones(data.edge_index.size(1), dtype=torch.float64)
    removed = (data.edge_index == torch.tensor([[0], [1]])).all(0) | (data.edge_index == torch.tensor([[1], [0]])).all(
        0
    )
    assert int(removed.sum()) == 2
    torch.testing.assert_close(
        wrapped(data.x, data.edge_index, kept.masked_fill(removed, 0.0)), model(data.x, data.edge_index[:, ~removed])
    )
    flips, weight = torch.tensor([[0, 2], [1, 6]]), torch.tensor([0.5, 0.25], dtype=torch.float64)
    loss, expected = by_autograd(wrapped, data, flips, weight)
    for used in (model, wrapped):
        engine = EdgeGradientEngine(used, data, torch.arange(n))
        assert engine.path == "propagate"
        gradient = engine(flips, weight)
        torch.testing.assert_close(gradient.loss, loss, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(gradient.at(all_pairs(n)), expected, rtol=1e-9, atol=1e-11)


def test_converted_model_shares_parameters(data: Data) -> None:
    model = build_model(WEIGHTED["GCN"])
    converted = convert_pyg_layers(model, data)
    assert {id(p) for p in converted.parameters()} == {id(p) for p in model.parameters()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
    with torch.no_grad():
        torch.testing.assert_close(converted.eval()(data.x, data.edge_index), model.eval()(data.x, data.edge_index))


class Changing(nn.Module):
    """Model with state other than parameter values."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.steps = nn.Linear(5, 2), nn.BatchNorm1d(2), pyg.APPNP(K=2, alpha=0.2)
        self.scale = 1.0

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.scale * self.steps(self.norm(self.linear(x)), edge_index, edge_weight)
        return out


def assign_state(model: nn.Module) -> None:
    model.load_state_dict({name: value + 1 for name, value in model.state_dict().items()}, assign=True)


CHANGES: dict[str, Callable[[nn.Module], object]] = {
    "state assigned": assign_state,
    "layer replaced": lambda model: setattr(model, "linear", nn.Linear(5, 2).double()),
    "attribute": lambda model: setattr(model, "scale", 5.0),
    "attribute of a layer": lambda model: setattr(model.steps, "K", 5),
    "type": lambda model: model.float(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_engine_uses_current_state_of_model(change: str, data: Data) -> None:
    model = build_model(Changing).eval()
    before = EdgeGradientEngine(model, data, torch.arange(7)).logits()
    CHANGES[change](model)
    data.x = data.x.to(next(model.parameters()).dtype)
    engine = EdgeGradientEngine(model, data, torch.arange(7))
    assert engine.path == "propagate"
    torch.testing.assert_close(engine.logits(), model(data.x, data.edge_index))
    assert engine.logits().dtype != before.dtype or not torch.allclose(engine.logits(), before)


def test_adapter_compares_logits_on_first_call_only(data: Data) -> None:
    model = build_model(Changing).float().eval()
    wrapped = EdgeWeighted(model).double()
    weight = torch.linspace(0, 1, 10, dtype=torch.float64)
    wrapped.eval()(data.x, data.edge_index, weight)
    model.double().scale = 2.0
    torch.testing.assert_close(2 * wrapped(data.x, data.edge_index), model(data.x, data.edge_index))
    assert wrapped.state_dict().keys() == {f"inner.{name}" for name in model.state_dict()}
    late = EdgeWeighted(model)
    model.scale = 1.0
    with pytest.raises(UnsupportedLayerError, match="its logits change when its layers are replaced"):
        late(data.x, data.edge_index)


def test_converted_layers_apply_dropout_in_training(data: Data) -> None:
    model = EdgeWeighted(build_model(lambda: Weightless(pyg.GATConv(5, 2, dropout=0.5))).train())
    assert model.training
    assert not torch.equal(model(data.x, data.edge_index), model(data.x, data.edge_index))
    model.eval()
    assert torch.equal(model(data.x, data.edge_index), model(data.x, data.edge_index))


class DefaultsWeights(nn.Module):
    """Accesses its edge list outside of its layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = pyg.GCNConv(5, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        if edge_weight is None:
            edge_weight = x.new_ones(edge_index.size(1))
        out: Tensor = self.layer(x, edge_index, edge_weight)
        return out


class ExtraMessages(nn.Module):
    """Has messages outside of its layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = pyg.GCNConv(5, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.layer(x, edge_index, edge_weight)
        if isinstance(edge_index, Tensor):
            weight = x.new_ones(edge_index.size(1)) if edge_weight is None else edge_weight
            out = out + out.new_zeros(out.shape).index_add(0, edge_index[1], weight[:, None] * x[edge_index[0], :2])
        return out


class Validating(Stack):
    """Raises its own error unless it gets a tensor."""

    def __init__(self, error: type[Exception]) -> None:
        super().__init__(pyg.GCNConv(5, 2))
        self.error = error

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        if not isinstance(edge_index, Tensor):
            raise self.error("edge_index must be a tensor")
        return super().forward(x, edge_index, edge_weight)


class Locked(Stack):
    """Has a lock, so it cannot be copied."""

    def __init__(self) -> None:
        super().__init__(pyg.GCNConv(5, 2))
        self.lock = threading.Lock()


class StoresOutput(Stack):
    """Stores its output with its autograd history, so it cannot be copied."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        self.output = super().forward(x, edge_index, edge_weight)
        return self.output


def called_before() -> nn.Module:
    model = StoresOutput(pyg.GCNConv(5, 2)).double()
    model(torch.ones(7, 5, dtype=torch.float64), torch.tensor([[0, 1], [1, 0]]))
    return model


UNSUPPORTED: list[Callable[[], nn.Module]] = [
    DefaultsWeights,
    ExtraMessages,
    *(partial(Validating, error) for error in (ValueError, AssertionError, RuntimeError, NotImplementedError)),
    Locked,
    called_before,
]


@pytest.mark.parametrize("build", UNSUPPORTED)
def test_unsupported_models_take_autograd_path(build: Callable[[], nn.Module], data: Data) -> None:
    model = build_model(build).eval()
    with pytest.raises(UnsupportedLayerError):
        convert_pyg_layers(model, data)
    n = int(data.num_nodes or 0)
    engine = EdgeGradientEngine(model, data, torch.arange(n))
    assert engine.path == "autograd"
    no_flips = torch.empty(2, 0, dtype=torch.long), torch.empty(0, dtype=torch.float64)
    expected = by_autograd(model, data, *no_flips)[1]
    torch.testing.assert_close(engine().at(all_pairs(n)), expected, rtol=1e-9, atol=1e-11)


def test_layer_that_computes_otherwise_with_weights_of_one_is_relaxed(data: Data) -> None:
    # PyG's improved=True has an effect only if edge weights are passed.
    model = build_model(lambda: Stack(pyg.GCNConv(5, 2, improved=True))).eval()
    ones = torch.ones(data.edge_index.size(1), dtype=torch.float64)
    assert not torch.allclose(model(data.x, data.edge_index), model(data.x, data.edge_index, ones))
    engine = EdgeGradientEngine(model, data, torch.arange(7))
    assert engine.path == "autograd"
    torch.testing.assert_close(engine().logits, model(data.x, data.edge_index))


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (lambda: pyg.SAGEConv(5, 2, aggr="max"), "aggr='max', expected 'mean' or 'add' or 'sum'"),
        (lambda: pyg.SAGEConv(5, 2, aggr=["mean", "max"]), r"aggr=\['mean', 'max'\], expected 'mean'"),
        (lambda: pyg.GCNConv(5, 2, aggr="mean"), "its layer GCNConv has aggr='mean', expected 'add' or 'sum'"),
        (lambda: pyg.SGConv(5, 2, aggr="max"), "its layer SGConv has aggr='max'"),
        (lambda: pyg.APPNP(2, 0.1, aggr="max"), "its layer APPNP has aggr='max'"),
        (lambda: pyg.GATConv(5, 2, aggr="max"), "its layer GATConv has aggr='max'"),
        (lambda: pyg.GraphConv(5, 2, aggr="max"), "its layer GraphConv has aggr='max'"),
        (lambda: pyg.GINConv(perceptron(5), aggr="max"), "its layer GINConv has aggr='max'"),
        (lambda: pyg.TransformerConv(5, 2), "TransformerConv is not supported; supported layers: GCNConv"),
        (lambda: pyg.GATConv(5, 2, add_self_loops=False), "add_self_loops=False, expected True"),
        (lambda: pyg.GCNConv(5, 2, flow="target_to_source"), "flow='target_to_source'"),
        (lambda: nn.Linear(5, 2), "no layers of torch_geometric"),
    ],
)
def test_error_names_unsupported_setting(layer: Callable[[], nn.Module], reason: str) -> None:
    with pytest.raises(UnsupportedLayerError, match=reason):
        EdgeWeighted(Stack(layer()))


@pytest.mark.parametrize("build", [Locked, called_before])
def test_model_that_cannot_be_copied_raises(build: Callable[[], nn.Module]) -> None:
    with pytest.raises(UnsupportedLayerError, match="it cannot be copied: "):
        EdgeWeighted(build())


def test_non_modules_and_lazy_modules_raise(data: Data) -> None:
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module, got str"):
        EdgeWeighted("GCN")  # type: ignore[arg-type]
    lazy = pyg.models.GCN(-1, 4, 2, 2)
    for use in (EdgeWeighted, lambda model: EdgeGradientEngine(model, data, torch.arange(7))):
        with pytest.raises(ValueError, match=r"got lazy ones in GCN: call the model once first"):
            use(lazy)


def test_third_argument_other_than_weight_is_not_taken_for_one(data: Data) -> None:
    class Batched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = pyg.GPSConv(5, pyg.TransformerConv(5, 5), heads=1)

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            out: Tensor = self.layer(x, edge_index, batch)
            return out

    model = build_model(Batched).eval()
    engine = EdgeGradientEngine(model, data, torch.arange(7))
    assert engine.path == "autograd"
    flips = torch.tensor([[0, 1], [1, 4]])
    torch.testing.assert_close(
        engine(flips, torch.ones(2)).logits, model(data.x, ep.graph.flip_pairs(data, flips).edge_index)
    )


@pytest.mark.parametrize("layer", [lambda: pyg.GCNConv(5, 2, cached=True), lambda: pyg.SGConv(5, 2, cached=True)])
def test_cached_layers_raise(layer: Callable[[], nn.Module], data: Data) -> None:
    model = build_model(lambda: Stack(layer()))
    untouched = copy.deepcopy(model)
    with pytest.raises(ValueError, match=r"with cached=True, which reuses the first graph"):
        EdgeGradientEngine(model, data, torch.arange(7))
    # The check itself fills no cache.
    fewer_edges = data.edge_index[:, 2:]
    assert torch.equal(model.eval()(data.x, fewer_edges), untouched.eval()(data.x, fewer_edges))


def cached() -> nn.Module:
    return pyg.models.GCN(21, 4, 2, 2, cached=True)


@pytest.mark.parametrize(
    "use",
    [
        lambda split, nodes: ep.attacks.DICE()(cached(), split.test.data, nodes, ep.Budget(3)),
        lambda split, nodes: ep.attacks.FixedFlips(flips=torch.tensor([[0], [1]]), origin="another model")(
            cached(), split.test.data, nodes, ep.Budget(3)
        ),
        lambda split, nodes: ep.certificates.SparseSmoothing().certify(cached(), split.test.data, nodes),
        lambda split, nodes: ep.train(cached(), split),
        lambda split, nodes: ep.training.pseudo_labels(cached(), split),
        lambda split, nodes: ep.evaluate(cached(), split.test.data, nodes, [0.1], ["DICE"]),
        lambda split, nodes: ep.evaluation.clean_accuracy(cached(), split.test.data, nodes),
    ],
    ids=["DICE", "transfer", "certify", "train", "pseudo-labels", "evaluate", "clean accuracy"],
)
def test_every_entry_point_rejects_cached_layers(
    use: Callable[[ep.splits.Split, Tensor], object], split: ep.splits.Split
) -> None:
    with pytest.raises(ValueError, match="GCN contains GCNConv with cached=True, which reuses the first graph"):
        use(split, torch.arange(10))


@pytest.mark.parametrize("name", ["GCN", "GAT"])
def test_user_model_is_attacked_on_propagate_path(name: str) -> None:
    data = ep.datasets.load("csbm")
    torch.manual_seed(0)
    model = getattr(pyg.models, name)(data.num_features, 16, 2, 2)
    split = ep.splits.inductive(data, seed=0)
    ep.train(model, split, max_epochs=30, progress=False)
    budget = ep.Budget.from_epsilon(split.test.data, split.test.nodes, 0.25, local=0.5)
    result = ep.attacks.LRBCD(steps=20, block_size=5_000)(model, split.test.data, split.test.nodes, budget, seed=0)
    assert result.path == "propagate"
    assert result.accuracy < result.clean_accuracy
