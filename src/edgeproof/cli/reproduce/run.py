"""``edgeproof reproduce run``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeproof._catalog import PROTOCOLS
from edgeproof._files import check_writable
from edgeproof.cli._engines import Address, Cpus, EngineDevice, EngineName, EngineOptions, Gpus, Jobs, Threads
from edgeproof.cli._options import (
    DEFAULT_STORE,
    Force,
    Format,
    LogDir,
    Protocol,
    StoreOption,
    check_name,
    check_store,
)
from edgeproof.cli._printing import command_line, print_table
from edgeproof.cli.reproduce._common import (
    FIGURE_FORMATS,
    DatasetFilter,
    Fast,
    FigureFolder,
    FigureFormats,
    ModelFilter,
    Names,
    SeedFilter,
    TrainingFilter,
    check_figure_formats,
    find,
    print_tables,
    select,
)
from edgeproof.cli.reproduce.figures import check_figure_files, draw

if TYPE_CHECKING:
    from edgeproof.experiments import Engine, Job, JobFailedError, Store


def run(
    names: Names,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the missing jobs and an estimate of their runtime, and run nothing."),
    ] = False,
    fast: Fast = False,
    output_format: Format = None,
    out: FigureFolder = Path("figures"),
    image: FigureFormats = None,
    protocol: Protocol = "strict",
    dataset: DatasetFilter = None,
    model: ModelFilter = None,
    training: TrainingFilter = None,
    seed: SeedFilter = None,
    store: StoreOption = DEFAULT_STORE,
    engine: EngineName = "local",
    address: Address = None,
    cpus: Cpus = None,
    gpus: Gpus = None,
    jobs: Jobs = None,
    device: EngineDevice = "cpu",
    threads: Threads = None,
    log_dir: LogDir = None,
    force: Force = False,
) -> None:
    """Run the missing experiments of tables and figures, and show them.

    Tables are printed beside the paper's numbers, which are green within two of the paper's standard errors. --protocol applies
    to figures; tables have both protocols. If it is interrupted, the same command resumes.

    Examples: [bold]edgeproof reproduce run main --dry-run[/], [bold]edgeproof reproduce run tab:results --device cuda[/],
    [bold]edgeproof reproduce run fig:karate --out figures[/]
    """
    from edgeproof.experiments import Store
    from edgeproof.experiments.export import check_format
    from edgeproof.paper import PaperFigure, Table, missing

    selection = select(dataset, model, training, seed)
    if output_format is not None:
        check_format(output_format)
    check_figure_formats(image)
    check_name("protocol", protocol, PROTOCOLS)
    options = EngineOptions(engine, address, cpus, gpus, jobs, device, threads)
    options.check()
    entries = find(names, protocol)
    tables = [entry for entry in entries if isinstance(entry, Table)]
    figures = [entry for entry in entries if isinstance(entry, PaperFigure)]
    if output_format is not None and (dry_run or not tables):
        raise ValueError("expected --format with tables and without --dry-run")
    if store.exists():
        check_store(store)
    results = Store(store)
    selection.check(entries, fast=fast)
    todo = [job for job in missing(entries, results, fast=fast) if selection.has(job)]
    if dry_run:
        from edgeproof.cli._jobs import job_table

        print_table(job_table(todo, results, *options.estimated_on(), fast=fast))
        return
    check_figure_files(figures, out, image or FIGURE_FORMATS, fast=fast, force=force)
    failure = None
    if todo:
        check_writable(results.root / "result.json")
        failure = _run_jobs(options.build(log_dir), todo, results)
    print_tables(tables, results, selection, fast=fast, output_format=output_format)
    # Standard output contains nothing but the exported table.
    stream = sys.stdout if output_format is None else sys.stderr
    for figure in figures:
        draw(figure, results, out, image or FIGURE_FORMATS, fast=fast, stream=stream)
    if failure is not None:
        raise failure


def _run_jobs(engine: Engine, jobs: Sequence[Job], store: Store) -> JobFailedError | None:
    """Run the jobs, and return the error of failed jobs: results of the other jobs are shown first."""
    from edgeproof.experiments import JobFailedError, run_jobs

    try:
        run_jobs(engine, jobs, store, command_line())
    except JobFailedError as error:
        return error
    return None
