"""The local engine: every result is stored exactly once, despite failures, kills and interrupts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_experiments import CERTIFICATE, MEASUREMENTS, small_jobs, small_run

from edgeproof.certificates.smoothed_sampler import SmoothedSampler
from edgeproof.experiments import CleanAccuracy, DatasetSpec, Job, JobFailedError, LocalEngine, Record, Report, Store
from edgeproof.experiments.engines import base
from edgeproof.experiments.engines.base import raise_if_failed, unusable_graphs
from edgeproof.experiments.graphs import graph_fingerprint, load_graph
from edgeproof.experiments.plan import missing_jobs
from edgeproof.experiments.store import StoreWarning
from edgeproof.experiments.worker import Setup, keep, run_job, stored_model, train_model
from edgeproof.training.adversarial import Stage
from edgeproof.training.checkpoint import Checkpoint, RunState

HERE = Path(__file__).parent
SETUP = Setup("cpu", 1, "a test")


def run_inline(jobs: list[Job], store: Store) -> None:
    """Run jobs in this process."""
    for job in jobs:
        for product in run_job(job, stored_model(job.run, store), SETUP, store):
            keep(product, store)


def ignore(report: Report) -> None:
    """Ignore a report."""


def test_jobs_store_models_and_measurements(jobs: list[Job], store: Store) -> None:
    run_inline(missing_jobs(jobs, store), store)
    assert missing_jobs(jobs, store) == []
    # Per model: its training and two measurements.
    assert len(list(store.records())) == 6
    clean, attacked = (store.get(task.identity) for task in jobs[1].tasks)
    assert clean is not None
    assert attacked is not None
    accuracies = [accuracy for record in (clean, attacked) for _, accuracy in record.values["accuracy"]]
    assert accuracies == sorted(accuracies, reverse=True)


def test_stored_model_is_not_trained_again(jobs: list[Job], store: Store) -> None:
    job = jobs[0]
    products = list(run_job(job, None, SETUP, store))
    for product in products:
        keep(product, store)
    model = stored_model(job.run, store)
    assert model is not None
    again = list(run_job(job, model, SETUP, store))
    assert [product.record.values for product in again] == [product.record.values for product in products[1:]]
    # A damaged model is not used, and neither is a complete one of another training.
    path = store.model_path(job.run.identity)
    other = train_model(replace(job.run, seed=7), load_graph(*job.run.graph), SETUP).model
    assert other is not None
    for wrong in (model[: len(model) // 2], other):
        path.write_bytes(wrong)
        with pytest.warns(StoreWarning, match=r"EP205: .* is damaged or not the model of its record"):
            assert stored_model(job.run, store) is None


@pytest.mark.parametrize("damaged", [False, True])
def test_interrupted_training_resumes_from_its_checkpoint(
    damaged: bool, jobs: list[Job], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = jobs[1]
    run, graph, file = job.run, load_graph(*job.run.graph), store.checkpoint_path(job.run.identity, "cpu")
    whole = train_model(run, graph, SETUP)
    epochs, save, objective = [], Checkpoint.save, Stage.objective

    def interrupted(self: Checkpoint, state: RunState, *rest: Any) -> None:
        save(self, state, *rest)
        # Not the checkpoints of the warm-up or of label models.
        if self.path == file and len(state.records) >= 25:
            raise KeyboardInterrupt

    def counted(self: Stage, *arguments: Any) -> Any:
        epochs.append(self.adversary is not None)
        return objective(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train_model(run, graph, SETUP, file)
    if damaged:
        file.write_bytes(file.read_bytes()[:-100])
    monkeypatch.setattr(Stage, "objective", counted)
    with pytest.warns(StoreWarning, match="EP203: the training restarts") if damaged else nullcontext():
        products = list(run_job(job, None, SETUP, store))
    for product in products:
        if product.model is not None:
            assert product.record.values == whole.record.values
            assert product.model == whole.model
            assert product.record.notes["resumed"] is not damaged
    assert sum(epochs) == (30 if damaged else 5)
    assert not list(file.parent.glob("*.checkpoint*"))


@pytest.mark.parametrize("damaged", [False, True])
def test_interrupted_certificate_resumes_from_its_counts(
    damaged: bool, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, sampled = Job(small_run(), (CERTIFICATE,)), []
    product, whole = run_job(job, None, SETUP, store)
    keep(product, store)
    assert product.model is not None
    counts = SmoothedSampler.counts

    def interrupted(self: SmoothedSampler, samples: range, *arguments: Any, **options: Any) -> Iterator[Any]:
        if options["choosing"]:
            yield from counts(self, samples, *arguments, **options)
        else:
            yield from counts(self, samples[: len(samples) // 2], *arguments, **options)
            raise KeyboardInterrupt

    def watched(self: SmoothedSampler, samples: range, *arguments: Any, **options: Any) -> Iterator[Any]:
        sampled.append(len(samples))
        yield from counts(self, samples, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(SmoothedSampler, "counts", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(run_job(job, product.model, SETUP, store))
    (file,) = store.model_path(job.run.identity).parent.glob("*.counts")
    if damaged:
        file.write_bytes(file.read_bytes()[:-100])
    monkeypatch.setattr(SmoothedSampler, "counts", watched)
    with pytest.warns(StoreWarning, match="EP204: the sampling restarts") if damaged else nullcontext():
        (again,) = run_job(job, product.model, SETUP, store)
    assert again.record.values == whole.record.values
    assert again.record.notes.get("resumed", False) is not damaged
    assert (sum(sampled) == CERTIFICATE.samples + CERTIFICATE.choosing_samples) is damaged
    assert not file.exists()


def test_leftover_checkpoints_are_removed(jobs: list[Job], store: Store) -> None:
    job = jobs[0]
    assert store.checkpoint_path(job.run.identity, "cuda:1").name.endswith(".cuda.checkpoint")
    file = store.checkpoint_path(job.run.identity, "cpu")
    keep(train_model(job.run, load_graph(*job.run.graph), SETUP), store)
    for name in (file.name, f"{file.name}.warmup", f".{file.name}.abc.tmp"):
        (file.parent / name).touch()
        os.utime(file.parent / name, (0, 0))
    assert len(list(run_job(job, stored_model(job.run, store), SETUP, store))) == len(job.measurements)
    left = [path.name for path in file.parent.iterdir() if path.name != ".lock"]
    assert left == [store.model_path(job.run.identity).name]


def _session(leader: int) -> list[int]:
    """Return the running processes of a session."""
    found = []
    for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        with suppress(ProcessLookupError):
            if os.getsid(pid) == leader:
                found.append(pid)
    return found


def _wait_for_the_end_of(leader: int) -> None:
    deadline = time.monotonic() + 30
    while _session(leader) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _session(leader) == []


SCRIPT = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
from small_experiments import small_jobs
from edgeproof.experiments import LocalEngine, Store, missing_jobs
if __name__ == "__main__":
    store = Store(sys.argv[1])
    LocalEngine(2, "cpu", 1).run(missing_jobs(small_jobs(), store), store, "a test", print)
"""


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
def test_killed_engine_resumes(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    store = Store(tmp_path / "store")
    command = [sys.executable, str(script), str(store.root)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 60
    while not list(store.root.glob("*.json")) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    # Only the parent is killed; the workers detect this and exit.
    process.kill()
    process.wait()
    _wait_for_the_end_of(process.pid)
    before = {path.name: path.stat().st_mtime_ns for path in store.root.glob("*.json")}
    assert before
    LocalEngine(1, "cpu", 1).run(missing_jobs(small_jobs(), store), store, "a test", ignore)
    after = {path.name: path.stat().st_mtime_ns for path in store.root.glob("*.json")}
    assert missing_jobs(small_jobs(), store) == []
    assert len(after) == 6
    # Earlier results are unchanged: nothing was computed twice.
    assert before.items() <= after.items()


def _fail(job: Job, *_: object) -> None:
    raise ValueError(f"no model {job.run.model.name}")


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("work", "failure"),
    [
        (_fail, "ValueError: no model GCN"),
        pytest.param(_die, "its process was killed 3 times", marks=pytest.mark.slow),
    ],
)
def test_failures_are_reported_at_the_end(work: Any, failure: str, jobs: list[Job], store: Store) -> None:
    reports: list[Report] = []
    with pytest.raises(JobFailedError, match="1 of 1 jobs failed"):
        LocalEngine(1, "cpu", 1, work=work).run(jobs[:1], store, "a test", reports.append)
    assert [report.job for report in reports] == jobs[:1]
    assert failure in {report.failure for report in reports}


def test_engine_needs_processes_and_threads() -> None:
    with pytest.raises(ValueError, match="expected processes to be an integer >= 1, got 0"):
        LocalEngine(0)
    with pytest.raises(ValueError, match="expected threads to be an integer >= 1, got -2"):
        LocalEngine(1, threads=-2)
    assert LocalEngine().processes >= 1


def _die_with_seed_7(job: Job, started: Path, *_: object) -> None:
    started.touch()
    if job.run.seed == 7:
        os.kill(os.getpid(), signal.SIGKILL)


def _fail_without_blocked_interrupts(*_: object) -> None:
    assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="Windows has no signal masks")
