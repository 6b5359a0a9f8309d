"""Where results come from: how their model was trained, in words, and which model it was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgeproof.experiments.paper import Row, training_of
from edgeproof.experiments.recipe import FAST_EPOCHS
from edgeproof.experiments.store import Record, Store, key_of


@dataclass(frozen=True)
class Origin:
    """How a model was trained, in words.

    Args:
        dataset: its graph.
        model: its kind.
        training: against what.
        splits: by which protocol, or transductively.
        seed: of everything random.
        fast: whether this is the smaller version.
    """

    dataset: str
    model: str
    training: str
    splits: str
    seed: int
    fast: bool

    @classmethod
    def of(cls, identity: Mapping[str, Any]) -> Origin:
        """From the identity of a training."""
        row = row_of(identity)
        splits = identity["protocol"] if row.setting == "inductive" else row.setting
        fast = identity["config"]["max_epochs"] == FAST_EPOCHS
        return cls(row.dataset, row.model, training_of(row), splits, identity["seed"], fast)

    def __str__(self) -> str:
        return f"{self.dataset} {self.model}, {self.training}, {self.splits}, seed {self.seed}" + ", fast" * self.fast


def row_of(identity: Mapping[str, Any]) -> Row:
    """The way of training that the identity of a training is of."""
    attack = identity["attack"] and identity["attack"].partition("(")[0]
    labelled = identity["label_config"] is not None
    return Row(identity["setting"], identity["dataset"], identity["model"], labelled, attack, identity["epsilon"])


def weights_of(record: Record) -> str:
    """The first digits of the hash of the very model that was measured; empty in results from before it was noted."""
    return str(record.notes.get("model", ""))[:8]


def of_several_models(store: Store, *, fast: bool = False) -> dict[Origin, list[list[str]]]:
    """Trainings whose results are, or may be, of more than one model, because it was not kept and had to be trained again.

    Args:
        store: where the results are.
        fast: whether to look at those of the smaller version, or at the others.

    Returns:
        For each of them, what was measured of one model, of the next, and so on; and last, with a question mark, of which it
        was not noted.
    """
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    origins = {}
    for record in store.records():
        # What was read off the record of a training is of that training's model.
        if record.identity["kind"] != "training" and "training" not in record.notes:
            training, kind = record.identity["training"], record.identity["kind"]
            key, weights = key_of(training), weights_of(record)
            origins[key] = Origin.of(training)
            found[key][weights].append(kind if weights else f"{kind} (?)")
    several = {
        origins[key]: [
            sorted(kinds) for _, kinds in sorted(models.items(), key=lambda item: (not item[0], sorted(item[1])))
        ]
        for key, models in found.items()
        if len(models) > 1 and origins[key].fast == fast
    }
    return dict(sorted(several.items(), key=lambda item: str(item[0])))
