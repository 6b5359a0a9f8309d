"""Tests of check_model: it detects every defect and names it in the message."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric import nn as pyg
from torch_geometric.data import Data
from torch_geometric.utils import to_torch_coo_tensor

import edgeproof as ep
from edgeproof.models import EdgeWeighted
from edgeproof.propagation import EdgeGradientEngine


@pytest.fixture(scope="module")
def data() -> Data:
    return ep.datasets.load("csbm")


class Base(nn.Module):
    """Correct model, from which the defective ones derive."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = pyg.GCNConv(21, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.layer(x, edge_index, edge_weight)
        return out


class Noisy(Base):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return super().forward(F.dropout(x, 0.5), edge_index, edge_weight)


class CachesGraph(Base):
    """Reuses the first graph, without a ``cached`` attribute."""

    cache: tuple[Tensor, Tensor | None] | None = None

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        if self.cache is None:
            self.cache = edge_index, edge_weight
        return super().forward(x, *self.cache)


class StoresGraph(nn.Module):
    """Uses a stored graph instead of its argument."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(21, 2)
        self.register_buffer("matrix", torch.eye(982).roll(1, dims=0))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.matrix @ self.linear(x)
        return out


class RoundsWeights(nn.Module):
    """Rounds edge weights to 0 or 1, so it has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(21, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        weight = x.new_ones(edge_index.size(1)) if edge_weight is None else (edge_weight > 0.5).to(x.dtype)
        h: Tensor = self.linear(x)
        return h + torch.zeros_like(h).index_add(0, edge_index[1], weight[:, None] * h[edge_index[0]])


class IgnoresWeight(Base):
    """Ignores edge weights, and accesses its edge list so that its layers cannot be converted."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return super().forward(x, edge_index) + 0 * edge_index.sum()


class OneClass(Base):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return super().forward(x, edge_index, edge_weight)[:, :1]


class NonFinite(Base):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return super().forward(x, edge_index, edge_weight) / 0


class Raises(Base):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        raise RuntimeError("no such layer")


@pytest.mark.parametrize(
    ("model", "path"),
    [
        (ep.models.GPRGNN(21, 2), "propagate"),
        (ep.models.MLP(21, 2), "propagate"),
        (Base(), "propagate"),
        (pyg.models.GCN(21, 8, 2, 2, norm="batch_norm"), "propagate"),
        (pyg.models.GAT(21, 8, 2, 2), "propagate"),
        (EdgeWeighted(pyg.models.GraphSAGE(21, 8, 2, 2)), "propagate"),
        (pyg.models.GraphSAGE(21, 8, 2, 2), "propagate"),
        (RoundsWeights(), "autograd"),
        (IgnoresWeight(), "autograd"),
        (pyg.Sequential("x, edge_index, edge_weight", [(pyg.LEConv(21, 2), "x, edge_index, edge_weight -> x")]), None),
    ],
    ids=["GPRGNN", "MLP", "GCNConv", "batch norm", "GAT", "wrapped SAGE", "SAGE", "rounds", "ignores", "needs weights"],
)
def test_correct_models_pass(model: nn.Module, path: str | None, data: Data) -> None:
    check = ep.evaluation.check_model(model, data)
    assert check.path == path
    assert check.ok == (path is not None)
    assert len(str(check).splitlines()) == len(check.results)


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (Noisy(), r"deterministic in evaluation mode\? two runs on the same graph give different logits"),
        (CachesGraph(), r"no cached graph\? the logits depend on the graph of an earlier call"),
        (
            StoresGraph(),
            r"depends on edges\? the model mixes features between nodes, but not along the edges passed to it",
        ),
        (
            nn.ModuleList([pyg.GCNConv(21, 2, cached=True)]),
            r"called as model\(x, edge_index\) it raised NotImplementedError",
        ),
        (
            pyg.models.GCN(21, 8, 2, 2, cached=True),
            r"no cached graph\? GCNConv has cached=True and reuses the first graph",
        ),
        (
            OneClass(),
            r"expected floating-point logits of shape \[nodes, classes\], got torch\.float32 of shape \[\d+, 1\]",
        ),
        (NonFinite(), r"logits are not finite"),
        (Raises(), r"it raised RuntimeError: no such layer"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_defects_are_named(model: nn.Module, problem: str, data: Data) -> None:
    check = ep.evaluation.check_model(model, data)
    assert not check.ok
    with pytest.raises(ValueError, match=problem):
        raise ValueError(" | ".join(check.problems))


def test_check_model_leaves_model_unchanged(data: Data) -> None:
    model = CachesGraph()
    before = copy.deepcopy(model.state_dict())
    model.train()
    ep.evaluation.check_model(model, data)
    assert model.cache is None
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("model", [CachesGraph(), StoresGraph()], ids=["cached", "stored"])
def test_graph_cached_before_the_check_is_detected(model: nn.Module, data: Data) -> None:
    model(data.x, data.edge_index)
    check = ep.evaluation.check_model(model, data)
    assert check.path is None
    assert len(check.problems) == 1
    assert "it reuses the graph of an earlier call, stores its own graph" in check.problems[0]
    nodes = torch.arange(20)
    budget = ep.Budget.from_epsilon(data, nodes, 0.1)
    with pytest.raises(ValueError, match="mixes features between nodes, but not along the edges passed to it"):
        ep.attacks.PRBCD(steps=2, block_size=100)(model, data, nodes, budget)
    for path in (None, "autograd"):
        with pytest.raises(ValueError, match="mixes features between nodes"):
            EdgeGradientEngine(copy.deepcopy(model), data, nodes, path=path)


def test_engine_detects_model_that_fills_its_cache(data: Data) -> None:
    with pytest.raises(ValueError, match="mixes features between nodes"):
        EdgeGradientEngine(CachesGraph(), data, torch.arange(20))


def test_models_that_cannot_be_copied_are_checked_directly(data: Data) -> None:
    locked, caching = Base(), CachesGraph()
    locked.lock = threading.Lock()
    check = ep.evaluation.check_model(locked, data)
    assert check.ok
    assert check.path == "autograd"
    assert "not tested, because the model cannot be copied (TypeError: cannot pickle '_thread.lock' object)" in str(
        check
    )
    assert "by its own edge_weight (it cannot be copied: " in str(check)
    caching.cache = data.edge_index, torch.ones(data.edge_index.size(1), requires_grad=True) * 2
    assert "it reuses the graph of an earlier call" in ep.evaluation.check_model(caching, data).problems[0]


def test_invalid_arguments_raise(data: Data) -> None:
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module, got str"):
        ep.evaluation.check_model("GCN", data)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="call the model once first"):
        ep.evaluation.check_model(pyg.models.GCN(-1, 8, 2, 2), data)
    matrix = to_torch_coo_tensor(data.edge_index, size=982)
    for graph in (Data(x=data.x, adj_t=matrix), Data(x=data.x, edge_index=matrix)):
        with pytest.raises(ValueError, match=r"torch_geometric\.utils\.to_edge_index\(.*\)\[0\] makes one"):
            ep.evaluation.check_model(Base(), graph)


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_graph_without_edges(nodes: int, data: Data) -> None:
    graph = Data(x=data.x[:nodes], edge_index=data.edge_index[:, :0])
    for model in (Base(), ep.models.GCN(21, 2), IgnoresWeight()):
        assert ep.evaluation.check_model(model, graph).ok


def test_model_without_edges_is_named(data: Data) -> None:
    assert "no attack on edges has an effect" in str(ep.evaluation.check_model(ep.models.MLP(21, 2), data))
    assert "no attack" not in str(ep.evaluation.check_model(ep.models.GCN(21, 2), data))


def test_directed_graph_raises(data: Data) -> None:
    with pytest.raises(ValueError, match="expected undirected edges"):
        ep.evaluation.check_model(Base(), Data(x=data.x, edge_index=data.edge_index[:, :1]))
