"""Studies: sweeps, and pages that are rendered from stored results."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from types import ModuleType
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import edgeproof as ep
from edgeproof import datasets, models
from edgeproof.experiments import CleanAccuracy, DatasetSpec, Job, ModelSpec, Store, Sweep, TrainingSpec, as_settings
from edgeproof.experiments.execute import build_model
from edgeproof.experiments.identity import key_of
from edgeproof.training import PRESETS, TrainConfig

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def study_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(ROOT / "studies")
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        if (ROOT / "studies" / f"{name}.py").exists():
            del sys.modules[name]


def load(name: str) -> ModuleType:
    return importlib.import_module(name)


@pytest.mark.parametrize(
    "name",
    [
        "ablations",
        "attack_strength",
        "certified_accuracy",
        "clean_accuracy",
        "default_preset",
        "findings",
        "logit_scale",
        "nondeterminism",
        "provable",
        "robust_training",
        "time_and_memory",
        "transductive",
        "worst_case",
    ],
)
def test_page_matches_stored_results(name: str) -> None:
    study = load(name)
    assert study.PAGE.read_text(encoding="utf-8") == study.page(), f"run python studies/{name}.py"
    for file, content in study.other_files().items() if hasattr(study, "other_files") else ():
        assert study.PAGE.with_name(file).read_text(encoding="utf-8") == content, f"run python studies/{name}.py"


@pytest.mark.parametrize(
    "name", ["ablations", "attack_strength", "clean_accuracy", "nondeterminism", "robust_training", "transductive"]
)
def test_store_has_all_results_of_a_study_and_no_others(name: str) -> None:
    study = load(name)
    wanted = {key_of(task.identity) for job in study.jobs() for task in job.tasks}
    assert {record.key for record in study.STORE.records() if record.kind != "training"} == wanted


def test_run_computes_missing_results_and_render_writes_the_page(tmp_path: Path) -> None:
    pages = load("_pages")
    sweep = Sweep(
        datasets=(DatasetSpec("csbm"),),
        models=(ModelSpec("GCN", as_settings({"hidden_channels": 4})), ModelSpec("MLP")),
        measurements=(CleanAccuracy(),),
        trainings=(TrainingSpec(config=as_settings({"max_epochs": 3})),),
    )
    page, store = tmp_path / "page.md", Store(tmp_path / "store")
    app = pages.command_line(page, lambda: str(len(list(store.records()))), sweep.jobs, store)
    command = CliRunner()
    first = command.invoke(app, ["run", "--model", "GCN", "--jobs", "1"], catch_exceptions=False)
    assert "1 of 1 jobs to run" in first.output
    assert "0 of 1 jobs to run" in command.invoke(app, ["run", "--model", "GCN", "--jobs", "1"]).output
    assert command.invoke(app, []).exit_code == 0
    # The training and its measurement.
    assert page.read_text(encoding="utf-8") == "2"
    unknown = command.invoke(app, ["run", "--model", "GCM"])
    assert unknown.exit_code == 2
    assert "did you mean 'GCN'" in unknown.output


def test_last_bits_of_initial_parameters_change() -> None:
    study = load("nondeterminism")
    unchanged = models.build("GCN", 50, 3, seed=0)
    changed = build_model(
        ModelSpec("nondeterminism:change_last_bits", as_settings({"model": "GCN", "draw": 1})), 50, 3, 0
    )
    differences = [
        (ours - theirs).abs() / theirs.abs().clamp(min=1e-30)
        for ours, theirs in zip(changed.parameters(), unchanged.parameters(), strict=True)
    ]
    largest = max(float(difference.max().detach()) for difference in differences)
    assert 0 < largest < 2 * torch.finfo(torch.float32).eps
    run = study.base_run("GPRGNN", 1)
    titles = list(study.variants(run))
    assert titles[:2] == ["unchanged", "initial coefficients rounded differently"]
    assert 0 < study.largest_change(study.variants(run)[titles[1]], run) < 1e-7


def test_stored_results_of_sturdy_have_the_settings_of_the_preset() -> None:
    study, preset = load("robust_training"), PRESETS["sturdy"]
    assert preset.threat is not None
    runs = study.runs("sturdy")
    assert sorted(runs) == list(range(10))
    label_model = models.build(preset.label_model or "", 3703, 6, dict(preset.label_model_settings))
    settings = ", ".join(f"{name}={value!r}" for name, value in label_model.settings.items())
    wanted = {
        **asdict(preset.config),
        "attack": repr(preset.threat.attack),
        "epsilon": preset.threat.epsilon,
        "local": preset.threat.local,
        "label_model": f"{preset.label_model}({settings})",
    }
    # Names of these settings when the results were computed.
    former = {"separate_warmup": "warmup_apart", "clean_weight": "clean_share", "label_model": "labeller"}
    wanted = {former.get(name, name): value for name, value in wanted.items()}
    newer = asdict(TrainConfig())
    for seed, run in runs.items():
        record = study.training_record(run)
        wanted["seed"] = seed
        # Options that are newer than the results have their default.
        assert {name: record.notes.get(name, newer.get(name)) for name in wanted} == wanted
        assert record.run["model"]["settings"] == {"alpha": 0.8, "dropout": 0.8}
    clean, attacked = (
        mean(study.percent(run, study.TEST[title]) for run in runs.values()) for title in ("clean", "LR-BCD")
    )
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    assert f"| `sturdy` | APPNP | {clean:.1f} | {attacked:.1f} |" in page


def test_fitted_formula_recovers_exact_coefficients() -> None:
    study = load("time_and_memory")
    sizes = [(1, 2, 3, 1), (2, 3, 1, 2), (5, 1, 1, 3), (1, 7, 2, 1)]
    rows: list[dict[str, Any]] = [dict(zip(("nodes", "edges", "block", "K"), size, strict=True)) for size in sizes]
    for terms in (study.memory_terms, study.time_terms):
        for row in rows:
            row["ours"] = {"ms": sum(factor * term for factor, term in zip((2.0, 0.5, 3.0), terms(row), strict=True))}
        coefficients, error = study.fit(rows, terms, "ms")
        assert coefficients == pytest.approx([2.0, 0.5, 3.0])
        assert error == pytest.approx(0, abs=1e-12)


def test_benchmark_of_exact_gains_measures_small_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    found = load("exact_gains").measured("GCN", datasets.load("csbm"))
    assert found["evaluator"] == "stack"
    assert found["queries"] > 1000
    assert 0 < found["candidate_seconds"] < found["attack_seconds"]


def test_benchmarks_of_training_and_attack_time_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    runner = CliRunner()
    assert "epoch" in runner.invoke(load("training_epoch").app, ["--help"]).output
    assert "--device" in runner.invoke(load("suite_time").app, ["--help"]).output


def test_benchmark_of_memory_writes_a_graph_that_can_be_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    load("load_memory").write_graph(tmp_path / "graph.npz", num_nodes=50)
    data = ep.datasets.load(tmp_path / "graph.npz")
    assert (data.num_nodes, data.num_features) == (50, 8_415)


def test_benchmark_of_certificates_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    benchmark = load("certificate_time")
    monkeypatch.setattr(benchmark, "RESULTS", tmp_path)
    runner = CliRunner()
    for arguments in (["certify", "--dataset", "csbm"], ["train", "--dataset", "csbm", "--epochs", "2"]):
        result = runner.invoke(benchmark.app, arguments)
        assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "certificate_time-certify-cpu.json").read_text(encoding="utf-8"))["rows"]
    assert [row["attack"] for row in rows] == [False, True] * 2
    rows = json.loads((tmp_path / "certificate_time-train-cpu.json").read_text(encoding="utf-8"))["rows"]
    assert {row["case"] for row in rows} >= {"certified", "LR-BCD, 20 steps"}


def test_study_of_guaranteed_accuracy_stores_every_result_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    study = load("provable")
    monkeypatch.setattr(study, "STORE", Store(tmp_path))
    monkeypatch.setattr(study, "DATASETS", ("csbm",))
    monkeypatch.setattr(study, "BOUNDS", (0.1,))
    short = TrainingSpec(preset="certified", config=(("max_epochs", 3), ("min_epochs", 0), ("label_models", 1)))
    model = ModelSpec("OneHop", (("members", 1),))
    job = Job(study.run_of("csbm", model, 20, short), (study.PROVEN, study.CLASSES))
    worker = study.Worker("cpu", "python studies/provable.py run")
    for record in worker.run(job):
        study.STORE.put(record)
    assert list(worker.run(job)) == []
    found = study.point("csbm", model, 20, short)
    assert found["any edges"] <= found["global 0.25"] <= found["local 0.25"] <= found["clean"]
    assert study.attack_cells() == "0 of 0"


def test_table_of_efforts_matches_stored_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    rows = json.loads((ROOT / "results" / "benchmarks" / "effort-cpu.json").read_text(encoding="utf-8"))["rows"]
    assert load("effort").table(rows) in (ROOT / "docs" / "how-to" / "evaluate.md").read_text(encoding="utf-8")
    accuracies = [[row["accuracy"][epsilon] for row in rows] for epsilon in rows[0]["accuracy"]]
    assert all(each == sorted(each, reverse=True) for each in accuracies)
