"""What has to be run for a table or a figure, and what is there already."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgeproof.experiments.measure import Measure
from edgeproof.experiments.origins import Origin
from edgeproof.experiments.paper import Row
from edgeproof.experiments.recipe import Recipe
from edgeproof.experiments.store import Store

TRAININGS = ("regular", "self", "LRBCD", "PRBCD", "PGD")


def training_name(row: Row) -> str:
    """How models of a row are trained: one of :data:`TRAININGS`."""
    return row.attack or ("self" if row.self_training else "regular")


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
    def row(self) -> Row:
        """The row of a table that the model belongs to."""
        return self.recipe.row

    @property
    def training(self) -> str:
        """How the model is trained: one of :data:`TRAININGS`."""
        return training_name(self.row)

    @property
    def name(self) -> str:
        return str(Origin.of(self.recipe.identity))


@dataclass(frozen=True)
class Selection:
    """Some rows and seeds of tables and figures; what is not named is not asked for.

    Args:
        datasets: of these graphs.
        models: of these models.
        trainings: of these of :data:`TRAININGS`.
        seeds: of these seeds.
    """

    datasets: Collection[str] = ()
    models: Collection[str] = ()
    trainings: Collection[str] = ()
    seeds: Collection[int] = ()

    def has_row(self, row: Row) -> bool:
        """Whether a row is among them."""
        return (
            (not self.datasets or row.dataset in self.datasets)
            and (not self.models or row.model in self.models)
            and (not self.trainings or training_name(row) in self.trainings)
        )

    def has(self, job: Job) -> bool:
        """Whether a job is among them."""
        return self.has_row(job.row) and (not self.seeds or job.recipe.seed in self.seeds)

    def check(self, experiments: Iterable[Experiment], *, fast: bool = False) -> None:
        """Raise for what none of these tables and figures has."""
        wanted = measures(experiments, fast=fast)
        rows = {measure.recipe.row for measure in wanted}
        for kind, asked, known in (
            ("dataset", self.datasets, {row.dataset for row in rows}),
            ("model", self.models, {row.model for row in rows}),
            ("training", self.trainings, {training_name(row) for row in rows}),
            ("seed", self.seeds, {measure.recipe.seed for measure in wanted}),
        ):
            for one in asked:
                if one not in known:
                    there = ", ".join(map(str, sorted(known)))
                    raise ValueError(f"expected a {kind} that is in there ({there}), got {one}")
        if not any(map(self.has_row, rows)):
            asked = ", ".join(map(str, (*self.datasets, *self.models, *self.trainings)))
            raise ValueError(f"expected rows in there that are all of this: {asked}; got none")


class Experiment(Protocol):
    """A table or a figure: whatever follows from measurements of trained models."""

    def measures(self, *, fast: bool = False) -> list[Measure]:
        """Everything that it is made from."""


def missing(experiments: Sequence[Experiment], store: Store, *, fast: bool = False) -> list[Job]:
    """Everything that these tables and figures need and the store has not, each thing once, in their order."""
    return jobs(measure for measure in measures(experiments, fast=fast) if store.get(measure.identity) is None)


def jobs(wanted: Iterable[Measure]) -> list[Job]:
    """One job for every model that these are measurements of, in their order."""
    by_recipe: dict[Recipe, list[Measure]] = {}
    for measure in wanted:
        by_recipe.setdefault(measure.recipe, []).append(measure)
    return [Job(recipe, tuple(found)) for recipe, found in by_recipe.items()]


def measures(experiments: Iterable[Experiment], *, fast: bool = False) -> list[Measure]:
    """Everything that these tables and figures need, each thing once."""
    return list(dict.fromkeys(measure for one in experiments for measure in one.measures(fast=fast)))
