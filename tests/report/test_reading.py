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
from edgeproof.report import AttackRow, Outcomes, read, render

SPLIT = {"setting": "inductive", "rule": "released", "seed": 0, "test": 40, "test_nodes_seen": 0, "fingerprint": "f"}
CLEAN = Score("test", "clean", 0.0, 0.8)
THREAT = {"local": 0.5, "count": "incident", "budgets": {"0.1": 7}, "attacks": {}}


def make_result(*scores: Score, model: str = "GCN", fingerprint: str = "a", **changes: Any) -> Result:
    values: dict[str, Any] = {
        "command": f"edgeproof evaluate --model {model}",
        "dataset": "csbm",
        "split": SPLIT,
        "model": {"name": model, "settings": {}, "parameters": 3, "fingerprint": fingerprint},
        "training": {"seed": 0, "seconds": 1.0},
        "seed": 0,
        "scores": scores,
    }
    return Result(**{**values, **changes})


def attack_result(name: str, accuracy: float, **changes: Any) -> Result:
    return make_result(CLEAN, Score("test", name, 0.1, accuracy), threat=THREAT, **changes)


def test_read_merges_results_of_one_model(tmp_path: Path) -> None:
    make_result(CLEAN).write(tmp_path / "model.safetensors.json")
    attack_result("LRBCD", 0.5, warnings=("unstable",)).write(tmp_path / "a.json")
    attack_result("PRBCD", 0.4).write(tmp_path / "b.json")
    attack_result("LRBCD", 0.6).write(tmp_path / "c.json")
    (run,) = read([tmp_path])
    assert run.clean == 0.8
    (table,) = run.attacks
    # The lower accuracy of a repeated attack is kept. Entries missing in old files are None.
    assert set(table.rows) == {AttackRow("LRBCD", 0.1, 0.5, 7), AttackRow("PRBCD", 0.1, 0.4, 7)}
    assert table.warnings == ("unstable",)


def test_read_separates_budgets_models_and_graphs(tmp_path: Path) -> None:
    attack_result("LRBCD", 0.5).write(tmp_path / "a.json")
    without_local = {**THREAT, "local": None}
    make_result(CLEAN, Score("test", "LRBCD", 0.1, 0.4), threat=without_local).write(tmp_path / "b.json")
    attack_result("LRBCD", 0.5, fingerprint="b").write(tmp_path / "c.json")
    attack_result("LRBCD", 0.5, dataset="cora").write(tmp_path / "d.json")
    runs = read([tmp_path])
    assert [len(run.attacks) for run in runs] == [2, 1, 1]


