"""What has to be run for a table or a figure, and what is there already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgeproof.experiments.measure import Measure
from edgeproof.experiments.paper import training_of
from edgeproof.experiments.recipe import Recipe
from edgeproof.experiments.store import Store

TRAININGS = ("regular", "self", "LRBCD", "PRBCD", "PGD")


@dataclass(frozen=True)
class Job:
    """One model to train, unless it is there, and what to measure of it: what one worker does in one go.

    Args:
        recipe: how it is trained.
        measures: what is missing.
    """

    recipe: Recipe
    measures: tuple[Measure, ...]

    @property
    def training(self) -> str:
        """How the model is trained: one of :data:`TRAININGS`."""
        row = self.recipe.row
        return row.attack or ("self" if row.self_training else "regular")

    @property
    def name(self) -> str:
        row, where = self.recipe.row, self.recipe.protocol
        where = where if row.setting == "inductive" else row.setting
        return f"{row.dataset} {row.model}, {training_of(row)}, {where}, seed {self.recipe.seed}"


class Experiment(Protocol):
    """A table or a figure: whatever follows from measurements of trained models."""

    def measures(self, *, fast: bool = False) -> list[Measure]:
        """Everything that it is made from."""


def missing(experiments: Sequence[Experiment], store: Store, *, fast: bool = False) -> list[Job]:
    """Everything that these tables and figures need and the store has not, each thing once, in their order."""
    wanted: dict[Recipe, dict[Measure, None]] = {}
    for measure in measures(experiments, fast=fast):
        if store.get(measure.identity) is None:
            wanted.setdefault(measure.recipe, {})[measure] = None
    return [Job(recipe, tuple(found)) for recipe, found in wanted.items()]


def measures(experiments: Iterable[Experiment], *, fast: bool = False) -> list[Measure]:
    """Everything that these tables and figures need, each thing once."""
    return list(dict.fromkeys(measure for one in experiments for measure in one.measures(fast=fast)))
