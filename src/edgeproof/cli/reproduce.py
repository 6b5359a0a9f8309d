"""``edgeproof reproduce``: the paper's tables, run for real."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table as RichTable

from edgeproof import datasets, models
from edgeproof._files import check_writable
from edgeproof._names import unknown_name
from edgeproof._progress import progress_bar
from edgeproof.cli._options import parse_device
from edgeproof.experiments import TABLES, Job, Store, compare, find, missing
from edgeproof.experiments.engines import Engine, LocalEngine, RayEngine, Report
from edgeproof.experiments.estimate import estimate
from edgeproof.experiments.plan import TRAININGS, measures
from edgeproof.experiments.render import check_format, export, in_terminal, in_terminal_summary, page

StoreOption = Annotated[Path, typer.Option(help="Folder of the results; what is in it is not run again.")]
DEFAULT_STORE = Path("results") / "experiments"


def reproduce(
    table: Annotated[
        list[str] | None, typer.Argument(help="Tables by label, number or nickname; 'all' for all.")
    ] = None,
    list_tables: Annotated[
        bool, typer.Option("--list", help="List the tables: what is done and what is missing.")
    ] = False,
    summary: Annotated[bool, typer.Option("--summary", help="One line per table: how many cells match.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be run, and an estimate; run nothing.")
    ] = False,
    fast: Annotated[
        bool, typer.Option("--fast", help="A smaller version to try things out, labelled as such.")
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="Print what is in the store; run nothing.")] = False,
    form: Annotated[str | None, typer.Option("--format", help="Print as csv, latex or markdown instead.")] = None,
    page_path: Annotated[
        Path | None, typer.Option("--page", help="Write all that is there as a page in Markdown.")
    ] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="Run only rows of this graph; repeatable.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="Run only rows of this model; repeatable.")] = None,
    training: Annotated[
        list[str] | None,
        typer.Option(help=f"Run only rows of this training, one of {', '.join(TRAININGS)}; repeatable."),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    engine: Annotated[str, typer.Option(help="'local', processes on this machine; or 'ray', a cluster.")] = "local",
    address: Annotated[str | None, typer.Option(help="Ray: the cluster's address, as ray start prints it.")] = None,
    cpus: Annotated[float, typer.Option(help="Ray: cores of each task.")] = 1,
    gpus: Annotated[float, typer.Option(help="Ray: share of a GPU of each task, such as 0.1; 0 for none.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Processes at once; by default what this machine bears.")] = None,
    device: Annotated[str, typer.Option(help="'cpu' or 'cuda'; several processes share one GPU.")] = "cpu",
    threads: Annotated[int | None, typer.Option(help="CPU threads per process.")] = None,
) -> None:
    """Run a table of the paper, as far as it is not in the store yet, and print it beside the paper's figures.

    A table is a set of trainings (graph, model, training, seed) and of what is measured of them. Every result is kept as soon
    as it is there: stop at any time, and the same command goes on. Green cells are within two of the paper's standard errors.

    Examples: edgeproof reproduce --list; edgeproof reproduce main --dry-run; edgeproof reproduce tab:results --device cuda
    """
    check_names(dataset, model)
    _check_known("training", training, TRAININGS)
    if form is not None:
        check_format(form)
    console, kept = Console(), Store(store)
    if page_path is not None:
        check_writable(page_path)
        page_path.write_text(page([compare(one, kept, fast=fast) for one in TABLES]), encoding="utf-8")
        console.print(f"wrote {page_path}")
        return
    if list_tables or not (table or summary):
        console.print(_listed(kept, fast))
        return
    chosen = list(TABLES) if (summary and not table) or table == ["all"] else [find(name) for name in table or []]
    if summary:
        console.print(in_terminal_summary([compare(one, kept, fast=fast) for one in chosen]))
        return
    todo = [
        job
        for job in missing(chosen, kept, fast=fast)
        if (not dataset or job.recipe.row.dataset in dataset)
        and (not model or job.recipe.row.model in model)
        and (not training or job.training in training)
    ]
    if dry_run:
        console.print(_planned(todo, kept, LocalEngine(jobs, device, threads)))
        return
    if not show:
        runner = _engine(engine, address, cpus, gpus, jobs, device, threads)
        check_writable(kept.root / "result.json")
        _run(runner, todo, kept)
    for one in chosen:
        comparison = compare(one, kept, fast=fast)
        print(export(comparison, form), end="") if form else console.print(in_terminal(comparison))


def check_names(graphs: list[str] | None, names: list[str] | None) -> None:
    """Raise for a graph or a model that there is none of, before anything is run."""
    _check_known("dataset", graphs, datasets.available())
    _check_known("model", names, models.available())


def _check_known(kind: str, chosen: list[str] | None, known: Sequence[str]) -> None:
    for name in chosen or []:
        if name not in known:
            raise unknown_name(kind, name, list(known))


def _engine(
    name: str, address: str | None, cpus: float, gpus: float, jobs: int | None, device: str, threads: int | None
) -> Engine:
    if name == "local":
        return LocalEngine(jobs, str(parse_device(device)), threads)
    if name == "ray":
        return RayEngine(address, cpus, gpus)
    raise unknown_name("engine", name, ["local", "ray"])


def _run(engine: Engine, todo: list[Job], store: Store) -> None:
    command = "edgeproof " + " ".join(sys.argv[1:])
    done = 0
    with progress_bar("jobs", len(todo), show=True) as advance:

        def report(one: Report) -> None:
            nonlocal done
            done += 1
            advance(done, one.job.name if one.failure is None else f"{one.job.name} failed")

        try:
            engine.run(todo, store, command, report)
        except KeyboardInterrupt:
            raise typer.Exit(_interrupted(done, len(todo), store)) from None


def _interrupted(done: int, total: int, store: Store) -> int:
    print(
        f"stopped: {done} of {total} jobs done, all that was found is in {store.root}; run it again to go on",
        file=sys.stderr,
    )
    return 130


def _listed(store: Store, fast: bool) -> RichTable:
    shown = RichTable(title="tables of the paper" + (", fast" if fast else ""))
    for title in ("label", "number", "nickname", "about", "measured", "trainings missing"):
        shown.add_column(title)
    for table in TABLES:
        needed = measures([table], fast=fast)
        there = sum(store.get(measure.identity) is not None for measure in needed)
        left = len(missing([table], store, fast=fast))
        shown.add_row(
            table.label, str(table.number), table.nickname, table.about, f"{there} of {len(needed)}", str(left)
        )
    return shown


def _planned(todo: list[Job], store: Store, engine: LocalEngine) -> RichTable:
    seconds, known = estimate(todo, store, engine.device)
    hours = seconds / 3600 / engine.processes
    basis = f"{known} of {len(todo)} from times measured on such a device" if todo else "nothing to do"
    shown = RichTable(title=f"{len(todo)} jobs, about {hours:.1f} h with {engine.processes} processes ({basis})")
    shown.add_column("training")
    shown.add_column("measured")
    for job in todo:
        shown.add_row(job.name, ", ".join(measure.kind for measure in job.measures))
    return shown
