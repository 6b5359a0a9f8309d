"""Runs for real, on this machine: everything ends up in the store once, whatever happens on the way."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgeproof.certificates import smoothed_sampler
from edgeproof.certificates.smoothed_sampler import SmoothedSampler
from edgeproof.experiments import Job, Store, Table, compare, missing
from edgeproof.experiments.engines import JobFailedError, LocalEngine, Report
from edgeproof.experiments.engines import local as local_module
from edgeproof.experiments.engines.base import raise_if_failed, unusable_graphs
from edgeproof.experiments.measure import Measure
from edgeproof.experiments.paper import Row
from edgeproof.experiments.recipe import GRAPHS, Recipe
from edgeproof.experiments.store import Record, StoreWarning
from edgeproof.experiments.work import keep, known_model, trained, work
from edgeproof.training.adversarial import Stage
from edgeproof.training.checkpoint import Checkpoint, RunState


class Inline:
    """In place of worker processes, so that a test can watch and disturb them."""

    def __init__(self, before: Callable[[Job], None] = lambda job: None) -> None:
        self.before = before

    def run(self, jobs: list[Job], store: Store) -> None:
        for job in jobs:
            self.before(job)
            for product in work(job, known_model(job, store), "cpu", 1, "a test", store):
                keep(product, store)


def test_a_table_is_run_and_compared(small: Table, store: Store) -> None:
    jobs = missing([small], store, fast=True)
    Inline().run(jobs, store)
    assert missing([small], store, fast=True) == []
    # Three kinds of files for two models: the training, and two measurements.
    assert len(list(store.records())) == 6
    comparison = compare(small, store, fast=True)
    assert comparison.counts("strict") == {"matched": 3, "better": 0, "worse": 3, "not run": 0}
    assert comparison.counts("as_released") == comparison.counts("strict")
    clean, attacked, harder = (cell.ours["strict"] for cell in comparison.cells[3:])
    assert clean is not None
    assert attacked is not None
    assert harder is not None
    assert clean.mean >= attacked.mean >= harder.mean
    # The whole table, not the fast version of it, is as missing as before.
    assert compare(small, store).counts("strict")["not run"] == 6


def test_a_kept_model_is_not_trained_again(small: Table, store: Store) -> None:
    job = missing([small], store, fast=True)[0]
    products = list(work(job, None, "cpu", 1, "a test", store))
    for product in products:
        keep(product, store)
    known = known_model(job, store)
    assert known is not None
    again = list(work(job, known, "cpu", 1, "a test", store))
    assert [one.record.values for one in again] == [one.record.values for one in products[1:]]
    # A damaged model is not used, nor a whole one of another training.
    path = store.model_path(job.recipe.identity)
    other = trained(replace(job.recipe, seed=7), job.recipe.data(), "cpu", 1, "a test").model
    assert other is not None
    for wrong in (known[: len(known) // 2], other):
        path.write_bytes(wrong)
        with pytest.warns(StoreWarning, match="is not the model of its record, or damaged; it is trained anew"):
            assert known_model(job, store) is None


@pytest.mark.parametrize("spoilt", [False, True])
def test_a_training_that_was_interrupted_goes_on(
    spoilt: bool, small: Table, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = (one for one in missing([small], store, fast=True) if one.recipe.attack is not None)
    recipe, data, file = job.recipe, job.recipe.data(), store.checkpoint_path(job.recipe.identity, "cpu")
    whole = trained(recipe, data, "cpu", 1, "a test", None)
    epochs, save, objective = [], Checkpoint.save, Stage.objective

    def interrupted(self: Checkpoint, state: RunState, *rest: Any) -> None:
        save(self, state, *rest)
        # Not that of the warm-up, nor of the labels.
        if self.path == file and len(state.records) >= 50:
            raise KeyboardInterrupt

    def counted(self: Stage, *arguments: Any) -> Any:
        epochs.append(self.adversary is not None)
        return objective(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trained(recipe, data, "cpu", 1, "a test", file)
    if spoilt:
        file.write_bytes(file.read_bytes()[:-100])
    monkeypatch.setattr(Stage, "objective", counted)
    with pytest.warns(StoreWarning, match="begins anew") if spoilt else nullcontext():
        products = list(work(job, None, "cpu", 1, "a test", store))
    for product in products:
        if product.model is not None:
            assert product.record.values == whole.record.values
            assert product.model == whole.model
            assert product.record.notes["resumed"] is not spoilt
    assert sum(epochs) == (60 if spoilt else 10)
    assert not list(file.parent.glob("*.checkpoint*"))


@pytest.mark.parametrize("spoilt", [False, True])
def test_a_certificate_that_was_interrupted_goes_on(
    spoilt: bool, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = Recipe(Row("inductive", "csbm", "GCN", False, None, None), seed=0, fast=True)
    job, asked = Job(recipe, (Measure(recipe, "smoothing"),)), []
    product, whole = work(job, None, "cpu", 1, "a test", store)
    keep(product, store)
    assert product.model is not None
    counts = SmoothedSampler.counts

    def interrupted(self: SmoothedSampler, *arguments: Any, **options: Any) -> Iterator[Any]:
        for number, one in enumerate(counts(self, *arguments, **options)):
            if not options["choosing"] and number == 1:
                raise KeyboardInterrupt
            yield one

    def watched(self: SmoothedSampler, samples: range, *arguments: Any, **options: Any) -> Iterator[Any]:
        asked.append(len(samples))
        yield from counts(self, samples, *arguments, **options)

    # Several batches, so that there is something to interrupt.
    monkeypatch.setattr(smoothed_sampler, "_CPU_BATCH_BYTES", 1 << 26)
    with monkeypatch.context() as patch:
        patch.setattr(SmoothedSampler, "counts", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(work(job, product.model, "cpu", 1, "a test", store))
    (file,) = store.model_path(recipe.identity).parent.glob("*.votes")
    if spoilt:
        file.write_bytes(file.read_bytes()[:-100])
    monkeypatch.setattr(SmoothedSampler, "counts", watched)
    with pytest.warns(StoreWarning, match="counted anew") if spoilt else nullcontext():
        (again,) = work(job, product.model, "cpu", 1, "a test", store)
    assert again.record.values == whole.record.values
    assert again.record.notes.get("resumed", False) is not spoilt
    assert (sum(asked) == job.measures[0].samples + 1000) is spoilt
    assert not file.exists()


def test_what_another_run_left_is_removed(small: Table, store: Store) -> None:
    job = missing([small], store, fast=True)[0]
    assert store.checkpoint_path(job.recipe.identity, "cuda:1").name.endswith(".cuda.checkpoint")
    file = store.checkpoint_path(job.recipe.identity, "cpu")
    product = trained(job.recipe, job.recipe.data(), "cpu", 1, "a test")
    keep(product, store)
    for name in (file.name, f"{file.name}.warmup", f".{file.name}.abc.tmp"):
        (file.parent / name).touch()
        os.utime(file.parent / name, (0, 0))
    assert len(list(work(job, known_model(job, store), "cpu", 1, "a test", store))) == len(job.measures)
    assert [path.name for path in file.parent.iterdir()] == [store.model_path(job.recipe.identity).name]


def _session(leader: int) -> list[int]:
    """Processes of a session that are alive."""
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


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
def test_processes_do_the_same(small: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the command itself, in processes of its own; stopped in the middle, and started again."""
    script = tmp_path / "run.py"
    folder = Path(__file__).parent
    script.write_text(
        f"import sys; sys.path.insert(0, {str(folder)!r})\n"
        "from conftest import SMALL, small_cells\n"
        "from edgeproof.experiments import paper, Store, missing\n"
        "from edgeproof.experiments.engines import LocalEngine\n"
        "paper._by_table = lambda: {'tab:small': small_cells()}\n"
        "if __name__ == '__main__':\n"
        "    store = Store(sys.argv[1])\n"
        "    LocalEngine(2, 'cpu', 1).run(missing([SMALL], store, fast=True), store, 'a test', print)\n"
    )
    store = Store(tmp_path / "store")
    run = [sys.executable, str(script), str(store.root)]
    process = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 60
    while not list(store.root.glob("*.json")) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    # Only the one that started the others is killed; they end by themselves.
    process.kill()
    process.wait()
    _wait_for_the_end_of(process.pid)
    before = {path.name: path.stat().st_mtime_ns for path in store.root.glob("*.json")}
    assert before
    subprocess.run(run, check=True, stdout=subprocess.DEVNULL, timeout=120)
    after = {path.name: path.stat().st_mtime_ns for path in store.root.glob("*.json")}
    assert missing([small], store, fast=True) == []
    assert len(after) == 6
    # What was there is still there, untouched: nothing was run twice.
    assert before.items() <= after.items()


