"""Soft medians against loops over the definition, and the model over the diffused graph."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.attacks import LRBCD, PRBCD, Attack, GreedyRBCD
from edgeproof.kernels import dispatch
from edgeproof.models import SoftMedianConv, SoftMedianGDC, soft_median
from edgeproof.propagation import Adjacency, EdgeGradientEngine, top_ppr


def neighbors(rows: int = 12, k: int = 6, channels: int = 3, nodes: int = 20) -> tuple[Tensor, Tensor, Tensor]:
    """Features, weights and neighbors of some rows; all values are different."""
    generator = torch.Generator().manual_seed(rows + k)
    x = torch.randn(nodes, channels, generator=generator, dtype=torch.float64)
    index = torch.stack([torch.randperm(nodes, generator=generator)[:k] for _ in range(rows)])
    return x, torch.rand(rows, k, generator=generator, dtype=torch.float64) + 0.1, index


def median_by_loop(values: list[float], weights: list[float]) -> float:
    """Smallest value such that the values up to it have half of the weight."""
    cumulative = 0.0
    for value, weight in sorted((value, weight) for value, weight in zip(values, weights, strict=True) if weight > 0):
        cumulative += weight
        if cumulative >= sum(weights) / 2:
            return value
    raise AssertionError("expected a positive weight")


def by_definition(x: Tensor, values: Tensor, index: Tensor, temperature: float) -> Tensor:
    out = []
    for weight, nodes in zip(values, index, strict=True):
        positive = weight > 0
        weight, features = weight[positive], x[nodes[positive]]
        median = torch.tensor(
            [median_by_loop(column.tolist(), weight.tolist()) for column in features.T], dtype=x.dtype
        )
        distance = (median - features).norm(dim=1) / x.size(1) ** 0.5
        soft = (-distance / temperature).softmax(dim=0) * weight
        out.append(weight.sum() * (soft[:, None] * features).sum(dim=0) / soft.sum())
    return torch.stack(out)


def build(**settings: object) -> SoftMedianGDC:
    model = ep.models.build("SoftMedianGDC", 5, 3, {"hidden_channels": 8, **settings}, seed=0)
    assert isinstance(model, SoftMedianGDC)
    return model.double().eval()


@pytest.fixture
def double(graph: Data) -> Data:
    graph.x = graph.x.double()
    return graph


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weighted_median_matches_loop(backend: str, dtype: torch.dtype) -> None:
    """Integers, so that many values and halves are equal; a third of the weights are 0."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 5, (30, 4), generator=generator).to(dtype)
    values = torch.randint(0, 3, (50, 8), generator=generator).to(dtype)
    values[:, 0] += 1
    index = torch.randint(0, 30, (50, 8), generator=generator)
    chosen = dispatch.weighted_median(x, values, index, backend=backend)
    for row in range(50):
        for channel in range(4):
            expected = median_by_loop(x[index[row], channel].tolist(), values[row].tolist())
            assert x[chosen[row, channel], channel] == expected
            assert values[row][index[row] == chosen[row, channel]].sum() > 0


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_weighted_median_of_equal_weights_is_lower_median_at_any_scale(backend: str) -> None:
    x, index = torch.arange(12.0)[:, None], torch.arange(12)[None]
    for scale in range(1, 60):
        values = torch.full((1, 12), 1 / scale)
        assert dispatch.weighted_median(x, values / values.sum(), index, backend=backend).item() == 5


@pytest.mark.parametrize("temperature", [0.05, 0.2, 5.0])
def test_soft_median_matches_definition(temperature: float) -> None:
    x, values, index = neighbors()
    values[:, 2] = 0
    torch.testing.assert_close(soft_median(x, values, index, temperature), by_definition(x, values, index, temperature))


def test_high_temperature_gives_weighted_sum() -> None:
    x, values, index = neighbors()
    torch.testing.assert_close(soft_median(x, values, index, 1e12), torch.einsum("rk,rkc->rc", values, x[index]))


def test_low_temperature_gives_neighbor_nearest_to_median() -> None:
    x, values, index = neighbors()
    values = values / values.sum(dim=1, keepdim=True)
    median = x.gather(0, dispatch.weighted_median(x, values, index))
    nearest = (x[index] - median[:, None]).norm(dim=2).argmin(dim=1)
    torch.testing.assert_close(soft_median(x, values, index, 1e-6), x[index.gather(1, nearest[:, None]).squeeze(1)])


