"""``edgeproof sweep``: run a sweep that a TOML file declares."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table as RichTable

from edgeproof._files import check_writable
from edgeproof.cli._engines import Address, Cpus, EngineDevice, EngineName, EngineOptions, Gpus, Jobs, Threads
from edgeproof.cli._options import LogDir
from edgeproof.cli._printing import command_line, print_table
from edgeproof.experiments import (
    Engine,
    Job,
    JobFailedError,
    LocalEngine,
    Store,
    Sweep,
    missing_jobs,
    read_sweep,
    run_jobs,
    summarize,
)
from edgeproof.experiments.estimate import Times
from edgeproof.experiments.export import as_text, check_format
from edgeproof.experiments.graphs import is_local


def sweep(
    file: Annotated[Path, typer.Argument(help="The TOML file.", show_default=False)],
    store: Annotated[
        Path | None, typer.Option(help="Folder of the results. Default: results/ and the name of the file.")
    ] = None,
    engine: EngineName = "local",
    address: Address = None,
    cpus: Cpus = None,
    gpus: Gpus = None,
    jobs: Jobs = None,
    device: EngineDevice = "cpu",
    threads: Threads = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be run and how long it would take.")
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="Print stored results; run nothing.")] = False,
    form: Annotated[str | None, typer.Option("--format", help="Print as csv, latex or markdown.")] = None,
    log_dir: LogDir = None,
) -> None:
    """Train and measure all combinations of datasets, splits, models, trainings and seeds.

    Every result is stored as soon as it exists. Interrupt the command at any time; the same command continues. The table shows
    accuracies in percent, as means over seeds with standard errors.

    Examples: edgeproof sweep examples/sweep.toml --dry-run; edgeproof sweep my.toml --device cuda;
    edgeproof sweep my.toml --engine ray --address 10.0.0.1:6379
    """
    if form is not None:
        check_format(form)
    if dry_run and (show or form is not None):
        raise ValueError("expected --dry-run without --show and --format")
    options = EngineOptions(engine, address, cpus, gpus, jobs, device, threads)
    options.check()
    declared, results = read_sweep(file), Store(Path("results") / file.stem if store is None else store)
    todo = [] if show else missing_jobs(declared.jobs(), results)
    if dry_run:
        print_table(_planned(todo, results, *options.estimated_on()))
        return
    failure: JobFailedError | None = None
    if todo:
        check_writable(results.root / "result.json")
        runner = options.build(log_dir)
        _print_estimate(todo, results, runner)
        try:
            run_jobs(runner, todo, results, command_line())
        except JobFailedError as error:
            # The results of the other jobs are shown first.
            failure = error
    _print_results(declared, results, form)
    if failure is not None:
        raise failure


def _planned(todo: list[Job], store: Store, device: str, processes: int | None) -> RichTable:
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


def _print_estimate(todo: list[Job], store: Store, engine: Engine) -> None:
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


def _print_results(declared: Sweep, store: Store, form: str | None) -> None:
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
