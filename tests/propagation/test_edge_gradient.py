"""Edge gradients against autograd on the complete graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GraphConv, SSGConv
from torch_geometric.nn.models import GCN as PyGGCN
from torch_geometric.utils import to_undirected

import edgeproof as ep
from edgeproof import losses
from edgeproof.kernels import dispatch, numba_cpu, reference
from edgeproof.models import GraphModel
from edgeproof.propagation import Adjacency, EdgeGradientEngine, NoEdgeGradientError, Pairs, SearchOptions, propagate
from edgeproof.propagation.message_rules import Attention
from edgeproof.propagation.pairs import Attended
from edgeproof.propagation.search import RunningTopK, rounding_slack


class TwoLayers(nn.Module):
    """User model of two PyG layers."""

    def __init__(self, layer: Callable[[int, int], nn.Module], in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.first, self.second = layer(in_channels, 4), layer(4, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        h = self.first(x, edge_index, edge_weight).tanh()
        out: Tensor = self.second(h, edge_index, edge_weight)
        return out


class Mixed(GraphModel):
    """Propagates over plain and normalized matrices, propagates a parameter, and ignores the result of a call."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 4, 2, 0.5)
        self.weight = nn.Parameter(torch.randn(in_channels, out_channels))
        self.position = nn.Parameter(torch.randn(7, out_channels))

    def encode(self, x: Tensor) -> Tensor:
        return x @ self.weight

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        looped, bare = adjacency.normalized(self_loops=True), adjacency.normalized(self_loops=False)
        propagate(adjacency, h)
        z = propagate(looped, h).tanh() + propagate(bare, h).sin()
        return propagate(looped, z) + propagate(adjacency, z).tanh() + propagate(bare, self.position)


