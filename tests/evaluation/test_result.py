from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

import edgeproof as ep
from edgeproof.evaluation.result import Result, Score, describe_environment, describe_model, describe_split
from edgeproof.splits import Split


@pytest.fixture
def result(split: Split) -> Result:
    return Result(
        command="edgeproof train",
        dataset="csbm",
        split=describe_split(split),
        model=describe_model(ep.models.GCN(5, 3)),
        training={"lr": 0.01},
        seed=0,
        scores=(Score("test", "clean", 0.0, 0.75),),
        environment=describe_environment(),
    )


def test_a_result_comes_back_as_it_was(result: Result, tmp_path: Path) -> None:
    result.write(tmp_path / "result.json")
    assert Result.read(tmp_path / "result.json") == result


def test_scores_are_found_by_what_they_measure(result: Result) -> None:
    assert result.score() == result.score("test", "clean", 0.0) == 0.75
    with pytest.raises(KeyError, match="no accuracy of val nodes under clean"):
        result.score("val")


def test_descriptions_say_what_was_run(split: Split) -> None:
    assert describe_split(split)["train"] == 40
    assert describe_model(ep.models.MLP(5, 3, hidden_channels=2))["parameters"] == 5 * 2 + 2 + 2 * 3 + 3
    own = describe_model(torch.nn.Linear(2, 1))
    assert (own["name"], own["settings"], own["parameters"]) == ("Linear", {}, 3)
    assert own["fingerprint"] != describe_model(torch.nn.Linear(2, 1))["fingerprint"]
    found = describe_environment()
    assert found["edgeproof"] == ep.__version__
    assert found["threads"] == str(torch.get_num_threads())
    assert found["device"].startswith("cpu (")
    assert found["device"].endswith(f", {torch.backends.cpu.get_cpu_capability()})")
    assert re.fullmatch("[0-9a-f]{12}", found["source"])


def test_damaged_results_are_refused(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("{")
    with pytest.raises(ValueError, match="is no JSON file"):
        Result.read(path)
    path.write_text("[]")
    with pytest.raises(ValueError, match="is no result: missing"):
        Result.read(path)
    result.write(path)
    values = json.loads(path.read_text())
    for change, message in (
        ({"schema": 99}, "schema 99, expected at most 2"),
        ({"scores": [{"nodes": "test"}]}, "is no result"),
        ({"scores": [{"nodes": "test", "attack": "clean", "epsilon": 0, "accuracy": 75.0}]}, "0 <= accuracy <= 1"),
        ({"surprise": 1}, "odd .'surprise'"),
    ):
        path.write_text(json.dumps({**values, **change}))
        with pytest.raises(ValueError, match=message):
            Result.read(path)
