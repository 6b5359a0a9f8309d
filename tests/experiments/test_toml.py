"""Sweeps in TOML files: parsing and error messages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import edgeproof as ep
from edgeproof.experiments import (
    AttackSpec,
    CertifiedAccuracy,
    CleanAccuracy,
    DatasetSpec,
    Evaluated,
    ModelSpec,
    RobustAccuracy,
    SplitSpec,
    Sweep,
    TrainingSpec,
    as_settings,
    read_sweep,
)
from edgeproof.experiments.toml import parse_sweep

EXAMPLE = Path(__file__).parents[2] / "examples" / "sweep.toml"
MINIMAL: dict[str, Any] = {
    "dataset": [{"name": "csbm"}],
    "model": [{"name": "GCN"}],
    "measurement": [{"kind": "clean"}],
}


# Sweeps declared in files have the preset that holds across graphs.
DEFAULT = TrainingSpec(preset="default")


def parse(**changes: Any) -> Sweep:
    return parse_sweep({**MINIMAL, **changes}, Path())


def test_minimal_sweep_uses_the_defaults() -> None:
    assert parse() == Sweep((DatasetSpec("csbm"),), (ModelSpec("GCN"),), (CleanAccuracy(),), (DEFAULT,))
    (job,) = parse().jobs()
    assert (job.run.training, job.run.split, job.run.seed) == (DEFAULT, SplitSpec(), 0)


def test_example_declares_every_combination() -> None:
    sweep = read_sweep(EXAMPLE)
    assert [training.label for training in sweep.trainings] == ["regular", "LR-BCD"]
    names = [job.name for job in sweep.jobs()]
    assert len(names) == len(set(names)) == 8
    assert names[-1] == "csbm GPRGNN, LRBCD 0.2, strict, seed 1, 10 epochs"
    assert sweep.trainings[1].attack == AttackSpec.of(
        replace(ep.attacks.LRBCD().for_training(), steps=3, block_size=10_000)
    )
    assert sweep.measurements[1] == RobustAccuracy(
        AttackSpec("LRBCD", as_settings({"steps": 20, "block_size": 10_000})), (0.05, 0.1), 0.5
    )


def test_all_kinds_of_entries_are_parsed(tmp_path: Path) -> None:
    ep.datasets.write_npz(ep.datasets.csbm(num_nodes=60, p=0.2), tmp_path / "mine.npz")
    sweep = parse_sweep(
        {
            "seeds": [3, 4],
            "dataset": [{"name": "csbm"}, {"name": "mine.npz", "largest_component": False}],
            "split": [{"kind": "provided", "test_on_val": True}, {"train_per_class": 5, "val_per_class": 5}],
            "model": [{"name": "GPRGNN", "settings": {"K": 4}}, {"name": "my_models:build", "settings": {"width": 8}}],
            "training": [{"preset": "sturdy"}, {"name": "short", "config": {"max_epochs": 5}, "self_training": True}],
            "measurement": [
                {"kind": "evaluate", "epsilons": [0.1], "attacks": ["LRBCD", "DICE"], "local": 0.5},
                {"kind": "smoothing", "samples": 500},
                {"kind": "attack", "attack": "DICE", "epsilons": [0.1, 0.2]},
                {"kind": "filter"},
            ],
        },
        tmp_path,
    )
    assert sweep.datasets[1] == DatasetSpec(str(tmp_path / "mine.npz"), largest_component=False)
    assert sweep.splits == (SplitSpec("provided", test_on_val=True), SplitSpec(train_per_class=5, val_per_class=5))
    assert sweep.models[1] == ModelSpec("my_models:build", (("width", 8),))
    assert sweep.measurements[:2] == (Evaluated((0.1,), ("LRBCD", "DICE"), 0.5), CertifiedAccuracy(samples=500))
    runs = sweep.runs()
    assert len(runs) == 2**5
    assert {run.seed for run in runs} == {3, 4}
    fingerprints = {(run.dataset.label, run.split.kind): run.dataset.fingerprint for run in runs}
    assert all(fingerprints[key] for key in fingerprints if key != ("csbm", "inductive"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"modle": []}, "unknown key 'modle': did you mean 'model'"),
        ({"dataset": [{"nmae": "csbm"}]}, r"\[\[dataset\]\] 1: unknown key 'nmae': did you mean 'name'"),
        ({"dataset": [{"name": "csmb"}]}, r"\[\[dataset\]\] 1: unknown dataset 'csmb': did you mean 'csbm'"),
        ({"dataset": [{"name": "gone.npz"}]}, r"\[\[dataset\]\] 1: expected a graph file, got .*gone.npz"),
        ({"dataset": []}, "expected at least one entry in datasets"),
        ({"dataset": {"name": "csbm"}}, r"expected tables \[\[dataset\]\]"),
        ({"dataset": [{"name": "csbm"}, {"name": "csbm"}]}, "expected distinct datasets"),
        ({"split": [{"kind": "inductiv"}]}, r"\[\[split\]\] 1: unknown split 'inductiv': did you mean 'inductive'"),
        ({"split": [{"train_per_class": 0}]}, "expected train_per_class to be an integer >= 1, got 0"),
        ({"split": [{"test_fraction": 1.5}]}, "expected 0 <= test_fraction < 1, got 1.5"),
        ({"split": [{"kind": "provided", "protocol": "as_released"}]}, "expected protocol as_released with inductive"),
        ({"model": [{"name": "GNC"}]}, "unknown model 'GNC': did you mean 'GCN'"),
        ({"model": [{"name": "GCN", "settings": {"droput": 0.1}}]}, "unknown setting of GCN 'droput': did you mean"),
        ({"model": [{"name": "GCN", "settings": 5}]}, "expected settings as a table"),
        ({"training": [{"preset": "papr"}]}, "unknown preset 'papr': did you mean 'paper'"),
        ({"training": [{"config": {"max_epoch": 5}}]}, "unknown setting 'max_epoch': did you mean 'max_epochs'"),
        ({"training": [{"config": {"seed": 5}}]}, "expected no seed in the settings of a training"),
        ({"training": [{"attack": "LRBDC", "epsilon": 0.1}]}, "unknown attack 'LRBDC': did you mean 'LRBCD'"),
        ({"training": [{"attack": "LRBCD"}]}, r"\[\[training\]\] 1: .*epsilon"),
        ({"training": [{"epsilon": 0.1}]}, r"\[\[training\]\] 1: expected an attack"),
        ({"training": [{"attack_settings": {"steps": 5}}]}, "expected an attack beside attack_settings"),
        ({"training": [{}, {"name": "regular", "config": {"lr": 0.1}}]}, "expected trainings with distinct names"),
        ({"measurement": [{"kind": "atack"}]}, "unknown measurement 'atack': did you mean 'attack'"),
        ({"measurement": [{}]}, "expected the key 'kind', one of clean, attack"),
        ({"measurement": [{"kind": "clean", "epsilons": [0.1]}]}, "unknown key of kind clean 'epsilons'"),
        ({"measurement": [{"kind": "attack", "attack": "LRBCD"}]}, "expected epsilons as a list, got None"),
        ({"measurement": [{"kind": "attack", "attack": "LRBCD", "epsilons": [0.2, 0.1]}]}, "in ascending order"),
        ({"measurement": [{"kind": "attack", "attack": "LRBCD", "epsilons": [0.1], "local": -1}]}, "expected local"),
        ({"measurement": [{"kind": "smoothing", "samples": 0}]}, "expected samples to be an integer >= 1"),
        ({"measurement": [{"kind": "evaluate", "epsilons": [0.1], "attacks": ["LRBC"]}]}, "unknown attack 'LRBC'"),
        ({"seeds": 5}, r"expected seeds as a list, such as \[0, 1\], got 5"),
        ({"seeds": [-1]}, "expected seed to be an integer"),
        ({"seeds": [0, 0]}, "expected distinct seeds, got 0 twice"),
        ({"seeds": []}, "expected at least one entry in seeds"),
    ],
)
def test_invalid_entries_raise(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(**changes)


def test_missing_tables_and_invalid_files_raise(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected at least one \[\[model\]\], got none"):
        parse_sweep({"dataset": [{"name": "csbm"}]}, Path())
    path = tmp_path / "sweep.toml"
    with pytest.raises(FileNotFoundError, match="expected a TOML file that declares a sweep"):
        read_sweep(path)
    path.write_text("seeds = [")
    with pytest.raises(ValueError, match=r"sweep.toml is not valid TOML"):
        read_sweep(path)
    path.write_text("sede = 1")
    with pytest.raises(ValueError, match=r"sweep.toml: unknown key 'sede': did you mean 'seeds'"):
        read_sweep(path)
