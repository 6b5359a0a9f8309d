from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

import edgeproof as ep
from edgeproof.certificates import Certificate
from edgeproof.evaluation.result import Result, Score
from edgeproof.experiments.store import SCHEMA, Record, Store, digest_of
from edgeproof.report import Outcomes, Row, read, render
from edgeproof.report.groups import group
from edgeproof.report.words import warnings

EXPERIMENTS = Path(__file__).parents[2] / "results" / "experiments"
SPLIT = {"setting": "inductive", "rule": "released", "seed": 0, "test": 40, "test_nodes_seen": 0, "fingerprint": "f"}


def result(*scores: Score, model: str = "GCN", hashed: str = "a", **changes: Any) -> Result:
    values: dict[str, Any] = {
        "command": f"edgeproof evaluate --model {model}",
        "dataset": "csbm",
        "split": SPLIT,
        "model": {"name": model, "settings": {}, "parameters": 3, "fingerprint": hashed},
        "training": {"seed": 0, "seconds": 1.0},
        "seed": 0,
        "scores": scores,
    }
    return Result(**{**values, **changes})


CLEAN = Score("test", "clean", 0.0, 0.8)
THREAT = {"local": 0.5, "count": "incident", "budgets": {"0.1": 7}, "attacks": {}}


def attacked(name: str, accuracy: float, **changes: Any) -> Result:
    return result(CLEAN, Score("test", name, 0.1, accuracy), threat=THREAT, **changes)


def test_files_about_one_model_become_one_run(tmp_path: Path) -> None:
    result(CLEAN).write(tmp_path / "model.safetensors.json")
    attacked("LRBCD", 0.5, warnings=("odd",)).write(tmp_path / "a.json")
    attacked("PRBCD", 0.4).write(tmp_path / "b.json")
    attacked("LRBCD", 0.6).write(tmp_path / "c.json")
    (run,) = read([tmp_path])
    assert run.clean == 0.8
    (found,) = run.attacked
    # The better of two runs of an attack counts; what an old file does not say is none.
    assert set(found.rows) == {Row("LRBCD", 0.1, 0.5, 7), Row("PRBCD", 0.1, 0.4, 7)}
    assert found.warnings == ("odd",)


def test_other_budgets_models_and_graphs_stay_apart(tmp_path: Path) -> None:
    attacked("LRBCD", 0.5).write(tmp_path / "a.json")
    result(CLEAN, Score("test", "LRBCD", 0.1, 0.4), threat={**THREAT, "local": None}).write(tmp_path / "b.json")
    attacked("LRBCD", 0.5, hashed="b").write(tmp_path / "c.json")
    attacked("LRBCD", 0.5, dataset="cora").write(tmp_path / "d.json")
    runs = read([tmp_path])
    assert [len(run.attacked) for run in runs] == [2, 1, 1]


