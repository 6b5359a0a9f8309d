"""Baselines that use no edges."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.evaluation import majority, mlp_accuracy
from edgeproof.evaluation.baselines import BASELINES
from edgeproof.splits import Split


def test_majority_uses_training_labels_and_breaks_ties_in_favour_of_the_baseline() -> None:
    data = Data(x=torch.zeros(6, 1), edge_index=torch.empty(2, 0, dtype=torch.long), y=torch.tensor([0, 0, 0, 1, 1, 2]))
    nodes = torch.arange(6)
    assert majority(data, nodes, torch.tensor([1, 1, 0])) == pytest.approx(2 / 6)
    assert majority(data, nodes, torch.tensor([2, 1, 0])) == pytest.approx(3 / 6)
    assert majority(data, nodes, torch.tensor([4])) == 0
    assert majority(data, nodes[:2], torch.tensor([1]), labels=torch.tensor([1, 2])) == 0.5
    for wrong in (torch.empty(0, dtype=torch.long), torch.tensor([0, -1])):
        with pytest.raises(ValueError, match="expected the labels of at least one labelled training node"):
            majority(data, nodes, wrong)


def test_baselines_appear_in_table_and_scores_and_do_not_depend_on_edges(split: Split) -> None:
    model = ep.models.build("GCN", 21, 2, seed=0)
    data, nodes = split.test.data, split.test.nodes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ep.evaluation.EvaluationWarning)
        found = ep.evaluate(model, data, nodes, [0.05, 0.1], ["FGSM"], baselines=split)
        plain = ep.evaluate(model, data, nodes, [0.05, 0.1], ["FGSM"])
    assert tuple(found.baselines) == BASELINES
    assert found.baselines["MLP baseline"] > found.baselines["majority baseline"] >= 0.4
    attacked = found.worst[0.1].data
    assert mlp_accuracy(split, attacked, nodes) == found.baselines["MLP baseline"]
    (line,) = (line for line in str(found).splitlines() if line.startswith("MLP baseline"))
    assert line.split()[2] == line.split()[3] == f"{100 * found.baselines['MLP baseline']:.1f}"
    scores = {score.attack: (score.epsilon, score.accuracy) for score in found.scores()}
    assert scores["MLP baseline"] == (0.0, found.baselines["MLP baseline"])
    assert plain.baselines == {}
    assert plain.worst[0.1].accuracy == found.worst[0.1].accuracy
    assert not set(BASELINES) & {score.attack for score in plain.scores()}


def test_baselines_of_another_graph_raise(split: Split) -> None:
    narrow = Data(x=split.test.data.x[:, :3], edge_index=split.test.data.edge_index, y=split.test.data.y)
    with pytest.raises(ValueError, match="expected a split of graphs like the evaluated one, with 3 features"):
        mlp_accuracy(split, narrow, split.test.nodes)