def test_outlier_moves_mean_but_not_median() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(21, 4, generator=generator)
    values, index = torch.full((1, 21), 1 / 21), torch.arange(21)[None]
    clean = soft_median(x, values, index, 0.2)
    for distance in (1e2, 1e4, 1e6):
        far = x.clone()
        far[7] = distance
        assert (soft_median(far, values, index, 0.2) - clean).abs().max() < 1
        assert (far.mean(dim=0) - x.mean(dim=0)).abs().max() > distance / 25


def test_soft_median_passes_gradcheck() -> None:
    x, values, index = neighbors(rows=4, k=5)
    assert torch.autograd.gradcheck(
        lambda x, a: soft_median(x, a, index, 0.2), (x.requires_grad_(), values.requires_grad_())
    )


def test_zero_weight_neighbor_has_gradient_but_no_effect() -> None:
    """The zero-weight neighbor is at the position of the median, and all others are far away."""
    x = torch.tensor([[0.0, 0.0], [1e3, 0.0], [0.0, 1e3]], requires_grad=True)
    values, index = torch.tensor([[0.0, 1.0, 1.0]], requires_grad=True), torch.arange(3)[None]
    out = soft_median(x, values, index, 0.01)
    torch.testing.assert_close(out, torch.tensor([[1e3, 1e3]]))
    grad_x, grad_values = torch.autograd.grad(out.sum(), (x, values))
    assert grad_x[0].tolist() == [0, 0]
    assert grad_values.isfinite().all()
    assert grad_values[0, 0] < -1e10


def test_rows_without_neighbors_give_zero() -> None:
    x, values, index = neighbors()
    values = torch.zeros_like(values).requires_grad_()
    out = soft_median(x.requires_grad_(), values, index, 0.2)
    assert torch.equal(out, torch.zeros_like(out))
    out.sum().backward()
    assert values.grad is not None
    assert values.grad.isfinite().all()
    assert soft_median(x, values[:, :0], index[:, :0], 0.2).count_nonzero() == 0
    assert soft_median(x, values[:0], index[:0], 0.2).shape == (0, 3)