class UsesDegree(GraphModel):
    """Uses degrees as a feature, so part of its gradient is outside of its messages."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 4, 2, 0.5)
        self.weight = nn.Parameter(torch.randn(in_channels, out_channels))

    def encode(self, x: Tensor) -> Tensor:
        return x @ self.weight

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        return propagate(adjacency, h) * adjacency.degree[:, None]


class SquaredWeights(UsesDegree):
    """Propagates over a matrix of unknown rule."""

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        return propagate(adjacency.with_weight(adjacency.weight.square()), h)


def library_model(name: str, **options: object) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        torch.manual_seed(1)
        model = ep.models.build(name, 5, 3, {"hidden_channels": 4, **options}, seed=1)
        if name == "ChebNetII":
            nn.init.uniform_(model.gamma, 0.1, 1.0)
        return model.double()

    return build


MODELS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "GCN": (library_model("GCN"), "propagate"),
    "GCN-3": (library_model("GCN", num_layers=3), "propagate"),
    "APPNP": (library_model("APPNP"), "propagate"),
    "GPRGNN": (library_model("GPRGNN"), "propagate"),
    "ChebNetII": (library_model("ChebNetII"), "propagate"),
    "GRAND": (library_model("GRAND"), "propagate"),
    "GRAND-8": (library_model("GRAND", K=8, input_dropout=0.5), "propagate"),
    "MLP": (library_model("MLP"), "propagate"),
    "GAT": (library_model("GAT"), "propagate"),
    "GAT-heads": (library_model("GAT", heads=2, num_layers=3), "propagate"),
    "SoftMedianGDC": (library_model("SoftMedianGDC"), "propagate"),
    "mixed": (lambda: Mixed(5, 3).double(), "propagate"),
    "uses degree": (lambda: UsesDegree(5, 3).double(), "autograd"),
    "squared weights": (lambda: SquaredWeights(5, 3).double(), "autograd"),
    "PyG GCN": (lambda: PyGGCN(5, 4, 2, 3).double(), "propagate"),
    "PyG GraphConv": (lambda: TwoLayers(GraphConv, 5, 3).double(), "propagate"),
    "PyG SSGConv": (lambda: TwoLayers(partial(SSGConv, alpha=0.2), 5, 3).double(), "autograd"),
}


@pytest.fixture
def double(graph: Data) -> Data:
    graph.x = graph.x.double()
    return graph


def all_pairs(nodes: int) -> Tensor:
    return torch.triu_indices(nodes, nodes, offset=1)


def by_autograd(model: nn.Module, data: Data, nodes: Tensor, pairs: Tensor, flip: Tensor) -> tuple[Tensor, Tensor]:
    """Loss and gradient at all pairs, each an edge of its own weight."""
    n = data.num_nodes
    u, v = all_pairs(n)
    adjacency = torch.zeros(n, n, dtype=torch.float64)
    adjacency[data.edge_index[0], data.edge_index[1]] = 1
    start = torch.zeros(n, n, dtype=torch.float64)
    start[pairs.amin(0), pairs.amax(0)] = flip.double()
    p = start[u, v].requires_grad_()
    weight = adjacency[u, v] + (1 - 2 * adjacency[u, v]) * p
    logits = model.eval()(data.x, torch.cat([torch.stack([u, v]), torch.stack([v, u])], 1), torch.cat([weight, weight]))
    loss = losses.tanh_margin(logits[nodes], data.y[nodes])
    if not loss.requires_grad:
        return loss, torch.zeros_like(p)
    (gradient,) = torch.autograd.grad(loss, p, allow_unused=True)
    return loss.detach(), torch.zeros_like(p) if gradient is None else gradient


def check_close(result: Tensor, expected: Tensor, tolerance: float = 1e-9) -> None:
    assert result.shape == expected.shape
    assert float((result - expected).abs().max()) <= tolerance * float(expected.abs().max()) + 1e-13


FLIPS = {
    "no flips": (torch.empty(2, 0, dtype=torch.long), torch.empty(0)),
    "fractional edge": (torch.tensor([[0], [1]]), torch.tensor([0.3])),
    "fractional non-edge": (torch.tensor([[0], [4]]), torch.tensor([0.7])),
    "discrete flips": (torch.tensor([[0, 3, 1], [1, 6, 5]]), torch.tensor([1.0, 1.0, 1.0])),
    "weight zero": (torch.tensor([[0, 0], [1, 5]]), torch.tensor([0.0, 0.0])),
    "unsorted, both directions": (
        torch.tensor([[5, 2, 0, 6, 4, 3], [1, 3, 2, 0, 5, 0]]),
        torch.tensor([0.25, 1.0, 0.5, 0.75, 1.0, 0.0]),
    ),
}


@pytest.mark.parametrize("flips", FLIPS)
@pytest.mark.parametrize("name", MODELS)
def test_gradient_matches_autograd_at_every_pair(name: str, flips: str, double: Data) -> None:
    build, path = MODELS[name]
    torch.manual_seed(0)
    model = build()
    pairs, flip = FLIPS[flips]
    for nodes in (torch.tensor([0, 3]), torch.arange(7), torch.tensor([6])):
        engine = EdgeGradientEngine(model, double, nodes)
        gradient = engine(pairs, flip)
        loss, expected = by_autograd(model, double, nodes, pairs, flip)
        assert gradient.path == engine.path == path
        check_close(gradient.loss, loss)
        check_close(gradient.at(all_pairs(7)), expected)
        check_close(gradient.at(Pairs.of(all_pairs(7), 7)), expected)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    nodes=st.integers(2, 9),
    density=st.floats(0, 1),
    flipped=st.integers(0, 12),
    name=st.sampled_from(["GCN", "APPNP", "GPRGNN", "GRAND", "ChebNetII", "GAT-heads", "PyG GCN", "PyG SSGConv"]),
)
def test_gradient_matches_autograd_on_random_graphs(
    seed: int, nodes: int, density: float, flipped: int, name: str
) -> None:
    generator = torch.Generator().manual_seed(seed)
    candidates = all_pairs(nodes)
    edges = candidates[:, torch.rand(candidates.size(1), generator=generator) < density]
    data = Data(
        x=torch.randn(nodes, 5, generator=generator, dtype=torch.float64),
        edge_index=to_undirected(edges, num_nodes=nodes),
        y=torch.arange(nodes) % 2,
    )
    pairs = candidates[:, torch.randperm(candidates.size(1), generator=generator)[:flipped]]
    flip = torch.rand(pairs.size(1), generator=generator, dtype=torch.float64)
    targets = torch.randperm(nodes, generator=generator)[: 1 + seed % nodes]
    model = MODELS[name][0]()
    engine = EdgeGradientEngine(model, data, targets, path=MODELS[name][1])
    _, expected = by_autograd(model, data, targets, pairs, flip)
    check_close(engine(pairs, flip).at(candidates), expected)


def brute_force(gradient: Tensor, pairs: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Sort all pairs by descending gradient, then by (u, v)."""
    order = sorted(range(pairs.size(1)), key=lambda i: (-float(gradient[i]), *pairs[:, i].tolist()))[:k]
    return pairs[:, order], gradient[order]


