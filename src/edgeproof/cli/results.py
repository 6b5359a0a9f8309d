"""``edgeproof results``: list, export and pack stored results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table as RichTable

from edgeproof._names import unknown_name
from edgeproof.cli._printing import print_table
from edgeproof.experiments import Record, Store
from edgeproof.experiments.export import as_text, check_format
from edgeproof.experiments.provenance import Provenance, weights_of
from edgeproof.experiments.spec import KINDS, describe_measurement

_TITLES = ("key", "graph", "model", "training", "splits", "seed", "measured", "at", "accuracy", "seconds", "weights")

app = typer.Typer(name="results", help="List, export and pack stored results.", no_args_is_help=True)

StoreFolder = Annotated[Path, typer.Option(help="Folder of the results.")]
DEFAULT_STORE = Path("results") / "experiments"
Dataset = Annotated[str | None, typer.Option(help="Only results of this graph.")]
Model = Annotated[str | None, typer.Option(help="Only results of this model.")]
Training = Annotated[
    str | None, typer.Option(help="Only results of this training: regular, self, or the name of an attack.")
]
Kind = Annotated[
    str | None, typer.Option(help=f"Only measurements of this kind ({', '.join(KINDS)}), or by this attack.")
]
Splits = Annotated[str | None, typer.Option(help="Only results of these splits: strict, as_released or transductive.")]
Seed = Annotated[int | None, typer.Option(help="Only results of this seed.")]


@app.command()
def show(
    store: StoreFolder = DEFAULT_STORE,
    dataset: Dataset = None,
    model: Model = None,
    training: Training = None,
    kind: Kind = None,
    splits: Splits = None,
    seed: Seed = None,
) -> None:
    """Print a table with one line per measured accuracy.

    Lines with the same weights, the first digits of a hash, are of the same trained model.

    Example: edgeproof results show --dataset citeseer --kind LRBCD
    """
    lines = _select(store, dataset, model, training, kind, splits, seed)
    shown = RichTable(title=f"{len(lines)} values in {store}")
    for title in _TITLES:
        shown.add_column(title, no_wrap=title not in ("training", "measured"))
    for line in lines:
        shown.add_row(*line)
    print_table(shown)


@app.command()
def export(
    store: StoreFolder = DEFAULT_STORE,
    dataset: Dataset = None,
    model: Model = None,
    training: Training = None,
    kind: Kind = None,
    splits: Splits = None,
    seed: Seed = None,
    form: Annotated[str, typer.Option("--format", help="csv, latex or markdown.")] = "csv",
) -> None:
    """Print one line per measured accuracy as CSV, LaTeX or Markdown.

    Example: edgeproof results export --model GPRGNN --format markdown
    """
    check_format(form)
    print(as_text(_TITLES, _select(store, dataset, model, training, kind, splits, seed), form), end="")


@app.command()
def pack(store: StoreFolder = DEFAULT_STORE) -> None:
    """Merge the files of single results into sorted JSON Lines, one file per dataset and kind.

    The packed form does not depend on the order in which results were written, so it is the form to commit.

    Example: edgeproof results pack --store results/experiments
    """
    check_folder(store)
    merged, files = Store(store).pack()
    text = f"packed {merged} new results; {store} has {files} packed files"
    Console().print(text, highlight=False, soft_wrap=True, markup=False)


def check_folder(store: Path) -> None:
    """Raise if this is not a folder: a misspelt name would look like a store without results."""
    if not store.is_dir():
        raise ValueError(
            f"expected a folder of results, got {store}; edgeproof reproduce or edgeproof sweep creates one"
        )


def _select(
    store: Path,
    dataset: str | None,
    model: str | None,
    training: str | None,
    kind: str | None,
    splits: str | None,
    seed: int | None,
) -> list[tuple[str, ...]]:
    """Return the lines of all results that match; raises for a name that no result has."""
    check_folder(store)
    records = [record for record in Store(store).records() if record.kind != "training"]
    wanted = {"dataset": dataset, "model": model, "training": training, "kind": kind, "splits": splits, "seed": seed}
    for name, value in wanted.items():
        if value is None:
            continue
        known = sorted({text for record in records for text in _names(record)[name]})
        if str(value) not in known:
            raise unknown_name(name, str(value), known)
        records = [record for record in records if str(value) in _names(record)[name]]
    return [line for record in records for line in _lines(record)]


def _names(record: Record) -> dict[str, tuple[str, ...]]:
    """Return the names by which each option selects a record."""
    provenance, attack = Provenance.of(record.run), record.identity.get("attack", {}).get("name")
    against = record.run.get("training", {}).get("attack", {}).get("name")
    plain = "self" if record.run.get("training", {}).get("self_training") else "regular"
    return {
        "dataset": (provenance.dataset,),
        "model": (provenance.model,),
        "training": (against or plain,),
        "kind": (record.kind,) if attack is None else (record.kind, attack),
        "splits": (provenance.splits,),
        "seed": (str(provenance.seed),),
    }


def _lines(record: Record) -> list[tuple[str, ...]]:
    provenance, values = Provenance.of(record.run), record.values
    epochs = "" if provenance.max_epochs is None else f", {provenance.max_epochs} epochs"
    run = (provenance.dataset, provenance.model, provenance.training + epochs, provenance.splits, str(provenance.seed))
    rows = [(f"{epsilon:g}", accuracy) for epsilon, accuracy in values.get("accuracy", [])]
    rows += [(f"+{added} -{deleted}", accuracy) for added, deleted, accuracy in values.get("certified_accuracy", [])]
    cells = [(at, f"{100 * accuracy:.1f}") for at, accuracy in rows]
    # Measurements for figures have no accuracies; their values are in the store only.
    end = (f"{record.seconds:.0f}", weights_of(record))
    label = describe_measurement(record.identity)
    return [(record.key[:8], *run, label, *cell, *end) for cell in cells or [("-", "-")]]
