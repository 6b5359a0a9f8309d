"""``edgeproof reproduce``: the paper's tables and figures, run for real."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table as RichTable

from edgeproof import datasets, models
from edgeproof._files import check_writable
from edgeproof._names import look_up, unknown_name
from edgeproof._progress import progress_bar
from edgeproof.cli._options import LogDir, parse_device
from edgeproof.experiments import FIGURES, STAND_INS, TABLES, Job, PaperFigure, Store, Table, compare, missing
from edgeproof.experiments.engines import Engine, JobFailedError, LocalEngine, RayEngine, Report
from edgeproof.experiments.estimate import Times
from edgeproof.experiments.figures import figures_page, write_drawing
from edgeproof.experiments.figures.page import FORMATS
from edgeproof.experiments.paper import STAND_IN
from edgeproof.experiments.plan import TRAININGS, measures
from edgeproof.experiments.render import check_format, export, in_terminal, in_terminal_summary, page
from edgeproof.experiments.work import keep, read_off
from edgeproof.splits import PROTOCOLS
from edgeproof.training.tensorboard import check_tensorboard

StoreOption = Annotated[Path, typer.Option(help="Folder of the results; what is in it is not run again.")]
DEFAULT_STORE = Path("results") / "experiments"
# Columns of what is not printed in a terminal.
_WIDE = 240


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Tables and figures by label, number (1, or fig1) or nickname; 'all' stands for all tables of the paper, "
            "'figures' for all figures.",
        ),
    ] = None,
    list_all: Annotated[
        bool,
        typer.Option("--list", help="List tables and figures: what is done, what is missing, how long it takes here."),
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
    figure_page: Annotated[
        Path | None,
        typer.Option(
            help="Draw all figures that there is something of, and write a page in Markdown; files go beside it."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for figures.")] = Path("figures"),
    image: Annotated[
        list[str] | None, typer.Option(help="Files of figures: png, svg; repeatable, by default both.")
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="Splits of figures, where protocols differ: strict or as_released. Tables have both.")
    ] = "strict",
    dataset: Annotated[list[str] | None, typer.Option(help="Run only rows of this graph; repeatable.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="Run only rows of this model; repeatable.")] = None,
    training: Annotated[
        list[str] | None,
        typer.Option(help=f"Run only rows of this training, one of {', '.join(TRAININGS)}; repeatable."),
    ] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Run only this seed; repeatable.")] = None,
    store: StoreOption = DEFAULT_STORE,
    engine: Annotated[str, typer.Option(help="'local', processes on this machine; or 'ray', a cluster.")] = "local",
    address: Annotated[str | None, typer.Option(help="Ray: the cluster's address, as ray start prints it.")] = None,
    cpus: Annotated[float, typer.Option(help="Ray: cores of each task.")] = 1,
    gpus: Annotated[float, typer.Option(help="Ray: share of a GPU of each task, such as 0.1; 0 for none.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Processes at once; by default what this machine bears.")] = None,
    device: Annotated[str, typer.Option(help="'cpu' or 'cuda'; several processes share one GPU.")] = "cpu",
    threads: Annotated[int | None, typer.Option(help="CPU threads per process.")] = None,
    log_dir: LogDir = None,
) -> None:
    """Run a table or a figure of the paper, as far as it is not in the store yet, and show it.

    It is a set of trainings (graph, model, training, seed) and of what is measured of them. Every result is kept as soon as it
    is there: stop at any time, and the same command goes on. Tables are printed beside the paper's figures; green cells are
    within two of the paper's standard errors. Figures are drawn as far as there are results.

    Examples: edgeproof reproduce --list; edgeproof reproduce main --dry-run; edgeproof reproduce tab:results --device cuda;
    edgeproof reproduce fig:karate --out figures
    """
    check_names(dataset, model)
    check_known("training", training, TRAININGS)
    if form is not None:
        check_format(form)
    for kind in image or []:
        if kind not in FORMATS:
            raise ValueError(f"expected png or svg, got {kind!r}")
    check_known("protocol", [protocol], PROTOCOLS)
    if engine == "ray" and device != "cpu":
        raise ValueError(
            f"expected --gpus, the share of a GPU of each task, in place of --device {device} with --engine ray"
        )
    device = str(parse_device(device, there=False))
    # What is read by a program, or later, has room for whole names and figures.
    console, kept = Console() if sys.stdout.isatty() else Console(width=_WIDE), Store(store)
    if page_path is not None:
        check_writable(page_path)
        page_path.write_text(page([compare(one, kept, fast=fast) for one in (*TABLES, *STAND_INS)]), encoding="utf-8")
        console.print(f"wrote {page_path}", soft_wrap=True, markup=False)
        return
    if figure_page is not None:
        _write_figure_page(figure_page, kept, protocol, fast)
        console.print(f"wrote {figure_page}", soft_wrap=True, markup=False)
        return
    if list_all or not (names or summary):
        console.print(_listed(kept, fast, LocalEngine(jobs, device, threads)))
        return
    chosen = _chosen(names or ["all"], protocol)
    if not summary:
        _check_filters(chosen, fast, dataset, model, training, seed)
    tables = [one for one in chosen if isinstance(one, Table)]
    if summary:
        printed = [one for one in tables if one.stands_for is None]
        if not printed:
            raise ValueError("expected names of the paper's tables to sum up, got others alone")
        console.print(in_terminal_summary([compare(one, kept, fast=fast) for one in printed]))
        return
    todo = [
        job
        for job in missing(chosen, kept, fast=fast)
        if (not dataset or job.recipe.row.dataset in dataset)
        and (not model or job.recipe.row.model in model)
        and (not training or job.training in training)
        and (not seed or job.recipe.seed in seed)
    ]
    if dry_run:
        console.print(_planned(todo, kept, LocalEngine(jobs, device, threads)))
        return
    figures = [one for one in chosen if isinstance(one, PaperFigure)]
    if figures:
        check_writable(out / "figure.png")
    failed: JobFailedError | None = None
    if not show:
        runner = _engine(engine, address, cpus, gpus, jobs, device, threads, log_dir)
        check_writable(kept.root / "result.json")
        try:
            _run(runner, todo, kept)
        except JobFailedError as error:
            # What the others found is shown first.
            failed = error
    for table in tables:
        comparison = compare(table, kept, fast=fast)
        print(export(comparison, form), end="") if form else console.print(in_terminal(comparison))
    for figure in figures:
        _draw(figure, kept, fast, out, image or FORMATS, console)
    if failed is not None:
        raise failed


def _chosen(names: list[str], protocol: str) -> list[Table | PaperFigure]:
    """Tables and figures by their names."""
    everything: list[Table | PaperFigure] = [*TABLES, *STAND_INS, *FIGURES]
    known = {name: [one] for one in everything for name in (one.label, one.nickname)}
    known |= {"all": list(TABLES), "figures": list(FIGURES)}
    numbers = {
        str(one.number) if isinstance(one, Table) else f"fig{one.number}": [one] for one in everything if one.number
    }
    found = [one for name in names for one in numbers.get(name) or look_up("table or figure", name, known)]
    return [replace(one, protocol=protocol) if isinstance(one, PaperFigure) else one for one in found]


def _draw(figure: PaperFigure, store: Store, fast: bool, folder: Path, forms: Sequence[str], console: Console) -> None:
    drawing = figure.draw(store, fast=fast)
    written = write_drawing(drawing, folder, forms)
    console.print(
        f"{figure.label}: {', '.join(map(str, written)) or 'nothing to draw yet'}", soft_wrap=True, markup=False
    )
    for one in drawing.missing:
        console.print(f"  missing: {one}", soft_wrap=True, highlight=False, markup=False)


def _write_figure_page(path: Path, store: Store, protocol: str, fast: bool) -> None:
    """The page, and in a folder of its name the pictures."""
    check_writable(path)
    for job in missing(FIGURES, store, fast=fast):
        # A page can also be drawn where some graphs are not at hand.
        with suppress(OSError):
            _without_models([job], store, "edgeproof " + " ".join(sys.argv[1:]))
    folder = path.with_suffix("")
    drawings = [(figure, replace(figure, protocol=protocol).draw(store, fast=fast)) for figure in FIGURES]
    for _, drawing in drawings:
        write_drawing(drawing, folder)
    path.write_text(figures_page(drawings, folder.name), encoding="utf-8")


def _check_filters(
    chosen: Sequence[Table | PaperFigure],
    fast: bool,
    graphs: list[str] | None,
    names: list[str] | None,
    trainings: list[str] | None,
    seeds: list[int] | None,
) -> None:
    """Raise for a filter that nothing in these tables and figures passes."""
    jobs = [Job(measure.recipe, ()) for measure in measures(chosen, fast=fast)]
    for kind, wanted, known in (
        ("dataset", graphs, {job.recipe.row.dataset for job in jobs}),
        ("model", names, {job.recipe.row.model for job in jobs}),
        ("training", trainings, {job.training for job in jobs}),
        ("seed", seeds, {job.recipe.seed for job in jobs}),
    ):
        for one in wanted or []:
            if one not in known:
                there = ", ".join(map(str, sorted(known)))
                raise ValueError(f"expected a {kind} that is in there ({there}), got {one}")


def check_names(graphs: list[str] | None, names: list[str] | None) -> None:
    """Raise for a graph or a model that there is none of, before anything is run."""
    check_known("dataset", graphs, [*datasets.available(), STAND_IN])
    check_known("model", names, models.available())


def check_known(kind: str, chosen: list[str] | None, known: Sequence[str]) -> None:
    for name in chosen or []:
        if name not in known:
            raise unknown_name(kind, name, list(known))


def _engine(
    name: str,
    address: str | None,
    cpus: float,
    gpus: float,
    jobs: int | None,
    device: str,
    threads: int | None,
    log_dir: Path | None,
) -> Engine:
    if log_dir is not None:
        check_tensorboard()
        check_writable(log_dir / "events")
    if name == "local":
        return LocalEngine(jobs, str(parse_device(device)), threads, log_dir)
    if name == "ray":
        return RayEngine(address, cpus, gpus, log_dir)
    raise unknown_name("engine", name, ["local", "ray"])


def _run(engine: Engine, todo: list[Job], store: Store) -> None:
    command = "edgeproof " + " ".join(sys.argv[1:])
    todo = _without_models(todo, store, command)
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


def _without_models(todo: list[Job], store: Store, command: str) -> list[Job]:
    """Do at once what needs no model; what is left of the jobs."""
    left = []
    for job in todo:
        for product in read_off(job, store, command):
            keep(product, store)
        rest = tuple(measure for measure in job.measures if store.get(measure.identity) is None)
        left += [Job(job.recipe, rest)] if rest else []
    return left


def _interrupted(done: int, total: int, store: Store) -> int:
    print(
        f"stopped: {done} of {total} jobs done, all that was found is in {store.root}; run it again to go on",
        file=sys.stderr,
    )
    return 130


def _listed(store: Store, fast: bool, engine: LocalEngine) -> RichTable:
    shown = RichTable(title="tables and figures" + (", fast" if fast else ""))
    for title in ("label", "number", "nickname", "about", "measured", "trainings missing", "hours here"):
        shown.add_column(title)
    times = Times(store, engine.device)
    everything: tuple[Table | PaperFigure, ...] = (*TABLES, *STAND_INS, *FIGURES)
    for one in everything:
        needed = measures([one], fast=fast)
        left = missing([one], store, fast=fast)
        there = len(needed) - sum(len(job.measures) for job in left)
        hours = times.estimate(left)[0] / 3600 / engine.processes
        number = "" if not one.number else str(one.number) if isinstance(one, Table) else f"fig{one.number}"
        counts = (f"{there} of {len(needed)}", str(len(left)), f"{hours:.1f}" if left else "")
        shown.add_row(one.label, number, one.nickname, one.about, *counts)
    return shown


def _planned(todo: list[Job], store: Store, engine: LocalEngine) -> RichTable:
    seconds, known = Times(store, engine.device).estimate(todo)
    hours = seconds / 3600 / engine.processes
    basis = f"{known} of {len(todo)} from times measured on such a device" if todo else "nothing to do"
    shown = RichTable(title=f"{len(todo)} jobs, about {hours:.1f} h with {engine.processes} processes ({basis})")
    shown.add_column("training")
    shown.add_column("measured")
    for job in todo:
        shown.add_row(job.name, ", ".join(measure.kind for measure in job.measures))
    return shown