def _fails(job: Job, *_: object) -> None:
    raise ValueError(f"no such thing as {job.recipe.row.model}")


def _dies(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("worker", "failure"),
    [
        (_fails, "ValueError: no such thing as GCN"),
        pytest.param(_dies, "its process was killed 3 times", marks=pytest.mark.slow),
    ],
)
def test_failures_are_told_in_the_end(
    worker: Callable[..., None], failure: str, small: Table, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_module, "_work_into", worker)
    reports: list[Report] = []
    jobs = missing([small], store, fast=True)[:1]
    with pytest.raises(JobFailedError, match="1 of 1 jobs failed"):
        LocalEngine(1, "cpu", 1).run(jobs, store, "a test", reports.append)
    assert sorted(report.job.name for report in reports) == sorted(job.name for job in jobs)
    assert failure in {report.failure for report in reports}


def test_an_engine_needs_processes() -> None:
    with pytest.raises(ValueError, match="expected at least one process, got 0"):
        LocalEngine(0)
    assert LocalEngine().processes >= 1


def _dies_with_one(job: Job, mark: Path, *how: Any) -> None:
    """One job ends its process; the others are done."""
    mark.touch()
    if job.recipe.seed == 7:
        os.kill(os.getpid(), signal.SIGKILL)


# With one process, each of several that follow one another imports torch.
@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_job_that_dies_takes_no_other_with_it(
    processes: int, small: Table, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_module, "_work_into", _dies_with_one)
    recipe = missing([small], store, fast=True)[0].recipe
    jobs = [Job(replace(recipe, seed=seed), ()) for seed in (7, 0, 1, 2)]
    reports: list[Report] = []
    with pytest.raises(JobFailedError, match=r"1 of 4 jobs failed: .*seed 7, fast: its process was killed 3 times"):
        LocalEngine(processes, threads=1).run(jobs, store, "a test", reports.append)
    assert sorted((one.job.recipe.seed, one.failure is None) for one in reports) == [
        (0, True),
        (1, True),
        (2, True),
        (7, False),
    ]


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
def test_an_interrupt_ends_everything_at_once(tmp_path: Path) -> None:
    """From a terminal, where all processes get it; no other job is begun."""
    script = tmp_path / "run.py"
    script.write_text(
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from edgeproof.experiments import Job, Store\n"
        "from edgeproof.experiments.engines import LocalEngine, local\n"
        "from edgeproof.experiments.paper import Row\n"
        "from edgeproof.experiments.recipe import Recipe\n"
        "def slow(job, *_):\n"
        "    Path(sys.argv[1], str(job.recipe.seed)).write_text(str(os.getpid()))\n"
        "    time.sleep(600)\n"
        "if __name__ == '__main__':\n"
        "    local._work_into = slow\n"
        "    row = Row('inductive', 'csbm', 'GCN', False, None, None)\n"
        "    jobs = [Job(Recipe(row, seed), ()) for seed in range(5)]\n"
        "    LocalEngine(1, 'cpu', 1).run(jobs, Store('store'), 'a test', print)\n"
    )
    begun = tmp_path / "begun"
    begun.mkdir()
    process = subprocess.Popen(
        [sys.executable, str(script), str(begun)], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 90
        while not any(path.read_text() for path in begun.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.05)
        # A worker alone does not take it for the end of its job.
        os.kill(int((begun / "0").read_text()), signal.SIGINT)
        time.sleep(1)
        assert [path.name for path in begun.iterdir()] == ["0"]
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert err.rstrip().endswith("KeyboardInterrupt")
        assert [path.name for path in begun.iterdir()] == ["0"]
        _wait_for_the_end_of(process.pid)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_failures_of_one_reason_are_told_once() -> None:
    row = Row("inductive", "csbm", "GCN", False, None, None)
    jobs = [Job(Recipe(row, seed), ()) for seed in range(4)]
    failed = [*(Report(job, "no such graph") for job in jobs[:3]), Report(jobs[3], "no memory")]
    reason = f"4 of 5 jobs failed: {jobs[0].name} and 2 more: no such graph; {jobs[3].name}: no memory"
    with pytest.raises(JobFailedError, match=f"^{re.escape(reason)}$"):
        raise_if_failed(failed, 5)


def test_a_graph_that_cannot_be_had_is_asked_for_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, reports = [], list[Report]()

    def refuse(self: Recipe) -> None:
        asked.append(self.row.dataset)
        raise ConnectionError("could not download wikics")

    monkeypatch.setattr(Recipe, "data", refuse)
    recipes = [Recipe(Row("inductive", "wikics", "GCN", False, None, None), seed) for seed in (0, 1, 5)]
    jobs = [Job(one, (Measure(one, "clean"),)) for one in recipes]
    with pytest.raises(
        JobFailedError, match=r"3 of 3 jobs failed: .*, seed 0 and 2 more: ConnectionError: could not down"
    ):
        LocalEngine(processes=1).run(jobs, store, "a test", reports.append)
    assert asked == ["wikics"]
    assert [one.job for one in reports] == jobs


def test_results_of_two_graphs_of_one_name_are_not_mixed(
    small: Table, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As with a graph that has not been at hand when the fingerprints were written down.
    monkeypatch.delitem(GRAPHS, "csbm")
    jobs = missing([small], store, fast=True)
    assert unusable_graphs(jobs, store) == {}
    recipe = jobs[0].recipe
    values, own = {"best_epoch": 3, "epochs": 5, "stopped": "patience"}, recipe.fingerprint(recipe.data())
    for graph, refused in ((own, []), ("another", ["csbm"])):
        store.put(Record(recipe.identity, values, "a test", {"device": "cpu"}, 1.0, {"graph": graph}))
        assert list(unusable_graphs(jobs, store)) == refused
    with pytest.raises(
        JobFailedError, match=f"the fingerprint another, got {own}; keep results of this one in another store"
    ):
        LocalEngine(processes=1).run(jobs, store, "a test", lambda report: None)
