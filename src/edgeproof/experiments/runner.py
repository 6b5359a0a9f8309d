"""Run jobs with a progress bar. Every result is stored as soon as it is computed, so interrupted runs resume."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from edgeproof._progress import progress_bar
from edgeproof.experiments.engines.base import Engine, Report
from edgeproof.experiments.plan import remaining
from edgeproof.experiments.store import Store
from edgeproof.experiments.sweep import Job
from edgeproof.experiments.worker import keep, measure_without_model


class Interrupted(KeyboardInterrupt):
    """Raised when the user interrupts the jobs. The message states how many are done and how to resume."""


def run_jobs(engine: Engine, jobs: Sequence[Job], store: Store, command: str, *, progress: bool = True) -> None:
    """Run jobs and store their results.

    Args:
        engine: Engine that runs the jobs.
        jobs: The jobs.
        store: Store for the results.
        command: Command to record in results.
        progress: Whether to show a progress bar on terminals.

    Raises:
        JobFailedError: If some jobs failed, after all others have run.
        Interrupted: If the user interrupts the jobs.
    """
    jobs = run_without_models(jobs, store, command)
    done = 0
    with _interruptible(), progress_bar("jobs", len(jobs), show=progress) as advance:

        def report(outcome: Report) -> None:
            nonlocal done
            done += 1
            advance(done, outcome.job.name if outcome.failure is None else f"{outcome.job.name} failed")

        try:
            engine.run(jobs, store, command, report)
        except KeyboardInterrupt as interrupt:
            raise Interrupted(
                f"stopped: {done} of {len(jobs)} jobs done, all results are in {store.root}; run it again to continue"
            ) from interrupt


def run_without_models(jobs: Sequence[Job], store: Store, command: str) -> list[Job]:
    """Run measurements that need no model, and return the remaining jobs."""
    left = []
    for job in jobs:
        # If the graph cannot be loaded, the job fails with that error when it runs.
        with suppress(OSError, ValueError):
            for product in list(measure_without_model(job, store, command)):
                keep(product, store)
        rest = remaining(job, store)
        left += [rest] if rest.measurements else []
    return left


@contextmanager
def _interruptible() -> Iterator[None]:
    """Enable interrupts, because shells start background commands with SIGINT ignored."""
    ignored = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    )
    if ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
