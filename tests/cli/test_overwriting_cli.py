"""No command writes to a file that it reads."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import edgeproof as ep

Run = Callable[..., tuple[int, str, str]]

TESTS = {
    "attack": ("--attack", "RandomFlips"),
    "evaluate": ("--attack", "RandomFlips"),
    "certify": ("--samples", "10"),
}


@pytest.fixture
def model(run: Run) -> Path:
    """Return a model trained on a graph file; its folder also has links to both."""
    ep.datasets.write_npz(ep.datasets.load("csbm"), "graph.npz")
    training = ("--model", "MLP", "--max-epochs", "2", "--split", "transductive", "--quiet")
    code, _, err = run("train", "--dataset", "graph.npz", *training)
    assert code == 0, err
    Path("link").symlink_to("model.safetensors")
    Path("module.py").write_text("")
    Path("folder").symlink_to(".")
    return Path("model.safetensors")


def contents() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path().iterdir() if path.is_file()}


@pytest.mark.parametrize("command", TESTS)
def test_attack_evaluate_and_certify_reject_outputs_that_are_inputs(run: Run, model: Path, command: str) -> None:
    before = contents()
    for out in ("model.safetensors", "link", "folder/model.safetensors", "model.safetensors.json", "graph.npz"):
        code, _, err = run(command, "--model", str(model), *TESTS[command], "--out", out, "-q")
        assert code == 1
        assert f"expected an output file other than {out}, which this command reads" in err
        assert contents() == before
    code, _, err = run(command, "--model", "module:build", "--dataset", "graph.npz", "--out", "module.py", "-q")
    assert code == 1
    assert "expected an output file other than module.py, which this command reads" in err
    assert contents() == before


@pytest.mark.parametrize("command", ["attack", "evaluate"])
def test_derived_names_of_outputs_are_checked(run: Run, model: Path, command: str) -> None:
    """Outcomes are written to the name of the result file with ``.nodes`` added."""
    shutil.copy(model, "a.json.nodes")
    shutil.copy("graph.npz", "graph-0.2.npz")
    before = contents()
    arguments = (*TESTS[command], "--dataset", "graph.npz", "--split", "transductive", "-q")
    code, _, err = run(command, "--model", "a.json.nodes", *arguments, "--out", "a.json")
    assert code == 1
    assert "expected an output file other than a.json.nodes" in err
    code, _, err = run(command, "--model", str(model), *arguments, "--graph", "graph.npz")
    assert code == 1
    assert "expected an output file other than graph.npz" in err
    assert contents() == before


def test_train_and_pages_reject_outputs_that_are_inputs(run: Run, model: Path, tmp_path: Path) -> None:
    Path("store").mkdir()
    Path("store/csbm-attack.jsonl").touch()
    before = contents()
    code, _, err = run("train", "--dataset", "graph.npz", "--model", "MLP", "--out", "graph.npz")
    assert code == 1
    assert "expected an output file other than graph.npz" in err
    for command in ("show", "figures"):
        page = ("--page", "store/csbm-attack.jsonl")
        code, _, err = run("reproduce", command, "--store", "store", *page)
        assert code == 1
        assert "expected an output file other than store/csbm-attack.jsonl" in err
    assert contents() == before
