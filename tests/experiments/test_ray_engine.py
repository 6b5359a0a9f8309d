"""A real Ray cluster of several nodes on this machine, in which nodes, workers and the driver are killed."""

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
from edgeproof.experiments.measure import Measure
from edgeproof.experiments.paper import Row
from edgeproof.experiments.recipe import Recipe
from edgeproof.experiments.work import keep, known_model, trained, work

from edgeproof.experiments import Job, Store, Table, measure, missing
from edgeproof.experiments.engines import EngineWarning, JobFailedError, RayEngine, Report

ray = pytest.importorskip("ray", reason="ray is not installed")
cluster_utils = pytest.importorskip("ray.cluster_utils")

QUIET = {"include_dashboard": False, "object_store_memory": 100 * 2**20}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without cores, and nodes to be added by the tests."""
    os.environ["RAY_DISABLE_IMPORT_WARNING"] = "1"
    made = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **QUIET})
    yield made
    ray.shutdown()
    made.shutdown()


def add_node(cluster: Any) -> Any:
    return cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20)


def busy_with(pattern: str) -> list[int]:
    """Workers in the middle of a task of this name; of the cluster here, not of another one on this machine."""
    found = subprocess.run(["pgrep", "-f", f"^ray::{pattern}"], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split() if os.getpid() in ancestors(int(pid))]


def ancestors(pid: int) -> list[int]:
    """The processes that started it, one the other."""
    found = []
    while pid > 1:
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except FileNotFoundError:
            break
        # Its name, in brackets, may hold anything.
        pid = int(status.rpartition(")")[2].split()[1])
        found.append(pid)
    return found


def kill_once(pattern: str) -> Callable[[], int]:
    """Kill the first worker that is busy with a task of this name; the function returned ends it and says how many were."""
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


def test_a_killed_worker_and_a_killed_node_lose_nothing(
    cluster: Any, small: Table, store: Store, tmp_path: Path
) -> None:
    nodes = [add_node(cluster) for _ in range(2)]
    killed = kill_once("trained")
    reports: list[Report] = []

    def report(one: Report) -> None:
        reports.append(one)
        if len(reports) == 1:
            # In the middle of everything a node dies, and another one joins.
            cluster.remove_node(nodes[0], allow_graceful=False)
            nodes[0] = add_node(cluster)

    jobs = missing([small], store, fast=True)
    RayEngine(cluster.address).run(jobs, store, "a test", report)
    assert killed() == 1
    assert missing([small], store, fast=True) == []
    assert len(list(store.records())) == 6
    assert sorted(one.job.name for one in reports) == sorted(job.name for job in jobs)
    assert all(one.failure is None for one in reports)
    # The same as without a cluster.
    alone = Store(tmp_path / "alone")
    for job in jobs:
        for product in work(job, known_model(job, alone), "cpu", 1, "a test", alone):
            keep(product, alone)
    assert {one.key: one.values for one in store.records()} == {one.key: one.values for one in alone.records()}
    for node in nodes:
        cluster.remove_node(node)


def test_a_certificates_samples_are_spread_over_workers(
    cluster: Any, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "_LEAST_SAMPLES", 300)
    recipe = Recipe(Row("inductive", "csbm", "GCN", False, None, None), seed=0, fast=True)
    job = Job(recipe, (Measure(recipe, "clean"), Measure(recipe, "smoothing")))
    nodes = [add_node(cluster) for _ in range(2)]
    killed = kill_once("counted")
    RayEngine(cluster.address).run([job], store, "a test", lambda report: None)
    assert killed() == 1
    alone = Store(tmp_path / "alone")
    for product in work(job, None, "cpu", 1, "a test", alone):
        keep(product, alone)
    assert {one.key: one.values for one in store.records()} == {one.key: one.values for one in alone.records()}
    found = store.get(job.measures[1].identity)
    assert found is not None
    assert found.notes["shares"] == 3
    for node in nodes:
        cluster.remove_node(node)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_driver_goes_on_where_it_was(how: signal.Signals, cluster: Any, small: Table, tmp_path: Path) -> None:
    node = add_node(cluster)
    script, folder = tmp_path / "run.py", Path(__file__).parent
    script.write_text(
        f"import sys; sys.path.insert(0, {str(folder)!r})\n"
        "from conftest import SMALL, small_cells\n"
        "from edgeproof.experiments import paper, Store, missing\n"
        "from edgeproof.experiments.engines import RayEngine\n"
        "paper._by_table = lambda: {'tab:small': small_cells()}\n"
        "store = Store(sys.argv[1])\n"
        f"RayEngine({cluster.address!r}).run(missing([SMALL], store, fast=True), store, 'a test', print)\n"
    )
    store = Store(tmp_path / "store")
    run = [sys.executable, str(script), str(store.root)]
    driver = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 90
    while not list(store.root.glob("*.json")) and time.monotonic() < deadline and driver.poll() is None:
        time.sleep(0.05)
    driver.send_signal(how)
    driver.wait(timeout=60)
    # Tasks end with the driver.
    while busy_with("(trained|measured)") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert busy_with("(trained|measured)") == []
    before = {path.name: path.stat().st_mtime_ns for path in store.root.glob("*.json")}
    assert 0 < len(before) < 6
    subprocess.run(run, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=180)
    after = {path.name: path.stat().st_mtime_ns for path in store.root.glob("*.json")}
    assert len(after) == 6
    assert before.items() <= after.items()
    cluster.remove_node(node)


def test_who_stops_it_stops_its_tasks(
    cluster: Any, small: Table, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where Ray was there before, and stays."""
    first, other = missing([small], store, fast=True)

    def quick_and_slow(recipe: Recipe, *rest: Any) -> Any:
        if recipe != first.recipe:
            time.sleep(120)
        return trained(recipe, *rest)

    def stop(_: Report) -> None:
        assert busy_with("quick_and_slow")
        raise KeyboardInterrupt

    monkeypatch.setattr("edgeproof.experiments.engines.ray.trained", quick_and_slow)
    nodes = [add_node(cluster) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        with pytest.raises(KeyboardInterrupt):
            RayEngine(cluster.address).run([first, other], store, "a test", stop)
        assert ray.is_initialized()
        deadline = time.monotonic() + 30
        while busy_with("quick_and_slow") and time.monotonic() < deadline:
            time.sleep(0.05)
        assert busy_with("quick_and_slow") == []
    finally:
        ray.shutdown()
        for node in nodes:
            cluster.remove_node(node)


def test_failures_are_told_in_the_end(
    cluster: Any, small: Table, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("no such thing")

    monkeypatch.setattr("edgeproof.experiments.engines.ray.trained", fails)
    node = add_node(cluster)
    reports: list[Report] = []
    with pytest.raises(JobFailedError, match=r"2 of 2 jobs failed: .* no such thing"):
        RayEngine(cluster.address).run(missing([small], store, fast=True), store, "a test", reports.append)
    assert len(reports) == 2
    cluster.remove_node(node)


def test_a_cluster_needs_sensible_tasks() -> None:
    with pytest.raises(ValueError, match="expected cpus > 0 and gpus >= 0, got 0 and 0"):
        RayEngine(cpus=0)


def test_tasks_that_no_node_can_do_are_told(cluster: Any, store: Store) -> None:
    node = add_node(cluster)
    with pytest.warns(EngineWarning, match=r"no node .* has 1 cores and 0.5 GPUs .* everything waits until one joins"):
        RayEngine(cluster.address, gpus=0.5).run([], store, "a test", lambda report: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error", EngineWarning)
        RayEngine(cluster.address).run([], store, "a test", lambda report: None)
    cluster.remove_node(node)


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_cluster_that_is_not_there_is_told_at_once(scheme: str, store: Store) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ConnectionError, match=f"expected a Ray cluster at {scheme}127.0.0.1:{port}, got no answer"):
        RayEngine(f"{scheme}127.0.0.1:{port}").run([], store, "a test", lambda report: None)
