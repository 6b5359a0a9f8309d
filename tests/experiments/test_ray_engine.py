"""The Ray engine on a cluster of several nodes, with killed nodes, workers and drivers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from small_experiments import CERTIFICATE, small_jobs, small_run

import edgeproof as ep
from edgeproof.experiments import (
    CleanAccuracy,
    DatasetSpec,
    EngineWarning,
    Job,
    JobFailedError,
    ModelSpec,
    RayEngine,
    Report,
    Run,
    SplitSpec,
    Store,
    Sweep,
    TrainingSpec,
    as_settings,
    missing_jobs,
)
from edgeproof.experiments.worker import Setup, keep, run_job, stored_model, train_model

ray = pytest.importorskip("ray", reason="ray is not installed")
cluster_utils = pytest.importorskip("ray.cluster_utils")

SETUP = Setup("cpu", 1, "a test")
TASKS = "(train_model|measure_model)"
QUIET = {"include_dashboard": False, "object_store_memory": 100 * 2**20}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without cores; tests add nodes."""
    os.environ["RAY_DISABLE_IMPORT_WARNING"] = "1"
    made = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **QUIET})
    yield made
    ray.shutdown()
    made.shutdown()


def add_node(cluster: Any) -> Any:
    return cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20)


def busy_with(pattern: str) -> list[int]:
    """Return the workers of this cluster that are busy with a task of this name."""
    found = subprocess.run(["pgrep", "-f", f"^ray::{pattern}"], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split() if os.getpid() in ancestors(int(pid))]


def ancestors(pid: int) -> list[int]:
    """Return the parents of a process."""
    found = []
    while pid > 1:
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except FileNotFoundError:
            break
        # The name of the process, in brackets, may contain anything.
        pid = int(status.rpartition(")")[2].split()[1])
        found.append(pid)
    return found


