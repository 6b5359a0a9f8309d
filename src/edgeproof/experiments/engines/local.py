"""Engine of worker processes on this machine; several small runs share one GPU."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import torch

from edgeproof._checks import check_int
from edgeproof.experiments.engines.base import Report, describe_error, raise_if_failed, unusable_graphs
from edgeproof.experiments.plan import remaining
from edgeproof.experiments.store import Store, StoreWarning
from edgeproof.experiments.sweep import Job
from edgeproof.experiments.worker import Setup, keep, run_job, stored_model

# Number of attempts at a job whose process is killed, for example because memory runs out.
_ATTEMPTS = 3
# GPU memory of a process with a graph of a few thousand nodes. Graphs of the size of ogbn-arxiv need ten times as much: set the
# number of processes.
_GPU_MEMORY = 2 << 30


@dataclass(frozen=True)
class WorkerSettings:
    """Settings passed to a worker process.

    Args:
        root: Folder of the store.
        setup: Device, threads and command.
        log_dir: Folder for TensorBoard logs.
    """

    root: Path
    setup: Setup
    log_dir: Path | None


# Function that runs a job and creates the file when the job starts.
Work = Callable[[Job, Path, WorkerSettings], None]


def run_and_keep(job: Job, started: Path, settings: WorkerSettings) -> None:
    """Run a job and write its results into the store.

    Args:
        job: The job.
        started: File to create when the job starts.
        settings: Store, device and logs.
    """
    started.touch()
    store = Store(settings.root)
    with warnings.catch_warnings():
        # The parent process has already warned of damaged entries.
        warnings.simplefilter("ignore", StoreWarning)
        # An earlier attempt may have stored some of the results.
        rest, model = remaining(job, store), stored_model(job.run, store)
    for product in run_job(rest, model, settings.setup, store):
        keep(product, store, settings.log_dir)


class LocalEngine:
    """Worker processes on this machine.

    Args:
        processes: Number of processes. Default: one per two cores; with a GPU one per core, limited by its free memory.
        device: Device of the computations.
        threads: Number of CPU threads per process. Default: the cores are divided among the processes.
        log_dir: Folder for TensorBoard logs of trainings; None for no logs.
        work: Function that runs one job.
    """

    def __init__(
        self,
        processes: int | None = None,
        device: str = "cpu",
        threads: int | None = None,
        log_dir: Path | None = None,
        *,
        work: Work = run_and_keep,
    ) -> None:
        cores = os.cpu_count() or 1
        if processes is None:
            cuda = torch.device(device).type == "cuda"
            processes = min(cores, _processes_that_fit(device)) if cuda else max(1, cores // 2)
        check_int(1, processes=processes)
        self.processes, self.device, self.log_dir, self.work = processes, device, log_dir, work
        self.threads = max(1, cores // processes) if threads is None else threads
        check_int(1, threads=self.threads)

    def run(self, jobs: Sequence[Job], store: Store, command: str, report: Callable[[Report], None]) -> None:
        """See :class:`~edgeproof.experiments.engines.Engine`."""
        attempts, failures = dict.fromkeys(jobs, 0), list[Report]()

        def note(outcome: Report) -> None:
            failures.extend([] if outcome.failure is None else [outcome])
            report(outcome)

        unusable = unusable_graphs(jobs, store)
        waiting = [job for job in jobs if job.run.graph not in unusable]
        for job in (job for job in jobs if job.run.graph in unusable):
            note(Report(job, describe_error(unusable[job.run.graph])))
        settings = WorkerSettings(store.root, Setup(self.device, self.threads, command), self.log_dir)
        while waiting:
            # A killed process breaks the whole pool. Started jobs are retried; the last attempt runs in a separate pool, so
            # that no job fails because of another one.
            suspects = [job for job in waiting if attempts[job] == _ATTEMPTS - 1]
            chosen = suspects[:1] or waiting
            left = self._run_pool(chosen, settings, note)
            waiting = [job for job in waiting if job in left or job not in chosen]
            # If processes are killed before they start any job, each job counts as tried.
            for job in [job for job, started in left.items() if started] or list(left):
                attempts[job] += 1
                if attempts[job] == _ATTEMPTS:
                    note(Report(job, f"its process was killed {_ATTEMPTS} times"))
                    waiting.remove(job)
        raise_if_failed(failures, len(jobs))

    def _run_pool(
        self, jobs: Sequence[Job], settings: WorkerSettings, note: Callable[[Report], None]
    ) -> dict[Job, bool]:
        """Run jobs until all are done or a process is killed; return the unfinished jobs and whether each was started."""
        left: dict[Job, bool] = {}
        # Spawned, because CUDA does not survive a fork.
        context = get_context("spawn")
        with (
            TemporaryDirectory() as folder,
            ProcessPoolExecutor(self.processes, mp_context=context, initializer=end_with_parent) as pool,
        ):
            started = {job: Path(folder) / str(number) for number, job in enumerate(jobs)}
            try:
                # Workers inherit the blocked signal: during their start, only the parent handles interrupts.
                with _interrupts_blocked():
                    futures = {pool.submit(self.work, job, started[job], settings): job for job in jobs}
                for future in as_completed(futures):
                    job = futures[future]
                    error = _error_of(future)
                    if isinstance(error, BrokenProcessPool):
                        left[job] = started[job].exists()
                    else:
                        note(Report(job, None if error is None else describe_error(error)))
            except BaseException:
                # Do not wait for busy workers: their results are in the store. List them first: shutdown clears the list.
                workers = list((pool._processes or {}).values())
                pool.shutdown(wait=False, cancel_futures=True)
                for worker in workers:
                    worker.terminate()
                raise
        return left


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block interrupts until the end of the context; processes started in it keep them blocked."""
    if not hasattr(signal, "pthread_sigmask"):  # pragma: no cover - Windows
        yield
        return
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def end_with_parent() -> None:
    """Initialize a worker process: ignore interrupts, which the parent handles, and exit when the parent is killed."""
    # A terminal sends SIGINT to all processes. In a worker it would count as a failed job, and the next job would start.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def _processes_that_fit(device: str) -> int:
    """Return the number of processes that fit into the free memory of a GPU."""
    if not torch.cuda.is_available():
        # This machine has no GPU: the caller only estimates run times.
        return sys.maxsize
    free, _ = torch.cuda.mem_get_info(device)
    return max(1, free // _GPU_MEMORY)


def _error_of(future: Future[None]) -> BaseException | None:
    try:
        return future.exception()
    except BrokenProcessPool as broken:
        return broken
