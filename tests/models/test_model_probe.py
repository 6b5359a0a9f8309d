"""Questions to a model: each bad habit is found, and named."""

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
    """A sound model, for others to spoil."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = pyg.GCNConv(21, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.layer(x, edge_index, edge_weight)
        return out


class Noisy(Base):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return super().forward(F.dropout(x, 0.5), edge_index, edge_weight)


class Remembering(Base):
    """Keeps the first graph that it sees, without saying so."""

    seen: tuple[Tensor, Tensor | None] | None = None

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        if self.seen is None:
            self.seen = edge_index, edge_weight
        return super().forward(x, *self.seen)


class Holding(nn.Module):
    """Has a graph of its own, whatever it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(21, 2)
        self.register_buffer("matrix", torch.eye(982).roll(1, dims=0))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.matrix @ self.linear(x)
        return out


class Rounding(nn.Module):
    """An edge is there or it is not: no weight in between, no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(21, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        weight = x.new_ones(edge_index.size(1)) if edge_weight is None else (edge_weight > 0.5).to(x.dtype)
        h: Tensor = self.linear(x)
        return h + torch.zeros_like(h).index_add(0, edge_index[1], weight[:, None] * h[edge_index[0]])


class Deaf(Base):
    """Takes edge weights, and does not listen to them; its own messages keep the library from replacing anything."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return super().forward(x, edge_index) + 0 * edge_index.sum()


class Wide(Base):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return super().forward(x, edge_index, edge_weight)[:, :1]


class Infinite(Base):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return super().forward(x, edge_index, edge_weight) / 0


class Broken(Base):
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
        (pyg.Sequential("x, edge_index, edge_weight", [(pyg.LEConv(21, 2), "x, edge_index, edge_weight -> x")]), None),
    ],
    ids=["GPRGNN", "MLP", "GCNConv", "batch norm", "GAT", "wrapped SAGE", "needs weights"],
)
def test_sound_models(model: nn.Module, path: str | None, data: Data) -> None:
    check = ep.evaluation.check_model(model, data)
    assert check.path == path
    assert check.ok == (path is not None)
    assert len(str(check).splitlines()) == len(check.answers)


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (Noisy(), r"deterministic in evaluation\? two looks at the same graph differ"),
        (Remembering(), r"sees every graph anew\? what it says of a graph depends on the graph that it saw before"),
        (Holding(), r"depends on the edges\? it lets nodes hear each other, but not along the edges that it is shown"),
        (
            nn.ModuleList([pyg.GCNConv(21, 2, cached=True)]),
            r"called as model\(x, edge_index\) it raised NotImplementedError",
        ),
        (pyg.models.GCN(21, 8, 2, 2, cached=True), r"GCNConv has cached=True and answers every graph with the first"),
        (Rounding(), r"differentiable in the edges\? its logits change with the edges, but the gradient is zero"),
        (Deaf(), r"weight 0 is no edge\? Deaf does not take an edge of weight 0 for no edge"),
        (pyg.models.GraphSAGE(21, 8, 2, 2), r"takes no edge weights; edgeproof\.models\.EdgeWeighted\(model\)"),
        (Wide(), r"expected logits of shape \[nodes, classes\], got \[\d+, 1\]"),
        (Infinite(), r"logits are not finite"),
        (Broken(), r"it raised RuntimeError: no such layer"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_bad_habits_are_named(model: nn.Module, problem: str, data: Data) -> None:
    check = ep.evaluation.check_model(model, data)
    assert not check.ok
    with pytest.raises(ValueError, match=problem):
        raise ValueError(" | ".join(check.problems))


def test_the_model_is_left_as_it_was(data: Data) -> None:
    model = Remembering()
    before = copy.deepcopy(model.state_dict())
    model.train()
    ep.evaluation.check_model(model, data)
    assert model.seen is None
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("model", [Remembering(), Holding()], ids=["remembers", "holds"])
def test_a_graph_that_a_model_has_kept_is_found_after_the_fact(model: nn.Module, data: Data) -> None:
    model(data.x, data.edge_index)
    check = ep.evaluation.check_model(model, data)
    assert check.path is None
    assert len(check.problems) == 1
    assert "a graph that it saw before, holds one of its own" in check.problems[0]
    nodes = torch.arange(20)
    budget = ep.Budget.from_epsilon(data, nodes, 0.1)
    with pytest.raises(ValueError, match="lets nodes hear each other, but not along the edges that it is shown"):
        ep.attacks.PRBCD(steps=2, block_size=100)(model, data, nodes, budget)
    for path in (None, "autograd"):
        with pytest.raises(ValueError, match="lets nodes hear each other"):
            EdgeGradientEngine(copy.deepcopy(model), data, nodes, path=path)


def test_a_cache_still_empty_is_found_by_the_engine(data: Data) -> None:
    with pytest.raises(ValueError, match="lets nodes hear each other"):
        EdgeGradientEngine(Remembering(), data, torch.arange(20))


def test_models_that_cannot_be_copied_are_asked_themselves(data: Data) -> None:
    locked, keeping = Base(), Remembering()
    locked.lock = threading.Lock()
    check = ep.evaluation.check_model(locked, data)
    assert check.ok
    assert check.path == "autograd"
    assert "not asked: it cannot be copied (TypeError: cannot pickle '_thread.lock' object)" in str(check)
    assert "by its own edge_weight (it cannot be copied: " in str(check)
    keeping.seen = data.edge_index, torch.ones(data.edge_index.size(1), requires_grad=True) * 2
    assert "a graph that it saw before" in ep.evaluation.check_model(keeping, data).problems[0]


def test_what_is_no_model_or_no_graph_is_told_so(data: Data) -> None:
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module, got str"):
        ep.evaluation.check_model("GCN", data)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="call the model once first"):
        ep.evaluation.check_model(pyg.models.GCN(-1, 8, 2, 2), data)
    matrix = to_torch_coo_tensor(data.edge_index, size=982)
    for graph in (Data(x=data.x, adj_t=matrix), Data(x=data.x, edge_index=matrix)):
        with pytest.raises(ValueError, match=r"torch_geometric\.utils\.to_edge_index\(.*\)\[0\] makes one"):
            ep.evaluation.check_model(Base(), graph)


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_graphs_without_edges(nodes: int, data: Data) -> None:
    graph = Data(x=data.x[:nodes], edge_index=data.edge_index[:, :0])
    for model in (Base(), ep.models.GCN(21, 2), Deaf()):
        assert ep.evaluation.check_model(model, graph).ok == (not isinstance(model, Deaf) or nodes == 1)


def test_a_model_that_no_edge_matters_to_is_told_so(data: Data) -> None:
    assert "no attack on edges can do anything" in str(ep.evaluation.check_model(ep.models.MLP(21, 2), data))
    assert "no attack" not in str(ep.evaluation.check_model(ep.models.GCN(21, 2), data))


def test_a_bad_graph_is_refused(data: Data) -> None:
    with pytest.raises(ValueError, match="expected undirected edges"):
        ep.evaluation.check_model(Base(), Data(x=data.x, edge_index=data.edge_index[:, :1]))
