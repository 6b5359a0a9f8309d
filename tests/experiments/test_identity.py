"""Identities of results: explicit, versioned, without defaults."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import pytest

from edgeproof import attacks, models
from edgeproof.experiments import (
    AttackedDegrees,
    AttackSpec,
    CertifiedAccuracy,
    CleanAccuracy,
    DatasetSpec,
    DiffusionMatrix,
    Evaluated,
    LearnedFilter,
    ModelSpec,
    RobustAccuracy,
    Run,
    SplitSpec,
    Task,
    TrainingSpec,
    as_settings,
)
from edgeproof.experiments.defaults import DEFAULTS
from edgeproof.experiments.identity import VERSION, key_of, non_default
from edgeproof.experiments.spec import ResolvedTraining, attack_identity, model_identity, training_identity
from edgeproof.experiments.sweep import KINDS
from edgeproof.training import PRESETS, TrainConfig

# Defaults of the code that were changed on purpose after version 3 was frozen, as "owner.setting". Results with the earlier
# default keep their identity; identities of results with the new default contain the setting.
CHANGED = {
    "ChebNetII.filter_lr",
    "ChebNetII.filter_weight_decay",
    "GAT.attention_dropout",
    "GPRGNN.init",
    "GPRGNN.dropout",
    "evaluate.suite",
}


def defaults_of_the_code() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {
        "TrainConfig": {entry.name: entry.default for entry in fields(TrainConfig) if entry.name != "seed"},
        "dataset": {"largest_component": DatasetSpec("csbm").largest_component},
        "split": {entry.name: entry.default for entry in fields(SplitSpec)},
        "threat": {"local": None, "count": "incident"},
    }
    for name in attacks.available():
        found[name] = {entry.name: getattr(attacks.build(name), entry.name) for entry in fields(attacks.build(name))}
    for name in models.available():
        settings = models.build(name, 1, 2).settings
        found[name] = {key: value for key, value in settings.items() if key not in ("in_channels", "out_channels")}
    for kind, cls in KINDS.items():
        entries = fields(cls)  # type: ignore[arg-type]
        found[kind] = {entry.name: entry.default for entry in entries if entry.name not in ("attack", "epsilons")}
    return found


def test_code_defaults_match_defaults_omitted_from_identities() -> None:
    """If this test fails, stored results are still found; its message states which file to change."""
    code = defaults_of_the_code()
    for owner, settings in code.items():
        for name, value in settings.items():
            assert name in DEFAULTS.get(owner, {}), (
                f"{owner}.{name} is new: add it to experiments/defaults.py with the value that all earlier results had"
            )
            assert DEFAULTS[owner][name] == value or f"{owner}.{name}" in CHANGED, (
                f"the default of {owner}.{name} has changed from {DEFAULTS[owner][name]!r} to {value!r}: leave "
                "experiments/defaults.py as it is. If the change is intended, add the name to CHANGED here; results with the "
                "new default then have an explicit entry, and must be computed"
            )
    removed = {f"{owner}.{name}" for owner in DEFAULTS for name in DEFAULTS[owner] if name not in code.get(owner, {})}
    assert removed == set(), (
        "settings have been renamed or removed: rename them in experiments/defaults.py, and convert stored results that "
        "spell them out"
    )


RUN = Run(
    DatasetSpec("citeseer", fingerprint="8446fc8370f86226"),
    SplitSpec(),
    ModelSpec.of_paper("GPRGNN", {"init_seed": 5}),
    TrainingSpec(attack=AttackSpec.for_training("LRBCD"), epsilon=0.2, local=0.5, self_training=True),
    seed=5,
)


def test_identity_is_an_explicit_dictionary() -> None:
    assert Task(RUN, RobustAccuracy(AttackSpec("PRBCD"), (0.05, 0.1))).identity == {
        "version": 3,
        "kind": "attack",
        "run": {
            "dataset": {"name": "citeseer", "graph": "8446fc8370f86226"},
            "model": {"name": "GPRGNN", "settings": {"init_seed": 5}},
            "seed": 5,
            "training": {
                "attack": {"name": "LRBCD", "settings": {"block_size": 1_000_000, "lr": 2000.0, "steps": 20}},
                "epsilon": 0.2,
                "local": 0.5,
                "self_training": True,
            },
        },
        "attack": {"name": "PRBCD"},
        "epsilons": [0.05, 0.1],
    }
    assert RUN.identity == {"version": VERSION, "kind": "training", "run": RUN.entries}


@pytest.mark.parametrize(
    "other",
    [
        replace(RUN, seed=1),
        replace(RUN, dataset=DatasetSpec("citeseer", fingerprint="another")),
        replace(RUN, dataset=DatasetSpec("citeseer", False, "8446fc8370f86226")),
        replace(RUN, split=SplitSpec("transductive")),
        replace(RUN, split=SplitSpec(protocol="as_released")),
        replace(RUN, split=SplitSpec(train_per_class=10)),
        replace(RUN, split=SplitSpec(test_fraction=0.2)),
        replace(RUN, model=ModelSpec("GPRGNN")),
        replace(RUN, model=ModelSpec("APPNP")),
        replace(RUN, training=replace(RUN.training, config=as_settings({"lr": 0.1}))),
        replace(RUN, training=replace(RUN.training, epsilon=0.1)),
        replace(RUN, training=replace(RUN.training, local=None)),
        replace(RUN, training=replace(RUN.training, count="half_degree")),
        replace(RUN, training=replace(RUN.training, self_training=False)),
        replace(RUN, training=replace(RUN.training, label_config=as_settings({"max_epochs": 500}))),
        replace(RUN, training=replace(RUN.training, attack=AttackSpec("LRBCD"))),
        replace(RUN, training=TrainingSpec(preset="sturdy")),
    ],
)
def test_changed_setting_changes_the_key(other: Run) -> None:
    assert key_of(other.identity) != key_of(RUN.identity)
    assert key_of(Task(other, CleanAccuracy()).identity) != key_of(Task(RUN, CleanAccuracy()).identity)


def test_measurements_have_different_keys() -> None:
    lrbcd = RobustAccuracy(AttackSpec("LRBCD"), (0.1,), 0.5)
    measurements = [
        CleanAccuracy(),
        lrbcd,
        replace(lrbcd, local=None),
        replace(lrbcd, epsilons=(0.1, 0.2)),
        replace(lrbcd, count="half_degree"),
        replace(lrbcd, attack=AttackSpec("LRBCD", as_settings({"lr": 3.0}))),
        replace(lrbcd, attack=AttackSpec("PRBCD")),
        AttackedDegrees(AttackSpec("LRBCD"), (0.1,), 0.5),
        Evaluated((0.1,)),
        Evaluated((0.1,), attacks=("LRBCD",)),
        CertifiedAccuracy(),
        CertifiedAccuracy(samples=10_000),
        LearnedFilter(),
        LearnedFilter(bins=21),
        DiffusionMatrix(),
    ]
    keys = {key_of(Task(RUN, measurement).identity) for measurement in measurements}
    assert len(keys) == len(measurements)
    labels = [measurement.label for measurement in measurements]
    assert labels[1] == "LRBCD, local 0.5"
    assert labels[5] == "LRBCD(lr=3.0), local 0.5"


def test_identity_does_not_depend_on_notation_of_settings() -> None:
    spelled_out = replace(
        RUN,
        model=ModelSpec.of_paper("GPRGNN", {"init_seed": 5, "K": 10, "dropout": 0.2}),
        training=replace(RUN.training, name="a title", count="incident", config=as_settings({"lr": 0.01})),
    )
    assert spelled_out.identity == RUN.identity
    integer = RobustAccuracy(AttackSpec("LRBCD", as_settings({"lr": 3})), (1,))
    real = RobustAccuracy(AttackSpec("LRBCD", as_settings({"lr": 3.0})), (1.0,))
    assert key_of(integer.entries) == key_of(real.entries)


def test_paths_of_files_are_not_part_of_identities() -> None:
    one, other = (DatasetSpec(f"{folder}/graph.npz", fingerprint="abc") for folder in ("a", "b"))
    assert one.identity == other.identity == {"name": "graph", "graph": "abc"}


@dataclass(frozen=True)
class ExtendedConfig(TrainConfig):
    new_option: int = 7


def test_new_training_option_keeps_identities(monkeypatch: pytest.MonkeyPatch) -> None:
    paper = PRESETS["paper"]
    preset = replace(paper, config=ExtendedConfig(max_epochs=60))
    extended = training_identity(ResolvedTraining(preset, preset.config))
    known = replace(paper, config=TrainConfig(max_epochs=60))
    assert extended == training_identity(ResolvedTraining(known, known.config)) == {"config": {"max_epochs": 60}}
    changed = replace(preset, config=ExtendedConfig(new_option=8))
    assert training_identity(ResolvedTraining(changed, changed.config)) == {"config": {"new_option": 8}}


def test_new_attack_option_keeps_identities() -> None:
    @dataclass(frozen=True, kw_only=True)
    class LRBCD(attacks.LRBCD):
        new_option: str = "off"

    assert attack_identity(LRBCD(steps=20)) == attack_identity(attacks.LRBCD(steps=20))
    assert attack_identity(LRBCD(new_option="on")) == {"name": "LRBCD", "settings": {"new_option": "on"}}


def test_new_model_option_keeps_identities() -> None:
    class GCN(models.GCN):
        def __init__(self, in_channels: int, out_channels: int, *, new_option: bool = False, **settings: Any) -> None:
            super().__init__(in_channels, out_channels, **settings)
            self.new_option = new_option

        @property
        def settings(self) -> dict[str, Any]:
            return {**models.GCN(1, 2, dropout=self.dropout).settings, "new_option": self.new_option}

    assert model_identity(GCN(1, 2, dropout=0.1), GCN(1, 2)) == {"name": "GCN", "settings": {"dropout": 0.1}}
    assert model_identity(GCN(1, 2, new_option=True), GCN(1, 2)) == {"name": "GCN", "settings": {"new_option": True}}


def test_changed_default_makes_identities_explicit() -> None:
    # Omitted settings have the frozen default, even if the default in the code differs.
    assert non_default("TrainConfig", {"patience": 100}, {"patience": 100}) == {"patience": 100}
    assert non_default("TrainConfig", {"patience": 200}, {"patience": 100}) == {}
