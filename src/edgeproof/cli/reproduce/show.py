"""``edgeproof reproduce show``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeproof._catalog import TABLES
from edgeproof._files import check_outputs, write_text
from edgeproof.cli._options import DEFAULT_STORE, Format, StoreOption, check_store, complete
from edgeproof.cli.reproduce._common import (
    DatasetFilter,
    Fast,
    ModelFilter,
    SeedFilter,
    TrainingFilter,
    find_tables,
    print_tables,
    select,
)

if TYPE_CHECKING:
    from edgeproof.experiments import Store


def show(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Tables by label (tab:results), number (1) or nickname (main). Default: all tables.",
            show_default=False,
            autocompletion=complete(TABLES),
        ),
    ] = None,
    output_format: Format = None,
    page: Annotated[
        Path | None, typer.Option(help="Write a Markdown page, and all cells as CSV files beside it.")
    ] = None,
    fast: Fast = False,
    dataset: DatasetFilter = None,
    model: ModelFilter = None,
    training: TrainingFilter = None,
    seed: SeedFilter = None,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Print tables of stored results beside the paper's; run nothing.

    Examples: [bold]edgeproof reproduce show main --model GPRGNN[/],
    [bold]edgeproof reproduce show tab:results --format csv[/], [bold]edgeproof reproduce show --page tables.md[/]
    """
    from edgeproof.experiments import Store
    from edgeproof.experiments.export import check_format
    from edgeproof.paper import Selection

    selection = select(dataset, model, training, seed)
    if output_format is not None:
        check_format(output_format)
    if page is not None and (names or output_format or selection != Selection()):
        raise ValueError("expected --page without names, --format and filters: the page contains all tables")
    tables = find_tables(names or ["all"])
    check_store(store)
    if page is not None:
        _write_page(page, Store(store), fast=fast)
        print(f"wrote {page}")
        return
    selection.check(tables, fast=fast)
    print_tables(tables, Store(store), selection, fast=fast, output_format=output_format)


def _write_page(path: Path, store: Store, *, fast: bool) -> None:
    from edgeproof.paper import STAND_INS, compare
    from edgeproof.paper import TABLES as PAPER_TABLES
    from edgeproof.paper.render import page, several_models

    check_outputs([path], store.files())
    comparisons = [compare(table, store, fast=fast) for table in (*PAPER_TABLES, *STAND_INS)]
    files = page(comparisons, several_models(store, fast=fast), path.stem)
    outputs = {path if name.endswith(".md") else path.with_name(name): text for name, text in files.items()}
    check_outputs(list(outputs), store.files())
    for output, text in outputs.items():
        write_text(output, text)