def test_names(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    attacked("LRBCD", 0.5, training={"attack": "LRBCD(steps=20)", "epsilon": 0.2}).write(tmp_path / "one" / "a.json")
    assert [run.name for run in read([tmp_path / "one"])] == ["GCN against LRBCD 0.2"]
    assert [run.name for run in read([f"robust={tmp_path / 'one'}"])] == ["robust"]
    odd = tmp_path / "a=b"
    (tmp_path / "one").rename(odd)
    assert [run.name for run in read([odd])] == ["GCN against LRBCD 0.2"]


def test_files_of_the_first_schema_and_without_hashes_are_read(tmp_path: Path) -> None:
    values = json.loads(json.dumps(asdict(result(CLEAN, model="GAT"))))
    del values["threat"], values["warnings"], values["model"]["fingerprint"]
    (tmp_path / "old.json").write_text(json.dumps({**values, "schema": 1}))
    (run,) = read([tmp_path / "old.json"])
    assert (run.name, run.clean, run.attacked) == ("GAT", 0.8, ())


def certificate(p_add: float = 0.01) -> Certificate:
    grid = torch.tensor([[[True, True]], [[True, False]]])
    numbers = torch.zeros(2, dtype=torch.double)
    return Certificate(
        torch.tensor([0, 1]), grid, numbers, numbers + 1, torch.tensor([0, 1]), 0.05, 100, p_add=p_add, p_del=0.6
    )


def certified(file: Path) -> None:
    result(Score("test", "certified, 0 added, 0 deleted", 0.0, 1.0), threat={"p_add": 0.01}).write(file)


def test_a_certificate_is_read_with_its_result(tmp_path: Path) -> None:
    certificate().save(tmp_path / "c")
    certified(tmp_path / "c.json")
    attacked("LRBCD", 0.5).write(tmp_path / "a.json")
    (run,) = read([tmp_path / "c", tmp_path / "a.json"])
    assert run.certified is not None
    assert run.certified.shares == {(0, 0): 1.0, (0, 1): 0.5, (0, 2): 0.0, (1, 0): 0.0, (1, 1): 0.0, (1, 2): 0.0}
    assert run.attacked
    certificate(p_add=0.02).save(tmp_path / "d")
    certified(tmp_path / "d.json")
    with pytest.raises(ValueError, match="expected one certificate of GCN, got two that differ"):
        read([tmp_path / "c", tmp_path / "d"])


def test_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one file or folder"):
        read([])
    with pytest.raises(FileNotFoundError, match=r"no file or folder .*nothing"):
        read([tmp_path / "nothing"])
    with pytest.raises(ValueError, match="no results in the folder"):
        read([tmp_path])
    ep.save(ep.models.GCN(2, 2), tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"has no result file model\.safetensors\.json beside it"):
        read([tmp_path / "model.safetensors"])
    certified(tmp_path / "gone.json")
    with pytest.raises(ValueError, match=r"is about the certificate .*gone, which is not there"):
        read([tmp_path / "gone.json"])
    (tmp_path / "gone").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="gone is damaged"):
        read([tmp_path / "gone.json"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("[" * 200_000, "cannot be read as JSON"),
        ("[1, 2]", "is not a result file"),
        ('{"name": "package"}', "is not a result file: missing"),
        ('{"identity": {}}', "another version"),
        ('{"identity": {}, "schema": 1}', "it is stored in another version"),
        (f'{{"identity": {{}}, "schema": {SCHEMA}}}', "its content has changed"),
        (
            json.dumps({"schema": SCHEMA, "digest": digest_of({"identity": {}}), "identity": {}}),
            "is no file of edgeproof",
        ),
    ],
)
def test_other_json_is_refused(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        read([file])
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (("scores", 1, "epsilon"), None, "expected epsilon to be a finite number >= 0, got None"),
        (("scores", 1, "epsilon"), float("inf"), "expected epsilon to be a finite number >= 0, got inf"),
        (("command",), None, "expected command as a str, got None"),
        (("dataset",), 3, "expected dataset as a str, got 3"),
        (("environment",), [1], "expected environment as a dict"),
        (("warnings",), "boo", "expected warnings as a list, got 'boo'"),
        (("warnings",), [1], "expected warnings as strings"),
        (("split", "test"), "99", "number of test nodes = '99'"),
        (("split", "test"), -5, "number of test nodes = -5"),
        (("split", "test_nodes_seen"), [], r"number of test nodes seen = \[\]"),
        (("model", "settings"), [1, 2], r"settings of the model = \[1, 2\]"),
        (("model", "parameters"), "many", "parameters of the model = 'many'"),
        (("threat", "budgets"), {"0.1": "<x>"}, "budget = '<x>'"),
        (("threat", "local"), {"a": 1}, "local budget = {'a': 1}"),
        (("threat", "count"), 5, "count = 5"),
    ],
)
def test_damaged_entries_are_told(tmp_path: Path, where: tuple[Any, ...], value: object, message: str) -> None:
    content = json.loads(json.dumps(asdict(attacked("LRBCD", 0.5))))
    inner = content
    for step in where[:-1]:
        inner = inner[step]
    inner[where[-1]] = value
    file = tmp_path / "x.json"
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message) as caught:
        read([file])
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"values": {"accuracy": []}}, "it holds no accuracies"),
        ({"values": {"accuracy": [[0.1, 1.5]]}}, "accuracy = 1.5"),
        ({"values": {}}, "KeyError"),
        ({"command": None}, "command = None"),
        ({"environment": [1]}, r"environment = \[1\]"),
        ({"digest": "0" * 64}, "its content has changed since it was written"),
    ],
)
def test_damaged_records_are_told(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    put(Store(tmp_path), "LRBCD", {"accuracy": [[0.1, 0.5]]}, training(), **THREATENED)
    (file,) = tmp_path.glob("*.json")
    content = {key: value for key, value in json.loads(file.read_text()).items() if key not in ("schema", "digest")}
    # Its digest would tell of every change first.
    changed = {**content, **changes}
    file.write_text(json.dumps({"schema": SCHEMA, "digest": digest_of(changed), **changed}))
    with pytest.raises(ValueError, match=message) as caught:
        read([file])
    assert str(file) in str(caught.value)


def test_outcomes_of_another_model_are_refused(tmp_path: Path) -> None:
    # Of four nodes two are right, and one has two classes that lead, which may count either way.
    margins = torch.tensor([[1.0, 1.0, 0.0, -1.0]])
    some = torch.ones(4)
    kept = Outcomes(torch.arange(4), some.int(), None, some, (("LRBCD", 0.1),), margins, margins.int())
    kept.save(tmp_path / "a.json.nodes")
    for accuracy, belongs in ((0.25, False), (0.5, True), (0.75, True), (1.0, False)):
        attacked("LRBCD", accuracy).write(tmp_path / "a.json")
        with nullcontext() if belongs else pytest.raises(ValueError, match=r"a\.json\.nodes belongs to another result"):
            (run,) = read([tmp_path / "a.json"])
            assert len(run.attacked[0].outcomes) == 1
    attacked("PRBCD", 0.5).write(tmp_path / "a.json")
    with pytest.raises(ValueError, match=r"a\.json\.nodes belongs to another result"):
        read([tmp_path / "a.json"])


def test_damaged_outcomes_are_refused(tmp_path: Path) -> None:
    attacked("LRBCD", 0.5).write(tmp_path / "a.json")
    (tmp_path / "a.json.nodes").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"a\.json\.nodes is damaged"):
        read([tmp_path])


