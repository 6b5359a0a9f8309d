"""No command writes to a file that it reads, or overwrites results without --force."""

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


@pytest.mark.parametrize("command", ["attack", "evaluate"])
def test_lists_of_allowed_pairs_are_not_overwritten(run: Run, model: Path, command: str) -> None:
    Path("pairs").write_text("0 1\n2 3\n")
    Path("pairs.nodes").symlink_to("pairs")
    before = contents()
    for allowed, out in (("pairs", "pairs"), ("pairs.nodes", "pairs"), ("pairs", "./pairs.nodes")):
        code, _, err = run(command, "--model", str(model), *TESTS[command], "--allowed", allowed, "--out", out, "-q")
        assert code == 1
        assert f"expected an output file other than {Path(out)}, which this command reads" in err
        assert contents() == before


def test_reports_write_to_no_input(run: Run, model: Path) -> None:
    Path("report.html").symlink_to("model.safetensors.json")
    before = contents()
    for out in ("model.safetensors.json", "model.safetensors", "report.html", "folder/model.safetensors"):
        code, _, err = run("report", str(model), "--out", out)
        assert code == 1
        assert f"expected an output file other than {out}, which this command reads" in err
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


def test_results_are_overwritten_with_force_only(run: Run, model: Path) -> None:
    train = ("train", "--dataset", "graph.npz", "--model", "MLP", "--max-epochs", "2", "--split", "transductive", "-q")
    test = ("--model", str(model), "-q")
    commands = {
        "model.safetensors": train,
        "attack.json": ("attack", *test, *TESTS["attack"], "-e", "0.01"),
        "evaluation.json": ("evaluate", *test, *TESTS["evaluate"], "-e", "0.01"),
        "certificate.safetensors": ("certify", *test, "--samples", "200", "--choosing-samples", "20"),
        "report.html": ("report", "model.safetensors"),
    }
    for out, command in commands.items():
        Path(out).touch()
        before = contents()
        code, _, err = run(*command)
        assert code == 1, command
        (line,) = err.splitlines()
        assert line.startswith(f"error: {out}")
        assert "pass --force to overwrite" in line
        assert contents() == before
        code, _, err = run(*command, "--force")
        assert code == 0, err
        assert Path(out).read_bytes() != before[out] or out == "model.safetensors"


def test_pages_pictures_and_the_demo_are_overwritten_with_force_only(run: Run) -> None:
    Path("store").mkdir()
    Path("page.md").write_text("mine")
    Path("report.html").write_text("mine")
    Path("figures").mkdir()
    Path("figures/karate.svg").write_text("mine")
    for command in (
        ("demo",),
        ("reproduce", "show", "--store", "store", "--page", "page.md"),
        ("reproduce", "figures", "--store", "store", "--page", "page.md"),
        ("reproduce", "figures", "karate", "--store", "store"),
        ("reproduce", "run", "karate", "--store", "store"),
    ):
        code, _, err = run(*command)
        assert code == 1, command
        assert "pass --force to overwrite it" in err
    code, _, err = run("reproduce", "show", "--store", "store", "--page", "page.md", "--force")
    assert code == 0, err
    assert Path("page.md").read_text() != "mine"
