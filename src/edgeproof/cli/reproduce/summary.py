"""``edgeproof reproduce summary``."""

from __future__ import annotations

from typing import Annotated

import typer

from edgeproof._catalog import TABLES
from edgeproof.cli._options import DEFAULT_STORE, Format, StoreOption, check_store, complete
from edgeproof.cli._printing import print_table
from edgeproof.cli.reproduce._common import (
    DatasetFilter,
    Fast,
    ModelFilter,
    TrainingFilter,
    find_tables,
    select,
)


def summary(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Tables by label, number or nickname. Default: all tables of the paper.",
            show_default=False,
            autocompletion=complete(TABLES),
        ),
    ] = None,
    output_format: Format = None,
    fast: Fast = False,
    dataset: DatasetFilter = None,
    model: ModelFilter = None,
    training: TrainingFilter = None,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Print one line per table: how many cells match the paper, and how many differ.

    Examples: [bold]edgeproof reproduce summary[/], [bold]edgeproof reproduce summary main --model GCN --format csv[/]
    """
    from edgeproof.experiments import Store
    from edgeproof.experiments.export import check_format
    from edgeproof.paper import compare
    from edgeproof.paper.render import export_summary, in_terminal_summary

    selection = select(dataset, model, training)
    if output_format is not None:
        check_format(output_format)
    check_store(store)
    tables = [table for table in find_tables(names or ["all"]) if table.stands_for is None]
    if not tables:
        raise ValueError("expected tables of the paper, got stand-ins only, which have no numbers to compare with")
    selection.check(tables, fast=fast)
    results = Store(store)
    compared = [compare(table, results, fast=fast, only=selection) for table in tables]
    comparisons = [comparison for comparison in compared if comparison.cells]
    if output_format is None:
        print_table(in_terminal_summary(comparisons))
    else:
        print(export_summary(comparisons, output_format), end="")
