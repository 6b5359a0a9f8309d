"""Commands on a graph file: train, attack, evaluate, certify, report, sweep and describe."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import edgeproof as ep
from edgeproof.evaluation.result import Result
from edgeproof.experiments import read_sweep
from edgeproof.experiments.graphs import load_graph

Run = Callable[..., tuple[int, str, str]]

TRAIN = ("train", "--model", "GCN", "--max-epochs", "5", "--max-restarts", "0", "--quiet")
MODEL = ("--model", "model.safetensors", "--quiet")


def write_tables(folder: Path, *, directed: bool) -> Path:
    """Write a graph of 135 nodes in three classes as tables; directed ones list each edge once and have a self-loop."""
    data = ep.datasets.attributed_sbm(135, 3, degree=6, num_features=5, heavy_tail=False, seed=0)
    folder.mkdir()
    lines = [f"n{u},n{v}" for u, v in data.edge_index.T.tolist() if not directed or u < v]
    if directed:
        lines.append("n7,n7")
    (folder / "edges.csv").write_text("\n".join(["source,target", *lines]) + "\n")
    rows = [
        f"n{number},{'abc'[label]}," + ",".join(f"{value:.3f}" for value in row)
        for number, (row, label) in enumerate(zip(data.x.tolist(), data.y.tolist(), strict=True))
    ]
    (folder / "nodes.csv").write_text("\n".join(["id,label,v,w,x,y,z", *rows]) + "\n")
    return folder / "edges.csv"


@pytest.fixture
def directed(run: Run) -> Path:
    """Relative path of a directed graph in the current folder."""
    write_tables(Path("graph").absolute(), directed=True)
    return Path("graph/edges.csv")


def test_all_commands_take_a_file(run: Run, directed: Path) -> None:
    fixes = ("--to-undirected", "--remove-self-loops")
    code, _, err = run(*TRAIN, "--dataset", str(directed))
    assert code == 1
    assert "1 self-loops in graph/edges.csv; pass to_undirected=True (--to-undirected), remove_self_loops=True" in err
    code, _, err = run(*TRAIN, "--dataset", str(directed), *fixes)
    assert code == 0, err
    assert "EP301: graph/edges.csv: added the reverse of" in err
    assert "removed 1 self-loops" in err
    trained = Result.read("model.safetensors.json")
    assert trained.dataset == "graph/edges.csv"
    assert trained.split["file"] == str(directed.resolve())
    assert trained.split["fixes"] == ["to_undirected", "remove_self_loops"]
    for command in (
        ("attack", *MODEL, "--attack", "DICE", "-e", "0.1", "--graph", "attacked.npz"),
        ("evaluate", *MODEL, "--attack", "DICE", "-e", "0.1"),
        ("certify", *MODEL, "--samples", "200", "--choosing-samples", "20"),
    ):
        code, _, err = run(*command)
        assert code == 0, err
    for name in ("attack.json", "evaluation.json", "certificate.safetensors.json"):
        result = Result.read(name)
        assert result.split == trained.split
    assert ep.datasets.load("attacked.npz", largest_component=False).num_nodes == trained.split["test"] + sum(
        trained.split[part] for part in ("train", "unlabeled", "val")
    )
    code, _, err = run("report", "model.safetensors", "evaluation.json", "attack.json")
    assert code == 0, err


def test_explicit_file_needs_its_fixes(run: Run, directed: Path) -> None:
    run(*TRAIN, "--dataset", str(directed), "--to-undirected", "--remove-self-loops")
    attack = ("attack", *MODEL, "--attack", "DICE", "-e", "0.1")
    code, _, err = run(*attack, "--dataset", str(directed))
    assert code == 1
    assert "edges without their reverse" in err
    code, _, err = run(*attack, "--to-undirected")
    assert code == 1
    assert "expected --to-undirected together with --dataset" in err
    assert run(*attack, "--dataset", str(directed), "--to-undirected", "--remove-self-loops")[0] == 0


def test_moved_file_is_found_or_named(run: Run, tmp_path: Path) -> None:
    write_tables(Path("graph").absolute(), directed=False)
    assert run(*TRAIN, "--dataset", "graph")[0] == 0
    fingerprint = Result.read("model.safetensors.json").split["fingerprint"]
    attack = ("attack", *MODEL, "--attack", "DICE", "-e", "0.1")
    # From another folder, the file is found by its absolute path.
    Path("elsewhere").mkdir()
    start = Path.cwd()
    os.chdir("elsewhere")
    code, _, err = run("attack", "--model", "../model.safetensors", "--quiet", "--attack", "DICE", "-e", "0.1")
    os.chdir(start)
    assert code == 0, err
    shutil.move("graph", "moved")
    code, _, err = run(*attack)
    assert code == 1
    assert "no such file: graph (it was" in err
    assert "pass its new path as --dataset" in err
    code, _, err = run(*attack, "--dataset", "moved")
    assert code == 0, err
    assert Result.read("attack.json").split["fingerprint"] == fingerprint


def test_changed_file_raises(run: Run, tmp_path: Path) -> None:
    write_tables(Path("graph").absolute(), directed=False)
    assert run(*TRAIN, "--dataset", "graph")[0] == 0
    nodes = Path("graph/nodes.csv")
    nodes.write_text(nodes.read_text().replace(",0.", ",1.", 1))
    code, _, err = run("attack", *MODEL, "--attack", "DICE", "-e", "0.1")
    assert code == 1
    assert "the file has changed since" in err


def test_missing_file_raises_before_training(run: Run) -> None:
    code, _, err = run(*TRAIN, "--dataset", "gone.npz")
    assert code == 1
    assert "no such graph file: gone.npz" in err


def test_describe_shows_statistics_and_trouble(run: Run, directed: Path) -> None:
    code, out, err = run("datasets", "describe", str(directed))
    assert code == 0, err
    assert "135" in out
    assert "3 (a: 45, b: 45, c: 45)" in out
    assert "edges without their reverse; pass --to-undirected" in out
    assert "possible trouble: 1 self-loops; pass --remove-self-loops" in out
    code, out, err = run("datasets", "describe", "csbm")
    assert code == 0, err
    assert "possible trouble: none found" in out
    code, _, err = run("datasets", "describe", "citeser")
    assert code == 1
    assert "did you mean 'citeseer'" in err


def test_sweep_takes_files_with_fixes(run: Run, directed: Path) -> None:
    text = """
        [[dataset]]
        name = "graph/edges.csv"
        to_undirected = true
        {more}
        [[model]]
        name = "GCN"
        [[training]]
        config = {{ max_epochs = 5, max_restarts = 0 }}
        [[measurement]]
        kind = "clean"
        """
    Path("my.toml").write_text(text.format(more=""))
    with pytest.raises(ValueError, match="1 self-loops"):
        read_sweep("my.toml").jobs()
    Path("my.toml").write_text(text.format(more="remove_self_loops = true"))
    (job,) = read_sweep("my.toml").jobs()
    assert job.run.dataset.label == "graph"
    assert torch.equal(
        load_graph(job.run.dataset, False).edge_index,
        ep.datasets.load(directed, to_undirected=True, remove_self_loops=True).edge_index,
    )
    code, out, err = run("sweep", "my.toml")
    assert code == 0, err
    assert "graph" in out