def test_workers_are_started_with_interrupts_blocked(jobs: list[Job], store: Store) -> None:
    """An interrupt while a worker imports its modules would print a traceback."""
    LocalEngine(1, "cpu", 1, work=_fail_without_blocked_interrupts).run(jobs[:1], store, "a test", ignore)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


# With one process, each of several successive pools imports torch.
@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_killed_job_does_not_fail_other_jobs(processes: int, store: Store) -> None:
    jobs = [Job(small_run(seed=seed), ()) for seed in (7, 0, 1, 2)]
    reports: list[Report] = []
    with pytest.raises(
        JobFailedError, match=r"1 of 4 jobs failed: .*seed 7, 30 epochs: its process was killed 3 times"
    ):
        LocalEngine(processes, threads=1, work=_die_with_seed_7).run(jobs, store, "a test", reports.append)
    assert sorted((report.job.run.seed, report.failure is None) for report in reports) == [
        (0, True),
        (1, True),
        (2, True),
        (7, False),
    ]


INTERRUPTED = f"""
import os, sys, time
from pathlib import Path
sys.path.insert(0, {str(HERE)!r})
from small_experiments import small_run
from edgeproof.experiments import CleanAccuracy, Job, LocalEngine, Store, run_jobs
def slow(job, *_):
    Path(sys.argv[1], str(job.run.seed)).write_text(str(os.getpid()))
    time.sleep(600)
if __name__ == "__main__":
    jobs = [Job(small_run(seed=seed), (CleanAccuracy(),)) for seed in range(5)]
    run_jobs(LocalEngine(1, "cpu", 1, work=slow), jobs, Store("store"), "a test")
"""


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
def test_interrupt_ends_all_processes_and_starts_no_job(tmp_path: Path) -> None:
    """All processes receive the interrupt, as in a terminal; the command may have been started with SIGINT ignored."""
    script, started = tmp_path / "run.py", tmp_path / "started"
    script.write_text(INTERRUPTED)
    started.mkdir()
    process = subprocess.Popen(
        [sys.executable, str(script), str(started)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    try:
        deadline = time.monotonic() + 90
        while not any(path.read_text() for path in started.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.05)
        # An interrupt of the worker alone does not end its job.
        os.kill(int((started / "0").read_text()), signal.SIGINT)
        time.sleep(1)
        assert [path.name for path in started.iterdir()] == ["0"]
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert err.rstrip().endswith("0 of 5 jobs done, all results are in store; run it again to continue")
        assert [path.name for path in started.iterdir()] == ["0"]
        _wait_for_the_end_of(process.pid)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_failures_with_the_same_reason_are_listed_once() -> None:
    jobs = [Job(small_run(seed=seed), ()) for seed in range(4)]
    failed = [*(Report(job, "no such graph") for job in jobs[:3]), Report(jobs[3], "no memory")]
    reason = f"4 of 5 jobs failed: {jobs[0].name} and 2 more: no such graph; {jobs[3].name}: no memory"
    with pytest.raises(JobFailedError, match=f"^{re.escape(reason)}$"):
        raise_if_failed(failed, 5)


def test_unavailable_graph_is_loaded_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, reports = [], list[Report]()

    def refuse(dataset: DatasetSpec, masks: bool) -> None:
        loaded.append(dataset.name)
        raise ConnectionError(f"could not download {dataset.name}")

    monkeypatch.setattr(base, "load_graph", refuse)
    wikics = DatasetSpec("wikics")
    jobs = [Job(replace(small_run(seed=seed), dataset=wikics), (CleanAccuracy(),)) for seed in (0, 1, 5)]
    with pytest.raises(
        JobFailedError, match=r"3 of 3 jobs failed: .*, seed 0, 30 epochs and 2 more: ConnectionError: could not down"
    ):
        LocalEngine(processes=1).run(jobs, store, "a test", reports.append)
    assert loaded == ["wikics"]
    assert [report.job for report in reports] == jobs


def test_results_of_two_graphs_with_one_name_are_not_mixed(store: Store) -> None:
    # A graph without a known fingerprint.
    run = replace(small_run(), dataset=DatasetSpec("csbm"))
    jobs = [Job(run, MEASUREMENTS)]
    assert unusable_graphs(jobs, store) == {}
    values, own = {"best_epoch": 3, "epochs": 5, "stopped": "patience"}, graph_fingerprint(load_graph(*run.graph), True)
    for graph, refused in ((own, []), ("another", [run.graph])):
        store.put(Record(run.identity, values, "a test", {"device": "cpu"}, 1.0, {"graph": graph}))
        assert list(unusable_graphs(jobs, store)) == refused
    with pytest.raises(
        JobFailedError, match=f"the fingerprint another, got {own}; keep results of this graph in another store"
    ):
        LocalEngine(processes=1).run(jobs, store, "a test", ignore)