def test_blocks_of_rows_equal_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows of 6 neighbors and 3 channels have 36 elements, three would have more than 50."""
    x, values, index = neighbors()
    median, rows = dispatch.weighted_median, list[int]()

    def spy(x: Tensor, values: Tensor, index: Tensor, **options: Any) -> Tensor:
        rows.append(len(index))
        return median(x, values, index, **options)

    monkeypatch.setattr(dispatch, "weighted_median", spy)
    results = []
    # The backward pass computes every block again instead of storing it.
    for block_size, expected_rows in ((1 << 20, [12]), (50, [2] * 12)):
        leaves = x.clone().requires_grad_(), values.clone().requires_grad_()
        rows.clear()
        out = soft_median(*leaves, index, 0.2, block_size=block_size)
        results.append((out.detach(), *torch.autograd.grad(out.square().sum(), leaves)))
        assert rows == expected_rows
    for result, expected in zip(*results, strict=True):
        torch.testing.assert_close(result, expected)
    with torch.inference_mode():
        torch.testing.assert_close(soft_median(x, values, index, 0.2, block_size=50), results[0][0])


def test_invalid_inputs_raise() -> None:
    x, values, index = neighbors()
    with pytest.raises(ValueError, match=r"one shape \[rows, k\], got \[12, 6\] and \[12, 5\]"):
        soft_median(x, values, index[:, :5], 0.2)
    with pytest.raises(ValueError, match="expected temperature > 0, got 0"):
        soft_median(x, values, index, 0)
    for invalid in (20, -1, 10**12):
        with pytest.raises(ValueError, match=rf"expected an index between 0 and 19, got .*{invalid}"):
            soft_median(x, values, index.masked_fill(index == 3, invalid), 0.2)
    for weight in (-1.0, float("nan")):
        with pytest.raises(ValueError, match=f"expected weights >= 0, got {weight}"):
            soft_median(x, values.masked_fill(index == 3, weight), index, 0.2)
    with pytest.raises(ValueError, match=r"expected torch\.float64 values and an int64 index, got torch\.float32 and"):
        soft_median(x, values.float(), index, 0.2)


@pytest.mark.parametrize("model", [SoftMedianConv(5, 3), SoftMedianGDC(5, 3)], ids=["layer", "model"])
def test_invalid_edge_weights_raise(model: nn.Module, graph: Data) -> None:
    for weight in (-0.5, float("nan")):
        with pytest.raises(ValueError, match=f"expected weights >= 0, got {weight}"):
            model(graph.x, graph.edge_index, torch.linspace(0.1, 1, 10).index_fill(0, torch.tensor(4), weight))


def test_layer_accepts_empty_graph() -> None:
    layer = SoftMedianConv(5, 3)
    assert layer(torch.empty(0, 5), torch.empty(2, 0, dtype=torch.long)).shape == (0, 3)


def test_layer_matches_definition_on_weighted_graph() -> None:
    """The graph is directed; rows have one to many entries, some of weight 0."""
    generator = torch.Generator().manual_seed(0)
    matrix = torch.rand(40, 40, generator=generator, dtype=torch.float64)
    matrix = matrix * (matrix > torch.linspace(0.05, 1, 40)[:, None])
    matrix[3] = 0
    sender, receiver = matrix.T.nonzero().T
    x = torch.randn(40, 5, generator=generator, dtype=torch.float64)
    layer = SoftMedianConv(5, 4, temperature=0.3).double()
    nn.init.normal_(layer.bias)
    h = x @ layer.weight
    nonempty = matrix.sum(dim=1) > 0
    expected = torch.zeros_like(h)
    expected[nonempty] = by_definition(h, matrix[nonempty], torch.arange(40).expand(40, 40)[nonempty], 0.3)
    torch.testing.assert_close(
        layer(x, torch.stack([sender, receiver]), matrix[receiver, sender]), expected + layer.bias
    )
    assert not nonempty.all()


def test_layer_passes_gradcheck_in_features_and_weights(double: Data) -> None:
    layer = SoftMedianConv(5, 4).double()
    weight = torch.linspace(0.1, 1, 10, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: layer(x, double.edge_index, w), (double.x.requires_grad_(), weight))


def test_layer_accepts_normalized_adjacency(double: Data) -> None:
    layer = SoftMedianConv(5, 4, temperature=1e12).double()
    adjacency = Adjacency.from_data(double).normalized(self_loops=True)
    torch.testing.assert_close(layer(double.x, adjacency), adjacency.dense() @ double.x @ layer.weight)


def test_invalid_layer_settings_raise() -> None:
    with pytest.raises(ValueError, match="out_channels to be an integer >= 1, got 0"):
        SoftMedianConv(5, 0)
    with pytest.raises(ValueError, match=r"expected temperature > 0, got -1\.0"):
        SoftMedianConv(5, 3, temperature=-1.0)


@pytest.mark.parametrize("k", [3, 7, 64])
def test_model_matches_definition(k: int, double: Data) -> None:
    model = build(k=k, alpha=0.3, temperature=0.5)
    for bias in model.biases:
        nn.init.normal_(bias)
    # Weights, so that the entries of a row differ.
    row, col = double.edge_index
    weight = (1 + row * col).double() / 10
    matrix = torch.eye(7, dtype=torch.float64)
    matrix[row, col] = weight
    root = matrix.sum(dim=1) ** -0.5
    pi = 0.3 * torch.linalg.inv(torch.eye(7) - 0.7 * root[:, None] * matrix * root)
    kept = pi.topk(min(k, 7), dim=1)
    weights = kept.values / kept.values.sum(dim=1, keepdim=True)
    first = by_definition(double.x @ model.weights[0], weights, kept.indices, 0.5) + model.biases[0]
    expected = by_definition(first.relu() @ model.weights[1], weights, kept.indices, 0.5) + model.biases[1]
    torch.testing.assert_close(model(double.x, double.edge_index, weight), expected)


def test_dropout_applies_to_hidden_units(double: Data) -> None:
    model = build(k=7, temperature=1e12, dropout=0.4).train()
    # At this temperature the layers are sums over the diffused graph.
    values, index = top_ppr(Adjacency.from_data(double).normalized(self_loops=True), 0.15, 7)
    matrix = torch.zeros(7, 7, dtype=torch.float64).scatter(1, index, values / values.sum(dim=1, keepdim=True))
    torch.manual_seed(5)
    logits = model(double.x, double.edge_index)
    torch.manual_seed(5)
    hidden = F.dropout((matrix @ double.x @ model.weights[0] + model.biases[0]).relu(), 0.4)
    torch.testing.assert_close(logits, matrix @ hidden @ model.weights[1] + model.biases[1])


def test_isolated_nodes_depend_on_themselves_only(double: Data) -> None:
    model = build(k=3)
    hidden = (double.x[6] @ model.weights[0] + model.biases[0]).relu()
    torch.testing.assert_close(model(double.x, double.edge_index)[6], hidden @ model.weights[1] + model.biases[1])


def test_zero_weight_edges_do_not_change_gradients(sbm: Data) -> None:
    model = ep.models.build("SoftMedianGDC", 21, 2, {"hidden_channels": 8, "k": 16}, seed=0).double().eval()
    x = sbm.x.double()
    absent = torch.tensor([[0, 1, 2, 3], [100, 101, 102, 103]])
    edges = torch.cat([sbm.edge_index, absent, absent.flip(0)], dim=1)
    ones = torch.ones(sbm.edge_index.size(1), dtype=torch.float64)
    results = []
    for edge_index, weight in ((sbm.edge_index, ones), (edges, torch.cat([ones, ones.new_zeros(8)]))):
        inputs = x.clone().requires_grad_()
        logits = model(inputs, edge_index, weight)
        results.append((logits.detach(), *torch.autograd.grad(logits.square().sum(), (inputs, *model.parameters()))))
    for without, with_zeros in zip(*results, strict=True):
        torch.testing.assert_close(with_zeros, without)


def test_equivariant_to_node_permutation_with_truncated_rows(sbm: Data) -> None:
    """Edges have different weights, because ties would be broken by node id."""
    model = ep.models.build("SoftMedianGDC", 21, 2, {"hidden_channels": 8, "k": 16}, seed=0).double().eval()
    generator = torch.Generator().manual_seed(0)
    matrix = torch.rand(200, 200, generator=generator, dtype=torch.float64)
    weight = (matrix + matrix.T)[sbm.edge_index[0], sbm.edge_index[1]]
    order = torch.randperm(200, generator=generator)
    permuted = model(sbm.x[order].double(), order.argsort()[sbm.edge_index], weight)
    torch.testing.assert_close(permuted, model(sbm.x.double(), sbm.edge_index, weight)[order])


def test_results_are_bitwise_deterministic(sbm: Data) -> None:
    results = []
    for _ in range(2):
        model = ep.models.build("SoftMedianGDC", 21, 2, seed=0).eval()
        weight = torch.ones(sbm.edge_index.size(1), requires_grad=True)
        logits = model(sbm.x, sbm.edge_index, weight)
        results.append((logits.detach(), *torch.autograd.grad(logits.square().sum(), (weight, *model.parameters()))))
    assert all(torch.equal(first, second) for first, second in zip(*results, strict=True))


def test_edge_gradient_matches_finite_differences(double: Data) -> None:
    model, nodes = build(), torch.arange(7)
    engine = EdgeGradientEngine(model, double, nodes)
    assert engine.path == "propagate"
    pairs = torch.triu_indices(7, 7, offset=1)
    start = torch.full((pairs.size(1),), 0.2, dtype=torch.float64)
    gradient = engine(pairs, start).at(pairs)
    step, moves = 1e-6, torch.eye(pairs.size(1), dtype=torch.float64)
    expected = [
        (engine(pairs, start + step * move).loss - engine(pairs, start - step * move).loss) / (2 * step)
        for move in moves
    ]
    torch.testing.assert_close(gradient, torch.stack(expected), rtol=1e-5, atol=1e-8)


class DenseUpTo(SoftMedianGDC):
    """Inverts the diffusion matrix of graphs up to a given size."""

    dense_limit = 100

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        matrix = adjacency.normalized(self_loops=True)
        values, index = top_ppr(matrix, self.alpha, self.k, dense_limit=self.dense_limit)
        return self.convolve(h, values / values.sum(dim=1, keepdim=True), index)


def test_path_of_large_graph_is_independent_of_earlier_graphs(sbm: Data, double: Data) -> None:
    """The propagate path supports the diffusion of small graphs only, so one model has different paths."""
    torch.manual_seed(0)
    model, pairs = (
        DenseUpTo(5, 3, hidden_channels=8, k=4).double().eval(),
        torch.triu_indices(200, 200, offset=1)[:, ::97],
    )
    sbm.x = sbm.x[:, :5].double()
    for graph, path in ((sbm, "autograd"), (double, "propagate"), (sbm, "autograd"), (double, "propagate")):
        assert EdgeGradientEngine(model, graph, torch.arange(7)).path == path
    gradient = EdgeGradientEngine(model, sbm, torch.arange(50))().at(pairs)
    expected = EdgeGradientEngine(model, sbm, torch.arange(50), path="autograd")().at(pairs)
    assert bool(expected.any())
    assert torch.equal(gradient, expected)
    model.dense_limit = 200
    fast = EdgeGradientEngine(model, sbm, torch.arange(50))
    assert fast.path == "propagate"
    torch.testing.assert_close(fast().at(pairs), expected)
    model.dense_limit = 100
    with pytest.raises(
        ValueError, match=r"diffusion of a graph of more than 100 nodes has no fast edge gradient: .*autograd"
    ):
        EdgeGradientEngine(model, sbm, torch.arange(50), path="propagate")()


@pytest.mark.parametrize(
    "attack",
    [
        PRBCD(steps=10, fine_tune_steps=5, block_size=5_000, samples=3),
        LRBCD(steps=15, block_size=5_000, samples=3),
        GreedyRBCD(steps=5, block_size=5_000),
    ],
    ids=lambda attack: type(attack).__name__,
)
def test_attacks_reduce_accuracy(attack: Attack, split: ep.splits.Split) -> None:
    model = ep.models.build("SoftMedianGDC", 21, 2, {"hidden_channels": 16}, seed=0)
    ep.train(model, split, max_epochs=60, progress=False)
    graph, nodes = split.test.data, split.test.nodes
    result = attack(model, graph, nodes, ep.Budget.from_epsilon(graph, nodes, 0.5), seed=0)
    assert result.path == "propagate"
    assert result.clean_accuracy > 0.9
    assert result.accuracy < result.clean_accuracy
    before, after = (ep.models.predict(model, data)[nodes].argmax(dim=1) for data in (graph, result.data))
    assert not torch.equal(before, after)


def test_all_settings_round_trip(double: Data, tmp_path: Path) -> None:
    model = build(num_layers=3, alpha=0.3, k=4, temperature=0.7, dropout=0.1)
    ep.save(model, tmp_path / "model.safetensors")
    loaded = ep.load(tmp_path / "model.safetensors")
    assert loaded.settings == model.settings
    assert torch.equal(ep.models.predict(loaded, double), ep.models.predict(model, double))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": 0}, "k to be an integer >= 1, got 0"),
        ({"alpha": 0}, "expected alpha > 0, got 0"),
        ({"alpha": 1.0}, r"expected 0 <= alpha < 1, got 1\.0"),
        ({"temperature": 0.0}, r"expected temperature > 0, got 0\.0"),
        ({"temperature": "hot"}, "expected temperature > 0, got 'hot'"),
    ],
)
def test_invalid_settings_raise(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**settings)


# A separate process, because peak memory includes that of earlier tests.
PEAK = """
import resource

import torch
from torch_geometric.utils import to_undirected

import edgeproof as ep

model = ep.models.build("SoftMedianGDC", 50, 3, seed=0).eval()
generator = torch.Generator().manual_seed(0)
peaks = []
# The small graph compiles and loads everything first.
for nodes, edges in ((100, 200), (19_717, 44_324)):
    pairs = torch.randint(0, nodes, (2, edges), generator=generator)
    x = torch.randn(nodes, 50, generator=generator)
    with torch.no_grad():
        logits = model(x, to_undirected(pairs[:, pairs[0] != pairs[1]], num_nodes=nodes))
    assert logits.isfinite().all()
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(peaks[1] - peaks[0])
"""


@pytest.mark.slow
def test_memory_is_bounded_on_graph_of_pubmed_size() -> None:
    """The whole diffusion matrix would take 1.5 GB."""
    pytest.importorskip("resource", reason="peak memory is only known on Unix")
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    # In kilobytes.
    assert int(done.stdout) < 500_000
