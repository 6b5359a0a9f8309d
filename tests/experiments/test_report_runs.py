from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import edgeproof as ep
from edgeproof.evaluation.result import Result, Score
from edgeproof.experiments.report_runs import read_runs
from edgeproof.experiments.store import SCHEMA, Record, Store, digest_of
from edgeproof.report import ThreatModel, render
from edgeproof.report.groups import group
from edgeproof.report.text import warnings

EXPERIMENTS = Path(__file__).parents[2] / "results" / "experiments"
THREAT = {"local": 0.5, "count": "incident"}
FILTER = {"gamma": [0.5, 0.5], "self_loops": True, "density": [0.5, 0.5], "mean_frequency": 0.3}


def training_identity(seed: int = 0, **changes: Any) -> dict[str, Any]:
    values = {
        "kind": "training",
        "dataset": "citeseer",
        "setting": "inductive",
        "protocol": "strict",
        "model": "GCN",
        "model_settings": {},
        "config": {"lr": 0.01, "seed": seed},
        "label_config": None,
        "attack": None,
        "epsilon": None,
        "local": None,
        "count": "incident",
        "seed": seed,
    }
    return {**values, **changes}


def put(store: Store, kind: str, values: dict[str, Any], training: dict[str, Any], /, **more: Any) -> None:
    identity = training if kind == "training" else {"kind": kind, "training": training, **more}
    store.put(Record(identity, values, "edgeproof reproduce", {}, 1.0, {"test_nodes": 40, "test_nodes_seen": 12}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not valid JSON"),
        ("[" * 200_000, "is not valid JSON"),
        ('{"identity": {}}', "another version"),
        ('{"identity": {}, "schema": 1}', "it is stored in another version"),
        (f'{{"identity": {{}}, "schema": {SCHEMA}}}', "its content has changed"),
        (
            json.dumps({"schema": SCHEMA, "digest": digest_of({"identity": {}}), "identity": {}}),
            "is not a result file of an edgeproof command",
        ),
    ],
)
def test_other_json_files_are_rejected(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_runs([file])
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"values": {"accuracy": []}}, "expected at least one accuracy"),
        ({"values": {"accuracy": [[0.1, 1.5]]}}, "invalid accuracy: 1.5"),
        ({"values": {}}, "KeyError"),
        ({"command": None}, "invalid command: None"),
        ({"environment": [1]}, r"invalid environment: \[1\]"),
        ({"digest": "0" * 64}, "its content has changed since it was written"),
    ],
)
def test_damaged_records_raise(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    put(Store(tmp_path), "LRBCD", {"accuracy": [[0.1, 0.5]]}, training_identity(), **THREAT)
    (file,) = tmp_path.glob("*.json")
    content = {key: value for key, value in json.loads(file.read_text()).items() if key not in ("schema", "digest")}
    # With a new digest: otherwise every change fails the digest check.
    changed = {**content, **changes}
    file.write_text(json.dumps({"schema": SCHEMA, "digest": digest_of(changed), **changed}))
    with pytest.raises(ValueError, match=message) as caught:
        read_runs([file])
    assert str(file) in str(caught.value)


def test_records_of_several_seeds_are_grouped(tmp_path: Path) -> None:
    store = Store(tmp_path)
    smoothing = {"smoothing": "SparseSmoothing(p_add=0.01, p_del=0.6)", "samples": 100, "alpha": 0.05}
    certified = {"certified_accuracy": [[0, 0, 0.4], [0, 1, 0.3]], "abstained": 0.1}
    for seed, accuracy in ((0, 0.5), (1, 0.7)):
        training = training_identity(seed)
        put(store, "training", {}, training)
        put(store, "clean", {"accuracy": [[0.0, 0.8]]}, training)
        put(store, "LRBCD", {"accuracy": [[0.1, accuracy]]}, training, **THREAT)
        put(store, "LRBCD-global", {"accuracy": [[0.1, 0.4]]}, training, local=None, count="incident")
        put(store, "smoothing", certified, training, **smoothing)
        put(store, "filter", FILTER, training, bins=2)
        # Measurements for figures of the paper, which the report skips.
        put(store, "diffusion", {"matrix": [[1.0]]}, training)
        put(store, "degrees", {"nodes": []}, training, **THREAT)
    (model_group,) = group(read_runs([tmp_path]))
    estimate = model_group.accuracy(ThreatModel("0.5", "incident"), "LRBCD", 0.1)
    assert estimate is not None
    assert estimate[:3] == pytest.approx((0.6, 0.5, 0.7))
    without_local = model_group.accuracy(ThreatModel("None", "incident"), "LRBCD", 0.1)
    assert without_local is not None
    assert without_local.mean == pytest.approx(0.4)
    assert {row.attack for run in model_group.runs for table in run.attacks for row in table.rows} == {"LRBCD"}
    assert model_group.certificate is not None
    assert model_group.certificate.settings["p_del"] == 0.6
    assert model_group.certificate.fractions[0, 1] == pytest.approx(0.3)
    assert model_group.filter is not None
    assert (model_group.filter.gamma, model_group.filter.own_share) == ((0.5, 0.5), None)
    # The number of seen nodes gives a warning, the number of test nodes the interval of a single run.
    assert any("12 of 40 test nodes" in warning for warning in warnings(model_group))
    (single,) = group([model_group.runs[0]])
    estimate = single.accuracy(ThreatModel("0.5", "incident"), "LRBCD", 0.1)
    assert estimate is not None
    assert estimate.low < 0.5 < estimate.high


def test_unknown_kinds_and_skipped_kinds_only_raise(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put(store, "diffusion", {"matrix": [[1.0]]}, training_identity())
    with pytest.raises(ValueError, match="nothing to report in"):
        read_runs([tmp_path])
    put(store, "new-kind", {"accuracy": [[0.1, 0.4]]}, training_identity(), **THREAT)
    with pytest.raises(ValueError, match=r"\.json: unknown kind of measurement 'new-kind'"):
        read_runs([tmp_path])


def test_stored_runs_are_sorted_by_dataset_and_model(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for dataset in ("b", "a"):
        for model in ("GCN", "APPNP"):
            for attack, epsilon in (("LRBCD(steps=1)", 0.1), (None, None)):
                training = training_identity(dataset=dataset, model=model, attack=attack, epsilon=epsilon)
                put(store, "clean", {"accuracy": [[0.0, 0.8]]}, training)
    names = ["APPNP", "APPNP, adversarial (LRBCD 0.1)", "GCN", "GCN, adversarial (LRBCD 0.1)"]
    runs = [(run.dataset, run.name) for run in read_runs([tmp_path])]
    assert runs == [(dataset, name) for dataset in "ab" for name in names]


def test_results_of_commands_and_records_are_read_together(tmp_path: Path) -> None:
    put(Store(tmp_path / "store"), "clean", {"accuracy": [[0.0, 0.8]]}, training_identity())
    result = Result("command", "csbm", {}, {"name": "GPRGNN"}, {}, 0, (Score("test", "clean", 0.0, 0.6),))
    result.write(tmp_path / "result.json")
    runs = read_runs([f"stored={tmp_path / 'store'}", tmp_path / "result.json"])
    assert [(run.name, run.clean) for run in runs] == [("GPRGNN", 0.6), ("stored", 0.8)]


@pytest.mark.skipif(not EXPERIMENTS.is_dir(), reason="needs the repository's results/experiments")
def test_repository_results_render() -> None:
    runs = read_runs([EXPERIMENTS])
    available = set(ep.attacks.available())
    assert {row.attack for run in runs for table in run.attacks for row in table.rows} <= available
    assert any(run.filter is not None for run in runs)
    page = render(runs)
    assert "Self-checks were not run on all results of" in page
    assert "found no problems" not in page
    assert "test nodes are in graphs seen in training or validation" in page
