"""Table of the progress of all tables and figures."""

from __future__ import annotations

from rich.table import Table as RichTable

from edgeproof.cli._jobs import downloads
from edgeproof.experiments import Job, Store
from edgeproof.experiments.engines import LocalEngine
from edgeproof.experiments.estimate import Times
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
        "total hours",
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
                (complete, times.estimate(complete, retrain=True)),
            )
        )
        _, nickname, *number = entry.names
        counts = (f"{stored} of {len(required)}", str(len(left)), *hours)
        shown.add_row(entry.label, "".join(number), nickname, entry.about, *counts)
    shown.caption = (
        f"hours on {engine.device} with {engine.processes} processes; ? marks estimates that are partly not based on stored "
        f"runtimes on this device{downloads(todo)}"
    )
    return shown