def kill_once(pattern: str) -> Callable[[], int]:
    """Kill the first worker that is busy with a task of this name; the returned function stops and counts the kills."""
    killed: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not killed and not over.is_set():
            for pid in busy_with(pattern)[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()

    def finished() -> int:
        over.set()
        thread.join()
        return len(killed)

    return finished


def values_without_cluster(jobs: list[Job], store: Store) -> dict[str, Any]:
    """Run jobs in this process and return the stored values by key."""
    for job in jobs:
        for product in run_job(job, stored_model(job.run, store), SETUP, store):
            keep(product, store)
    return values_of(store)


def values_of(store: Store) -> dict[str, Any]:
    return {record.key: record.values for record in store.records()}


def ignore(report: Report) -> None:
    """Ignore a report."""


def test_results_survive_killed_worker_and_node(cluster: Any, jobs: list[Job], store: Store, tmp_path: Path) -> None:
    nodes = [add_node(cluster) for _ in range(2)]
    killed = kill_once("train_model")
    reports: list[Report] = []

    def report(outcome: Report) -> None:
        reports.append(outcome)
        if len(reports) == 1:
            # While tasks run, one node dies and another one joins.
            cluster.remove_node(nodes[0], allow_graceful=False)
            nodes[0] = add_node(cluster)

    RayEngine(cluster.address).run(jobs, store, "a test", report)
    assert killed() == 1
    assert missing_jobs(jobs, store) == []
    assert len(list(store.records())) == 6
    assert sorted(outcome.job.name for outcome in reports) == sorted(job.name for job in jobs)
    assert all(outcome.failure is None for outcome in reports)
    assert values_of(store) == values_without_cluster(jobs, Store(tmp_path / "alone"))
    for node in nodes:
        cluster.remove_node(node)


def test_samples_of_a_certificate_are_divided_among_workers(cluster: Any, store: Store, tmp_path: Path) -> None:
    job = Job(small_run(), (CleanAccuracy(), CERTIFICATE))
    nodes = [add_node(cluster) for _ in range(2)]
    killed = kill_once("count_samples")
    RayEngine(cluster.address, min_samples=200).run([job], store, "a test", ignore)
    assert killed() == 1
    assert values_of(store) == values_without_cluster([job], Store(tmp_path / "alone"))
    found = store.get(job.tasks[1].identity)
    assert found is not None
    assert found.notes["shares"] == 3
    for node in nodes:
        cluster.remove_node(node)


MODULE = """
import torch
from torch_geometric.nn import SGConv

class Mine(torch.nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = SGConv(in_channels, out_channels)

    def forward(self, x, edge_index, edge_weight=None):
        return self.conv(x, edge_index, edge_weight)

def build(in_channels, out_channels):
    return Mine(in_channels, out_channels)
"""


def test_user_graph_and_model_are_sent_to_the_nodes(
    cluster: Any, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module is in a folder that only the driver has on its path."""
    (tmp_path / "my_ray_model.py").write_text(MODULE)
    ep.datasets.write_npz(ep.datasets.csbm(num_nodes=200, p=0.05, q=0.01), tmp_path / "mine.npz")
    monkeypatch.chdir(tmp_path)
    sweep = Sweep(
        (DatasetSpec(str(tmp_path / "mine.npz")),),
        (ModelSpec("my_ray_model:build"),),
        (CleanAccuracy(),),
        (TrainingSpec(config=as_settings({"max_epochs": 5, "warmup_epochs": 1})),),
        (SplitSpec(train_per_class=10, val_per_class=10),),
    )
    node = add_node(cluster)
    try:
        RayEngine(cluster.address).run(sweep.jobs(), store, "a test", ignore)
        assert values_of(store) == values_without_cluster(sweep.jobs(), Store(tmp_path / "alone"))
    finally:
        sys.modules.pop("my_ray_model", None)
        cluster.remove_node(node)


@pytest.mark.parametrize("how", [pytest.param(signal.SIGKILL, marks=pytest.mark.slow), signal.SIGINT])
def test_stopped_driver_resumes(how: signal.Signals, cluster: Any, tmp_path: Path) -> None:
    """The driver may have been started with SIGINT ignored."""
    node = add_node(cluster)
    script, folder = tmp_path / "run.py", Path(__file__).parent
    script.write_text(
        f"import sys; sys.path.insert(0, {str(folder)!r})\n"
        "from small_experiments import small_jobs\n"
        "from edgeproof.experiments import RayEngine, Store, missing_jobs, run_jobs\n"
        "store = Store(sys.argv[1])\n"
        f"run_jobs(RayEngine({cluster.address!r}), missing_jobs(small_jobs(), store), store, 'a test')\n"
    )
    store = Store(tmp_path / "store")
    driver = subprocess.Popen(
        [sys.executable, str(script), str(store.root)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    deadline = time.monotonic() + 90
    while not list(store.root.glob("*.json")) and time.monotonic() < deadline and driver.poll() is None:
        time.sleep(0.05)
    driver.send_signal(how)
    driver.wait(timeout=60)
    # Tasks end with the driver.
    while busy_with(TASKS) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert busy_with(TASKS) == []
    before = {path.name: path.stat().st_mtime_ns for path in store.root.glob("*.json")}
    assert 0 < len(before) < 6
    RayEngine(cluster.address).run(missing_jobs(small_jobs(), store), store, "a test", ignore)
    after = {path.name: path.stat().st_mtime_ns for path in store.root.glob("*.json")}
    assert len(after) == 6
    assert before.items() <= after.items()
    cluster.remove_node(node)


def test_interrupt_cancels_running_tasks(cluster: Any, jobs: list[Job], store: Store) -> None:
    """Ray may have been initialized before, and stays initialized."""
    first, other = jobs

    def quick_and_slow(run: Run, *rest: Any) -> Any:
        if run != first.run:
            time.sleep(120)
        return train_model(run, *rest)

    def stop(_: Report) -> None:
        assert busy_with("quick_and_slow")
        raise KeyboardInterrupt

    nodes = [add_node(cluster) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        with pytest.raises(KeyboardInterrupt):
            RayEngine(cluster.address, train=quick_and_slow).run([first, other], store, "a test", stop)
        assert ray.is_initialized()
        deadline = time.monotonic() + 30
        while busy_with("quick_and_slow") and time.monotonic() < deadline:
            time.sleep(0.05)
        assert busy_with("quick_and_slow") == []
    finally:
        ray.shutdown()
        for node in nodes:
            cluster.remove_node(node)


def test_failures_are_reported_at_the_end(cluster: Any, jobs: list[Job], store: Store) -> None:
    def fails(*_: object) -> Any:
        raise ValueError("no such model")

    node = add_node(cluster)
    reports: list[Report] = []
    with pytest.raises(JobFailedError, match=r"2 of 2 jobs failed: .* no such model"):
        RayEngine(cluster.address, train=fails).run(jobs, store, "a test", reports.append)
    assert len(reports) == 2
    cluster.remove_node(node)


def test_engine_needs_cores() -> None:
    with pytest.raises(ValueError, match="expected cpus > 0 and gpus >= 0, got 0 and 0"):
        RayEngine(cpus=0)


def test_tasks_that_fit_no_node_are_reported(cluster: Any, store: Store) -> None:
    node = add_node(cluster)
    with pytest.warns(EngineWarning, match=r"EP206: no node .* has 1 cores and 0.5 GPUs .* all tasks wait until one"):
        RayEngine(cluster.address, gpus=0.5).run([], store, "a test", ignore)
    with warnings.catch_warnings():
        warnings.simplefilter("error", EngineWarning)
        RayEngine(cluster.address).run([], store, "a test", ignore)
    cluster.remove_node(node)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["silent", "web"])
def test_other_servers_are_no_clusters(answer: bytes, store: Store) -> None:
    """Ray itself would try to connect for 20 seconds or more."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ConnectionError, match=f"expected a Ray cluster at 127.0.0.1:{port}, got another server"):
            RayEngine(f"127.0.0.1:{port}").run(small_jobs()[:1], store, "a test", ignore)
        thread.join()


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_unreachable_cluster_is_reported_at_once(scheme: str, store: Store) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ConnectionError, match=f"expected a Ray cluster at {scheme}127.0.0.1:{port}, got no answer"):
        RayEngine(f"{scheme}127.0.0.1:{port}").run([], store, "a test", ignore)
