"""``edgeproof sweep``: run a sweep that a TOML file declares."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgeproof._files import check_writable
from edgeproof.cli._engines import Address, Cpus, EngineDevice, EngineName, EngineOptions, Gpus, Jobs, Threads
from edgeproof.cli._options import LogDir
from edgeproof.cli._printing import command_line, print_table


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

    Examples: [bold]edgeproof sweep examples/sweep.toml --dry-run[/], [bold]edgeproof sweep my.toml --device cuda[/],
    [bold]edgeproof sweep my.toml --engine ray --address 10.0.0.1:6379[/]
    """
    from edgeproof.cli._sweep_tables import job_table, print_estimate, print_results
    from edgeproof.experiments import JobFailedError, Store, missing_jobs, read_sweep, run_jobs
    from edgeproof.experiments.export import check_format

    if form is not None:
        check_format(form)
    if dry_run and (show or form is not None):
        raise ValueError("expected --dry-run without --show and --format")
    options = EngineOptions(engine, address, cpus, gpus, jobs, device, threads)
    options.check()
    declared, results = read_sweep(file), Store(Path("results") / file.stem if store is None else store)
    todo = [] if show else missing_jobs(declared.jobs(), results)
    if dry_run:
        print_table(job_table(todo, results, *options.estimated_on()))
        return
    failure: JobFailedError | None = None
    if todo:
        check_writable(results.root / "result.json")
        runner = options.build(log_dir)
        print_estimate(todo, results, runner)
        try:
            run_jobs(runner, todo, results, command_line())
        except JobFailedError as error:
            # The results of the other jobs are shown first.
            failure = error
    print_results(declared, results, form)
    if failure is not None:
        raise failure
