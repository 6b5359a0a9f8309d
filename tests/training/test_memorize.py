"""Propositions 1 and 2: a memorizing defence is perfect transductively and useless inductively."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.evaluation import clean_accuracy
from edgeproof.splits import Split
from edgeproof.training import Memorizing


def trained(split: Split) -> nn.Module:
    model = ep.models.build("GCN", 21, 2, {"hidden_channels": 8}, seed=0)
    ep.train(model, split, max_epochs=60, progress=False)
    return model


def attacks() -> list[ep.attacks.Attack]:
    small = {"steps": 5, "fine_tune_steps": 2, "block_size": 5_000, "population": 20, "generations": 20}
    small |= {"candidates": 300, "rounds": 1}
    return [
        replace(attack, **{name: value for name, value in small.items() if hasattr(attack, name)})
        for attack in map(ep.attacks.build, ep.attacks.available())
    ]


@pytest.mark.parametrize("attack", attacks(), ids=lambda attack: type(attack).__name__)
def test_no_attack_lowers_transductive_accuracy(attack: ep.attacks.Attack, sbm: Data) -> None:
    r"""L_0/1(f) = L_0/1(f~) = L_adv(f~), while the attack lowers the accuracy of f itself."""
    split = ep.splits.transductive(sbm, seed=0)
    model = trained(split)
    defence = Memorizing(model, split.train.data).eval()
    graph, nodes = split.test.data, split.test.nodes
    budget = ep.Budget.from_epsilon(graph, nodes, 0.3)
    result = attack(defence, graph, nodes, budget)
    expected = clean_accuracy(model, graph, nodes)
    assert result.clean_accuracy == expected == result.accuracy
    # Flips found on the model itself do not change the predictions of the defence, either.
    own = attack(model, graph, nodes, budget)
    assert own.flips.numel()
    perturbed = ep.graph.flip_pairs(graph, own.flips)
    assert clean_accuracy(defence, perturbed, nodes) == expected
    if not isinstance(attack, (ep.attacks.DICE, ep.attacks.RandomFlips)):
        assert own.accuracy < expected


def test_memorizing_does_not_help_on_new_nodes(split: Split) -> None:
    model = trained(split)
    defence = Memorizing(model, split.train.data).eval()
    graph, nodes = split.test.data, split.test.nodes
    budget = ep.Budget.from_epsilon(graph, nodes, 0.3)
    flips = ep.attacks.GreedyRBCD(steps=10, block_size=5_000, loss="log_margin")(model, graph, nodes, budget).flips
    perturbed = ep.graph.flip_pairs(graph, flips)
    for data in (graph, perturbed):
        assert clean_accuracy(defence, data, nodes) == clean_accuracy(model, data, nodes)
    assert clean_accuracy(model, perturbed, nodes) < clean_accuracy(model, graph, nodes)
    # Only the training nodes are memorized.
    seen = torch.isin(split.test.ids, split.train.ids)
    assert torch.equal(defence.node_ids(graph.x) >= 0, seen)
    assert torch.equal(ep.models.predict(defence, perturbed)[seen], ep.models.predict(model, split.train.data))


def test_evaluation_warns_of_vanishing_gradient(sbm: Data) -> None:
    split = ep.splits.transductive(sbm, seed=0)
    defence = Memorizing(trained(split), split.train.data).eval()
    with pytest.warns(ep.evaluation.EvaluationWarning, match="gradient"):
        scores = ep.evaluate(defence, split.test.data, split.test.nodes, [0.1], attacks=["LRBCD"])
    assert scores.accuracy(0.1) == scores.clean_accuracy


def test_nodes_with_equal_features_are_identified_by_position(sbm: Data) -> None:
    data = sbm.clone()
    data.x = data.x.clone()
    data.x[1] = data.x[0]
    model = ep.models.build("GCN", 21, 2, seed=0).eval()
    defence = Memorizing(model, data).eval()
    assert torch.equal(ep.models.predict(defence, data), ep.models.predict(model, data))
    order = torch.arange(data.num_nodes).flip(0)
    ids = defence.node_ids(data.x[order])
    assert torch.equal(ids[:-2], order[:-2])
    assert ids[-2:].tolist() == [-1, -1]


def test_invalid_graph_raises(split: Split) -> None:
    model = ep.models.build("GCN", 21, 2, seed=0)
    with pytest.raises(TypeError, match=r"expected .*Data, got Split"):
        Memorizing(model, split)  # type: ignore[arg-type]
    data = split.train.data.clone()
    data.x = data.x.index_fill(0, torch.tensor([0]), torch.nan)
    with pytest.raises(ValueError, match="NaN or Inf at 1 nodes"):
        Memorizing(model, data)
