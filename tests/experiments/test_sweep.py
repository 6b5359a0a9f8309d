"""End-to-end tests of sweeps with a user's graph and model, and of the commands ``sweep`` and ``results``."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import edgeproof as ep
from edgeproof.cli.app import app
from edgeproof.experiments import (
    CleanAccuracy,
    DatasetSpec,
    JobFailedError,
    LocalEngine,
    ModelSpec,
    Record,
    Store,
    Sweep,
    missing_jobs,
    read_sweep,
    run_jobs,
    summarize,
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "sweep.toml"
MODULE = """
import torch
from torch_geometric.nn import SGConv

class Mine(torch.nn.Module):
    def __init__(self, in_channels, out_channels, hops):
        super().__init__()
        self.conv = SGConv(in_channels, out_channels, K=hops)

    def forward(self, x, edge_index, edge_weight=None):
        return self.conv(x, edge_index, edge_weight)

def build(in_channels, out_channels, hops=2):
    return Mine(in_channels, out_channels, hops)

def broken(in_channels, out_channels):
    raise RuntimeError("no such layer")
"""
TOML = """
seeds = [0, 1]
[[dataset]]
name = "mine.npz"
[[split]]
train_per_class = 10
val_per_class = 10
[[model]]
name = "my_sweep_model:build"
settings = { hops = 1 }
[[training]]
config = { max_epochs = 8, warmup_epochs = 2 }
[[training]]
attack = "PRBCD"
attack_settings = { steps = 2, block_size = 1000 }
epsilon = 0.1
config = { max_epochs = 4, warmup_epochs = 2 }
[[measurement]]
kind = "clean"
[[measurement]]
kind = "attack"
attack = "PRBCD"
settings = { steps = 4, fine_tune_steps = 1, block_size = 1000 }
epsilons = [0.05, 0.1]
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Current folder with a user's graph, model and sweep."""
    ep.datasets.write_npz(ep.datasets.csbm(num_nodes=200, p=0.05, q=0.01), tmp_path / "mine.npz")
    (tmp_path / "my_sweep_model.py").write_text(MODULE)
    (tmp_path / "sweep.toml").write_text(TOML)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield tmp_path
    sys.modules.pop("my_sweep_model", None)


