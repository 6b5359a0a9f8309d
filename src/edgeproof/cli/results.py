"""``edgeproof results``: what is in the store."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table as RichTable

from edgeproof._catalog import DATASETS, MODELS
from edgeproof.cli._options import DEFAULT_STORE, StoreOption, check_name, check_store
from edgeproof.cli._printing import print_table
from edgeproof.experiments import Record, Store
from edgeproof.experiments.origins import Origin, row_of, weights_of
from edgeproof.experiments.paper import STAND_IN
from edgeproof.experiments.plan import TRAININGS, training_name
from edgeproof.experiments.render import PROTOCOLS, as_text, check_format
from edgeproof.experiments.values import KINDS

_TITLES = ("key", "graph", "model", "training", "splits", "seed", "measured", "at", "accuracy", "seconds", "weights")


def results(
    store: StoreOption = DEFAULT_STORE,
    dataset: Annotated[str | None, typer.Option(help="Only of this graph.")] = None,
    model: Annotated[str | None, typer.Option(help="Only of this model.")] = None,
    training: Annotated[
        str | None, typer.Option(help=f"Only of models trained so: {', '.join(TRAININGS[:-1])} or {TRAININGS[-1]}.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Only of this kind: clean, an attack, smoothing, filter, degrees, diffusion.")
    ] = None,
    splits: Annotated[
        str | None, typer.Option(help="Only of these splits: strict, as_released or transductive.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Only of this seed.")] = None,
    fast: Annotated[bool, typer.Option("--fast", help="Those of the smaller version, instead of the others.")] = False,
    form: Annotated[
        str | None, typer.Option("--format", help="csv, latex or markdown; a table for terminals by default.")
    ] = None,
) -> None:
    """List what has been measured, one line per figure, and filter and export it.

    Lines with the same weights, the first digits of a hash, are about the same trained model.

    Example: edgeproof results --dataset citeseer --kind LRBCD --format csv
    """
    if form is not None:
        check_format(form)
    check_name("dataset", dataset, [*DATASETS, STAND_IN])
    check_name("model", model, MODELS)
    check_name("kind", kind, KINDS)
    check_name("splits", splits, [*PROTOCOLS, "transductive"])
    check_name("training", training, TRAININGS)
    check_store(store)
    lines = [
        line
        for record in Store(store).records()
        if record.identity["kind"] != "training" and Origin.of(record.identity["training"]).fast == fast
        if training is None or training_name(row_of(record.identity["training"])) == training
        for line in _lines(record)
        if all(
            wanted is None or str(wanted) == is_
            for wanted, is_ in zip((dataset, model, splits, seed, kind), (*line[1:3], *line[4:7]), strict=True)
        )
    ]
    if form is not None:
        print(as_text(_TITLES, lines, form), end="")
    else:
        shown = RichTable(title=f"{len(lines)} figures in {store}{', fast' if fast else ''}")
        for title in _TITLES:
            shown.add_column(title, no_wrap=title != "training")
        for line in lines:
            shown.add_row(*line)
        print_table(shown)


def _lines(record: Record) -> list[tuple[str, ...]]:
    origin, values, kind = Origin.of(record.identity["training"]), record.values, record.identity["kind"]
    about = (origin.dataset, origin.model, origin.training, origin.splits, str(origin.seed))
    figures = [(f"{epsilon:g}", accuracy) for epsilon, accuracy in values.get("accuracy", [])]
    figures += [(f"+{added} -{deleted}", accuracy) for added, deleted, accuracy in values.get("certified_accuracy", [])]
    shown = [(at, f"{100 * accuracy:.1f}") for at, accuracy in figures]
    # What was looked at for a figure of the paper is no accuracy; it is in the file.
    rest = (f"{record.seconds:.0f}", weights_of(record))
    return [(record.key[:8], *about, kind, *one, *rest) for one in shown or [("-", "-")]]
