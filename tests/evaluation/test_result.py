"""Result files: writing, reading, descriptions, and errors for damaged files."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
import torch

import edgeproof as ep
from edgeproof.evaluation.result import Result, Score, describe_environment, describe_model, describe_split
from edgeproof.serialization import json_digest
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


def test_result_file_round_trip(result: Result, tmp_path: Path) -> None:
    result.write(tmp_path / "result.json")
    assert Result.read(tmp_path / "result.json") == result


def test_score_is_found_by_nodes_attack_and_epsilon(result: Result) -> None:
    assert result.score() == result.score("test", "clean", 0.0) == 0.75
    with pytest.raises(KeyError, match="no accuracy of val nodes under clean"):
        result.score("val")


def test_descriptions_of_split_model_and_environment(split: Split) -> None:
    assert describe_split(split)["train"] == 40
    assert describe_model(ep.models.MLP(5, 3, hidden_channels=2))["parameters"] == 5 * 2 + 2 + 2 * 3 + 3
    linear = describe_model(torch.nn.Linear(2, 1))
    assert (linear["name"], linear["settings"], linear["parameters"]) == ("Linear", {}, 3)
    assert linear["fingerprint"] != describe_model(torch.nn.Linear(2, 1))["fingerprint"]
    environment = describe_environment()
    assert environment["edgeproof"] == ep.__version__
    assert environment["threads"] == str(torch.get_num_threads())
    assert environment["device"].startswith("cpu (")
    assert environment["device"].endswith(f", {torch.backends.cpu.get_cpu_capability()})")
    assert re.fullmatch("[0-9a-f]{12}", environment["source"])


def test_source_hash_covers_the_whole_library() -> None:
    root, digest = Path(ep.__file__).parent, hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(f"{file.relative_to(root)}\n".encode() + file.read_bytes())
    assert describe_environment()["source"] == digest.hexdigest()[:12]


def test_damaged_result_files_are_refused(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("{")
    with pytest.raises(ValueError, match="is not a JSON file"):
        Result.read(path)
    path.write_text("[]")
    with pytest.raises(ValueError, match="is not a result file: missing"):
        Result.read(path)
    result.write(path)
    values = json.loads(path.read_text())
    for change, message in (
        ({"schema": 99}, "schema 99, expected at most 3"),
        ({"scores": [{"nodes": "test"}]}, "is not a result file"),
        ({"scores": [{"nodes": "test", "attack": "clean", "epsilon": 0, "accuracy": 75.0}]}, "0 <= accuracy <= 1"),
        ({"surprise": 1}, "unexpected .'surprise'"),
    ):
        changed = {**values, **change}
        changed["digest"] = json_digest({name: value for name, value in changed.items() if name != "digest"})
        path.write_text(json.dumps(changed))
        with pytest.raises(ValueError, match=message):
            Result.read(path)


def test_result_files_are_compared_with_their_digest(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    result.write(path)
    values = json.loads(path.read_text())
    # White space and the order of entries are not part of the content.
    path.write_text(json.dumps(dict(reversed(values.items()))))
    assert Result.read(path) == result
    path.write_text(json.dumps({**values, "seed": 7}))
    with pytest.raises(ValueError, match="is damaged or was edited: its content does not match its digest"):
        Result.read(path)
    del values["digest"]
    path.write_text(json.dumps(values))
    with pytest.raises(ValueError, match=r"missing \['digest'\]"):
        Result.read(path)
    # Files of schema 2 were written before digests.
    path.write_text(json.dumps({**values, "schema": 2}))
    assert Result.read(path) == result
