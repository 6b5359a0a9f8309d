"""``edgeproof explain``, and the fragility of ``edgeproof evaluate``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import edgeproof as ep
from edgeproof.evaluation.result import Result

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def model(run: Run) -> str:
    code, _, err = run("train", "--dataset", "csbm", "--model", "GCN", "--seed", "2", "--max-epochs", "20", "--quiet")
    assert code == 0, err
    return "model.safetensors"


def test_explain_prints_and_stores_ids_of_the_dataset(run: Run, model: str) -> None:
    split = ep.splits.inductive(ep.datasets.load("csbm"), 0)
    node = int(split.test.ids[split.test.nodes][3])
    code, out, err = run("explain", "--model", model, "--node", str(node), "--max-flips", "3", "--out", "node.json")
    assert code == 0, err
    assert out.startswith(f"node {node}: predicted class")
    stored = Result.read("node.json").threat["explanation"]
    assert stored["node"] == node
    data = ep.datasets.load("csbm")
    edges = set(map(tuple, data.edge_index.T.tolist()))
    assert all((u, v) in edges for u, v in stored["edges"])
    code, out, err = run("report", "node.json", "--out", "report.html")
    assert code == 0, err
    assert f"Neighborhood of node {node} before the flips" in Path("report.html").read_text(encoding="utf-8")


def test_explain_within_constraints(run: Run, model: str) -> None:
    explain = ("explain", "--model", model, "--max-flips", "2", "--out", "node.json", "--force")
    split = ep.splits.inductive(ep.datasets.load("csbm"), 0)
    node = int(split.test.ids[split.test.nodes][0])
    code, _, err = run(*explain, "--node", str(node), "--direct", "--deletions-only")
    assert code == 0, err
    flips = Result.read("node.json").threat["explanation"]["flips"]
    assert all(kind == "remove" and node in (u, v) for u, v, kind in flips)
    code, _, err = run(*explain, "--node", str(node), "--additions-only", "--deletions-only")
    assert code == 1
    assert "they leave no flip" in err
    code, _, err = run(*explain, "--node", "100000")
    assert code == 1
    assert "expected ids of nodes in the graph under attack" in err


def test_evaluate_stores_the_flips_per_node(run: Run, model: str) -> None:
    code, out, err = run("evaluate", "--model", model, "-e", "0.02", "--attack", "FGSM", "--fragility", "2", "-q")
    assert code == 0, err
    counts = Result.read("evaluation.json").threat["fragility"]
    assert sum(counts["histogram"].values()) + counts["surviving"] == Result.read("evaluation.json").split["test"]
    assert "proven fewest" in out
