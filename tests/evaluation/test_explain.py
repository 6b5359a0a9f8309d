"""Explanations of single nodes: contributions equal full evaluations without the edge, and flips those of the search."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof import losses
from edgeproof.evaluation import Explanation, explain, fragility
from edgeproof.graph import flip_pairs
from edgeproof.models import predict


class ByDegree(nn.Module):
    """Black box: logits depend on counts of neighbors, and edge weights are not used."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        count = torch.bincount(edge_index[0], minlength=x.size(0)).to(x.dtype)
        sums = torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]])
        out: Tensor = self.linear(x + sums / count.clamp(min=1)[:, None])
        return out


def margin(model: nn.Module, data: Data, flips: Tensor, node: int, label: int) -> float:
    logits = predict(model, flip_pairs(data, flips))[node]
    return float(losses.margin(logits[None], torch.tensor([label])))


@pytest.fixture
def data() -> Data:
    generator = torch.Generator().manual_seed(3)
    upper = torch.triu(torch.rand(12, 12, generator=generator) < 0.3, diagonal=1).nonzero().T
    x = torch.randn(12, 4, generator=generator, dtype=torch.float64)
    return Data(x=x, edge_index=torch.cat([upper, upper.flip(0)], dim=1), y=torch.arange(12) % 3)


@pytest.mark.parametrize("name", ["GCN", "GPRGNN", "black box"])
def test_contributions_equal_margins_without_each_edge(name: str, data: Data) -> None:
    torch.manual_seed(1)
    models = {"GCN": ep.models.GCN, "GPRGNN": ep.models.GPRGNN}
    model = (ByDegree() if name == "black box" else models[name](4, 3, hidden_channels=5)).double().eval()
    for node in (0, 5):
        explanation = explain(model, data, node, max_flips=2, max_evaluations=20_000)
        entry = explanation.fragility
        (expected,) = fragility(model, data, [node], max_flips=2, max_evaluations=20_000).nodes
        assert (entry.flips.tolist(), entry.margins, entry.at_least) == (
            expected.flips.tolist(),
            expected.margins,
            expected.at_least,
        )
        assert entry.flips.numel()
        after = flip_pairs(data, entry.flips)
        statuses = {}
        for each in explanation.neighbors:
            pair = torch.tensor([[min(node, each.node)], [max(node, each.node)]])
            assert (each.before is None, each.after is None) == (each.status == "added", each.status == "removed")
            for graph, value, start in ((data, each.before, entry.margins[0]), (after, each.after, entry.margins[-1])):
                if value is not None:
                    assert value == pytest.approx(start - margin(model, graph, pair, node, entry.label), abs=1e-9)
            assert each.true_class == int(data.y[each.node])
            statuses[each.node] = each.status
        neighbors = [set(graph.edge_index[1][graph.edge_index[0] == node].tolist()) for graph in (data, after)]
        assert {v for v, status in statuses.items() if status != "added"} == neighbors[0]
        assert {v for v, status in statuses.items() if status != "removed"} == neighbors[1]


def test_explanation_survives_a_dictionary_and_new_ids(data: Data) -> None:
    torch.manual_seed(1)
    explanation = explain(ep.models.GCN(4, 3).double(), data, 5, max_flips=3)
    restored = Explanation.of_dict(json.loads(json.dumps(explanation.to_dict())))
    assert restored.to_dict() == explanation.to_dict()
    assert str(restored) == str(explanation)
    renamed = explanation.with_ids(torch.arange(12) + 100)
    assert renamed.fragility.node == 105
    assert renamed.flips == [(u + 100, v + 100, kind) for u, v, kind in explanation.flips]
    assert [each.node - 100 for each in renamed.neighbors] == [each.node for each in explanation.neighbors]
    assert "node 105" in str(renamed)
    broken = {**explanation.to_dict(), "margins": [1.0]}
    with pytest.raises(ValueError, match="expected one margin per flip"):
        Explanation.of_dict(broken)


def test_explanation_in_words(data: Data) -> None:
    torch.manual_seed(1)
    model = ep.models.GCN(4, 3).double()
    label = int(predict(model, data)[5].argmax())
    assert "no flip is permitted" in explain(model, data, 5, scope="direct", allowed=torch.tensor([[1], [2]])).text
    assert "no flip is needed" in explain(model, data, 5, label=(label + 1) % 3).text
    found = explain(model, data, 5)
    assert f"predicted class {label}" in found.text
    assert f"true class {int(data.y[5])}" in found.text


def test_invalid_node_raises(data: Data) -> None:
    model = ep.models.GCN(4, 3).double()
    with pytest.raises(ValueError, match="expected nodes between 0 and 11, got 12"):
        explain(model, data, 12)
    with pytest.raises(ValueError, match="expected node as an integer"):
        explain(model, data, "5")  # type: ignore[arg-type]


def test_evaluation_searches_single_nodes_on_request() -> None:
    data, nodes = ep.datasets.load("csbm"), torch.arange(30)
    model = ep.models.build("GCN", 21, 2, seed=0)
    constraints = ep.Constraints("deletions")
    scores = ep.evaluate(model, data, nodes, [0.05], ["FGSM"], fragility=2, constraints=constraints)
    expected = fragility(model, data, nodes, max_flips=2, allowed="deletions", labels=data.y[nodes])
    assert scores.fragility is not None
    assert scores.fragility.num_flips.equal(expected.num_flips)
    assert scores.fragility.histogram[0] == round((1 - scores.clean_accuracy) * 30)
    assert scores.to_dict()["fragility"]["max_flips"] == 2
    assert "single nodes: misclassified by flips" in str(scores)
    with pytest.raises(ValueError, match="fragility"):
        ep.evaluate(model, data, nodes, [0.05], ["FGSM"], fragility=0)
