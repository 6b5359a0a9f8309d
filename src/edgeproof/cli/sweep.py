"""``edgeproof sweep``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeproof._files import check_writable
from edgeproof.cli._engines import Address, Cpus, EngineDevice, EngineName, EngineOptions, Gpus, Jobs, Threads
from edgeproof.cli._options import Format, LogDir, check_store
from edgeproof.cli._printing import command_line, print_line, print_table

if TYPE_CHECKING:
    from edgeproof.experiments import Store, Sweep


def sweep(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="TOML file that declares the sweep; see examples/sweep.toml.", show_default=False
        ),
    ],
    store: Annotated[
        Path | None,
        typer.Option(help="Folder of stored results. Default: results/ and the name of FILE."),
    ] = None,
    engine: EngineName = "local",
    address: Address = None,
    cpus: Cpus = None,
    gpus: Gpus = None,
    jobs: Jobs = None,
    device: EngineDevice = "cpu",
    threads: Threads = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the missing jobs and an estimate of their runtime, and run nothing."),
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="Print stored results, and run nothing.")] = False,
    output_format: Format = None,
    log_dir: LogDir = None,
) -> None:
    """Train and measure all combinations of the datasets, splits, models, trainings and seeds of a TOML file.

    The table contains accuracies in percent: means over seeds with standard errors. Every result is stored as soon as it is
    computed; if the command is interrupted, the same command resumes.

    Examples: [bold]edgeproof sweep examples/sweep.toml --dry-run[/], [bold]edgeproof sweep my.toml --device cuda[/],
    [bold]edgeproof sweep my.toml --engine ray --address 10.0.0.1:6379[/]
    """
    from edgeproof.cli._jobs import estimate, job_table
    from edgeproof.experiments import JobFailedError, Store, missing_jobs, read_sweep, run_jobs
    from edgeproof.experiments.execute import check_runs
    from edgeproof.experiments.export import check_format

    if output_format is not None:
        check_format(output_format)
    if dry_run and (show or output_format is not None):
        raise ValueError("expected --dry-run without --show and --format")
    options = EngineOptions(engine, address, cpus, gpus, jobs, device, threads)
    options.check()
    declared, folder = read_sweep(file), Path("results") / file.stem if store is None else store
    if show or folder.exists():
        check_store(folder)
    results = Store(folder)
    todo = [] if show else missing_jobs(declared.jobs(), results)
    check_runs(job.run for job in todo)
    if dry_run:
        print_table(job_table(todo, results, *options.estimated_on()))
        return
    failure: JobFailedError | None = None
    if todo:
        check_writable(results.root / "result.json")
        runner = options.build(log_dir)
        print_line(estimate(todo, results, *options.estimated_on()))
        try:
            run_jobs(runner, todo, results, command_line())
        except JobFailedError as error:
            # Results of the other jobs are shown first.
            failure = error
    _print_results(declared, results, output_format)
    if failure is not None:
        raise failure


def _print_results(sweep: Sweep, store: Store, output_format: str | None) -> None:
    from rich.table import Table

    from edgeproof.experiments import summarize
    from edgeproof.experiments.export import as_text

    summary = summarize(sweep, store)
    if output_format is not None:
        print(as_text(summary.titles, summary.lines, output_format), end="")
        return
    seeds = f"{len(sweep.seeds)} seed{'s' if len(sweep.seeds) > 1 else ''}"
    table = Table(title=f"accuracy in percent, {seeds}; store: {store.root}")
    for number, title in enumerate(summary.titles):
        table.add_column(title, justify="left" if number < summary.num_names else "right", no_wrap=True)
    for line in summary.lines:
        table.add_row(*line)
    print_table(table)
