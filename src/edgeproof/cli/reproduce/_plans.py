"""Tables of missing experiments and their estimated runtime."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table as RichTable

from edgeproof.experiments import Job, Store
from edgeproof.experiments.engines import LocalEngine
from edgeproof.experiments.estimate import Times
from edgeproof.experiments.graphs import is_local
from edgeproof.paper import FIGURES, STAND_INS, TABLES, PaperFigure, Table, missing
from edgeproof.paper.plan import jobs, measurements


def progress_table(store: Store, engine: LocalEngine, *, fast: bool) -> RichTable:
    """Return a table of all tables and figures with their stored and missing results and estimated hours."""
    shown = RichTable(title="tables and figures" + (", fast" if fast else ""))
    for title in (
        "label",
        "number",
        "nickname",
        "about",
        "measured",
        "trainings missing",
        "hours left",
        "hours in all",
    ):
        shown.add_column(title, no_wrap=title != "about")
    times = Times(store, engine.device)
    entries: tuple[Table | PaperFigure, ...] = (*TABLES, *STAND_INS, *FIGURES)
    todo: list[Job] = []
    for entry in entries:
        required = measurements([entry], fast=fast)
        left = missing([entry], store, fast=fast)
        todo += left
        stored = len(required) - sum(len(job.measurements) for job in left)
        complete = jobs(required)
        hours = (
            f"{seconds / 3600 / engine.processes:.1f}{'' if timed == len(selected) else ' ?'}"
            for selected, (seconds, timed) in (
                (left, times.estimate(left)),
                (complete, times.estimate(complete, anew=True)),
            )
        )
        _, nickname, *number = entry.names
        counts = (f"{stored} of {len(required)}", str(len(left)), *hours)
        shown.add_row(entry.label, "".join(number), nickname, entry.about, *counts)
    shown.caption = (
        f"hours on {engine.device} with {engine.processes} processes; ? marks estimates that are partly not based on stored "
        f"runtimes on this device{_downloads(todo)}"
    )
    return shown


def job_table(todo: Sequence[Job], store: Store, device: str, processes: int | None, *, fast: bool) -> RichTable:
    """Return a table of jobs, with an estimate of their runtime in the title.

    Args:
        todo: Jobs.
        store: Store with the runtimes of earlier jobs.
        device: Device type that the jobs would run on.
        processes: Number of processes; None if unknown, as on a cluster.
        fast: Whether the jobs are those of the fast version.
    """
    seconds, timed = Times(store, device).estimate(todo)
    how = "sequentially" if processes in (None, 1) else f"with {processes} processes"
    hours = f"about {seconds / 3600 / (processes or 1):.2g} h {how}"
    basis = f"{timed} of {len(todo)} from stored runtimes on this device" if todo else "nothing to do"
    shown = RichTable(title=f"{len(todo)} jobs{', fast' if fast else ''}, {hours} ({basis}{_downloads(todo)})")
    shown.add_column("training")
    shown.add_column("measured")
    for job in todo:
        shown.add_row(job.name, "; ".join(measurement.label for measurement in job.measurements))
    return shown


def _downloads(todo: Iterable[Job]) -> str:
    """Name the datasets that are not on this machine."""
    absent = [dataset.name for dataset in dict.fromkeys(job.run.dataset for job in todo) if not is_local(dataset)]
    return f"; to be downloaded first: {', '.join(absent)}" if absent else ""
