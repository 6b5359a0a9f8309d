"""``edgeproof results``: list, export and pack stored results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeproof._catalog import ATTACKS, DATASETS, FORMATS, MEASUREMENTS, MODELS, PROTOCOLS, TRAININGS
from edgeproof._names import unknown_name
from edgeproof.cli._lazy import LazyCommand, lazy_app
from edgeproof.cli._options import DEFAULT_STORE, StoreOption, check_store, complete, names
from edgeproof.cli._printing import print_table

if TYPE_CHECKING:
    from edgeproof.experiments import Record

COMMANDS = {
    "show": LazyCommand("edgeproof.cli.results:show", "Print stored results, one line per measured accuracy."),
    "export": LazyCommand("edgeproof.cli.results:export", "Print stored results as CSV, LaTeX or Markdown."),
    "pack": LazyCommand(
        "edgeproof.cli.results:pack", "Merge files of single results into one file per dataset and kind."
    ),
}

app = lazy_app(
    "results",
    "List, export and pack stored results.",
    COMMANDS,
    epilog="Start with: edgeproof results show --dataset citeseer",
    add_completion=False,
)


@app.callback()
def results() -> None:
    """List, export and pack the stored results of ``edgeproof sweep`` and ``edgeproof reproduce``."""


_TITLES = ("key", "graph", "model", "training", "splits", "seed", "measured", "at", "accuracy", "seconds", "weights")
_SPLITS = (*PROTOCOLS, "transductive")

Dataset = Annotated[str | None, typer.Option(help="Only results of this dataset.", autocompletion=complete(DATASETS))]
Model = Annotated[str | None, typer.Option(help="Only results of this model.", autocompletion=complete(MODELS))]
Training = Annotated[
    str | None,
    typer.Option(
        help=f"Only results of this training, such as {names(TRAININGS)}.", autocompletion=complete(TRAININGS)
    ),
]
Kind = Annotated[
    str | None,
    typer.Option(
        help=f"Only measurements of this kind, such as {names(MEASUREMENTS)}, or by this attack.",
        autocompletion=complete((*MEASUREMENTS, *ATTACKS)),
    ),
]
Splits = Annotated[
    str | None,
    typer.Option(help=f"Only results of these splits: {names(_SPLITS)}.", autocompletion=complete(_SPLITS)),
]
Seed = Annotated[int | None, typer.Option(help="Only results of this seed.")]


def show(
    store: StoreOption = DEFAULT_STORE,
    dataset: Dataset = None,
    model: Model = None,
    training: Training = None,
    kind: Kind = None,
    splits: Splits = None,
    seed: Seed = None,
) -> None:
    """Print stored results, one line per measured accuracy.

    The column ``weights`` has the first digits of a hash of the parameters: lines with equal weights belong to the same
    trained model.

    Examples: [bold]edgeproof results show --dataset citeseer --kind LRBCD[/],
    [bold]edgeproof results show --store results/sweep[/]
    """
    from rich.table import Table

    lines = _lines(store, dataset, model, training, kind, splits, seed)
    table = Table(title=f"{len(lines)} values in {store}")
    for title in _TITLES:
        table.add_column(title, no_wrap=title not in ("training", "measured"))
    for line in lines:
        table.add_row(*line)
    print_table(table)


def export(
    store: StoreOption = DEFAULT_STORE,
    dataset: Dataset = None,
    model: Model = None,
    training: Training = None,
    kind: Kind = None,
    splits: Splits = None,
    seed: Seed = None,
    output_format: Annotated[
        str,
        typer.Option("--format", help="csv, latex or markdown.", autocompletion=complete(FORMATS)),
    ] = "csv",
) -> None:
    """Print stored results as CSV, LaTeX or Markdown, one line per measured accuracy.

    Examples: [bold]edgeproof results export > results.csv[/],
    [bold]edgeproof results export --model GPRGNN --format markdown[/]
    """
    from edgeproof.experiments.export import as_text, check_format

    check_format(output_format)
    print(as_text(_TITLES, _lines(store, dataset, model, training, kind, splits, seed), output_format), end="")


def pack(store: StoreOption = DEFAULT_STORE) -> None:
    """Merge files of single results into sorted JSON Lines, one file per dataset and kind.

    Commit packed files: they do not depend on the order in which results were computed.

    Example: [bold]edgeproof results pack --store results/experiments[/]
    """
    from edgeproof.experiments import Store

    check_store(store)
    merged, files = Store(store).pack()
    print(f"packed {merged} new results; {store} has {files} packed files")


def _lines(
    store: Path,
    dataset: str | None,
    model: str | None,
    training: str | None,
    kind: str | None,
    splits: str | None,
    seed: int | None,
) -> list[tuple[str, ...]]:
    """Return the lines of the selected results; raise for a value that no result has."""
    from edgeproof.experiments import Store

    check_store(store)
    records = [record for record in Store(store).records() if record.kind != "training"]
    filters = {"dataset": dataset, "model": model, "training": training, "kind": kind, "splits": splits, "seed": seed}
    for name, value in filters.items():
        if value is None:
            continue
        stored = sorted({text for record in records for text in _filter_values(record)[name]})
        if str(value) not in stored:
            raise unknown_name(name, str(value), stored)
        records = [record for record in records if str(value) in _filter_values(record)[name]]
    return [line for record in records for line in _lines_of(record)]


def _filter_values(record: Record) -> dict[str, tuple[str, ...]]:
    """Return the values of each filter that select a record."""
    from edgeproof.experiments.provenance import Provenance

    provenance, attack = Provenance.of(record.run), record.identity.get("attack", {}).get("name")
    training = record.run.get("training", {})
    without_attack = "self" if training.get("self_training") else "regular"
    return {
        "dataset": (provenance.dataset,),
        "model": (provenance.model,),
        "training": (training.get("attack", {}).get("name", without_attack),),
        "kind": (record.kind,) if attack is None else (record.kind, attack),
        "splits": (provenance.splits,),
        "seed": (str(provenance.seed),),
    }


def _lines_of(record: Record) -> list[tuple[str, ...]]:
    from edgeproof.experiments.provenance import Provenance, weights_of
    from edgeproof.experiments.sweep import describe_measurement

    provenance, values = Provenance.of(record.run), record.values
    epochs = "" if provenance.max_epochs is None else f", {provenance.max_epochs} epochs"
    run = (provenance.dataset, provenance.model, provenance.training + epochs, provenance.splits, str(provenance.seed))
    rows = [(f"{epsilon:g}", accuracy) for epsilon, accuracy in values.get("accuracy", [])]
    rows += [(f"+{added} -{deleted}", accuracy) for added, deleted, accuracy in values.get("certified_accuracy", [])]
    cells = [(at, f"{100 * accuracy:.1f}") for at, accuracy in rows]
    end = (f"{record.seconds:.0f}", weights_of(record))
    label = describe_measurement(record.identity)
    # Measurements for figures have no accuracies.
    return [(record.key[:8], *run, label, *cell, *end) for cell in cells or [("-", "-")]]
