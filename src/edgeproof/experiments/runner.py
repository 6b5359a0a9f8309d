"""Execution of jobs with progress; results are kept, so interrupted work continues when it is started again."""

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
    """The user interrupted the jobs; the message says how many are done and how to continue."""


def run_jobs(engine: Engine, jobs: Sequence[Job], store: Store, command: str, *, progress: bool = True) -> None:
    """Run jobs and keep their results.

    Args:
        engine: Where to run them.
        jobs: The jobs.
        store: Where results go.
        command: Command to write down in results.
        progress: Whether to show a progress bar on terminals.

    Raises:
        JobFailedError: At the end, if some jobs failed.
        Interrupted: If the user interrupted them.
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
        # A graph that cannot be loaded is reported as the failure of this job when it is run.
        with suppress(OSError, ValueError):
            for product in list(measure_without_model(job, store, command)):
                keep(product, store)
        rest = remaining(job, store)
        left += [rest] if rest.measurements else []
    return left


@contextmanager
def _interruptible() -> Iterator[None]:
    """Accept interrupts: shells start background commands with SIGINT ignored."""
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
