"""Training of one-hop models on their exact worst case."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import edgeproof as ep
from edgeproof.certificates import WorstCase
from edgeproof.losses import margin, tanh_margin
from edgeproof.models import BoundedInfluence, OneHop
from edgeproof.propagation import Adjacency
from edgeproof.propagation.one_hop import Limits, Neighbors, OneHopWorstCase
from edgeproof.splits import Split


@pytest.fixture(scope="module")
def split() -> Split:
    data = ep.datasets.csbm("homophilous", num_nodes=200, p=0.06, q=0.02, K=1.5, seed=2)
    return ep.splits.inductive(data, train_per_class=30, val_per_class=15)


def guaranteed(model: OneHop, split: Split) -> float:
    view = split.test
    budget = ep.Budget(10_000, (ep.graph.degree(view.data) * 0.5).long())
    return WorstCase(attack=False).certify(model, view.data, view.nodes, budget).budgets[0].guaranteed


def test_objective_is_the_sum_of_its_losses(split: Split) -> None:
    data, nodes = split.train.data, split.train.nodes
    labels = data.y[nodes]
    settings = {"dropout": 0.0, "members": 1, "bound": 0.5, "own_weight": 2.0}
    model = OneHop(data.num_features, 2, worst_weight=3.0, **settings).train()  # type: ignore[arg-type]
    objective, logits = model.training_objective(data.x, Adjacency.from_data(data), nodes, labels, tanh_margin)
    terms = model.terms(data.x)
    own = terms.own[nodes]
    assert float(model.scale) == pytest.approx(max(0.0, float(margin(own, labels).median())), abs=1e-6)
    local = (ep.graph.degree(data) * 0.5).long()
    search = OneHopWorstCase(terms, Neighbors(Adjacency.from_data(data)), nodes, labels, local > 0)
    worst = search.worst(Limits.of_total(local[nodes])).margin.amin(dim=1)
    expected = tanh_margin(logits, labels) + 2 * tanh_margin(own, labels) + 3 * torch.tanh(-worst).mean()
    torch.testing.assert_close(objective, expected)


def test_certified_training_raises_the_guaranteed_accuracy(split: Split) -> None:
    accuracies = []
    for weight in (0.0, 3.0):
        settings = {"bound": 2.0, "worst_weight": weight, "members": 1, "dropout": 0.2, "hidden_channels": 32}
        model = ep.models.build("OneHop", split.train.data.num_features, 2, settings, seed=0)
        ep.train(model, split, preset="paper", max_epochs=80, progress=False)
        assert isinstance(model, OneHop)
        accuracies.append(guaranteed(model, split))
    assert accuracies[1] > accuracies[0]


def test_preset_certified_trains_on_pseudo_labels(split: Split) -> None:
    model = ep.models.build("OneHop", split.train.data.num_features, 2, {"members": 1}, seed=0)
    history = ep.train(model, split, preset="certified", label_models=1, max_epochs=5, min_epochs=0, progress=False)
    assert history.pseudo_labels is not None
    assert "GPRGNN" in history.pseudo_labels.label_model


@pytest.mark.parametrize("name", ["OneHop", "BoundedInfluence"])
def test_adversarial_training_and_saving(name: str, split: Split, tmp_path: Path) -> None:
    model = ep.models.build(name, split.train.data.num_features, 2, {"hidden_channels": 8}, seed=0)
    attack = ep.attacks.LRBCD(steps=2, block_size=2_000)
    ep.train(
        model,
        split,
        attack=attack,
        epsilon=0.1,
        local=0.5,
        self_training=False,
        max_epochs=3,
        warmup_epochs=2,
        progress=False,
    )
    path = tmp_path / "model.safetensors"
    ep.save(model, path)
    loaded = ep.load(path)
    view = split.test
    assert repr(loaded) == repr(model)
    assert torch.equal(ep.models.predict(loaded, view.data), ep.models.predict(model, view.data))


def test_bounded_users_module_cannot_be_saved(tmp_path: Path) -> None:
    class Mine(torch.nn.Linear):
        in_channels, out_channels = 3, 2

    with pytest.raises(TypeError, match=r"expected a model of edgeproof\.models"):
        ep.save(BoundedInfluence(Mine(3, 2)), tmp_path / "model.safetensors")
