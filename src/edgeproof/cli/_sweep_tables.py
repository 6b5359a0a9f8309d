"""Tables and estimates of ``edgeproof sweep``."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table as RichTable

from edgeproof.cli._printing import print_table
from edgeproof.experiments import Engine, Job, LocalEngine, Store, Sweep, summarize
from edgeproof.experiments.estimate import Times
from edgeproof.experiments.export import as_text
from edgeproof.experiments.graphs import is_local


def job_table(todo: list[Job], store: Store, device: str, processes: int | None) -> RichTable:
    """Return a table of the jobs and an estimate of their run time."""
    seconds, known = Times(store, device).estimate(todo)
    how = "one after the other" if processes in (None, 1) else f"with {processes} processes"
    basis = f"{known} of {len(todo)} jobs from stored run times" if todo else "nothing to do"
    downloads = [dataset.name for dataset in dict.fromkeys(job.run.dataset for job in todo) if not is_local(dataset)]
    fetch = f"; to be downloaded first: {', '.join(downloads)}" if downloads else ""
    shown = RichTable(title=f"{len(todo)} jobs, about {_duration(seconds / (processes or 1))} {how} ({basis}{fetch})")
    shown.add_column("run")
    shown.add_column("measurements")
    for job in todo:
        shown.add_row(job.name, "; ".join(measurement.label for measurement in job.measurements))
    return shown


def print_estimate(todo: list[Job], store: Store, engine: Engine) -> None:
    """Print the estimated run time of the jobs to standard error."""
    seconds, known = Times(store, engine.device).estimate(todo)
    processes = engine.processes if isinstance(engine, LocalEngine) else 1
    basis = f"{known} of {len(todo)} jobs from stored run times, the others guessed"
    text = f"{len(todo)} jobs, about {_duration(seconds / processes)} ({basis})"
    Console(stderr=True).print(text, highlight=False, soft_wrap=True, markup=False)


def _duration(seconds: float) -> str:
    """Return a duration in a suitable unit.

    >>> _duration(42), _duration(5400)
    ('42 s', '1.5 h')
    """
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 3600
        else f"{seconds / 3600:.2g} h"
    )


def print_results(declared: Sweep, store: Store, form: str | None) -> None:
    """Print the accuracies of a sweep, as a terminal table or in an export format."""
    table = summarize(declared, store)
    if form is not None:
        print(as_text(table.titles, table.lines, form), end="")
        return
    seeds = f"{len(declared.seeds)} seed{'s' if len(declared.seeds) > 1 else ''}"
    shown = RichTable(title=f"accuracy in percent, {seeds}; store: {store.root}")
    for number, title in enumerate(table.titles):
        shown.add_column(title, justify="left" if number < table.num_names else "right", no_wrap=True)
    for line in table.lines:
        shown.add_row(*line)
    print_table(shown)
