"""What has to be run for a table, and what is there already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgeproof.experiments.measure import Measure
from edgeproof.experiments.paper import Row
from edgeproof.experiments.recipe import Recipe
from edgeproof.experiments.store import Store
from edgeproof.experiments.tables import SEEDS, Table
from edgeproof.splits import PROTOCOLS

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
        row = self.recipe.row
        return f"{row.dataset} {row.model} {self.training} {self.recipe.protocol} seed {self.recipe.seed}"


def seeds_of(fast: bool) -> tuple[int, ...]:
    """The paper's seeds; one of them is enough to try things out."""
    return SEEDS[:1] if fast else SEEDS


def protocols_of(row: Row) -> tuple[str, ...]:
    """Protocols that differ for a row: the released scripts mix up the splits of GPRGNN alone, where splits are drawn."""
    drawn = row.setting == "inductive" and row.dataset not in ("csbm", "squirrel", "ogbn-arxiv")
    return tuple(PROTOCOLS) if row.model == "GPRGNN" and drawn else ("strict",)


def recipes(row: Row, protocol: str, fast: bool = False) -> list[Recipe]:
    """The models behind a row, one per seed."""
    return [Recipe(row, seed, protocol, fast) for seed in seeds_of(fast)]


def missing(tables: Sequence[Table], store: Store, *, fast: bool = False) -> list[Job]:
    """Everything that these tables need and the store has not, each thing once, in the tables' order."""
    wanted: dict[Recipe, dict[Measure, None]] = {}
    for measure in measures(tables, fast=fast):
        if store.get(measure.identity) is None:
            wanted.setdefault(measure.recipe, {})[measure] = None
    return [Job(recipe, tuple(found)) for recipe, found in wanted.items()]


def measures(tables: Iterable[Table], *, fast: bool = False) -> list[Measure]:
    """Everything that these tables need, each thing once."""
    needed = (
        Measure.of(recipe, cell.column)
        for table in tables
        for cell in table.cells
        for protocol in protocols_of(cell.row)
        for recipe in recipes(cell.row, protocol, fast)
    )
    return list(dict.fromkeys(needed))
