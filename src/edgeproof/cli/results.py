"""``edgeproof results``: show, export and pack stored results."""

from __future__ import annotations

from typing import Annotated

import typer

from edgeproof._catalog import DATASETS, MODELS
from edgeproof.cli._options import DEFAULT_STORE, StoreOption, check_store, complete
from edgeproof.cli._printing import print_table

app = typer.Typer(
    name="results",
    help="Show, export and pack stored results.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)

Dataset = Annotated[str | None, typer.Option(help="Only results of this dataset.", autocompletion=complete(DATASETS))]
Model = Annotated[str | None, typer.Option(help="Only results of this model.", autocompletion=complete(MODELS))]
Training = Annotated[
    str | None, typer.Option(help="Only results of this training: regular, self, or the name of an attack.")
]
Kind = Annotated[
    str | None, typer.Option(help="Only measurements of this kind, such as clean or smoothing, or by this attack.")
]
Splits = Annotated[str | None, typer.Option(help="Only results of these splits: strict, as_released or transductive.")]
Seed = Annotated[int | None, typer.Option(help="Only results of this seed.")]


@app.command()
def show(
    store: StoreOption = DEFAULT_STORE,
    dataset: Dataset = None,
    model: Model = None,
    training: Training = None,
    kind: Kind = None,
    splits: Splits = None,
    seed: Seed = None,
) -> None:
    """Print a table with one line per measured accuracy.

    Lines with the same weights, the first digits of a hash, are of the same trained model.

    Example: [bold]edgeproof results show --dataset citeseer --kind LRBCD[/]
    """
    from rich.table import Table as RichTable

    from edgeproof.cli._result_lines import TITLES, select

    lines = select(store, dataset, model, training, kind, splits, seed)
    shown = RichTable(title=f"{len(lines)} values in {store}")
    for title in TITLES:
        shown.add_column(title, no_wrap=title not in ("training", "measured"))
    for line in lines:
        shown.add_row(*line)
    print_table(shown)


@app.command()
def export(
    store: StoreOption = DEFAULT_STORE,
    dataset: Dataset = None,
    model: Model = None,
    training: Training = None,
    kind: Kind = None,
    splits: Splits = None,
    seed: Seed = None,
    form: Annotated[str, typer.Option("--format", help="csv, latex or markdown.")] = "csv",
) -> None:
    """Print one line per measured accuracy as CSV, LaTeX or Markdown.

    Example: [bold]edgeproof results export --model GPRGNN --format markdown[/]
    """
    from edgeproof.cli._result_lines import TITLES, select
    from edgeproof.experiments.export import as_text, check_format

    check_format(form)
    print(as_text(TITLES, select(store, dataset, model, training, kind, splits, seed), form), end="")


@app.command()
def pack(store: StoreOption = DEFAULT_STORE) -> None:
    """Merge the files of single results into sorted JSON Lines, one file per dataset and kind.

    The packed form does not depend on the order in which results were written, so it is the form to commit.

    Example: [bold]edgeproof results pack --store results/experiments[/]
    """
    from edgeproof.experiments import Store

    check_store(store)
    merged, files = Store(store).pack()
    print(f"packed {merged} new results; {store} has {files} packed files")
