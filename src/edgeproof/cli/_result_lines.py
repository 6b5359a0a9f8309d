"""Lines of ``edgeproof results``: stored accuracies, and their selection by name."""

from __future__ import annotations

from pathlib import Path

from edgeproof._names import unknown_name
from edgeproof.cli._options import check_store
from edgeproof.experiments import Record, Store
from edgeproof.experiments.provenance import Provenance, weights_of
from edgeproof.experiments.spec import describe_measurement

TITLES = ("key", "graph", "model", "training", "splits", "seed", "measured", "at", "accuracy", "seconds", "weights")


def select(
    store: Path,
    dataset: str | None,
    model: str | None,
    training: str | None,
    kind: str | None,
    splits: str | None,
    seed: int | None,
) -> list[tuple[str, ...]]:
    """Return the lines of all results that match; raises for a name that no result has."""
    check_store(store)
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
