from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

import edgeproof as ep
from edgeproof.certificates import Certificate
from edgeproof.experiments.store import Record, Store
from edgeproof.report import Row, read
from edgeproof.report.groups import group
from edgeproof.result import Result, Score

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
        ("[1, 2]", "is no result"),
        ('{"name": "package"}', "is no result: missing"),
        ('{"identity": {}}', "another version"),
        ('{"identity": {}, "schema": 1}', "is no file of edgeproof train"),
    ],
)
def test_other_json_is_refused(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        read([file])
    assert str(file) in str(caught.value)


def test_damaged_outcomes_are_refused(tmp_path: Path) -> None:
    attacked("LRBCD", 0.5).write(tmp_path / "a.json")
    (tmp_path / "a.json.nodes").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"a\.json\.nodes is damaged"):
        read([tmp_path])


def test_what_was_reproduced_is_read_with_its_seeds(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for seed, accuracy in ((0, 0.5), (1, 0.7)):
        training = {
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
        smoothing = {"smoothing": "SparseSmoothing(p_add=0.01, p_del=0.6)", "samples": 100, "alpha": 0.05}
        for identity, values in (
            (training, {}),
            ({"kind": "clean", "training": training}, {"accuracy": [[0.0, 0.8]]}),
            (
                {"kind": "LRBCD", "training": training, "local": 0.5, "count": "incident"},
                {"accuracy": [[0.1, accuracy]]},
            ),
            (
                {"kind": "smoothing", "training": training, **smoothing},
                {"certified_accuracy": [[0, 0, 0.4], [0, 1, 0.3]], "abstained": 0.1},
            ),
        ):
            store.put(Record(identity, values, "edgeproof reproduce", {}, 1.0, {}))
    (found,) = group(read([tmp_path]))
    estimate = found.accuracy(("0.5", "incident"), "LRBCD", 0.1)
    assert estimate == pytest.approx((0.6, 0.5, 0.7))
    assert found.certified is not None
    assert found.certified.settings["p_del"] == 0.6
    assert found.certified.shares[0, 1] == pytest.approx(0.3)
