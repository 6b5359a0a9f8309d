"""Plans: results missing from a store, and the jobs that compute them."""

from __future__ import annotations

from collections.abc import Iterable

from edgeproof.experiments.store import Store
from edgeproof.experiments.sweep import Job, Measurement, Run, Task


def jobs_of(tasks: Iterable[Task]) -> list[Job]:
    """Group tasks into one job per run, in their order and without repetitions."""
    by_run: dict[Run, dict[Measurement, None]] = {}
    for task in tasks:
        by_run.setdefault(task.run, {})[task.measurement] = None
    return [Job(run, tuple(measurements)) for run, measurements in by_run.items()]


def missing_jobs(jobs: Iterable[Job], store: Store) -> list[Job]:
    """Return jobs for all results missing from the store, one per run."""
    return jobs_of(task for job in jobs for task in job.tasks if store.get(task.identity) is None)


def remaining(job: Job, store: Store) -> Job:
    """Return the job without the stored measurements."""
    return Job(job.run, tuple(task.measurement for task in job.tasks if store.get(task.identity) is None))