def training(seed: int = 0, **changes: Any) -> dict[str, Any]:
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


def put(store: Store, kind: str, values: dict[str, Any], about: dict[str, Any], /, **more: Any) -> None:
    identity = about if kind == "training" else {"kind": kind, "training": about, **more}
    store.put(Record(identity, values, "edgeproof reproduce", {}, 1.0, {"test_nodes": 40, "test_nodes_seen": 12}))


THREATENED = {"local": 0.5, "count": "incident"}
FILTER = {"gamma": [0.5, 0.5], "self_loops": True, "density": [0.5, 0.5], "mean_frequency": 0.3}


def test_what_was_reproduced_is_read_with_its_seeds(tmp_path: Path) -> None:
    store = Store(tmp_path)
    smoothing = {"smoothing": "SparseSmoothing(p_add=0.01, p_del=0.6)", "samples": 100, "alpha": 0.05}
    for seed, accuracy in ((0, 0.5), (1, 0.7)):
        about = training(seed)
        put(store, "training", {}, about)
        put(store, "clean", {"accuracy": [[0.0, 0.8]]}, about)
        put(store, "LRBCD", {"accuracy": [[0.1, accuracy]]}, about, **THREATENED)
        put(store, "LRBCD-global", {"accuracy": [[0.1, 0.4]]}, about, local=None, count="incident")
        put(
            store, "smoothing", {"certified_accuracy": [[0, 0, 0.4], [0, 1, 0.3]], "abstained": 0.1}, about, **smoothing
        )
        put(store, "filter", FILTER, about, bins=2)
        # Two that are for figures of the paper, and no attacks.
        put(store, "diffusion", {"matrix": [[1.0]]}, about)
        put(store, "degrees", {"nodes": []}, about, **THREATENED)
    (found,) = group(read([tmp_path]))
    estimate = found.accuracy(("0.5", "incident"), "LRBCD", 0.1)
    assert estimate is not None
    assert estimate[:3] == pytest.approx((0.6, 0.5, 0.7))
    free = found.accuracy(("None", "incident"), "LRBCD", 0.1)
    assert free is not None
    assert free.mean == pytest.approx(0.4)
    assert {row.attack for run in found.runs for one in run.attacked for row in one.rows} == {"LRBCD"}
    assert found.certified is not None
    assert found.certified.settings["p_del"] == 0.6
    assert found.certified.shares[0, 1] == pytest.approx(0.3)
    assert found.filter is not None
    assert (found.filter.gamma, found.filter.own_share) == ((0.5, 0.5), None)
    # Nodes that training has seen are told, and how many there were gives a single run its error bars.
    assert any("12 of 40 test nodes" in warning for warning in warnings(found))
    (single,) = group([found.runs[0]])
    estimate = single.accuracy(("0.5", "incident"), "LRBCD", 0.1)
    assert estimate is not None
    assert estimate.low < 0.5 < estimate.high


