"""``edgeproof reproduce figures``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from edgeproof._catalog import FIGURES as FIGURE_NAMES
from edgeproof._catalog import PROTOCOLS
from edgeproof._files import check_not_existing, check_outputs, check_writable, write_text
from edgeproof.cli._options import DEFAULT_STORE, Force, Protocol, StoreOption, check_name, check_store, complete
from edgeproof.cli._printing import command_line
from edgeproof.cli.reproduce._common import (
    FIGURE_FORMATS,
    Fast,
    FigureFolder,
    FigureFormats,
    check_figure_formats,
    find,
)

if TYPE_CHECKING:
    from edgeproof.experiments import Store
    from edgeproof.paper import PaperFigure


def figures(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Figures by label (fig:karate), number (fig4) or nickname. Default: all figures.",
            autocompletion=complete(FIGURE_NAMES),
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="Write a Markdown page of all figures; images go to a folder of the same name."),
    ] = None,
    out: FigureFolder = Path("figures"),
    image: FigureFormats = None,
    protocol: Protocol = "strict",
    fast: Fast = False,
    store: StoreOption = DEFAULT_STORE,
    force: Force = False,
) -> None:
    """Draw figures from stored results; run nothing.

    Examples: [bold]edgeproof reproduce figures fig:karate --image svg[/],
    [bold]edgeproof reproduce figures --page figures.md[/]
    """
    from edgeproof.experiments import Store
    from edgeproof.paper import PaperFigure

    check_figure_formats(image)
    check_name("protocol", protocol, PROTOCOLS)
    if page is not None and names:
        raise ValueError("expected no names with --page, which contains all figures")
    check_store(store)
    results = Store(store)
    if page is not None:
        _write_page(page, results, protocol, fast=fast, force=force)
        print(f"wrote {page}")
        return
    entries = find(names or ["figures"], protocol)
    tables = [entry.label for entry in entries if not isinstance(entry, PaperFigure)]
    if tables:
        raise ValueError(f"expected figures, got {tables[0]}: use edgeproof reproduce show {tables[0]}")
    drawn = [entry for entry in entries if isinstance(entry, PaperFigure)]
    check_figure_files(drawn, out, image or FIGURE_FORMATS, fast=fast, force=force)
    for figure in drawn:
        draw(figure, results, out, image or FIGURE_FORMATS, fast=fast, stream=sys.stdout)


def check_figure_files(
    figures: Sequence[PaperFigure], folder: Path, formats: Sequence[str], *, fast: bool, force: bool
) -> None:
    """Raise if the files of the figures cannot be written, or exist without ``force``."""
    if figures:
        check_writable(folder / "figure.png")
    files = [folder / f"{figure.stem(fast=fast)}.{form}" for figure in figures for form in formats]
    check_not_existing(files, force=force)


def draw(
    figure: PaperFigure, store: Store, folder: Path, formats: Sequence[str], *, fast: bool, stream: TextIO
) -> None:
    """Draw one figure, and print its files and missing results."""
    from edgeproof.paper.figures import write_drawing

    drawing = figure.draw(store, fast=fast)
    written = write_drawing(drawing, folder, formats)
    print(f"{figure.label}: {', '.join(map(str, written)) or 'no results to draw yet'}", file=stream)
    for line in drawing.missing:
        print(f"  missing: {line}", file=stream)


def _write_page(path: Path, store: Store, protocol: str, *, fast: bool, force: bool) -> None:
    from edgeproof.experiments.runner import run_without_models
    from edgeproof.paper import FIGURES, missing
    from edgeproof.paper.figures import figures_page, write_drawing

    check_outputs([path], store.files())
    check_not_existing([path], force=force)
    run_without_models(missing(FIGURES, store, fast=fast), store, command_line())
    folder = path.with_suffix("")
    drawings = [(figure, replace(figure, protocol=protocol).draw(store, fast=fast)) for figure in FIGURES]
    for _, drawing in drawings:
        write_drawing(drawing, folder)
    write_text(path, figures_page(drawings, folder.name))
