"""Attacks from predictions alone: batches, query counts, and strength."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof import losses
from edgeproof.attacks import EvA, QueryGain, RandomFlips
from edgeproof.attacks.base import AttackTrace, make_target
from edgeproof.attacks.predictions import Predictions
from edgeproof.graph import flip_pairs


class Opaque(nn.Module):
    """Predictions of another model, without gradients and edge weights; counts the graphs that it is run on."""

    def __init__(self, model: nn.Module, num_nodes: int, *, centered: bool = False) -> None:
        super().__init__()
        self.model, self.num_nodes, self.centered, self.graphs = model, num_nodes, centered, 0

    @torch.no_grad()
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.graphs += x.size(0) // self.num_nodes
        out: Tensor = self.model(x, edge_index).detach()
        return out - out.mean(dim=0) if self.centered else out


@pytest.fixture(scope="module")
def split() -> ep.splits.Split:
    data = ep.datasets.csbm("homophilous", num_nodes=300, p=0.03, q=0.008, K=3.0, seed=3)
    return ep.splits.inductive(data, seed=0, train_per_class=20, val_per_class=20, test_share=0.3)


@pytest.fixture(scope="module")
def trained(split: ep.splits.Split) -> nn.Module:
    model = ep.models.build("GPRGNN", split.test.data.num_features, 2, seed=0)
    ep.train(model, split, max_epochs=60, seed=0, progress=False)
    return model


@pytest.mark.parametrize("centered", [False, True])
def test_batched_predictions_equal_single_predictions(
    centered: bool, trained: nn.Module, split: ep.splits.Split
) -> None:
    data, nodes = split.test.data, split.test.nodes
    model = Opaque(trained, data.num_nodes, centered=centered)
    target = make_target(model, data, nodes, None, None)
    assert target.tier == "black_box"
    trace = AttackTrace(target.device)
    predictions = Predictions(target, trace)
    sets = [torch.tensor([[0, 1], [1, 5 + k]])[:, : k % 3] for k in range(7)]
    batches = list(predictions.logits_of(sets))
    # A mean over all nodes would mix the graphs of a batch.
    assert (len(batches) == 1) == (not centered)
    for flips, logits, margins in zip(sets, torch.cat(batches), predictions.margins(sets), strict=True):
        expected = ep.models.predict(model, flip_pairs(data, flips))
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(margins.float(), losses.margin(expected[nodes], data.y[nodes]), rtol=1e-4, atol=1e-4)
    assert trace.queries == 2 * len(sets)


def test_queries_are_the_graphs_that_the_model_was_run_on(trained: nn.Module, split: ep.splits.Split) -> None:
    data, nodes = split.test.data, split.test.nodes
    model = Opaque(trained, data.num_nodes)
    budget = ep.Budget(6)
    for attack in (QueryGain(candidates=8, batch=8, rounds=2), EvA(population=10, generations=4)):
        target = make_target(model, data, nodes, None, None)
        (before,) = RandomFlips().on_target(target, [budget])
        assert before.queries == 0
        model.graphs = 0
        (result,) = attack.on_target(target, [budget])
        # Probes of batching, the surrogate's labels, the clean accuracy and the final evaluation run the model, too.
        assert 0 <= model.graphs - result.queries <= 12
        assert (result.tier, result.path) == ("black_box", "none")


def test_attack_does_not_depend_on_gradients_of_the_model(trained: nn.Module, split: ep.splits.Split) -> None:
    data, nodes, budget = split.test.data, split.test.nodes, ep.Budget(8)
    attack = QueryGain(candidates=16, batch=16, rounds=2)
    opaque, differentiable = (
        attack(model, data, nodes, budget, seed=1) for model in (Opaque(trained, data.num_nodes), trained)
    )
    assert differentiable.tier == "propagate"
    assert abs(opaque.accuracy - differentiable.accuracy) <= 2 / nodes.numel()


def test_rounds_never_weaken_the_attack(trained: nn.Module, split: ep.splits.Split) -> None:
    data, nodes = split.test.data, split.test.nodes
    for total in (3, 12):
        greedy, refined = (
            QueryGain(candidates=16, batch=16, rounds=rounds)(trained, data, nodes, ep.Budget(total))
            for rounds in (0, 6)
        )
        assert refined.accuracy <= greedy.accuracy < greedy.clean_accuracy
        assert refined.queries > greedy.queries
        # Without rounds, every flip gains.
        assert list(greedy.trace) == sorted(greedy.trace, reverse=True)


def test_query_gain_is_stronger_than_eva_at_equal_queries(trained: nn.Module, split: ep.splits.Split) -> None:
    data, nodes = split.test.data, split.test.nodes
    budget = ep.Budget.from_epsilon(data, nodes, 0.1)
    result = QueryGain(candidates=32, rounds=4)(trained, data, nodes, budget)
    evolved = EvA(population=64, generations=result.queries // 58)(trained, data, nodes, budget)
    assert evolved.queries >= 0.95 * result.queries
    assert result.accuracy < evolved.accuracy


def test_black_box_evaluation_counts_queries(trained: nn.Module, split: ep.splits.Split) -> None:
    data: Data = split.test.data
    model = Opaque(trained, data.num_nodes)
    scores = ep.evaluate(model, data, split.test.nodes[:30], [0.05], effort="quick")
    queries = {row.attack: row.queries for row in scores.rows}
    assert queries["QueryGain, greedy"] > 100
    assert queries["DICE"] == 0
    assert scores.to_dict()["rows"][2]["queries"] == queries["QueryGain, greedy"]
    assert scores.accuracy(0.05) < scores.clean_accuracy