def test_unknown_and_idle_records(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put(store, "diffusion", {"matrix": [[1.0]]}, training())
    with pytest.raises(ValueError, match="nothing to report in"):
        read([tmp_path])
    put(store, "divination", {"accuracy": [[0.1, 0.4]]}, training(), **THREATENED)
    with pytest.raises(ValueError, match=r"\.json: it holds a measurement of an unknown kind, 'divination'"):
        read([tmp_path])


def test_what_was_reproduced_is_in_an_order_that_means_something(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for dataset in ("b", "a"):
        for model in ("GCN", "APPNP"):
            for attack, epsilon in (("LRBCD(steps=1)", 0.1), (None, None)):
                about = training(dataset=dataset, model=model, attack=attack, epsilon=epsilon)
                put(store, "clean", {"accuracy": [[0.0, 0.8]]}, about)
    names = ["APPNP", "APPNP against LRBCD 0.1", "GCN", "GCN against LRBCD 0.1"]
    assert [(run.dataset, run.name) for run in read([tmp_path])] == [(one, name) for one in "ab" for name in names]


@pytest.mark.skipif(not EXPERIMENTS.is_dir(), reason="only in the repository")
def test_the_repositorys_own_results_are_a_page() -> None:
    runs = read([EXPERIMENTS])
    known = set(ep.attacks.available())
    assert {row.attack for run in runs for one in run.attacked for row in one.rows} <= known
    assert any(run.filter is not None for run in runs)
    page = render(runs)
    assert "No self-checks were run on these figures" in page
    assert "no reason to distrust" not in page
    assert "test nodes were in graphs that training or validation saw" in page


def test_only_an_evaluation_checks_itself(tmp_path: Path) -> None:
    attacked("LRBCD", 0.5).write(tmp_path / "a.json")
    worst = Score("test", "worst", 0.1, 0.4)
    result(CLEAN, Score("test", "PRBCD", 0.1, 0.4), worst, threat=THREAT).write(tmp_path / "b.json")
    for names, checked in ((["a"], False), (["b"], True), (["a", "b"], False)):
        (run,) = read([tmp_path / f"{name}.json" for name in names])
        assert run.attacked[0].checked is checked
        page = render([run])
        assert ("no reason to distrust" in page) is checked
        assert ("No self-checks were run" in page) is not checked


def test_a_model_has_one_name(tmp_path: Path) -> None:
    attacked("LRBCD", 0.5).write(tmp_path / "a.json")
    assert [run.name for run in read([tmp_path, f"robust={tmp_path}"])] == ["robust"]
    with pytest.raises(ValueError, match=r"expected one name of the model of .*a\.json, got 'a' and 'b'"):
        read([f"a={tmp_path}", f"b={tmp_path}"])
