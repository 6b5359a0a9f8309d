"""Incremental evaluators equal full evaluation, on any model, graph and sequence of flips."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from edgeproof.models import APPNP, GAT, GCN, GPRGNN, GRAND, ChebNetII, EdgeWeighted, SoftMedianGDC
from edgeproof.propagation import EdgeGradientEngine
from edgeproof.propagation.incremental import DiffusionEvaluator, FullEvaluator, Scan, incremental_evaluator


def random_graph(n: int, density: float, seed: int, dtype: torch.dtype = torch.float64) -> Data:
    generator = torch.Generator().manual_seed(seed)
    upper = torch.triu(torch.rand(n, n, generator=generator) < density, diagonal=1).nonzero().T
    return Data(
        x=torch.randn(n, 5, generator=generator, dtype=dtype),
        edge_index=to_undirected(upper, num_nodes=n),
        y=torch.arange(n) % 3,
    )


def random_pairs(n: int, count: int, seed: int) -> Tensor:
    """Return distinct pairs in random order and direction."""
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.combinations(torch.arange(n)).T
    pairs = pairs[:, torch.randperm(pairs.size(1), generator=generator)[:count]]
    return torch.where(torch.rand(pairs.size(1), generator=generator) < 0.5, pairs, pairs.flip(0))


def engine_of(model: nn.Module, data: Data, nodes: Tensor) -> EdgeGradientEngine:
    return EdgeGradientEngine(model.to(data.x.dtype).eval(), data, nodes)


class ThreeLayers(nn.Module):
    """PyG convolutions with ReLU between them, as users write them."""

    def __init__(self, activation: Callable[[Tensor], Tensor] = torch.relu) -> None:
        super().__init__()
        self.first, self.second = pyg.GCNConv(5, 6), pyg.GCNConv(6, 4, bias=False)
        self.third, self.activation = pyg.GCNConv(4, 3), activation

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.activation(self.first(x, edge_index))
        x = self.activation(self.second(x, edge_index))
        out: Tensor = self.third(x, edge_index)
        return out


class Sequential(nn.Module):
    """Linear map and a PyG diffusion."""

    def __init__(self, diffusion: nn.Module) -> None:
        super().__init__()
        self.linear, self.diffusion = nn.Linear(5, 3), diffusion

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.diffusion(self.linear(x), edge_index)
        return out


# Models and the expected evaluator.
MODELS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    **{f"GCN, {k} layers": (lambda k=k: GCN(5, 3, hidden_channels=7, num_layers=k), "stack") for k in (1, 2, 3, 4)},
    "PyG GCN": (lambda: pyg.models.GCN(5, 6, 2, 3, dropout=0.5), "stack"),
    "PyG convolutions": (ThreeLayers, "stack"),
    "PyG convolutions, tanh": (lambda: ThreeLayers(torch.tanh), "rows"),
    "PyG SAGE": (lambda: EdgeWeighted(pyg.models.GraphSAGE(5, 6, 2, 3)), "rows"),
    "PyG GIN": (lambda: EdgeWeighted(pyg.models.GIN(5, 6, 3, 3)), "rows"),
    "PyG GAT": (lambda: pyg.models.GAT(5, 6, 2, 3, heads=2), "rows"),
    **{
        f"GAT, {k} layers": (lambda k=k: GAT(5, 3, hidden_channels=6, num_layers=k, heads=2), "rows") for k in (1, 2, 3)
    },
    "GRAND": (lambda: GRAND(5, 3, hidden_channels=6, K=2), "rows"),
    "PyG SGConv": (lambda: pyg.SGConv(5, 3, K=2), "rows"),
    **{f"GPRGNN, K = {k}": (lambda k=k: GPRGNN(5, 3, hidden_channels=4, K=k), "diffusion") for k in (1, 3, 10)},
    "APPNP": (lambda: APPNP(5, 3, hidden_channels=4, K=10), "diffusion"),
    "ChebNetII": (lambda: ChebNetII(5, 3, hidden_channels=4, K=10), "diffusion"),
    "SoftMedianGDC": (lambda: SoftMedianGDC(5, 3, hidden_channels=4, k=8), "full"),
    "PyG APPNP": (lambda: Sequential(pyg.APPNP(K=6, alpha=0.1)), "full"),
}


@pytest.mark.parametrize("name", MODELS)
def test_incremental_evaluation_equals_full_evaluation(name: str) -> None:
    build, expected = MODELS[name]
    torch.manual_seed(0)
    data = random_graph(30, 0.12, seed=1)
    engine = engine_of(build(), data, torch.tensor([3, 0, 8, 17, 29, 11]))
    fast, full = incremental_evaluator(engine), FullEvaluator(engine)
    assert fast.name == expected
    for step in range(3):
        candidates = random_pairs(30, 60, seed=step)
        torch.testing.assert_close(fast.margins, full.margins, rtol=1e-12, atol=1e-12)
        expected_margins = full.scan(candidates).margins()
        torch.testing.assert_close(fast.scan(candidates).margins(), expected_margins, rtol=1e-12, atol=1e-12)
        for position in (0, 4):
            one = fast.scan(candidates, only=position)
            torch.testing.assert_close(one.margins_at(position), expected_margins[:, position], rtol=1e-12, atol=1e-12)
            assert bool((one.position == position).all())
            assert full.scan(candidates, only=position).margins_at(position).equal(expected_margins[:, position])
        fast.apply(candidates[:, :4])
        full.apply(candidates[:, :4])
        assert fast.flips.equal(full.flips)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(2, 12),
    density=st.floats(0, 1),
    layers=st.integers(1, 4),
    taken=st.integers(0, 6),
    seed=st.integers(0, 999),
)
def test_stack_evaluator_equals_full_evaluation_on_any_graph(
    n: int, density: float, layers: int, taken: int, seed: int
) -> None:
    torch.manual_seed(seed)
    data = random_graph(n, density, seed)
    engine = engine_of(GCN(5, 3, hidden_channels=4, num_layers=layers), data, torch.randperm(n)[: 1 + seed % n])
    fast, full = incremental_evaluator(engine), FullEvaluator(engine)
    assert fast.name == "stack"
    flips, candidates = random_pairs(n, taken, seed), random_pairs(n, 100, seed + 1)
    fast.apply(flips)
    full.apply(flips)
    scan, expected = fast.scan(candidates), full.scan(candidates)
    torch.testing.assert_close(scan.margins(), expected.margins(), rtol=1e-11, atol=1e-11)
    # Every pair is scanned, so a flip that was taken is among the candidates that take it back.
    assert len(scan) == min(100, n * (n - 1) // 2)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(["GPRGNN", "ChebNetII", "GAT", "SAGE", "GIN"]),
    n=st.integers(3, 12),
    density=st.floats(0, 1),
    taken=st.integers(0, 6),
    seed=st.integers(0, 999),
)
def test_other_evaluators_equal_full_evaluation_on_any_graph(
    name: str, n: int, density: float, taken: int, seed: int
) -> None:
    """Empty to complete graphs, also with nodes that lose their last edge or get their first one."""
    torch.manual_seed(seed)
    build, expected = {
        "GPRGNN": (lambda: GPRGNN(5, 3, hidden_channels=4, K=4, init="random"), "diffusion"),
        "ChebNetII": (lambda: ChebNetII(5, 3, hidden_channels=4, K=4), "diffusion"),
        "GAT": (lambda: GAT(5, 3, hidden_channels=4, num_layers=2 + seed % 2), "rows"),
        "SAGE": (lambda: EdgeWeighted(pyg.models.GraphSAGE(5, 6, 2, 3)), "rows"),
        "GIN": (lambda: EdgeWeighted(pyg.models.GIN(5, 6, 3, 3)), "rows"),
    }[name]
    engine = engine_of(build(), random_graph(n, density, seed), torch.randperm(n)[: 1 + seed % n])
    fast, full = incremental_evaluator(engine), FullEvaluator(engine)
    assert fast.name == expected
    flips, candidates = random_pairs(n, taken, seed), random_pairs(n, 100, seed + 1)
    fast.apply(flips)
    full.apply(flips)
    torch.testing.assert_close(fast.scan(candidates).margins(), full.scan(candidates).margins(), rtol=1e-8, atol=1e-8)


def test_compiled_and_batched_diffusion_agree() -> None:
    torch.manual_seed(0)
    data = random_graph(30, 0.1, seed=3)
    model = ChebNetII(5, 3, hidden_channels=4, K=5).double().eval()
    engine = engine_of(model, data, torch.arange(0, 30, 2))
    fast, batched = (DiffusionEvaluator(engine, model.polynomial(), compiled=c) for c in (True, False))
    candidates = torch.combinations(torch.arange(30)).T
    torch.testing.assert_close(
        fast.scan(candidates).margins(), batched.scan(candidates).margins(), rtol=1e-11, atol=1e-11
    )


def test_scan_in_parts_equals_scan_at_once() -> None:
    data = random_graph(40, 0.1, seed=3, dtype=torch.float32)
    engine = engine_of(GCN(5, 3), data, torch.arange(40))
    evaluator, candidates = incremental_evaluator(engine), random_pairs(40, 700, seed=0)
    whole = evaluator.scan(candidates)
    parts = [evaluator.scan(part) for part in candidates.split(13, dim=1)]
    assert whole.num_lost.equal(torch.cat([part.num_lost for part in parts]))
    assert whole.margins().equal(torch.cat([part.margins() for part in parts]))
    assert len(evaluator.scan(candidates[:, :0])) == 0


def test_flip_taken_twice_changes_nothing() -> None:
    data = random_graph(20, 0.2, seed=5)
    evaluator = incremental_evaluator(engine_of(GCN(5, 3), data, torch.arange(20)))
    before, flips = evaluator.margins.clone(), random_pairs(20, 5, seed=1)
    evaluator.apply(flips)
    assert not evaluator.margins.equal(before)
    assert evaluator.scan(flips[:, :1]).margins().isfinite().all()
    evaluator.apply(flips.flip(0))
    assert evaluator.margins.equal(before)
    assert evaluator.flips.size(1) == 0


def test_scan_counts_newly_misclassified_and_corrected_nodes() -> None:
    scan = Scan(
        torch.tensor([0, 2, 2, 3]), torch.tensor([0, 1, 1]), torch.tensor([-1.0, 1.0, 2.0]), torch.tensor([2.0, -3.0])
    )
    assert scan.num_lost.tolist() == [0, 0, -1]
    assert scan.total(scan.before, scan.margin).tolist() == [1.0, 0.0, 5.0]
    assert scan.margins().tolist() == [[-1.0, 1.0], [2.0, -3.0], [2.0, 2.0]]


def test_non_finite_logits_count_as_misclassified() -> None:
    data = random_graph(10, 0.3, seed=5)
    model = GCN(5, 3)
    engine = engine_of(model, data, torch.arange(10))
    with torch.no_grad():
        model.biases[1].fill_(torch.inf)
    evaluator = FullEvaluator(engine)
    assert not (evaluator.margins > 0).any()
    assert (evaluator.scan(random_pairs(10, 5, seed=0)).num_lost == 0).all()
