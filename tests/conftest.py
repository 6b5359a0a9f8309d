"""Shared fixtures: small graphs, the command line, and isolation from the user's cache."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# Without a GPU, Triton kernels run in its interpreter, which must be enabled before Triton is imported.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

import torch
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.cli import main

Run = Callable[..., tuple[int, str, str]]

# On small graphs, more threads cost more in synchronization than they gain.
torch.set_num_threads(1)

REAL_DATA = os.environ.get("EDGEPROOF_DATA")

# Excluded from `make smoke`: tests that start processes, train for long, or enumerate perturbations.
NOT_SMOKE = (
    "certificates/test_sampling.py",
    "cli/",
    "evaluation/test_brute_force.py",
    "evaluation/test_evaluate.py",
    "experiments/test_local_engine.py",
    "experiments/test_measurements.py",
    "experiments/test_ray_engine.py",
    "experiments/test_report_runs.py",
    "experiments/test_restarts.py",
    "experiments/test_store.py::test_killed_writer_loses_no_finished_result",
    "experiments/test_sweep.py",
    "paper/",
    "report/test_browser.py",
    "test_docs.py",
    "test_examples.py",
    "test_studies.py",
    "test_threads.py",
    "training/test_adversarial.py::test_adversarial_training_improves_robust_accuracy",
    "training/test_adversarial.py::test_best_epoch_has_lowest_perturbed_validation_loss",
    "training/test_checkpoint.py",
    "training/test_self_training.py",
)


# Files with the longest run times: distributed first, so that no process waits for the other at the end.
LONGEST = ("experiments/test_ray_engine.py", "experiments/test_local_engine.py", "evaluation/test_brute_force.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--smoke", action="store_true", help="run the fast core of the suite, with the first parameters of each test"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the longest files first; with ``--smoke``, keep the first parametrization of each test outside of ``NOT_SMOKE``."""
    items.sort(key=lambda item: not item.nodeid.removeprefix("tests/").startswith(LONGEST))
    if not config.getoption("--smoke"):
        return
    first: dict[str, pytest.Item] = {}
    for item in items:
        test = item.nodeid.removeprefix("tests/").partition("[")[0]
        if not test.startswith(NOT_SMOKE):
            first.setdefault(test, item)
    selected = list(first.values())
    kept = set(map(id, selected))
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
    items[:] = selected


@pytest.fixture(autouse=True)
def _isolated(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("EDGEPROOF_DATA", raising=False)


@pytest.fixture
def real_data() -> Path:
    """Return the folder of real datasets, or skip the test."""
    if not REAL_DATA:
        pytest.skip("no real datasets: set EDGEPROOF_DATA to the folder with citeseer.npz and the other archives")
    return Path(REAL_DATA)


@pytest.fixture
def graph() -> Data:
    """Return seven nodes: a triangle with a tail, a separate edge, and an isolated node."""
    pairs = torch.tensor([[0, 0, 1, 2, 4], [1, 2, 2, 3, 5]])
    generator = torch.Generator().manual_seed(0)
    return Data(
        x=torch.randn(7, 5, generator=generator),
        edge_index=torch.cat([pairs, pairs.flip(0)], dim=1),
        y=torch.tensor([0, 1, 2, 0, 1, 2, 0]),
    ).coalesce()


@pytest.fixture
def cycle() -> Data:
    """Return a cycle of twelve nodes; its normalized adjacency matrix has the eigenvalues cos(2 pi j / 12)."""
    nodes = torch.arange(12)
    pairs = torch.stack([nodes, nodes.roll(1)])
    return Data(x=torch.ones(12, 3), edge_index=torch.cat([pairs, pairs.flip(0)], dim=1)).coalesce()


@pytest.fixture
def sbm() -> Data:
    """Return a graph on which training takes a second."""
    return ep.datasets.csbm("homophilous", num_nodes=200, p=0.05, q=0.01, K=4.0, seed=3)


@pytest.fixture
def split(sbm: Data) -> ep.splits.Split:
    return ep.splits.inductive(sbm, seed=0, train_per_class=20, val_per_class=20, test_share=0.2)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Return a function that runs the command line and returns exit status, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["edgeproof", *arguments])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
