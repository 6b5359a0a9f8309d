"""Tables of what there is to run, for terminals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table as RichTable

from edgeproof.experiments import Job, Store
from edgeproof.experiments.engines import LocalEngine
from edgeproof.experiments.estimate import Times
from edgeproof.experiments.graphs import is_local
from edgeproof.paper import FIGURES, STAND_INS, TABLES, PaperFigure, Table, missing
from edgeproof.paper.plan import jobs, measurements


def listed(store: Store, engine: LocalEngine, *, fast: bool) -> RichTable:
    """All tables and figures: what is done of them, what is missing, how long it would take."""
    where = f"hours on {engine.device}, several jobs at once: {engine.processes}"
    caption = f"{where}; ? where nothing like it has been timed there: partly guessed"
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
    everything: tuple[Table | PaperFigure, ...] = (*TABLES, *STAND_INS, *FIGURES)
    todo: list[Job] = []
    for one in everything:
        needed = measurements([one], fast=fast)
        left = missing([one], store, fast=fast)
        todo += left
        there = len(needed) - sum(len(job.measurements) for job in left)
        every = jobs(needed)
        hours = (
            f"{seconds / 3600 / engine.processes:.1f}{'' if known == len(some) else ' ?'}"
            for some, (seconds, known) in ((left, times.estimate(left)), (every, times.estimate(every, anew=True)))
        )
        _, nickname, *number = one.names
        counts = (f"{there} of {len(needed)}", str(len(left)), *hours)
        shown.add_row(one.label, "".join(number), nickname, one.about, *counts)
    shown.caption = f"{caption}{_downloads(todo)}"
    return shown


def planned(todo: Sequence[Job], store: Store, device: str, processes: int | None, *, fast: bool) -> RichTable:
    """These jobs, and how long they would take.

    Args:
        todo: the jobs.
        store: where times are taken from.
        device: where they would run.
        processes: how many at once; none if that is not known, as on a cluster.
        fast: whether they are of the smaller version.
    """
    seconds, known = Times(store, device).estimate(todo)
    how = "one after the other" if processes in (None, 1) else f"with {processes} processes"
    hours = f"about {seconds / 3600 / (processes or 1):.2g} h {how}"
    basis = f"{known} of {len(todo)} from times of such work on such a device" if todo else "nothing to do"
    shown = RichTable(title=f"{len(todo)} jobs{', fast' if fast else ''}, {hours} ({basis}{_downloads(todo)})")
    shown.add_column("training")
    shown.add_column("measured")
    for job in todo:
        shown.add_row(job.name, ", ".join(measurement.label for measurement in job.measurements))
    return shown


def _downloads(jobs: Iterable[Job]) -> str:
    """Which graphs of these are not on this machine, and would have to be fetched first."""
    absent = [dataset.name for dataset in dict.fromkeys(job.run.dataset for job in jobs) if not is_local(dataset)]
    return f"; to be downloaded first: {', '.join(absent)}" if absent else ""