@pytest.mark.parametrize("name", ["GCN", "GPRGNN", "GRAND", "ChebNetII", "GAT", "MLP", "PyG GraphConv", "PyG SSGConv"])
@pytest.mark.parametrize("k", [1, 4, 21, 50])
@pytest.mark.parametrize("exhaustive_limit", [0, 100])
def test_top_matches_brute_force(exhaustive_limit: int, name: str, k: int, double: Data) -> None:
    options = SearchOptions(block_size=5, tile_size=21, exhaustive_limit=exhaustive_limit, sample_size=64)
    model = MODELS[name][0]()
    engine = EdgeGradientEngine(model, double, torch.arange(7))
    engine.autograd.block_size = 5
    gradient = engine(*FLIPS["unsorted, both directions"])
    everything = all_pairs(7)
    cases: list[tuple[Tensor | None, Tensor | None]] = [
        (None, None),
        (None, torch.tensor([[0, 5, 2], [1, 1, 6]])),
        (torch.tensor([6, 0, 2, 5]), None),
        (torch.tensor([6, 0, 2, 5]), torch.tensor([[0, 1], [2, 3]])),
    ]
    for among, exclude in cases:
        allowed = torch.ones(21, dtype=torch.bool)
        if among is not None:
            allowed &= torch.isin(everything, among).all(dim=0)
        if exclude is not None:
            excluded = {tuple(sorted(pair)) for pair in exclude.T.tolist()}
            allowed &= torch.tensor([tuple(pair) not in excluded for pair in everything.T.tolist()])
        pairs = everything[:, allowed]
        expected_pairs, expected = brute_force(gradient.at(pairs), pairs, k)
        best = gradient.top(k, among=among, exclude=exclude, options=options)
        assert torch.equal(best.pairs, expected_pairs)
        assert torch.equal(best.scores, expected)


def test_top_orders_ties_by_node_ids(double: Data) -> None:
    """Nodes with equal features in an empty graph have equal gradients in groups."""
    double.x = torch.ones(7, 5, dtype=torch.float64)
    double.edge_index = torch.empty(2, 0, dtype=torch.long)
    model = MODELS["GCN"][0]()
    double.y = torch.tensor([0, 1, 0, 1, 0, 1, 0])
    gradient = EdgeGradientEngine(model, double, torch.arange(7))()
    pairs, scores = brute_force(gradient.at(all_pairs(7)), all_pairs(7), 9)
    best = gradient.top(9)
    assert len(set(scores.tolist())) < 9
    assert torch.equal(best.pairs, pairs)


@pytest.mark.parametrize("name", ["GCN", "GPRGNN", "ChebNetII", "GAT"])
def test_float32_is_close_to_float64(name: str, double: Data) -> None:
    model = MODELS[name][0]()
    pairs, flip = FLIPS["unsorted, both directions"]
    expected = EdgeGradientEngine(model, double, torch.arange(7))(pairs, flip).at(all_pairs(7))
    double.x = double.x.float()
    single = EdgeGradientEngine(model.float(), double, torch.arange(7))(pairs, flip).at(all_pairs(7))
    check_close(single.double(), expected, 1e-4)


def test_paths_agree_on_larger_graph(sbm: Data) -> None:
    model = ep.models.build("GPRGNN", 21, 2, seed=0)
    nodes = torch.arange(0, 200, 3)
    pairs = Pairs.from_number(torch.arange(0, 19_900, 7), 200)
    flip = (pairs.u % 11).float() / 11
    chosen = torch.arange(0, len(pairs), 50)
    fast = EdgeGradientEngine(model, sbm, nodes)(pairs[chosen], flip[chosen])
    slow = EdgeGradientEngine(model, sbm, nodes, path="autograd")(pairs[chosen], flip[chosen])
    assert (fast.path, slow.path) == ("propagate", "autograd")
    check_close(fast.at(pairs), slow.at(pairs), 1e-4)
    torch.testing.assert_close(fast.logits, slow.logits)


def test_custom_labels_and_loss(double: Data) -> None:
    model = MODELS["GCN"][0]()
    nodes, labels = torch.tensor([2, 4]), torch.tensor([1, 0])
    gradient = EdgeGradientEngine(model, double, nodes, labels=labels, loss=losses.cross_entropy)()
    logits = model.eval()(double.x, double.edge_index)
    assert gradient.loss.item() == pytest.approx(losses.cross_entropy(logits[nodes], labels).item())
    double.y = None
    EdgeGradientEngine(model, double, nodes, labels=labels)


