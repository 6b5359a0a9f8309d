"""Options and helpers of the ``edgeproof reproduce`` commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeproof._catalog import DATASETS, FIGURES, MODELS, TABLES, TRAININGS
from edgeproof._names import look_up
from edgeproof.cli._options import (
    DATASET_FILTER,
    MODEL_FILTER,
    check_names,
    complete,
    names,
)

if TYPE_CHECKING:
    from edgeproof.experiments import Store
    from edgeproof.paper import PaperFigure, Selection, Table

FIGURE_FORMATS = ("png", "svg")

Names = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME",
        help="Tables and figures by label (tab:results), number (1, fig1) or nickname (main); 'all' means all tables of the "
        "paper, 'figures' all figures. See edgeproof reproduce list.",
        show_default=False,
        autocompletion=complete([*TABLES, *FIGURES, "all", "figures"]),
    ),
]
Fast = Annotated[bool, typer.Option("--fast", help="Use the fast version: few epochs, weak attacks, one seed.")]
DatasetFilter = Annotated[list[str] | None, DATASET_FILTER]
ModelFilter = Annotated[list[str] | None, MODEL_FILTER]
TrainingFilter = Annotated[
    list[str] | None,
    typer.Option(
        "--training",
        help=f"Only rows with this training: {names(TRAININGS)}; repeatable.",
        autocompletion=complete(TRAININGS),
    ),
]
SeedFilter = Annotated[list[int] | None, typer.Option("--seed", help="Only this seed; repeatable.")]
FigureFolder = Annotated[Path, typer.Option(help="Folder of the figures.")]
FigureFormats = Annotated[
    list[str] | None,
    typer.Option(
        help="File format of figures: png or svg; repeatable. Default: both.", autocompletion=complete(FIGURE_FORMATS)
    ),
]


def select(
    dataset: list[str] | None, model: list[str] | None, training: list[str] | None, seed: list[int] | None = None
) -> Selection:
    """Return the selected rows; raise for unknown names."""
    from edgeproof.experiments.graphs import STAND_IN
    from edgeproof.paper import Selection

    check_names("dataset", dataset, [*DATASETS, STAND_IN])
    check_names("model", model, MODELS)
    check_names("training", training, TRAININGS)
    return Selection(dataset or (), model or (), training or (), seed or ())


def find(requested: Iterable[str], protocol: str = "strict") -> list[Table | PaperFigure]:
    """Return tables and figures by name, each once and in the requested order; figures use ``protocol``."""
    from edgeproof.paper import FIGURES, STAND_INS, TABLES, PaperFigure

    everything: list[Table | PaperFigure] = [*TABLES, *STAND_INS, *FIGURES]
    known = {name: [entry] for entry in everything for name in entry.names}
    known |= {"all": list(TABLES), "figures": list(FIGURES)}
    entries = {entry.label: entry for name in requested for entry in look_up("table or figure", name, known)}
    return [
        replace(entry, protocol=protocol) if isinstance(entry, PaperFigure) else entry for entry in entries.values()
    ]


def find_tables(requested: Iterable[str]) -> list[Table]:
    """Return tables by name; raise for figures."""
    from edgeproof.paper import Table

    tables = []
    for entry in find(requested):
        if not isinstance(entry, Table):
            raise ValueError(f"expected tables, got {entry.label}: use edgeproof reproduce figures {entry.label}")
        tables.append(entry)
    return tables


def print_tables(
    tables: Sequence[Table], store: Store, selection: Selection, *, fast: bool, output_format: str | None
) -> None:
    """Print the selected rows of tables beside the paper's numbers."""
    from edgeproof.cli._printing import print_table
    from edgeproof.paper import compare
    from edgeproof.paper.render import export, in_terminal

    compared = [compare(table, store, fast=fast, only=selection) for table in tables]
    comparisons = [comparison for comparison in compared if comparison.cells]
    if output_format is not None and comparisons:
        print(export(comparisons, output_format), end="")
        return
    for comparison in comparisons:
        print_table(in_terminal(comparison))


def check_figure_formats(formats: Iterable[str] | None) -> None:
    """Raise for unknown file formats of figures."""
    for name in formats or ():
        if name not in FIGURE_FORMATS:
            raise ValueError(f"expected png or svg, got {name!r}")
