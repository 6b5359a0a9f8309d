"""The settings of the paper's experiments, written down once more: what a change of them would silently make of old results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from edgeproof.experiments.measure import Measure
from edgeproof.experiments.paper import STAND_IN, Row
from edgeproof.experiments.recipe import Recipe

from edgeproof.attacks import DICE, FGSM, LRBCD, PGD, PRBCD, Attack, GreedyRBCD
from edgeproof.experiments import recipe
from edgeproof.experiments.store import key_of
from edgeproof.training import TrainConfig

ROW = Row("inductive", "citeseer", "GPRGNN", True, "LRBCD", 0.2)


def of(dataset: str, model: str = "GPRGNN", attack: str | None = None, **changes: Any) -> Recipe:
    return Recipe(replace(ROW, dataset=dataset, model=model, attack=attack, epsilon=attack and 0.2, **changes), 0)


@pytest.mark.parametrize(
    ("dataset", "kind", "attack", "local"),
    [
        ("citeseer", "LRBCD", LRBCD(steps=400, block_size=500_000, lr=100.0, samples=20), 0.5),
        ("citeseer", "LRBCD-global", LRBCD(steps=400, block_size=500_000, lr=100.0, samples=20), None),
        ("citeseer", "LRBCD-global-slow", LRBCD(steps=400, block_size=500_000, lr=3.0, samples=20), None),
        ("citeseer", "PRBCD", PRBCD(steps=400, fine_tune_steps=100, block_size=500_000, lr=100.0, samples=20), None),
        ("citeseer", "PGD", PGD(steps=400, lr=0.1, samples=20), None),
        ("citeseer", "FGSM", FGSM(), None),
        ("citeseer", "DICE", DICE(add_ratio=0.6), None),
        ("citeseer", "GreedyRBCD", GreedyRBCD(steps=400, block_size=500_000), None),
        ("ogbn-arxiv", "LRBCD", LRBCD(steps=400, block_size=3_000_000, lr=100.0, samples=20), 0.25),
        (
            "ogbn-arxiv",
            "PRBCD",
            PRBCD(steps=400, fine_tune_steps=100, block_size=3_000_000, lr=100.0, samples=20),
            None,
        ),
        (STAND_IN, "LRBCD", LRBCD(steps=400, block_size=3_000_000, lr=100.0, samples=20), 0.25),
    ],
)
def test_attacks_at_evaluation(dataset: str, kind: str, attack: Attack, local: float | None) -> None:
    identity = Measure(of(dataset), kind).identity
    assert (identity["attack"], identity["local"], identity["count"]) == (repr(attack), local, "incident")
    assert getattr(attack, "loss", "tanh_margin") == "tanh_margin"


@pytest.mark.parametrize(
    ("dataset", "against", "epsilon", "attack", "local"),
    [
        ("citeseer", "LRBCD", 0.2, LRBCD(steps=20, block_size=1_000_000, lr=2000.0, samples=20), 0.5),
        ("ogbn-arxiv", "LRBCD", 0.1, LRBCD(steps=20, block_size=3_000_000, lr=4000.0, samples=20), 0.25),
        ("citeseer", "PRBCD", 0.2, PRBCD(steps=20, fine_tune_steps=0, block_size=1_000_000, keep_best=False), None),
        ("ogbn-arxiv", "PRBCD", 0.1, PRBCD(steps=20, fine_tune_steps=0, block_size=3_000_000, keep_best=False), None),
        ("cora", "PGD", 0.1, PGD(steps=10, lr=0.1, samples=20), None),
        ("cora", "PGD", 1.0, PGD(steps=50, lr=0.1, samples=20), None),
    ],
)
def test_attacks_in_training(dataset: str, against: str, epsilon: float, attack: Attack, local: float | None) -> None:
    identity = Recipe(replace(ROW, dataset=dataset, attack=against, epsilon=epsilon), 0).identity
    assert (identity["attack"], identity["local"], identity["epsilon"]) == (repr(attack), local, epsilon)


@pytest.mark.parametrize(("model", "samples"), [("GCN", 100_000), ("GPRGNN", 100_000), ("SoftMedianGDC", 10_000)])
def test_certificates(model: str, samples: int) -> None:
    identity = Measure(of("citeseer", model), "smoothing").identity
    assert (identity["samples"], identity["choosing"], identity["alpha"]) == (samples, 1_000, 0.05)
    assert identity["smoothing"] == "SparseSmoothing(p_add=0.01, p_del=0.6)"


@pytest.mark.parametrize(
    ("dataset", "model", "attack", "settings"),
    [
        ("citeseer", "GCN", None, {"hidden_channels": 64, "num_layers": 2, "dropout": 0.5}),
        ("csbm", "GCN", None, {"hidden_channels": 32, "dropout": 0.2}),
        ("squirrel", "GCN", None, {"hidden_channels": 128}),
        ("wikics", "GCN", None, {"hidden_channels": 128}),
        ("ogbn-arxiv", "GCN", None, {"hidden_channels": 256, "num_layers": 3}),
        ("citeseer", "GPRGNN", None, {"hidden_channels": 64, "K": 10, "dropout": 0.2, "init_seed": 0}),
        ("csbm", "GPRGNN", None, {"hidden_channels": 64, "dropout": 0.5}),
        ("squirrel", "GPRGNN", None, {"hidden_channels": 128, "dropout": 0.5}),
        ("wikics", "GPRGNN", None, {"hidden_channels": 128, "dropout": 0.2}),
        ("ogbn-arxiv", "GPRGNN", None, {"hidden_channels": 256}),
        ("ogbn-arxiv", "APPNP", None, {"hidden_channels": 256}),
        ("ogbn-arxiv", "MLP", None, {"hidden_channels": 256}),
        ("citeseer", "APPNP", "LRBCD", {"dropout": 0.5}),
        ("citeseer", "APPNP", "PRBCD", {"dropout": 0.2}),
    ],
)
def test_models(dataset: str, model: str, attack: str | None, settings: dict[str, Any]) -> None:
    assert settings.items() <= of(dataset, model, attack).identity["model_settings"].items()


@pytest.mark.parametrize(
    ("dataset", "model", "settings"),
    [
        ("citeseer", "GCN", {}),
        ("csbm", "GCN", {"warmup_epochs": 50}),
        ("csbm", "GPRGNN", {"warmup_epochs": 50, "weight_decay": 1e-2, "lr": 0.1}),
        ("squirrel", "GPRGNN", {"warmup_epochs": 50, "weight_decay": 1e-2}),
        ("squirrel", "GCN", {"warmup_epochs": 50, "weight_decay": 1e-2}),
        ("wikics", "GPRGNN", {"weight_decay": 1e-4}),
        ("wikics", "GCN", {"weight_decay": 1e-4}),
        ("ogbn-arxiv", "GPRGNN", {"warmup_epochs": 20, "weight_decay": 0.0, "validate_every": 10}),
        ("citeseer", "GRAND", {"loss": "cross_entropy", "weight_decay": 5e-4}),
    ],
)
def test_training(dataset: str, model: str, settings: dict[str, Any]) -> None:
    assert of(dataset, model).config == TrainConfig(**settings)
    assert of(dataset, model).label_config == TrainConfig(**settings)


def test_in_the_transductive_study_label_models_are_kept_at_their_best_of_500_epochs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, seen = of("karate", "GCN", setting="transductive"), dict[str, Any]()
    assert one.config == TrainConfig(patience=300)

    def label(*_: object, **named: Any) -> Any:
        seen.update(named)
        return SimpleNamespace(histories=())

    monkeypatch.setattr(recipe, "pseudo_labels", label)
    monkeypatch.setattr(recipe, "train", lambda *_, **__: None)
    one.train(one.split(one.data()), "cpu")
    assert seen["preset"] == TrainConfig(max_epochs=500, patience=500)


# If these change while the graph does not, results in stores are of other nodes than new ones would be: give `Recipe.nodes` an
# entry that tells them apart. Graphs: Cora as a whole, the others' largest components; Squirrel has a split for each seed.
@pytest.mark.parametrize(
    ("dataset", "protocol", "seed", "expected"),
    [
        ("citeseer", "strict", 0, "7e7a6075ee2f"),
        ("citeseer", "as_released", 0, "48f1fa5e6aeb"),
        ("citeseer", "strict", 1, "7680a82c9dd8"),
        ("cora", "strict", 0, "34a8091af271"),
        ("cora", "as_released", 1, "9667a230b9e5"),
        ("cora_ml", "strict", 0, "cd328554cc15"),
        ("cora_ml", "as_released", 1, "0cfb158de426"),
        ("pubmed", "strict", 0, "8289b1bcebec"),
        ("pubmed", "as_released", 1, "abc43bb4af24"),
        ("squirrel", "strict", 0, "7ea556879b58"),
        ("squirrel", "strict", 1, "2e7871a0ea79"),
    ],
)
def test_graphs_and_splits_are_those_of_the_results(
    dataset: str, protocol: str, seed: int, expected: str, real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEPROOF_DATA", str(real_data))
    one = Recipe(replace(ROW, dataset=dataset), seed, protocol)
    assert one.split(one.data()).fingerprint[:12] == expected


@pytest.mark.parametrize(("dataset", "expected"), [("csbm", "6390d52225d5"), (STAND_IN, "d6786afad543")])
def test_generated_graphs_are_those_of_the_results(dataset: str, expected: str) -> None:
    one = of(dataset)
    assert one.split(one.data()).fingerprint[:12] == expected


def test_another_graph_of_the_same_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one, data = of("csbm"), of("csbm").data()
    for name, value in (("x", data.x + 0.1), ("y", 1 - data.y), ("val_mask", ~data.val_mask)):
        changed = data.clone()
        changed[name] = value
        monkeypatch.setattr(recipe.datasets, "load", lambda *_, found=changed, **__: found)
        with pytest.raises(ValueError, match="expected csbm to be the graph that results are of"):
            one.data()
    changed = data.clone()
    changed.edge_index = data.edge_index.flip(1)
    monkeypatch.setattr(recipe.datasets, "load", lambda *_, **__: changed)
    assert one.data() is changed


def test_another_graph_has_another_name_in_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_of(of(STAND_IN).identity)
    monkeypatch.setitem(recipe.GRAPHS, STAND_IN, "another")
    assert key_of(of(STAND_IN).identity) != before


def test_the_generated_graph_is_tested_on_its_validation_nodes() -> None:
    one = of("csbm")
    data = one.data()
    split = one.split(data)
    assert split.test.ids[split.test.nodes].tolist() == data.val_mask.nonzero().squeeze(1).tolist()
