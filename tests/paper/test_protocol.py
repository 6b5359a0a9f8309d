"""Settings of the paper's experiments, repeated as literals: a changed setting would change the meaning of stored results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgeproof.attacks import DICE, FGSM, LRBCD, PGD, PRBCD, Attack, GreedyRBCD
from edgeproof.experiments import AttackSpec, CertifiedAccuracy, SplitSpec
from edgeproof.experiments.execute import make_split
from edgeproof.experiments.graphs import STAND_IN, load_graph
from edgeproof.experiments.identity import key_of
from edgeproof.experiments.spec import resolve
from edgeproof.models import build
from edgeproof.paper.numbers import PaperRow
from edgeproof.paper.recipes import KINDS, PaperMeasurement, Recipe, kind_of
from edgeproof.training import TrainConfig

ROW = PaperRow("inductive", "citeseer", "GPRGNN", True, "LRBCD", 0.2)


def recipe(dataset: str, model: str = "GPRGNN", attack: str | None = None, seed: int = 0, **changes: Any) -> Recipe:
    row = replace(ROW, dataset=dataset, model=model, attack=attack, epsilon=attack and 0.2, **changes)
    return Recipe(row, seed)


@pytest.mark.parametrize(
    ("dataset", "kind", "attack", "local"),
    [
        ("citeseer", "LRBCD", LRBCD(steps=400, block_size=500_000, lr=100.0, samples=20), 0.5),
        ("citeseer", "LRBCD-global", LRBCD(steps=400, block_size=500_000, lr=100.0, samples=20), None),
        ("citeseer", "LRBCD-global-slow", LRBCD(steps=400, block_size=500_000, lr=3.0, samples=20), None),
        ("citeseer", "PRBCD", PRBCD(steps=400, fine_tune_steps=100, block_size=500_000, lr=100.0, samples=20), None),
        ("citeseer", "degrees", PRBCD(steps=400, fine_tune_steps=100, block_size=500_000, lr=100.0, samples=20), None),
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
def test_attacks_in_evaluation(dataset: str, kind: str, attack: Attack, local: float | None) -> None:
    setting = "transductive" if kind in ("FGSM", "GreedyRBCD") else "inductive"
    measurement = PaperMeasurement(recipe(dataset, setting=setting), kind)
    identity = measurement.identity
    assert measurement.attack == attack
    assert identity["attack"] == AttackSpec.of(attack).identity
    assert (identity.get("local"), "count" in identity) == (local, False)
    assert getattr(attack, "loss", "tanh_margin") == "tanh_margin"


@pytest.mark.parametrize(
    ("dataset", "name", "epsilon", "attack", "local"),
    [
        ("citeseer", "LRBCD", 0.2, LRBCD(steps=20, block_size=1_000_000, lr=2000.0, samples=20), 0.5),
        ("ogbn-arxiv", "LRBCD", 0.1, LRBCD(steps=20, block_size=3_000_000, lr=4000.0, samples=20), 0.25),
        ("citeseer", "PRBCD", 0.2, PRBCD(steps=20, fine_tune_steps=0, block_size=1_000_000, keep_best=False), None),
        ("ogbn-arxiv", "PRBCD", 0.1, PRBCD(steps=20, fine_tune_steps=0, block_size=3_000_000, keep_best=False), None),
        ("cora", "PGD", 0.1, PGD(steps=10, lr=0.1, samples=20), None),
        ("cora", "PGD", 1.0, PGD(steps=50, lr=0.1, samples=20), None),
    ],
)
def test_attacks_in_training(dataset: str, name: str, epsilon: float, attack: Attack, local: float | None) -> None:
    run = Recipe(replace(ROW, dataset=dataset, attack=name, epsilon=epsilon), 0).run
    threat = resolve(run.training).preset.threat
    assert threat is not None
    assert (threat.attack, threat.epsilon, threat.local, threat.count) == (attack, epsilon, local, "incident")


def test_training_attacks_are_those_for_training() -> None:
    assert AttackSpec.of(LRBCD().for_training()) == recipe("citeseer", attack="LRBCD").run.training.attack
    assert AttackSpec.of(PRBCD().for_training()) == recipe("citeseer", attack="PRBCD").run.training.attack


@pytest.mark.parametrize(("model", "samples"), [("GCN", 100_000), ("GPRGNN", 100_000), ("SoftMedianGDC", 10_000)])
def test_certificates(model: str, samples: int) -> None:
    measurement = PaperMeasurement(recipe("citeseer", model), "smoothing").measurement
    assert measurement == CertifiedAccuracy(p_add=0.01, p_del=0.6, samples=samples, choosing_samples=1_000, alpha=0.05)


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
    spec = recipe(dataset, model, attack).run.model
    assert settings.items() <= build(spec.name, 1, 2, dict(spec.settings)).settings.items()


def test_initial_coefficients_of_gprgnn_have_the_seed_of_the_run() -> None:
    for attack in (None, "LRBCD"):
        assert recipe("citeseer", attack=attack, seed=5).run.model.identity == {
            "name": "GPRGNN",
            "settings": {"init_seed": 5},
        }


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
    # The paper's common settings.
    common = {
        "loss": "tanh_margin",
        "lr": 0.01,
        "weight_decay": 1e-3,
        "warmup_epochs": 10,
        "separate_warmup": True,
        "max_epochs": 3000,
        "patience": 200,
        "validate_every": 1,
        "label_models": 1,
    }
    assert recipe(dataset, model).config == TrainConfig(**{**common, **settings})
    assert resolve(recipe(dataset, model).run.training).label_config == TrainConfig(**{**common, **settings})


def test_label_models_of_the_transductive_study_run_for_500_epochs() -> None:
    study = recipe("karate", "GCN", setting="transductive")
    assert study.config == TrainConfig(patience=300)
    assert resolve(study.run.training).label_config == TrainConfig(max_epochs=500, patience=500)


@pytest.mark.parametrize(
    ("dataset", "setting", "expected"),
    [
        ("citeseer", "inductive", SplitSpec("inductive", 20, 20)),
        ("citeseer", "transductive", SplitSpec("transductive", 20, 20)),
        ("karate", "transductive", SplitSpec("transductive", 1, 1)),
        ("csbm", "inductive", SplitSpec("provided", test_on_val=True)),
        ("squirrel", "inductive", SplitSpec("provided")),
        ("ogbn-arxiv", "inductive", SplitSpec("provided")),
        (STAND_IN, "inductive", SplitSpec("provided")),
    ],
)
def test_splits(dataset: str, setting: str, expected: SplitSpec) -> None:
    assert recipe(dataset, setting=setting).run.split == expected


def test_whole_graphs_are_cora_and_arxiv() -> None:
    names = ("citeseer", "cora", "cora_ml", "pubmed", "csbm", "squirrel", "wikics", "ogbn-arxiv", STAND_IN)
    whole = [name for name in names if not recipe(name).run.dataset.largest_component]
    assert whole == ["cora", "ogbn-arxiv", STAND_IN]


# If one of these changes while its graph does not, stored and new results are for different nodes. Add an entry to SplitSpec
# that distinguishes them. Graphs: all of Cora, the largest components of the others; Squirrel has one split per seed.
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
    run = Recipe(replace(ROW, dataset=dataset), seed, protocol).run
    assert make_split(run, load_graph(*run.graph)).fingerprint[:12] == expected


@pytest.mark.parametrize(("dataset", "expected"), [("csbm", "6390d52225d5"), (STAND_IN, "d6786afad543")])
def test_generated_graphs_are_those_of_the_results(dataset: str, expected: str) -> None:
    run = recipe(dataset).run
    assert make_split(run, load_graph(*run.graph)).fingerprint[:12] == expected


def test_stored_results_depend_on_the_graph() -> None:
    run = recipe(STAND_IN).run
    other = replace(run, dataset=replace(run.dataset, fingerprint="another"))
    assert run.dataset.fingerprint == "fc1416eae1ed6359"
    assert key_of(run.identity) != key_of(other.identity)


def test_kinds_are_recognized_in_stored_results() -> None:
    for kind in KINDS:
        setting = "transductive" if kind in ("FGSM", "GreedyRBCD") else "inductive"
        assert kind_of(PaperMeasurement(recipe("citeseer", setting=setting), kind).identity) == kind


def test_keys_of_results_are_unchanged() -> None:
    keys = [key_of(recipe("citeseer", model, "LRBCD").run.identity) for model in ("GPRGNN", "GCN")]
    assert keys == ["9260e78b920a41029dac", "45654598d48bde9e6de7"]
