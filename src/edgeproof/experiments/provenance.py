"""Provenance of results: how a model was trained, and which stored results belong to the same model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from edgeproof.experiments.identity import key_of
from edgeproof.experiments.spec import describe_training
from edgeproof.experiments.store import Record, Store
from edgeproof.experiments.sweep import describe_measurement, describe_run


@dataclass(frozen=True)
class Provenance:
    """Description of how a model was trained.

    Args:
        dataset: Name of the graph.
        model: Name of the model.
        training: Short description of the training, such as ``"LRBCD 0.2"``.
        splits: Protocol, or ``"transductive"``.
        seed: Seed of the run.
        max_epochs: Largest number of epochs, if it is not the default.
        text: Complete description in one line.
    """

    dataset: str
    model: str
    training: str
    splits: str
    seed: int
    max_epochs: int | None
    text: str

    @classmethod
    def of(cls, run: Mapping[str, Any]) -> Provenance:
        """Return the provenance that the ``"run"`` entry of an identity describes."""
        training, split = run.get("training", {}), run.get("split", {})
        kind = split.get("kind", "inductive")
        return cls(
            dataset=run["dataset"]["name"],
            model=run["model"]["name"],
            training=describe_training(training),
            splits=kind if kind == "transductive" else split.get("protocol", "strict"),
            seed=run["seed"],
            max_epochs=training.get("config", {}).get("max_epochs"),
            text=describe_run(run),
        )

    def __str__(self) -> str:
        return self.text


def weights_of(record: Record) -> str:
    """Return the first digits of the hash of the measured model; empty in old results without it."""
    return str(record.notes.get("model", ""))[:8]


def measured_on_several_models(
    store: Store, describe: Callable[[Mapping[str, Any]], str] = describe_measurement
) -> dict[Provenance, list[list[str]]]:
    """Find trainings whose results belong, or may belong, to more than one model, because the model was retrained.

    Args:
        store: The results.
        describe: Returns the name of a measurement from its identity.

    Returns:
        The measurements of each model by training. Measurements of an unknown model come last, marked with a question
        mark.
    """
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    runs = {}
    for record in store.records():
        # Values taken from a training record belong to the model of that training.
        if record.kind != "training" and "training" not in record.notes:
            label, weights, key = describe(record.identity), weights_of(record), key_of(record.run)
            runs[key] = Provenance.of(record.run)
            found[key][weights].append(label if weights else f"{label} (?)")
    several = {
        runs[key]: [
            sorted(labels) for _, labels in sorted(models.items(), key=lambda item: (not item[0], sorted(item[1])))
        ]
        for key, models in found.items()
        if len(models) > 1
    }
    return dict(sorted(several.items(), key=lambda item: str(item[0])))
