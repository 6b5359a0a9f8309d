"""Missing jobs and their estimated runtime, as printed by ``sweep`` and ``reproduce``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table

from edgeproof._progress import duration
from edgeproof.experiments import Job, Store
from edgeproof.experiments.estimate import Times
from edgeproof.experiments.graphs import is_local


def job_table(todo: Sequence[Job], store: Store, device: str, processes: int | None, *, fast: bool = False) -> Table:
    """Return a table of jobs, with an estimate of their runtime in the title.

    Args:
        todo: Jobs.
        store: Store with the runtimes of earlier jobs.
        device: Device type that the jobs would run on.
        processes: Number of processes; None if unknown, as on a cluster.
        fast: Whether the jobs are those of the fast version.
    """
    table = Table("run", "measurements", title=estimate(todo, store, device, processes, fast=fast))
    for job in todo:
        table.add_row(job.name, "; ".join(measurement.label for measurement in job.measurements))
    return table


def estimate(todo: Sequence[Job], store: Store, device: str, processes: int | None, *, fast: bool = False) -> str:
    """Return the number of jobs and their estimated runtime in one line; for the arguments, see :func:`job_table`."""
    seconds, timed = Times(store, device).estimate(todo)
    how = "sequentially" if processes in (None, 1) else f"with {processes} processes"
    basis = f"{timed} of {len(todo)} from stored runtimes on this device" if todo else "nothing to do"
    runtime = f"about {duration(seconds / (processes or 1))} {how} ({basis}{downloads(todo)})"
    return f"{len(todo)} jobs{', fast' if fast else ''}, {runtime}"


def downloads(todo: Iterable[Job]) -> str:
    """Return the names of datasets that are not on this machine, as the end of a sentence; empty if there are none."""
    absent = [dataset.name for dataset in dict.fromkeys(job.run.dataset for job in todo) if not is_local(dataset)]
    return f"; to be downloaded first: {', '.join(absent)}" if absent else ""
