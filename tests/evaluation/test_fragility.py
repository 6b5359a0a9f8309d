"""Fragility against enumeration of all sets of one and two flips, on any graph and several models."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

import edgeproof as ep
from edgeproof import losses
from edgeproof.evaluation import Fragility, NodeFragility, fragility
from edgeproof.graph import degree, flip_pairs
from edgeproof.models import predict


def random_graph(n: int, density: float, seed: int) -> Data:
    generator = torch.Generator().manual_seed(seed)
    upper = torch.triu(torch.rand(n, n, generator=generator) < density, diagonal=1).nonzero().T
    x = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    return Data(x=x, edge_index=to_undirected(upper, num_nodes=n), y=torch.arange(n) % 3)


class Centered(nn.Module):
    """Convolution followed by a subtraction of the mean over all nodes: no flip acts locally."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(4, 3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.conv(x, edge_index, edge_weight)
        return out - out.mean(dim=0)


# Models and the expected evaluator.
MODELS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "GCN": (lambda: ep.models.GCN(4, 3, hidden_channels=5), "stack"),
    "GCN, 3 layers": (lambda: ep.models.GCN(4, 3, hidden_channels=5, num_layers=3), "stack"),
    "GPRGNN": (lambda: ep.models.GPRGNN(4, 3, hidden_channels=4, K=3), "diffusion"),
    "GAT": (lambda: ep.models.GAT(4, 3, hidden_channels=4), "rows"),
    "SAGE": (lambda: ep.models.EdgeWeighted(pyg.models.GraphSAGE(4, 5, 2, 3)), "rows"),
    "centered": (Centered, "full"),
}


def build(name: str, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return MODELS[name][0]().double().eval()


def margin(model: nn.Module, data: Data, flips: Tensor, node: int, label: int) -> float:
    logits = predict(model, flip_pairs(data, flips))[node]
    return float(losses.margin(logits[None], torch.tensor([label])))


def fewest(model: nn.Module, data: Data, entry: NodeFragility, pairs: Tensor, local: Tensor | None = None) -> int:
    """Return the fewest of up to two flips that change a prediction, by enumeration; 3 if more are needed."""
    for k in range(3):
        for chosen in combinations(range(pairs.size(1)), k):
            flips = pairs[:, list(chosen)]
            used = flips.flatten().bincount(minlength=data.num_nodes)
            if local is not None and bool((used > local).any()):
                continue
            if margin(model, data, flips, entry.node, entry.label) <= 1e-12:
                return k
    return 3


def check(
    result: Fragility, model: nn.Module, data: Data, pairs_of: Callable[[int], Tensor], local: Tensor | None = None
) -> None:
    """Compare a result with unlimited evaluations with enumeration."""
    for entry in result.nodes:
        pairs = pairs_of(entry.node)
        expected = fewest(model, data, entry, pairs, local)
        assert entry.at_least == expected
        assert entry.num_flips == expected if expected < 3 else entry.num_flips is None or entry.num_flips >= 3
        assert entry.exact == (entry.num_flips is not None and entry.num_flips <= 3)
        keys = set(map(tuple, pairs.T.tolist()))
        assert all(tuple(pair) in keys for pair in entry.flips.T.tolist())
        assert entry.flips.unique(dim=1).shape == entry.flips.shape
        for k, value in enumerate(entry.margins):
            assert value == pytest.approx(margin(model, data, entry.flips[:, :k], entry.node, entry.label), abs=1e-9)
        assert entry.falls == (entry.class_after != entry.label)


def all_pairs(n: int) -> Tensor:
    return torch.combinations(torch.arange(n)).T


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("scope", ["influence", "direct"])
def test_fragility_of_one_and_two_flips_equals_enumeration(name: str, scope: str) -> None:
    for seed in range(2):
        data, model = random_graph(7, 0.3, seed), build(name, seed)
        result = fragility(model, data, [0, 6], max_flips=3, scope=scope, max_evaluations=10**6)
        assert result.evaluator == MODELS[name][1]
        pairs = all_pairs(7)
        check(
            result,
            model,
            data,
            lambda node, pairs=pairs: pairs if scope == "influence" else pairs[:, (pairs == node).any(dim=0)],
        )


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(4, 7),
    density=st.floats(0, 1),
    layers=st.integers(1, 3),
    seed=st.integers(0, 999),
    use_local=st.booleans(),
    use_allowed=st.booleans(),
)
def test_fragility_within_constraints_equals_enumeration(
    n: int, density: float, layers: int, seed: int, use_local: bool, use_allowed: bool
) -> None:
    torch.manual_seed(seed)
    data, model = random_graph(n, density, seed), ep.models.GCN(4, 3, hidden_channels=4, num_layers=layers).double()
    local = torch.randint(0, 3, (n,)) if use_local else None
    pairs = all_pairs(n)
    if use_allowed:
        pairs = pairs[:, torch.rand(pairs.size(1)) < 0.5]
    allowed = pairs if use_allowed else None
    result = fragility(model, data, [0, n - 1], max_flips=2, allowed=allowed, local=local, max_evaluations=10**6)
    for entry in result.nodes:
        expected = fewest(model, data, entry, pairs, local)
        assert entry.at_least == expected
        assert entry.num_flips == (expected if expected < 3 else None)