def test_default_and_given_names(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    attack_result("LRBCD", 0.5, training={"attack": "LRBCD(steps=20)", "epsilon": 0.2}).write(folder / "a.json")
    assert [run.name for run in read([folder])] == ["GCN, adversarial (LRBCD 0.2)"]
    assert [run.name for run in read([f"robust={folder}"])] == ["robust"]
    with_equals_sign = tmp_path / "a=b"
    folder.rename(with_equals_sign)
    assert [run.name for run in read([with_equals_sign])] == ["GCN, adversarial (LRBCD 0.2)"]


def test_read_accepts_first_schema_and_missing_fingerprints(tmp_path: Path) -> None:
    values = json.loads(json.dumps(asdict(make_result(CLEAN, model="GAT"))))
    del values["threat"], values["warnings"], values["model"]["fingerprint"]
    (tmp_path / "old.json").write_text(json.dumps({**values, "schema": 1}))
    (run,) = read([tmp_path / "old.json"])
    assert (run.name, run.clean, run.attacks) == ("GAT", 0.8, ())


def make_certificate(p_add: float = 0.01) -> Certificate:
    grid = torch.tensor([[[True, True]], [[True, False]]])
    numbers = torch.zeros(2, dtype=torch.double)
    return Certificate(
        torch.tensor([0, 1]), grid, numbers, numbers + 1, torch.tensor([0, 1]), 0.05, 100, p_add=p_add, p_del=0.6
    )


def write_certificate_result(file: Path) -> None:
    make_result(Score("test", "certified, 0 added, 0 deleted", 0.0, 1.0), threat={"p_add": 0.01}).write(file)


def test_read_loads_certificate_of_result(tmp_path: Path) -> None:
    make_certificate().save(tmp_path / "c")
    write_certificate_result(tmp_path / "c.json")
    attack_result("LRBCD", 0.5).write(tmp_path / "a.json")
    (run,) = read([tmp_path / "c", tmp_path / "a.json"])
    assert run.certificate is not None
    assert run.certificate.fractions == {(0, 0): 1.0, (0, 1): 0.5, (0, 2): 0.0, (1, 0): 0.0, (1, 1): 0.0, (1, 2): 0.0}
    assert run.attacks
    make_certificate(p_add=0.02).save(tmp_path / "d")
    write_certificate_result(tmp_path / "d.json")
    with pytest.raises(ValueError, match="expected one certificate of GCN, got two different ones"):
        read([tmp_path / "c", tmp_path / "d"])


def test_missing_and_damaged_files_raise(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one file or folder"):
        read([])
    with pytest.raises(FileNotFoundError, match=r"no file or folder .*nothing"):
        read([tmp_path / "nothing"])
    with pytest.raises(ValueError, match="no results in the folder"):
        read([tmp_path])
    ep.save(ep.models.GCN(2, 2), tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"has no result file model\.safetensors\.json beside it"):
        read([tmp_path / "model.safetensors"])
    write_certificate_result(tmp_path / "missing.json")
    with pytest.raises(ValueError, match=r"describes the certificate .*missing, which does not exist"):
        read([tmp_path / "missing.json"])
    (tmp_path / "missing").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="missing is damaged"):
        read([tmp_path / "missing.json"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "JSON"),
        ("[" * 200_000, "JSON"),
        ("[1, 2]", "is not a result file"),
        ('{"name": "package"}', "is not a result file: missing"),
    ],
)
def test_other_json_files_are_rejected(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        read([file])
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("scores", 1, "epsilon"), None, "expected epsilon to be a finite number >= 0, got None"),
        (("scores", 1, "epsilon"), float("inf"), "expected epsilon to be a finite number >= 0, got inf"),
        (("command",), None, "expected command as a str, got None"),
        (("dataset",), 3, "expected dataset as a str, got 3"),
        (("environment",), [1], "expected environment as a dict"),
        (("warnings",), "boo", "expected warnings as a list, got 'boo'"),
        (("warnings",), [1], "expected warnings as strings"),
        (("split", "test"), "99", "invalid number of test nodes: '99'"),
        (("split", "test"), -5, "invalid number of test nodes: -5"),
        (("split", "test_nodes_seen"), [], r"invalid number of test nodes seen: \[\]"),
        (("model", "settings"), [1, 2], r"invalid settings of the model: \[1, 2\]"),
        (("model", "parameters"), "many", "invalid parameters of the model: 'many'"),
        (("threat", "budgets"), {"0.1": "<x>"}, "invalid budget: '<x>'"),
        (("threat", "local"), {"a": 1}, "invalid local budget: {'a': 1}"),
        (("threat", "count"), 5, "invalid count: 5"),
    ],
)
def test_invalid_entries_raise(tmp_path: Path, keys: tuple[Any, ...], value: object, message: str) -> None:
    # Schema 2 has no digest, which would detect every change first.
    content = json.loads(json.dumps({**asdict(attack_result("LRBCD", 0.5)), "schema": 2}))
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    file = tmp_path / "x.json"
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message) as caught:
        read([file])
    assert str(file) in str(caught.value)


def test_outcomes_that_contradict_the_accuracy_raise(tmp_path: Path) -> None:
    # Of four nodes, two are correct and one has margin 0, which may count either way.
    margins = torch.tensor([[1.0, 1.0, 0.0, -1.0]])
    ones = torch.ones(4)
    outcomes = Outcomes(torch.arange(4), ones.int(), None, ones, (("LRBCD", 0.1),), margins, margins.int())
    outcomes.save(tmp_path / "a.json.nodes")
    for accuracy, consistent in ((0.25, False), (0.5, True), (0.75, True), (1.0, False)):
        attack_result("LRBCD", accuracy).write(tmp_path / "a.json")
        with (
            nullcontext()
            if consistent
            else pytest.raises(ValueError, match=r"a\.json\.nodes belongs to another result")
        ):
            (run,) = read([tmp_path / "a.json"])
            assert len(run.attacks[0].outcomes) == 1
    attack_result("PRBCD", 0.5).write(tmp_path / "a.json")
    with pytest.raises(ValueError, match=r"a\.json\.nodes belongs to another result"):
        read([tmp_path / "a.json"])


def test_damaged_outcomes_raise(tmp_path: Path) -> None:
    attack_result("LRBCD", 0.5).write(tmp_path / "a.json")
    (tmp_path / "a.json.nodes").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"a\.json\.nodes is damaged"):
        read([tmp_path])


def test_only_evaluations_count_as_checked(tmp_path: Path) -> None:
    attack_result("LRBCD", 0.5).write(tmp_path / "a.json")
    worst = Score("test", "worst", 0.1, 0.4)
    make_result(CLEAN, Score("test", "PRBCD", 0.1, 0.4), worst, threat=THREAT).write(tmp_path / "b.json")
    for names, checked in ((["a"], False), (["b"], True), (["a", "b"], False)):
        (run,) = read([tmp_path / f"{name}.json" for name in names])
        assert run.attacks[0].checked is checked
        page = render([run])
        assert ("found no problems" in page) is checked
        assert ("Self-checks were not run" in page) is not checked


def test_conflicting_names_of_one_model_raise(tmp_path: Path) -> None:
    attack_result("LRBCD", 0.5).write(tmp_path / "a.json")
    assert [run.name for run in read([tmp_path, f"robust={tmp_path}"])] == ["robust"]
    with pytest.raises(ValueError, match=r"expected one name for the model of .*a\.json, got 'a' and 'b'"):
        read([f"a={tmp_path}", f"b={tmp_path}"])
