"""``edgeproof reproduce``: the paper's tables and figures, run for real."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from edgeproof import datasets, models
from edgeproof._files import check_writable
from edgeproof._names import look_up, unknown_name
from edgeproof.cli._options import LogDir, parse_device
from edgeproof.cli._plans import listed, planned
from edgeproof.cli._printing import print_table
from edgeproof.experiments import Interrupted, Job, Store, run_jobs
from edgeproof.experiments.engines import Engine, JobFailedError, LocalEngine, RayEngine
from edgeproof.experiments.export import check_format
from edgeproof.experiments.graphs import STAND_IN
from edgeproof.experiments.runner import run_without_models
from edgeproof.paper import FIGURES, STAND_INS, TABLES, PaperFigure, Selection, Table, compare, missing
from edgeproof.paper.figures import figures_page, write_drawing
from edgeproof.paper.figures.page import FORMATS
from edgeproof.paper.recipes import TRAININGS
from edgeproof.paper.render import export, export_summary, in_terminal, in_terminal_summary, page, several_models
from edgeproof.splits import PROTOCOLS
from edgeproof.training.tensorboard import check_tensorboard

StoreOption = Annotated[Path, typer.Option(help="Folder of the results; what is in it is not run again.")]
DEFAULT_STORE = Path("results") / "experiments"


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
    summary: Annotated[
        bool, typer.Option("--summary", help="One line per table: how many cells match, how many are apart.")
    ] = False,
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
    dataset: Annotated[
        list[str] | None, typer.Option(help="Run only rows of this graph, and of tables show no others; repeatable.")
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="Likewise, only rows of this model; repeatable.")] = None,
    training: Annotated[
        list[str] | None,
        typer.Option(help=f"Likewise, only rows of this training, one of {', '.join(TRAININGS)}; repeatable."),
    ] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Run only this seed; repeatable.")] = None,
    store: StoreOption = DEFAULT_STORE,
    engine: Annotated[str, typer.Option(help="'local', processes on this machine; or 'ray', a cluster.")] = "local",
    address: Annotated[str | None, typer.Option(help="Ray: the cluster's address, as ray start prints it.")] = None,
    cpus: Annotated[float | None, typer.Option(help="Ray: cores of each task; 1 by default.")] = None,
    gpus: Annotated[
        float | None, typer.Option(help="Ray: share of a GPU of each task, such as 0.1; none by default.")
    ] = None,
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
    check_known("engine", [engine], ["local", "ray"])
    _check_fits(engine, address=address, cpus=cpus, gpus=gpus, jobs=jobs, device=device, threads=threads)
    only = Selection(dataset or (), model or (), training or (), seed or ())
    modes = {
        "--list": list_all,
        "--summary": summary,
        "--dry-run": dry_run,
        "--show": show,
        "--page": page_path is not None,
        "--figure-page": figure_page is not None,
    }
    _check_mode([name for name, given in modes.items() if given], bool(names), only, form)
    device = str(parse_device(device, there=False))
    if show or summary or page_path or figure_page or store.exists():
        check_store(store)
    console, kept = Console(), Store(store)
    if page_path is not None:
        check_writable(page_path)
        compared = [compare(one, kept, fast=fast) for one in (*TABLES, *STAND_INS)]
        page_path.write_text(page(compared, several_models(kept, fast=fast)), encoding="utf-8")
        console.print(f"wrote {page_path}", soft_wrap=True, markup=False)
        return
    if figure_page is not None:
        _write_figure_page(figure_page, kept, protocol, fast)
        console.print(f"wrote {figure_page}", soft_wrap=True, markup=False)
        return
    if list_all or not (names or summary):
        print_table(listed(kept, LocalEngine(jobs, device, threads), fast=fast))
        return
    chosen = _chosen(names or ["all"], protocol)
    tables = [one for one in chosen if isinstance(one, Table)]
    if summary:
        printed = [one for one in tables if one.stands_for is None]
        if not printed:
            raise ValueError("expected names of the paper's tables to sum up, got others alone")
        only.check(printed, fast=fast)
        summed = [found for one in printed if (found := compare(one, kept, fast=fast, only=only)).cells]
        if form is None:
            print_table(in_terminal_summary(summed))
        else:
            print(export_summary(summed, form), end="")
        return
    if form is not None and not tables:
        raise ValueError("expected --format with names of tables, got figures alone")
    only.check(chosen, fast=fast)
    todo = [job for job in missing(chosen, kept, fast=fast) if only.has(job)]
    if dry_run:
        where = ("cuda" if gpus else "cpu", None) if engine == "ray" else (device, LocalEngine(jobs, device).processes)
        print_table(planned(todo, kept, *where, fast=fast))
        return
    figures = [one for one in chosen if isinstance(one, PaperFigure)]
    if figures:
        check_writable(out / "figure.png")
    failed: JobFailedError | None = None
    if todo and not show:
        if log_dir is not None:
            check_tensorboard()
            check_writable(log_dir / "events")
        check_writable(kept.root / "result.json")
        runner: Engine
        if engine == "ray":
            runner = RayEngine(address, 1 if cpus is None else cpus, 0 if gpus is None else gpus, log_dir)
        else:
            runner = LocalEngine(jobs, str(parse_device(device)), threads, log_dir)
        try:
            _run(runner, todo, kept)
        except JobFailedError as error:
            # What the others found is shown first.
            failed = error
    comparisons = [one for table in tables if (one := compare(table, kept, fast=fast, only=only)).cells]
    if form is not None and comparisons:
        print(export(comparisons, form), end="")
    else:
        for comparison in comparisons:
            print_table(in_terminal(comparison))
    # What is printed in another form is for programs, and nothing else comes between.
    told = console if form is None else Console(stderr=True)
    for figure in figures:
        _draw(figure, kept, fast, out, image or FORMATS, told)
    if failed is not None:
        raise failed


def _chosen(names: list[str], protocol: str) -> list[Table | PaperFigure]:
    """Tables and figures by their names."""
    everything: list[Table | PaperFigure] = [*TABLES, *STAND_INS, *FIGURES]
    known = {name: [one] for one in everything for name in one.names}
    known |= {"all": list(TABLES), "figures": list(FIGURES)}
    # Each once, however often it was named.
    found = {one.label: one for name in names for one in look_up("table or figure", name, known)}
    return [replace(one, protocol=protocol) if isinstance(one, PaperFigure) else one for one in found.values()]


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
    run_without_models(missing(FIGURES, store, fast=fast), store, "edgeproof " + " ".join(sys.argv[1:]))
    folder = path.with_suffix("")
    drawings = [(figure, replace(figure, protocol=protocol).draw(store, fast=fast)) for figure in FIGURES]
    for _, drawing in drawings:
        write_drawing(drawing, folder)
    path.write_text(figures_page(drawings, folder.name), encoding="utf-8")


def check_store(store: Path) -> None:
    """Raise if this is no folder: a mistyped one would look as if there were no results."""
    if not store.is_dir():
        raise ValueError(f"expected a folder of results, got {store}, which is none; edgeproof reproduce makes one")


def check_names(graphs: list[str] | None, names: list[str] | None) -> None:
    """Raise for a graph or a model that there is none of, before anything is run."""
    check_known("dataset", graphs, [*datasets.available(), STAND_IN])
    check_known("model", names, models.available())


def check_known(kind: str, chosen: list[str] | None, known: Sequence[str]) -> None:
    for name in chosen or []:
        if name not in known:
            raise unknown_name(kind, name, list(known))


def _check_fits(
    engine: str,
    *,
    address: str | None,
    cpus: float | None,
    gpus: float | None,
    jobs: int | None,
    device: str,
    threads: int | None,
) -> None:
    """Raise for options that would have no effect with this engine."""
    if engine == "ray" and device != "cpu":
        raise ValueError(
            f"expected --gpus, the share of a GPU of each task, in place of --device {device} with --engine ray"
        )
    if engine == "ray" and (jobs is not None or threads is not None):
        raise ValueError("expected --cpus, the cores of each task, in place of --jobs and --threads with --engine ray")
    if engine == "local" and (address is not None or cpus is not None or gpus is not None):
        raise ValueError("expected --address, --cpus and --gpus with --engine ray only")
    LocalEngine(jobs, "cpu", threads)


def _check_mode(modes: Sequence[str], named: bool, only: Selection, form: str | None) -> None:
    """Raise for modes that exclude each other, and for what would have no effect in the one that is chosen.

    Args:
        modes: those that are asked for; with none, what is named is run, and with nothing named, all is listed.
        named: whether tables or figures are.
        only: the part of them that is wanted.
        form: in which they are to be printed.
    """
    if len(modes) > 1:
        raise ValueError(f"expected one of {', '.join(modes)} at a time")
    mode = modes[0] if modes else ""
    about_all = mode in ("--list", "--page", "--figure-page")
    if only != Selection() and (about_all or not (named or mode == "--summary")):
        raise ValueError("expected --dataset, --model, --training and --seed with names of tables and figures only")
    if named and about_all:
        raise ValueError(f"expected no names with {mode}, which is about all tables or figures")
    if mode == "--summary" and only.seeds:
        raise ValueError("expected --summary without --seed: means over all seeds are compared")
    if form is not None and (about_all or mode == "--dry-run" or not (named or mode == "--summary")):
        raise ValueError("expected --format with tables that are shown, or with --summary, only")


def _run(engine: Engine, todo: list[Job], store: Store) -> None:
    try:
        run_jobs(engine, todo, store, "edgeproof " + " ".join(sys.argv[1:]))
    except Interrupted as interrupt:
        print(interrupt, file=sys.stderr)
        raise typer.Exit(130) from None