def invoke(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": "250"}).invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def test_own_graph_and_model_are_trained_and_measured(own: Path) -> None:
    sweep, store = read_sweep("sweep.toml"), Store("store")
    run_jobs(LocalEngine(1, "cpu", 1), sweep.jobs(), store, "a test")
    assert missing_jobs(sweep.jobs(), store) == []
    assert len(list(store.records())) == 4 * 3
    table = summarize(sweep, store)
    assert table.titles == ("dataset", "model", "training", "clean", "PRBCD 0.05", "PRBCD 0.1")
    assert [line[:3] for line in table.lines] == [
        ("mine", "my_sweep_model:build(hops=1)", "regular, max_epochs=8, warmup_epochs=2"),
        ("mine", "my_sweep_model:build(hops=1)", "PRBCD 0.1, max_epochs=4, warmup_epochs=2"),
    ]
    assert all("±" in cell for line in table.lines for cell in line[3:])
    store.pack()
    assert {path.name for path in store.root.glob("*.jsonl")} == {
        *("mine-attack.jsonl", "mine-clean.jsonl", "mine-training.jsonl"),
    }
    # Another graph under the same name has other results.
    ep.datasets.write_npz(ep.datasets.csbm(num_nodes=200, p=0.05, q=0.01, seed=1), own / "mine.npz")
    assert len(missing_jobs(read_sweep("sweep.toml").jobs(), store)) == 4


def test_failing_factory_fails_its_jobs_only(own: Path) -> None:
    store = Store("store")
    sweep = Sweep((DatasetSpec("csbm"),), (ModelSpec("my_sweep_model:broken"),), (CleanAccuracy(),))
    with pytest.raises(JobFailedError, match=r"1 of 1 jobs failed: .*broken.* RuntimeError: no such layer"):
        run_jobs(LocalEngine(1, "cpu", 1), sweep.jobs(), store, "a test")


def test_command_runs_resumes_and_exports(own: Path) -> None:
    planned = invoke("sweep", "sweep.toml", "--dry-run")
    assert "4 jobs, about" in planned
    assert "mine my_sweep_model:build, regular, strict, seed 1, 8 epochs" in planned
    assert not Path("results").exists()
    shown = invoke("sweep", "sweep.toml", "--jobs", "1", "--threads", "1")
    assert "accuracy in percent, 2 seeds; store: results/sweep" in shown
    times = {path: path.stat().st_mtime_ns for path in Path("results/sweep").glob("*.json")}
    lines = list(csv.reader(invoke("sweep", "sweep.toml", "--format", "csv").splitlines()))
    assert lines[0][3:] == ["clean", "PRBCD 0.05", "PRBCD 0.1"]
    assert all(" ± " in cell for line in lines[1:] for cell in line[3:])
    assert times == {path: path.stat().st_mtime_ns for path in Path("results/sweep").glob("*.json")}
    # A lost result is computed again, with the stored model.
    next(path for path in times if '"kind": "clean"' in path.read_text()).unlink()
    assert "(1/2)" in invoke("sweep", "sweep.toml", "--show")
    assert "1 jobs" in invoke("sweep", "sweep.toml", "--dry-run")
    invoke("sweep", "sweep.toml", "--jobs", "1")
    assert "(1/2)" not in invoke("sweep", "sweep.toml", "--show", "--format", "markdown")
    packed = invoke("results", "pack", "--store", "results/sweep")
    assert packed == "packed 12 new results; results/sweep has 3 packed files\n"
    exported = list(csv.reader(invoke("results", "export", "--store", "results/sweep", "--kind", "PRBCD").splitlines()))
    assert len(exported) == 1 + 4 * 2
    assert {line[1] for line in exported[1:]} == {"mine"}
    assert "regular, 8 epochs" in invoke("results", "show", "--store", "results/sweep", "--training", "regular")


def test_example_is_planned(tmp_path: Path) -> None:
    assert "8 jobs" in invoke("sweep", str(EXAMPLE), "--dry-run", "--store", str(tmp_path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--engine", "rai"), "unknown engine 'rai': did you mean 'ray'"),
        (("--engine", "ray", "--device", "cuda"), "expected --gpus"),
        (("--engine", "ray", "--jobs", "2"), "expected --cpus, the cores of each task"),
        (("--gpus", "0.5"), "expected --address, --cpus and --gpus with --engine ray only"),
        (("--format", "pdf"), "unknown format 'pdf'"),
        (("--dry-run", "--show"), "expected --dry-run without --show and --format"),
        (("--show",), "expected a folder of results, got results/sweep"),
        (("--store", "/dev/null"), "expected a folder of results, got /dev/null"),
        (("--threads", "0"), "expected threads to be an integer >= 1"),
        (("--store", "/proc/none"), "cannot write"),
        (("--log-dir", "/proc/none"), "cannot write"),
    ],
)
def test_options_without_effect_are_refused(options: tuple[str, ...], message: str, own: Path) -> None:
    with pytest.raises(ValueError, match=message):
        invoke("sweep", "sweep.toml", *options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("show", "--store", "nowhere"), "expected a folder of results, got nowhere"),
        (("pack", "--store", "nowhere"), "expected a folder of results, got nowhere"),
        (("export", "--format", "html", "--store", "."), "unknown format 'html'"),
        (("show", "--kind", "claen", "--store", "kept"), "unknown kind 'claen': did you mean 'clean'"),
        (("show", "--model", "GNC", "--store", "kept"), "unknown model 'GNC': did you mean 'GCN'"),
        (("show", "--seed", "7", "--store", "kept"), "unknown seed '7'"),
    ],
)
def test_results_command_rejects_unknown_names(options: tuple[str, ...], message: str, own: Path) -> None:
    (job,) = Sweep((DatasetSpec("csbm"),), (ModelSpec("GCN"),), (CleanAccuracy(),)).jobs()
    for task in job.tasks:
        Store("kept").put(Record(task.identity, {"accuracy": [[0.0, 0.5]]}, "a test", {"device": "cpu"}, 2.0, {}))
    with pytest.raises(ValueError, match=message):
        invoke("results", *options)


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs process groups")
def test_interrupted_command_prints_how_to_resume(own: Path) -> None:
    """The command may have been started in the background by a shell, where SIGINT is ignored."""
    (own / "sweep.toml").write_text(TOML.replace("max_epochs = 4", "max_epochs = 3000, patience = 3000"))
    command = [sys.executable, "-m", "edgeproof", "sweep", "sweep.toml", "--jobs", "1", "--threads", "1"]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    deadline = time.monotonic() + 90
    while not list(own.glob("results/sweep/*.json")) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "all results are in results/sweep; run it again to continue" in err
    assert "Traceback" not in err