def test_candidates_of_a_deep_graph_leave_out_pairs_out_of_reach() -> None:
    path = torch.stack([torch.arange(39), torch.arange(1, 40)])
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    data, model = Data(x=x, edge_index=to_undirected(path)), build("GCN", 1)
    result = fragility(model, data, [0], max_flips=1)
    # Ends within one hop of node 0: 77 pairs. Node 2 changes by its degree only: one addition and one deletion.
    assert result.num_evaluations == 77 + 2
    logits = torch.stack([predict(model, flip_pairs(data, pair[:, None]))[0] for pair in all_pairs(40).T])
    label = result.nodes[0].label
    lowest = losses.margin(logits, torch.full((780,), label)).min()
    assert result.nodes[0].margins[1] == pytest.approx(float(lowest), abs=1e-12)


def test_fragility_without_evaluations_proves_nothing_and_stays_within_the_budget() -> None:
    data, model = ep.datasets.load("csbm"), ep.models.build("GCN", 21, 2, seed=0)
    nodes = torch.arange(0, 60, 3)
    searched, ranked = (fragility(model, data, nodes, max_flips=3, max_evaluations=m) for m in (None, 0))
    assert {entry.at_least for entry in ranked.nodes} <= {0, 1}
    assert ranked.num_evaluations <= 64 * 3 * nodes.numel() < searched.num_evaluations
    assert all(a.margins[1] <= b.margins[1] + 1e-9 for a, b in zip(searched.nodes, ranked.nodes, strict=True))
    assert max(entry.flips.size(1) for entry in (*searched.nodes, *ranked.nodes)) <= 3
    assert sum(searched.histogram.values()) + searched.num_surviving == nodes.numel()


def test_labels_decide_which_nodes_need_no_flip() -> None:
    data, model = ep.datasets.load("csbm"), ep.models.build("GCN", 21, 2, seed=0)
    nodes = torch.arange(40)
    predicted = predict(model, data)[nodes].argmax(dim=1)
    result = fragility(model, data, nodes, max_flips=1, labels=data.y[nodes])
    assert result.histogram[0] == int((predicted != data.y[nodes]).sum())
    assert fragility(model, data, nodes, max_flips=1).histogram[0] == 0
    assert all(entry.exact and not entry.flips.numel() for entry in result.nodes if entry.num_flips == 0)


def test_local_factor_limits_flips_at_each_node() -> None:
    data, model = ep.datasets.load("csbm"), ep.models.build("GCN", 21, 2, seed=0)
    result = fragility(model, data, torch.arange(12), max_flips=4, local=0.5)
    limit = (0.5 * degree(data)).floor().long()
    for entry in result.nodes:
        assert bool((entry.flips.flatten().bincount(minlength=data.num_nodes) <= limit).all())


def test_no_permitted_flip_leaves_the_prediction() -> None:
    data, model = random_graph(6, 0.5, 0), build("GCN", 0)
    only = torch.tensor([[1], [2]])
    (entry,) = fragility(model, data, [0], scope="direct", allowed=only).nodes
    assert (entry.num_flips, entry.flips.size(1), entry.at_least, entry.class_after) == (None, 0, 3, entry.class_before)


def test_result_as_table_and_dictionary() -> None:
    data, model = random_graph(8, 0.3, 0), build("GCN", 0)
    result = fragility(model, data, [2, 5], max_flips=2, allowed="additions")
    assert "proven fewest" in str(result)
    assert "allowed: additions" in str(result)
    assert result[5] is result.nodes[1]
    values: dict[str, Any] = result.to_dict()
    assert [row["node"] for row in values["rows"]] == [2, 5]
    assert sum(values["histogram"].values()) + values["surviving"] == 2
    with pytest.raises(KeyError, match="node 3"):
        result[3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scope": "global"}, "unknown scope 'global'"),
        ({"max_flips": 0}, "max_flips"),
        ({"max_evaluations": -1}, "max_evaluations"),
        ({"labels": torch.tensor([7])}, "expected labels"),
        ({"allowed": "addition"}, "did you mean 'additions'"),
        ({"local": -1.0}, "expected local"),
    ],
)
def test_invalid_arguments_raise(arguments: dict[str, Any], message: str) -> None:
    data, model = random_graph(6, 0.5, 0), build("GCN", 0)
    with pytest.raises(ValueError, match=message):
        fragility(model, data, [0], **arguments)