def test_engine_leaves_model_unchanged(double: Data) -> None:
    model = MODELS["GPRGNN"][0]().train()
    engine = EdgeGradientEngine(model, double, torch.arange(7))
    assert torch.equal(engine().logits, engine().logits)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_features_are_encoded_once(double: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["GPRGNN"][0]()
    calls = []
    encode = type(model).encode
    monkeypatch.setattr(type(model), "encode", lambda self, x: calls.append(1) or encode(self, x))
    engine = EdgeGradientEngine(model, double, torch.arange(7), path="propagate")
    for _ in range(5):
        engine(torch.tensor([[0], [1]]), torch.tensor([0.5])).at(all_pairs(7))
    assert len(calls) == 1


def test_invalid_arguments_raise(double: Data) -> None:
    model = MODELS["GCN"][0]()
    nodes = torch.arange(7)
    engine = EdgeGradientEngine(model, double, nodes)
    half = torch.tensor([0.5])
    for pairs, flip, message in (
        (torch.tensor([[0], [7]]), half, "between 0 and 6, got 0 to 7"),
        (torch.tensor([[2], [2]]), half, "different nodes, got 1 self-loops"),
        (torch.tensor([[0, 1], [1, 0]]), torch.tensor([0.5, 0.5]), "distinct pairs, got 1 repeated"),
        (torch.tensor([[0], [1]]), torch.tensor([1.5]), "expected 1 flip weights between 0 and 1"),
        (torch.tensor([[0], [1]]), torch.tensor([0.5, 0.5]), "expected 1 flip weights between 0 and 1"),
        (torch.tensor([[0], [1]]), None, "both pairs and flip weights, got only one"),
        (None, half, "both pairs and flip weights, got only one"),
        (Pairs.of(torch.tensor([[0], [1]]), 8), half, "graph of 7 nodes, got 8"),
        (Pairs.of(torch.tensor([[0], [1]]), 7), torch.ones(2), "expected 1 flip weights"),
        (torch.tensor([0, 1]), half, r"int64 tensor of shape \[2, pairs\]"),
    ):
        with pytest.raises(ValueError, match=message):
            engine(pairs, flip)
    gradient = engine()
    with pytest.raises(ValueError, match="different nodes"):
        gradient.at(torch.tensor([[1], [1]]))
    with pytest.raises(ValueError, match="expected k to be an integer >= 1, got 0"):
        gradient.top(0)
    with pytest.raises(ValueError, match="distinct among"):
        gradient.top(1, among=torch.tensor([1, 1]))
    with pytest.raises(ValueError, match="'propagate' or 'autograd', got 'magic'"):
        EdgeGradientEngine(model, double, nodes, path="magic")
    with pytest.raises(ValueError, match="one int64 label per node"):
        EdgeGradientEngine(model, double, nodes, labels=torch.tensor([1]))
    with pytest.raises(ValueError, match="matrix of unknown rule"):
        EdgeGradientEngine(MODELS["squared weights"][0](), double, nodes, path="propagate")()
    with pytest.raises(ValueError, match="at least one node"):
        EdgeGradientEngine(model, double, torch.empty(0, dtype=torch.long))


def test_errors_are_raised_by_constructor(double: Data) -> None:
    nodes = torch.arange(7)
    with pytest.raises(ValueError, match=r"of one dtype, got torch\.float32, torch\.float64"):
        EdgeGradientEngine(ep.models.GCN(5, 3), double, nodes)
    with pytest.raises(ValueError, match=r"features x of shape \[nodes, 6\], got \[7, 5\]"):
        EdgeGradientEngine(ep.models.GCN(6, 3).double(), double, nodes)
    with pytest.raises(TypeError, match="expected a loss function"):
        EdgeGradientEngine(ep.models.GCN(5, 3).double(), double, nodes, loss="tanh_margin")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown backend 'numbra': did you mean 'numba'"):
        EdgeGradientEngine(ep.models.GCN(5, 3).double(), double, nodes, backend="numbra")
    broken = ep.models.GCN(5, 3).double()
    broken.weights[0].data.fill_(torch.nan)
    with pytest.raises(ValueError, match="expected finite logits from GCN, got NaN or Inf on the clean graph"):
        EdgeGradientEngine(broken, double, nodes)
    broken.weights[0].data.fill_(0.1)
    engine = EdgeGradientEngine(broken, double, nodes)
    assert engine.path == "propagate", "a failed check must not be cached"
    broken.weights[0].data.fill_(torch.nan)
    engine.refresh()
    with pytest.raises(ValueError, match="expected a finite loss, got nan"):
        engine().top(3)
    for labels in (torch.full((7,), 3), torch.tensor([0, 1, 2, 0, 1, 2, 9])):
        with pytest.raises(ValueError, match=r"labels between 0 and 2, the model's classes, got [39]"):
            EdgeGradientEngine(ep.models.GCN(5, 3).double(), double, nodes, labels=labels)
    with pytest.raises(ValueError, match=r"expected one int64 label per node, shape \[7\], got torch.float32 of shape"):
        EdgeGradientEngine(ep.models.GCN(5, 3).double(), double, nodes, labels=torch.zeros(7))


class Constant(nn.Module):
    """Returns a constant."""

    def __init__(self, output: object) -> None:
        super().__init__()
        self.output = output

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> object:
        return self.output


@pytest.mark.parametrize(
    ("output", "description"),
    [
        (None, "got None"),
        (torch.zeros(7), r"got torch.float32 of shape \[7\]"),
        (torch.zeros(6, 3), r"got torch.float32 of shape \[6, 3\]"),
    ],
)
def test_output_other_than_logits_raises(output: object, description: str, double: Data) -> None:
    with pytest.raises(ValueError, match=rf"expected logits of shape \[7, classes\] from Constant, {description}"):
        EdgeGradientEngine(Constant(output), double, torch.arange(7))


@pytest.mark.parametrize("name", ["GCN", "PyG SSGConv"])
def test_loss_must_be_scalar_tensor(name: str, double: Data) -> None:
    for loss in (lambda logits, labels: logits.sum(dim=1), lambda logits, labels: 1.0):
        with pytest.raises(
            ValueError, match=r"expected the loss to be a scalar tensor, got (float|torch.float64 of shape)"
        ):
            EdgeGradientEngine(MODELS[name][0](), double, torch.arange(7), loss=loss)()


def test_model_may_require_edge_weight(double: Data) -> None:
    class RequiresWeight(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = MODELS["PyG SSGConv"][0]()

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
            out: Tensor = self.model(x, edge_index, edge_weight)
            return out

    engine = EdgeGradientEngine(RequiresWeight(), double, torch.arange(7))
    assert engine.path == "autograd"
    assert bool(engine().at(all_pairs(7)).any())


def test_top_accepts_numpy_integers_and_both_pair_types(double: Data) -> None:
    gradient = EdgeGradientEngine(MODELS["GCN"][0](), double, torch.arange(7))()
    excluded = Pairs.from_number(torch.arange(3, 9), 7)
    for best in (gradient.top(np.int64(4), exclude=excluded), gradient.top(4, exclude=excluded.both.flip(0))):
        assert torch.equal(best.pairs, gradient.top(4, exclude=excluded.both).pairs)
    for k in (True, 0, 2.5, None):
        with pytest.raises(ValueError, match="expected k to be an integer >= 1"):
            gradient.top(k)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="pairs of a graph of 7 nodes, got 8"):
        gradient.top(1, exclude=Pairs.from_number(torch.arange(3), 8))
    with pytest.raises(TypeError, match="expected flip weights as a tensor, got list"):
        gradient.engine(torch.tensor([[0], [1]]), [0.5])  # type: ignore[arg-type]
    assert repr(gradient.engine) == (
        "EdgeGradientEngine(GCN, 7 nodes, 5 edges, 7 targets, loss=tanh_margin, path='propagate', backend=None)"
    )


@pytest.mark.parametrize("aggr", ["mean", "median"])
def test_model_that_ignores_edge_weight_is_relaxed_if_possible(aggr: str, double: Data) -> None:
    class IgnoresWeight(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = torch_geometric.nn.models.GraphSAGE(5, 4, 2, 3, aggr=aggr).double()

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
            out: Tensor = self.model(x, edge_index)
            return out + 0 * edge_index.sum()

    # With other parameters all hidden units may be zero, so that edges have no effect.
    torch.manual_seed(0)
    if aggr == "mean":
        assert EdgeGradientEngine(IgnoresWeight(), double, torch.arange(7)).path == "autograd"
        return
    with pytest.raises(NoEdgeGradientError, match=r"IgnoresWeight has no edge gradients: .*aggr='median'"):
        EdgeGradientEngine(IgnoresWeight(), double, torch.arange(7))


@pytest.mark.parametrize("name", ["GCN", "PyG GCN", "PyG SSGConv"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_engine_is_independent_of_grad_mode(mode: Callable[[], Any], name: str, double: Data) -> None:
    model = MODELS[name][0]()
    with mode():
        engine = EdgeGradientEngine(model, double, torch.arange(7))
        gradient = engine().at(all_pairs(7))
        best = engine(torch.tensor([[0], [4]]), torch.tensor([0.5])).top(2)
        flips = ep.attacks.PRBCD(steps=3, fine_tune_steps=1, block_size=20)(
            model, double, torch.arange(7), ep.Budget(2), seed=0
        ).flips
        engine.refresh()
        assert torch.equal(engine.logits(), engine.logits())
        assert torch.is_inference_mode_enabled() == (mode is torch.inference_mode)
    outside = EdgeGradientEngine(model, double, torch.arange(7))(torch.tensor([[0], [4]]), torch.tensor([0.5]))
    assert torch.equal(best.pairs, outside.top(2).pairs)
    again = ep.attacks.PRBCD(steps=3, fine_tune_steps=1, block_size=20)(
        model, double, torch.arange(7), ep.Budget(2), seed=0
    )
    assert torch.equal(flips, again.flips)
    assert engine.path == MODELS[name][1]
    empty = torch.empty(2, 0, dtype=torch.long), torch.empty(0)
    check_close(gradient, by_autograd(model, double, torch.arange(7), *empty)[1])


def test_inference_tensors_raise(double: Data) -> None:
    with torch.inference_mode():
        copy = Data(x=double.x.clone(), edge_index=double.edge_index, y=double.y)
        model = MODELS["GCN"][0]()
    for arguments in ((MODELS["GCN"][0](), copy), (model, double)):
        with pytest.raises(ValueError, match=r"created outside of torch\.inference_mode\(\)"):
            EdgeGradientEngine(*arguments, torch.arange(7))


class Shifted(ep.models.GCN):
    """Adds to its logits outside of encode and diffuse."""

    def forward(self, x: Tensor, edge_index: Tensor | Adjacency, edge_weight: Tensor | None = None) -> Tensor:
        return super().forward(x, edge_index, edge_weight) + x[:, :3]


def test_custom_forward_takes_autograd_path(double: Data) -> None:
    model = Shifted(5, 3).double()
    engine = EdgeGradientEngine(model, double, torch.arange(7))
    assert engine.path == "autograd"
    empty = torch.empty(2, 0, dtype=torch.long), torch.empty(0)
    check_close(engine().at(all_pairs(7)), by_autograd(model, double, torch.arange(7), *empty)[1])


def test_zero_gradient_is_not_cached_as_verified(double: Data) -> None:
    model = MODELS["uses degree"][0]()
    weight = model.weight.data.clone()
    model.weight.data.zero_()
    assert EdgeGradientEngine(model, double, torch.arange(7)).path == "propagate"
    model.weight.data = weight
    assert EdgeGradientEngine(model, double, torch.arange(7)).path == "autograd"


class BarelyUsesDegree(UsesDegree):
    """Has a small part of its gradient outside of its messages."""

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        return propagate(adjacency.normalized(self_loops=True), h) * (1 + 1e-4 * adjacency.degree[:, None])


def test_small_gradient_difference_is_detected(double: Data) -> None:
    assert EdgeGradientEngine(BarelyUsesDegree(5, 3).double(), double, torch.arange(7)).path == "autograd"


class LoopedAgain(UsesDegree):
    """Adds self-loops to a normalized matrix."""

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        return propagate(adjacency.normalized(self_loops=False).with_self_loops, h)


def test_self_loops_on_normalized_matrix_have_unknown_rule(double: Data) -> None:
    with pytest.raises(ValueError, match="matrix of unknown rule"):
        EdgeGradientEngine(LoopedAgain(5, 3).double(), double, torch.arange(7), path="propagate")()


def test_engine_restores_mode_of_each_submodule(double: Data) -> None:
    model = MODELS["GPRGNN"][0]().train()
    model.mlp.eval()
    engine = EdgeGradientEngine(model, double, torch.arange(7))
    engine()
    assert model.training
    assert not model.mlp.training
    model.eval()
    model.mlp.train()
    assert torch.equal(engine().logits, engine().logits)
    assert model.mlp.training


def test_forced_backend_runs_the_model(double: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    spmm = reference.spmm
    monkeypatch.setattr(reference, "spmm", lambda *arguments, **options: calls.append(1) or spmm(*arguments, **options))
    EdgeGradientEngine(MODELS["GCN"][0](), double, torch.arange(7), backend="reference", path="propagate")()
    assert calls


@pytest.fixture
def num_passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each pass over all pairs above a threshold."""
    passes: list[int] = []
    above = dispatch.pairs_above

    def spy(*arguments: Any, **options: Any) -> tuple[Tensor, int]:
        passes.append(1)
        return above(*arguments, **options)

    monkeypatch.setattr(dispatch, "pairs_above", spy)
    return passes


@pytest.mark.parametrize("groups", [2, 5, 1000])
@pytest.mark.parametrize("k", [1, 10, 700, 8000])
def test_threshold_search_matches_brute_force(k: int, groups: int, num_passes: list[int]) -> None:
    """Nodes in a few groups of equal features give many equal gradients."""
    options = SearchOptions(exhaustive_limit=0, sample_size=1 << 10, tile_size=1 << 12)
    data = ep.datasets.csbm("homophilous", num_nodes=150, p=0.05, q=0.01, seed=k)
    data.x = data.x[torch.arange(150) % groups % 150]
    model = ep.models.build("GCN", 21, 2, seed=0)
    gradient = EdgeGradientEngine(model, data, torch.arange(0, 150, 4))()
    everything = all_pairs(150)
    scores = gradient.at(everything)
    excluded = everything[:, scores.topk(3).indices]
    allowed = ~torch.isin(everything[0] * 150 + everything[1], excluded[0] * 150 + excluded[1])
    expected = brute_force(scores[allowed], everything[:, allowed], k)
    best = gradient.top(k, exclude=excluded, options=options)
    assert torch.equal(best.scores, expected[1])
    assert torch.equal(best.pairs, expected[0])
    assert num_passes


@pytest.mark.parametrize("num_excluded", [340, 360, 700])
@pytest.mark.parametrize("k", [70, 100])
def test_threshold_is_lowered_if_excluded_pairs_exceed_it(k: int, num_excluded: int, num_passes: list[int]) -> None:
    options = SearchOptions(exhaustive_limit=0, sample_size=1 << 10)
    data = ep.datasets.csbm("homophilous", num_nodes=150, p=0.05, q=0.01, seed=0)
    gradient = EdgeGradientEngine(ep.models.build("GCN", 21, 2, seed=0), data, torch.arange(0, 150, 4))()
    everything = all_pairs(150)
    pairs, scores = brute_force(gradient.at(everything), everything, num_excluded + k)
    best = gradient.top(k, exclude=pairs[:, :num_excluded], options=options)
    assert torch.equal(best.pairs, pairs[:, num_excluded:])
    assert torch.equal(best.scores, scores[num_excluded:])
    assert len(num_passes) > 1


@pytest.mark.parametrize("name", ["GAT", "GCN"])
def test_tile_search_is_exact_under_coarse_rounding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = ep.datasets.csbm("homophilous", num_nodes=100, p=0.05, q=0.01, seed=0)
    gradient = EdgeGradientEngine(ep.models.build(name, 21, 2, seed=0), data, torch.arange(0, 100, 4))()
    everything = all_pairs(100)
    step = 1000 * float(rounding_slack(gradient.scores))
    # Tiles rounded to multiples of a large step have many ties, in the wrong order.
    for kind in {type(score) for score in gradient.scores}:
        tile = kind.tile
        monkeypatch.setattr(kind, "tile", lambda *arguments, tile=tile: (tile(*arguments) / step).round() * step)
    options = SearchOptions(
        exhaustive_limit=0, num_thresholds=0, tile_size=1 << 11, slack_factor=1000.0 * len(gradient.scores)
    )
    for k in (1, 7, 40, 200, 1000):
        expected = brute_force(gradient.at(everything), everything, k)
        best = gradient.top(k, options=options)
        assert torch.equal(best.pairs, expected[0])
        assert torch.equal(best.scores, expected[1])


@pytest.mark.parametrize("name", ["GAT", "GPRGNN"])
def test_rounding_slack_is_a_tight_bound(name: str) -> None:
    data = ep.datasets.csbm("homophilous", num_nodes=150, p=0.05, q=0.01, seed=0)
    gradient = EdgeGradientEngine(ep.models.build(name, 21, 2, seed=0), data, torch.arange(0, 150, 4))()
    nodes, (u, v) = torch.arange(150), all_pairs(150)
    tiles = torch.stack([score.tile(nodes, nodes) for score in gradient.scores]).sum(dim=0)[u, v]
    exact = torch.stack([score.at(Pairs(u, v, 150), None) for score in gradient.scores]).sum(dim=0)
    assert 1e-3 < float((tiles - exact).abs().max() / rounding_slack(gradient.scores)) < 1


def test_search_skips_pairs_with_nan_gradient() -> None:
    data = ep.datasets.csbm("homophilous", num_nodes=60, p=0.1, q=0.02, seed=0)
    gradient = EdgeGradientEngine(ep.models.build("GAT", 21, 2, seed=0), data, torch.arange(0, 60, 4))()
    for score in gradient.scores:
        score.own[7] = torch.nan
    everything = all_pairs(60)
    finite = everything[:, (everything != 7).all(dim=0)]
    expected = brute_force(gradient.at(finite), finite, 30)
    assert torch.equal(gradient.top(30, options=SearchOptions(exhaustive_limit=0)).pairs, expected[0])


def test_rounding_slack_covers_low_precision_matmul() -> None:
    data = ep.datasets.csbm("homophilous", num_nodes=60, p=0.1, q=0.02, seed=0)
    gradient = EdgeGradientEngine(ep.models.build("GAT", 21, 2, seed=0), data, torch.arange(0, 60, 4))()
    slack, before = rounding_slack(gradient.scores), torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        assert float(rounding_slack(gradient.scores)) > 1000 * float(slack)
    finally:
        torch.set_float32_matmul_precision(before)


def test_attention_upper_bound_holds_for_any_slope() -> None:
    generator = torch.Generator().manual_seed(0)
    numbers = [torch.randn(20, generator=generator, dtype=torch.float64) for _ in range(3)]
    nodes = torch.arange(20)
    for slope in (0.2, 1.0, -1.0):
        rule = Attention(5 * numbers[0], 5 * numbers[1], numbers[2], torch.ones(20, dtype=torch.float64), slope)
        b, h = (torch.randn(20, 4, generator=generator, dtype=torch.float64) for _ in range(2))
        score = Attended(rule, b, h, torch.randn(20, generator=generator, dtype=torch.float64))
        assert float(score.tile(nodes, nodes).abs().max()) <= float(score.upper_bound)


def test_sign_of_ascending_pairs_that_end_before_the_last_edge(double: Data) -> None:
    gradient = EdgeGradientEngine(MODELS["GCN"][0](), double, torch.arange(7))()
    pairs = Pairs.from_number(torch.arange(12), 7)
    assert int(pairs.key[-1]) in gradient.engine.edge_key.tolist()
    assert int(gradient.engine.edge_key[-1]) > int(pairs.key[-1])
    torch.testing.assert_close(gradient.at(pairs), gradient.at(pairs.both))


def test_top_k_keeps_ties_in_order_after_pruning() -> None:
    best = RunningTopK(3, torch.zeros(0))
    best.offer(torch.ones(7), torch.tensor([50, 40, 30, 20, 60, 70, 80]))
    assert best.threshold == 1
    best.offer(torch.ones(1), torch.tensor([5]))
    assert best.best(1000).pairs[1].tolist() == [5, 20, 30]


def test_top_k_keeps_ties_in_order_for_any_input_order() -> None:
    best = RunningTopK(3, torch.zeros(0))
    for keys in ([50, 40], [30, 10], [20, 60], [5, 70, 80, 90, 100, 110, 120, 130, 140, 150, 160, 170, 180]):
        best.offer(torch.ones(len(keys)), torch.tensor(keys))
    assert best.keys.numel() <= 6
    assert (best.best(1000).pairs[1]).tolist() == [5, 10, 20]


def test_no_pairs_give_empty_results(double: Data) -> None:
    for name in ("GCN", "PyG GCN"):
        gradient = EdgeGradientEngine(MODELS[name][0](), double, torch.arange(7))()
        assert gradient.at(torch.empty(2, 0, dtype=torch.long)).shape == (0,)
        assert gradient.top(3, among=torch.tensor([4])).pairs.shape == (2, 0)


@pytest.mark.parametrize("name", ["GCN", "GAT", "GPRGNN", "GRAND", "ChebNetII", "MLP"])
def test_batched_logits_equal_single_logits(name: str, sbm: Data) -> None:
    model = ep.models.build(name, sbm.num_features, 2, {"hidden_channels": 8}, seed=0).double()
    data = sbm.clone()
    data.x = data.x.double()
    generator = torch.Generator().manual_seed(0)
    sets = [
        Pairs.from_number(torch.randperm(200 * 199 // 2, generator=generator)[:size].sort().values, 200).both
        for size in (0, 1, 30, 7, 200)
    ]
    expected = [ep.models.predict(model, ep.graph.flip_pairs(data, flips)) for flips in sets]
    for path, max_batch_nodes in (("propagate", 1 << 17), ("propagate", 400), ("propagate", 1), ("autograd", 1 << 17)):
        engine = EdgeGradientEngine(model, data, torch.arange(10), path=path)
        logits = torch.cat(list(engine.logits_of(sets, max_batch_nodes=max_batch_nodes)))
        torch.testing.assert_close(logits, torch.stack(expected), rtol=1e-9, atol=1e-9)
        single = engine.logits(sets[2], torch.ones(30, dtype=torch.float64))
        torch.testing.assert_close(single, expected[2], rtol=1e-9, atol=1e-9)


def test_gradient_of_wide_model_matches_autograd() -> None:
    """More than a million numbers are scaled call by call instead of being joined first."""
    data = ep.datasets.csbm("homophilous", num_nodes=300, p=0.05, q=0.01, seed=0)
    data.x = data.x.double()
    model = ep.models.build("GCN", 21, 2, {"hidden_channels": 4000}, seed=0).double()
    assert reference.FEW_NUMBERS < 300 * 4000
    pairs = torch.tensor([[0, 1, 3], [4, 2, 6]])
    fast, expected = (
        EdgeGradientEngine(model, data, torch.arange(50), path=path)().at(pairs) for path in ("propagate", "autograd")
    )
    torch.testing.assert_close(fast, expected, rtol=1e-9, atol=1e-12)
    assert bool(expected.any())


@pytest.mark.parametrize("width", [64, 4000])
def test_forced_backend_runs_every_kernel(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("another backend was forced")

    for kernel in ("spmm", "gathered_dot", "pair_scores", "merge", "unrank_pairs"):
        monkeypatch.setattr(numba_cpu, kernel, refuse)
    data = ep.datasets.csbm("homophilous", num_nodes=300, p=0.05, q=0.01, seed=0)
    model = ep.models.build("GCN", 21, 2, {"hidden_channels": width}, seed=0).eval()
    pairs = torch.tensor([[0, 1, 3], [4, 2, 6]])
    with pytest.raises(AssertionError, match="another backend"):
        EdgeGradientEngine(model, data, torch.arange(5))
    engine = EdgeGradientEngine(model, data, torch.arange(5), backend="reference")
    assert bool(engine(pairs, torch.full((3,), 0.5)).at(pairs).any())
