"""Processes on this machine; several small runs share one GPU."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import torch

from edgeproof.experiments.engines.base import Report, raise_if_failed, unusable_graphs
from edgeproof.experiments.plan import Job
from edgeproof.experiments.store import Store, StoreWarning
from edgeproof.experiments.work import keep, known_model, work

# Attempts at a job whose process was killed, by the user or for want of memory.
_ATTEMPTS = 3
# What a process on a GPU takes for itself and a graph of some thousand nodes. A graph of arXiv's size takes ten times as much:
# say how many.
_GPU_MEMORY = 2 << 30


class LocalEngine:
    """Worker processes.

    Args:
        processes: how many; by default one for every two cores, and on a GPU as many as there are cores, as far as its free
            memory bears them.
        device: where they compute.
        threads: of each; by default what the cores bear.
        log_dir: where TensorBoard will look for how trainings went; by default nowhere.
    """

    def __init__(
        self,
        processes: int | None = None,
        device: str = "cpu",
        threads: int | None = None,
        log_dir: Path | None = None,
    ) -> None:
        cores = os.cpu_count() or 1
        if processes is None:
            processes = min(cores, _bearable(device)) if torch.device(device).type == "cuda" else max(1, cores // 2)
        if processes < 1:
            raise ValueError(f"expected at least one process, got {processes}")
        if threads is not None and threads < 1:
            raise ValueError(f"expected at least one thread of each process, got {threads}")
        self.processes, self.device, self.log_dir = processes, device, log_dir
        self.threads = threads or max(1, cores // processes)

    def run(self, jobs: Sequence[Job], store: Store, command: str, report: Callable[[Report], None]) -> None:
        """See :class:`~edgeproof.experiments.engines.Engine`."""
        attempts, failures = dict.fromkeys(jobs, 0), list[Report]()

        def note(one: Report) -> None:
            failures.extend([] if one.failure is None else [one])
            report(one)

        unusable = unusable_graphs(jobs, store)
        waiting = [job for job in jobs if job.row.dataset not in unusable]
        for job in (job for job in jobs if job.row.dataset in unusable):
            note(Report(job, _told(unusable[job.row.dataset])))
        while waiting:
            # One dead process takes the pool with it. What was under way is begun again, but not forever; the last attempt is
            # made alone, so that no job answers for another.
            suspects = [job for job in waiting if attempts[job] == _ATTEMPTS - 1]
            chosen = suspects[:1] or waiting
            left = self._round(chosen, store, command, note)
            waiting = [job for job in waiting if job in left or job not in chosen]
            # Where processes die before they begin anything, all of them have been tried.
            for job in [job for job, begun in left.items() if begun] or list(left):
                attempts[job] += 1
                if attempts[job] == _ATTEMPTS:
                    note(Report(job, f"its process was killed {_ATTEMPTS} times"))
                    waiting.remove(job)
        raise_if_failed(failures, len(jobs))

    def _round(
        self, jobs: Sequence[Job], store: Store, command: str, note: Callable[[Report], None]
    ) -> dict[Job, bool]:
        """Do these jobs, as far as no process dies; those that are left then, and whether they had been begun."""
        left: dict[Job, bool] = {}
        # Spawned, because CUDA does not survive a fork.
        context = get_context("spawn")
        with (
            TemporaryDirectory() as begun,
            ProcessPoolExecutor(self.processes, mp_context=context, initializer=end_with_parent) as pool,
        ):
            how = (store.root, self.device, self.threads, command, self.log_dir)
            marks = {job: Path(begun) / str(number) for number, job in enumerate(jobs)}
            futures = {pool.submit(_work_into, job, marks[job], *how): job for job in jobs}
            try:
                for future in as_completed(futures):
                    job = futures[future]
                    outcome = _outcome(future)
                    if isinstance(outcome, BrokenProcessPool):
                        left[job] = marks[job].exists()
                    else:
                        note(Report(job, None if outcome is None else _told(outcome)))
            except BaseException:
                # Workers in the middle of something are not waited for: what they had found is in the store. A pool that is
                # shut down no longer knows them.
                workers = list((pool._processes or {}).values())
                pool.shutdown(wait=False, cancel_futures=True)
                for worker in workers:
                    worker.terminate()
                raise
        return left


def end_with_parent() -> None:
    """Whoever started this process says when it ends; killed without a chance to say so, it ends by itself."""
    # A key that interrupts goes to all processes of a terminal: taken for the failure of a job, it would begin the next one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def _work_into(job: Job, mark: Path, root: Path, device: str, threads: int, command: str, log_dir: Path | None) -> None:
    """Do a job; the mark says that it has been begun."""
    mark.touch()
    store = Store(root)
    with warnings.catch_warnings():
        # Who planned the jobs has told what is damaged.
        warnings.simplefilter("ignore", StoreWarning)
        # What an earlier attempt found need not be found again.
        left = Job(job.recipe, tuple(measure for measure in job.measures if store.get(measure.identity) is None))
    for product in work(left, known_model(job, store), device, threads, command, store):
        keep(product, store, log_dir)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _bearable(device: str) -> int:
    """How many processes the free memory of a GPU bears."""
    if not torch.cuda.is_available():
        # Only asked how long it would take on one.
        return sys.maxsize
    free, _ = torch.cuda.mem_get_info(device)
    return max(1, free // _GPU_MEMORY)


def _outcome(future: Future[None]) -> BaseException | None:
    try:
        return future.exception()
    except BrokenProcessPool as broken:
        return broken
