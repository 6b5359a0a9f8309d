"""Processes on this machine; several small runs share one GPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread

import torch

from edgeproof.experiments.engines.base import Report, raise_if_failed
from edgeproof.experiments.plan import Job
from edgeproof.experiments.store import Store
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
        self.processes, self.device, self.log_dir = processes, device, log_dir
        self.threads = threads or max(1, cores // processes)

    def run(self, jobs: Sequence[Job], store: Store, command: str, report: Callable[[Report], None]) -> None:
        """See :class:`~edgeproof.experiments.engines.Engine`."""
        waiting, attempts, failures = list(jobs), dict.fromkeys(jobs, 0), []
        while waiting:
            killed: list[Job] = []
            # Spawned, because CUDA does not survive a fork.
            with ProcessPoolExecutor(
                self.processes, mp_context=get_context("spawn"), initializer=end_with_parent
            ) as pool:
                how = (store.root, self.device, self.threads, command, self.log_dir)
                futures = {pool.submit(_work_into, job, *how): job for job in waiting}
                try:
                    for future in as_completed(futures):
                        job = futures[future]
                        outcome = _outcome(future)
                        if isinstance(outcome, BrokenProcessPool):
                            killed.append(job)
                            continue
                        done = Report(job, None if outcome is None else f"{type(outcome).__name__}: {outcome}")
                        failures += [done] if outcome is not None else []
                        report(done)
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    _stop(pool)
                    raise
            # One dead process takes the pool with it: everything that was not done is done again, but not forever.
            waiting = []
            for job in killed:
                attempts[job] += 1
                if attempts[job] < _ATTEMPTS:
                    waiting.append(job)
                else:
                    failures.append(Report(job, f"its process was killed {_ATTEMPTS} times"))
                    report(failures[-1])
        raise_if_failed(failures, len(jobs))


def end_with_parent() -> None:
    """Whoever started this process may be killed without a chance to stop it: then it stops by itself."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def _work_into(job: Job, root: Path, device: str, threads: int, command: str, log_dir: Path | None) -> None:
    store = Store(root)
    # What an earlier attempt found need not be found again.
    left = Job(job.recipe, tuple(measure for measure in job.measures if store.get(measure.identity) is None))
    unfinished = store.checkpoint_path(job.recipe.identity, device)
    for product in work(left, known_model(job, store), device, threads, command, unfinished):
        keep(product, store, log_dir)


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


def _stop(pool: ProcessPoolExecutor) -> None:
    """Workers that are in the middle of something are not waited for: what they had found is in the store."""
    for process in list((pool._processes or {}).values()):
        process.terminate()
