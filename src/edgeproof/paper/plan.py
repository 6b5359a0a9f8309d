"""Plans: required and missing results of the paper's tables and figures."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgeproof.experiments.plan import jobs_of
from edgeproof.experiments.store import Store
from edgeproof.experiments.sweep import Job
from edgeproof.paper.numbers import PaperRow
from edgeproof.paper.recipes import PaperMeasurement, training_name


class Experiment(Protocol):
    """A table or a figure."""

    def measurements(self, *, fast: bool = False) -> list[PaperMeasurement]:
        """Return all measurements that it needs."""


@dataclass(frozen=True)
class Selection:
    """A part of tables and figures; an empty criterion selects everything.

    Args:
        datasets: Names of graphs.
        models: Names of models.
        trainings: Some of :data:`~edgeproof.paper.recipes.TRAININGS`.
        seeds: Seeds.
    """

    datasets: Collection[str] = ()
    models: Collection[str] = ()
    trainings: Collection[str] = ()
    seeds: Collection[int] = ()

    def has_row(self, row: PaperRow) -> bool:
        """Whether a row is selected."""
        return self._has(row.dataset, row.model, training_name(row))

    def has(self, job: Job) -> bool:
        """Whether a job is selected."""
        run = job.run
        plain = "self" if run.training.self_training else "regular"
        training = plain if run.training.attack is None else run.training.attack.name
        return self._has(run.dataset.name, run.model.name, training) and (not self.seeds or run.seed in self.seeds)

    def _has(self, dataset: str, model: str, training: str) -> bool:
        return (
            (not self.datasets or dataset in self.datasets)
            and (not self.models or model in self.models)
            and (not self.trainings or training in self.trainings)
        )

    def check(self, experiments: Iterable[Experiment], *, fast: bool = False) -> None:
        """Raise for a name that occurs in none of these tables and figures."""
        needed = measurements(experiments, fast=fast)
        rows = {measurement.recipe.row for measurement in needed}
        for kind, chosen, known in (
            ("dataset", self.datasets, {row.dataset for row in rows}),
            ("model", self.models, {row.model for row in rows}),
            ("training", self.trainings, {training_name(row) for row in rows}),
            ("seed", self.seeds, {measurement.recipe.seed for measurement in needed}),
        ):
            for name in chosen:
                if name not in known:
                    listed = ", ".join(map(str, sorted(known)))
                    raise ValueError(f"expected a {kind} of these tables and figures ({listed}), got {name}")
        if not any(map(self.has_row, rows)):
            names = ", ".join(map(str, (*self.datasets, *self.models, *self.trainings)))
            raise ValueError(f"expected rows with all of these: {names}; got none")


def measurements(experiments: Iterable[Experiment], *, fast: bool = False) -> list[PaperMeasurement]:
    """Return all measurements that these tables and figures need, without repetitions."""
    return list(dict.fromkeys(needed for chosen in experiments for needed in chosen.measurements(fast=fast)))


def jobs(needed: Iterable[PaperMeasurement]) -> list[Job]:
    """Return one job per model, in the order of its first measurement."""
    return jobs_of(measurement.task for measurement in needed)


def missing(experiments: Sequence[Experiment], store: Store, *, fast: bool = False) -> list[Job]:
    """Return jobs for all results that these tables and figures need and the store lacks."""
    needed = measurements(experiments, fast=fast)
    return jobs(measurement for measurement in needed if store.get(measurement.identity) is None)
