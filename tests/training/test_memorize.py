"""Propositions 1 and 2: a defence that only remembers is perfect transductively, and worth nothing inductively."""

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
    every = [ep.attacks.build(name) for name in ep.attacks.available()]
    small = {"steps": 5, "fine_tune_steps": 2, "block_size": 5_000}
    return [replace(one, **{name: value for name, value in small.items() if hasattr(one, name)}) for one in every]


@pytest.mark.parametrize("attack", attacks(), ids=lambda attack: type(attack).__name__)
def test_it_is_perfect_where_test_nodes_have_been_seen(attack: ep.attacks.Attack, sbm: Data) -> None:
    r"""L_0/1(f) = L_0/1(f~) = L_adv(f~), while f itself falls."""
    split = ep.splits.transductive(sbm, seed=0)
    model = trained(split)
    defence = Memorizing(model, split.train.data).eval()
    graph, nodes = split.test.data, split.test.nodes
    budget = ep.Budget.from_epsilon(graph, nodes, 0.3)
    result = attack(defence, graph, nodes, budget)
    expected = clean_accuracy(model, graph, nodes)
    assert result.clean_accuracy == expected == result.accuracy
    # The flips that are best against the model itself do nothing, either.
    own = attack(model, graph, nodes, budget)
    assert own.flips.numel()
    moved = ep.graph.flip_pairs(graph, own.flips)
    assert clean_accuracy(defence, moved, nodes) == expected
    if not isinstance(attack, (ep.attacks.DICE, ep.attacks.RandomFlips)):
        assert own.accuracy < expected


def test_it_gains_nothing_on_new_nodes(split: Split) -> None:
    model = trained(split)
    defence = Memorizing(model, split.train.data).eval()
    graph, nodes = split.test.data, split.test.nodes
    budget = ep.Budget.from_epsilon(graph, nodes, 0.3)
    flips = ep.attacks.GreedyRBCD(steps=10, block_size=5_000, loss="log_margin")(model, graph, nodes, budget).flips
    moved = ep.graph.flip_pairs(graph, flips)
    for data in (graph, moved):
        assert clean_accuracy(defence, data, nodes) == clean_accuracy(model, data, nodes)
    assert clean_accuracy(model, moved, nodes) < clean_accuracy(model, graph, nodes)
    # Its own memory is of the training nodes.
    seen = torch.isin(split.test.ids, split.train.ids)
    assert torch.equal(defence.known(graph.x) >= 0, seen)
    assert torch.equal(ep.models.predict(defence, moved)[seen], ep.models.predict(model, split.train.data))


def test_the_evaluation_says_that_something_is_odd(sbm: Data) -> None:
    split = ep.splits.transductive(sbm, seed=0)
    defence = Memorizing(trained(split), split.train.data).eval()
    with pytest.warns(ep.evaluation.EvaluationWarning, match="gradient"):
        scores = ep.evaluate(defence, split.test.data, split.test.nodes, [0.1], attacks=["LRBCD"])
    assert scores.accuracy(0.1) == scores.clean_accuracy


def test_nodes_with_the_same_features_are_told_apart_by_place_only(sbm: Data) -> None:
    data = sbm.clone()
    data.x = data.x.clone()
    data.x[1] = data.x[0]
    model = ep.models.build("GCN", 21, 2, seed=0).eval()
    defence = Memorizing(model, data).eval()
    answers = ep.models.predict(model, data)
    assert torch.equal(ep.models.predict(defence, data), answers)
    order = torch.arange(data.num_nodes).flip(0)
    known = defence.known(data.x[order])
    assert torch.equal(known[:-2], order[:-2])
    assert known[-2:].tolist() == [-1, -1]


def test_only_a_sound_graph_is_remembered(split: Split) -> None:
    model = ep.models.build("GCN", 21, 2, seed=0)
    with pytest.raises(TypeError, match=r"expected .*Data, got Split"):
        Memorizing(model, split)  # type: ignore[arg-type]
    data = split.train.data.clone()
    data.x = data.x.index_fill(0, torch.tensor([0]), torch.nan)
    with pytest.raises(ValueError, match="NaN or Inf at 1 nodes"):
        Memorizing(model, data)
