from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import edgeproof as ep
from edgeproof.evaluation.result import Result, Score
from edgeproof.experiments.identity import VERSION
from edgeproof.experiments.measurements import radii
from edgeproof.experiments.report_runs import read_runs
from edgeproof.experiments.store import SCHEMA, Record, Store
from edgeproof.report import ThreatModel, render
from edgeproof.report.groups import group
from edgeproof.report.text import warnings
from edgeproof.serialization import json_digest

EXPERIMENTS = Path(__file__).parents[2] / "results" / "experiments"
FILTER = {"gamma": [0.5, 0.5], "self_loops": True, "density": [0.5, 0.5], "mean_frequency": 0.3}


def run_entries(seed: int = 0, **changes: Any) -> dict[str, Any]:
    """Entries of an identity that describe a run."""
    return {"dataset": {"name": "citeseer"}, "model": {"name": "GCN"}, "seed": seed, **changes}


def put(store: Store, kind: str, values: dict[str, Any], run: dict[str, Any], /, **more: Any) -> None:
    identity = {"version": VERSION, "kind": kind, "run": run, **more}
    store.put(Record(identity, values, "edgeproof sweep", {}, 1.0, {"test_nodes": 40, "test_nodes_seen": 12}))


def put_attack(store: Store, accuracies: list[list[float]], run: dict[str, Any], **threat: Any) -> None:
    epsilons = [epsilon for epsilon, _ in accuracies]
    put(store, "attack", {"accuracy": accuracies}, run, attack={"name": "LRBCD"}, epsilons=epsilons, **threat)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not valid JSON"),
        ("[" * 200_000, "is not valid JSON"),
        ('{"identity": {}}', "expected schema 3, got None"),
        ('{"identity": {}, "schema": 1}', "expected schema 3, got 1"),
        (f'{{"identity": {{}}, "schema": {SCHEMA}}}', "its content has changed"),
        (
            json.dumps({"schema": SCHEMA, "digest": json_digest({"identity": {}}), "identity": {}}),
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
        ({"values": {"accuracy": []}}, r"expected accuracies at \[\(0.1,\)\], got \[\]"),
        ({"values": {"accuracy": [[0.1, 1.5]]}}, "expected accuracies from 0 to 1"),
        ({"values": {}}, "KeyError"),
        ({"command": None}, "command is None"),
        ({"environment": [1]}, r"environment is \[1\]"),
        ({"digest": "0" * 64}, "its content has changed since it was written"),
    ],
)
def test_damaged_records_raise(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    put_attack(Store(tmp_path), [[0.1, 0.5]], run_entries(), local=0.5)
    (file,) = tmp_path.glob("*.json")
    content = {key: value for key, value in json.loads(file.read_text()).items() if key not in ("schema", "digest")}
    # With a new digest: otherwise every change fails the digest check.
    changed = {**content, **changes}
    file.write_text(json.dumps({"schema": SCHEMA, "digest": json_digest(changed), **changed}))
    with pytest.raises(ValueError, match=message) as caught:
        read_runs([file])
    assert str(file) in str(caught.value)


def test_records_of_several_seeds_are_grouped(tmp_path: Path) -> None:
    store = Store(tmp_path)
    grid = [[*radius, 0.4 if radius == (0, 0) else 0.3] for radius in radii()]
    certified = {"certified_accuracy": grid, "average_certifiable_radius": [0.1, 0.2], "abstained": 0.1}
    for seed, accuracy in ((0, 0.5), (1, 0.7)):
        run = run_entries(seed)
        put(store, "training", {"best_epoch": 3, "epochs": 5, "stopped": "patience"}, run)
        put(store, "clean", {"accuracy": [[0.0, 0.8]]}, run)
        put_attack(store, [[0.1, accuracy]], run, local=0.5)
        put_attack(store, [[0.1, 0.4]], run)
        put(store, "smoothing", certified, run, samples=100)
        put(store, "filter", FILTER, run, bins=2)
        # Validation accuracy and measurements for figures of the paper, which the report skips.
        put(store, "clean", {"accuracy": [[0.0, 0.1]]}, run, nodes="val")
        put(store, "diffusion", {"matrix": [[1.0]], "classes": [0], "edges": []}, run)
    store.pack()
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


def test_store_without_reported_kinds_raises(tmp_path: Path) -> None:
    put(Store(tmp_path), "diffusion", {"matrix": [[1.0]], "classes": [0], "edges": []}, run_entries())
    with pytest.raises(ValueError, match="nothing to report in"):
        read_runs([tmp_path])


@pytest.mark.parametrize("packed", [False, True])
def test_stored_runs_are_sorted_by_dataset_and_model(tmp_path: Path, packed: bool) -> None:
    store = Store(tmp_path)
    attack = {"name": "LRBCD", "settings": {"steps": 1}}
    for dataset in ("b", "a"):
        for model in ("GCN", "APPNP"):
            for training in ({"attack": attack, "epsilon": 0.1}, {}):
                run = run_entries(dataset={"name": dataset}, model={"name": model}, training=training)
                put(store, "clean", {"accuracy": [[0.0, 0.8]]}, run)
    if packed:
        store.pack()
    names = ["APPNP", "APPNP, adversarial (LRBCD 0.1)", "GCN", "GCN, adversarial (LRBCD 0.1)"]
    runs = [(run.dataset, run.name) for run in read_runs([tmp_path])]
    assert runs == [(dataset, name) for dataset in "ab" for name in names]


def test_results_of_commands_and_records_are_read_together(tmp_path: Path) -> None:
    put(Store(tmp_path / "store"), "clean", {"accuracy": [[0.0, 0.8]]}, run_entries())
    result = Result("command", "csbm", {}, {"name": "GPRGNN"}, {}, 0, (Score("test", "clean", 0.0, 0.6),))
    result.write(tmp_path / "result.json")
    runs = read_runs([f"stored={tmp_path / 'store'}", tmp_path / "result.json"])
    assert [(run.name, run.clean) for run in runs] == [("GPRGNN", 0.6), ("stored", 0.8)]


@pytest.mark.skipif(not EXPERIMENTS.is_dir(), reason="needs the repository's results/experiments")
def test_repository_results_render() -> None:
    runs = read_runs([EXPERIMENTS])
    available = set(ep.attacks.available())
    names = {row.attack for run in runs for table in run.attacks for row in table.rows}
    assert {name.partition("(")[0] for name in names} <= available
    assert any(run.filter is not None for run in runs)
    page = render(runs)
    assert "Self-checks were not run on all results of" in page
    assert "found no problems" not in page
    assert "test nodes are in graphs seen in training or validation" in page
