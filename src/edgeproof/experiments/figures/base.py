"""What all figures have in common."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from edgeproof.experiments.measure import Measure
from edgeproof.experiments.paper import Row, training_of
from edgeproof.experiments.recipe import SEEDS, Recipe, protocols_of
from edgeproof.experiments.store import Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAST = "FAST VERSION: few epochs, weak attacks, one seed"


class Need(NamedTuple):
    """One kind of measurement of one way of training, of all seeds.

    Args:
        row: the training.
        kind: the measurement; see :class:`~edgeproof.experiments.measure.Measure`.
    """

    row: Row
    kind: str


@dataclass(frozen=True)
class Found:
    """What the store has of what a figure needs.

    Args:
        values: for each need what was measured, one entry for every seed that is there.
    """

    values: Mapping[Need, tuple[dict[str, Any], ...]]

    def of(self, row: Row, kind: str) -> tuple[dict[str, Any], ...]:
        return self.values[Need(row, kind)]


class Content(Protocol):
    """What a figure shows."""

    @property
    def needs(self) -> tuple[Need, ...]:
        """What it is made from."""

    @property
    def over(self) -> str:
        """How several seeds become one picture, such as ``"sum over"``."""

    def draw(self, found: Found) -> Figure:
        """A picture of what there is; parts without data are left empty and say so."""


@dataclass(frozen=True)
class Drawing:
    """A figure as far as the store goes.

    Args:
        figure: the picture; none if nothing at all is there.
        there: measurements that are there.
        wanted: measurements that it needs.
        missing: what is not there, in words.
        note: protocol, seeds and what else one has to know to read it.
        stem: the name of its files, without ending: versions of one figure do not overwrite each other.
    """

    figure: Figure | None
    there: int
    wanted: int
    missing: tuple[str, ...]
    note: str
    stem: str


@dataclass(frozen=True)
class PaperFigure:
    """One figure.

    Args:
        label: its label in the paper's source, or one like it.
        number: its number in the paper; none for one that the paper does not have.
        nickname: a short name.
        about: what it shows.
        content: what is drawn.
        seeds: of the models behind it.
        protocol: which splits, where protocols differ; see :func:`edgeproof.splits.by_protocol`.
        caveat: what nobody who looks at it must miss.
    """

    label: str
    number: int | None
    nickname: str
    about: str
    content: Content
    seeds: tuple[int, ...] = SEEDS
    protocol: str = "strict"
    caveat: str = ""

    @property
    def title(self) -> str:
        return f"Figure {self.number}: {self.about}" if self.number else self.about

    @property
    def names(self) -> tuple[str, ...]:
        """All that it may be called."""
        return (self.label, self.nickname, *([] if self.number is None else [f"fig{self.number}"]))

    def measures(self, *, fast: bool = False) -> list[Measure]:
        """Everything that it is made from."""
        return [measure for need in self.content.needs for measure in self._measures(need, fast)]

    def draw(self, store: Store, *, fast: bool = False) -> Drawing:
        """What the store has of it, as a picture."""
        found: dict[Need, dict[int, dict[str, Any]]] = {}
        missing: dict[Row, list[str]] = {}
        for need in self.content.needs:
            measures = self._measures(need, fast)
            records = {measure.recipe.seed: store.get(measure.identity) for measure in measures}
            found[need] = {seed: record.values for seed, record in records.items() if record is not None}
            if len(found[need]) < len(measures):
                some = f" ({len(measures) - len(found[need])} of {len(measures)} seeds)" if found[need] else ""
                missing.setdefault(need.row, []).append(f"{need.kind}{some}")
        # What is drawn together is of the same models.
        seeds = {row: _in_all([by for need, by in found.items() if need.row == row]) for row in _rows(found)}
        values = {need: tuple(by[seed] for seed in seeds[need.row] if by) for need, by in found.items()}
        there, wanted = sum(map(len, found.values())), len(self.measures(fast=fast))
        note = f"{self._note(there, wanted, fast, seeds)} {self._best_epochs(store, fast)}".strip()
        words = tuple(
            f"{row.dataset} {row.model}, {training_of(row)}: {', '.join(kinds)}" for row, kinds in missing.items()
        )
        stem = self.nickname + ("" if self.protocol == "strict" else f"-{self.protocol}") + ("-fast" if fast else "")
        if not there:
            return Drawing(None, there, wanted, words, note, stem)
        figure = self.content.draw(Found(values))
        title = f"{self.about}\n{FAST}" if fast else self.about
        figure.suptitle(title, x=0.01, ha="left", fontsize="medium", fontweight="bold")
        width = round(14 * figure.get_figwidth())
        figure.supxlabel(textwrap.fill(note, width), x=0.01, ha="left", fontsize="x-small", color="0.35")
        return Drawing(figure, there, wanted, words, note, stem)

    def _measures(self, need: Need, fast: bool) -> list[Measure]:
        protocol = self.protocol if self.protocol in protocols_of(need.row) else "strict"
        seeds = self.seeds[:1] if fast else self.seeds
        return [Measure(Recipe(need.row, seed, protocol, fast), need.kind) for seed in seeds]

    def _best_epochs(self, store: Store, fast: bool) -> str:
        """When trainings were at their best, as far as that is written down: early stopping ends some near the start."""
        recipes = dict.fromkeys(measure.recipe for measure in self.measures(fast=fast))
        records = [record for record in (store.get(recipe.identity) for recipe in recipes) if record is not None]
        best = sorted(record.values["best_epoch"] for record in records)
        known = "" if len(best) == len(recipes) else f" (written down for {len(best)} of {len(recipes)} trainings)"
        return f"Best epochs: {best[0]} to {best[-1]}, median {statistics.median_low(best)}{known}." if best else ""

    def _note(self, there: int, wanted: int, fast: bool, drawn: Mapping[Row, Sequence[int]]) -> str:
        settings = {need.row.setting for need in self.content.needs}
        splits = (
            "transductive splits" if settings == {"transductive"} else f"inductive splits, protocol {self.protocol}"
        )
        seeds = self.seeds[:1] if fast else self.seeds
        sets = sorted({tuple(sorted(some)) for some in drawn.values() if some}, key=len) or [seeds]
        named = " or ".join(", ".join(map(str, some)) for some in sets)
        over = f"{self.content.over} seeds" if any(len(some) > 1 for some in sets) else "seed"
        parts = [f"{splits}; {over} {named}."]
        if there < wanted:
            meant = "" if sets == [seeds] else f"; seeds {', '.join(map(str, seeds))} are wanted"
            parts.append(f"INCOMPLETE: {wanted - there} of {wanted} measurements are missing{meant}.")
        if self.caveat:
            parts.append(self.caveat)
        if fast:
            parts.append(f"{FAST}.")
        text = " ".join(parts)
        return text[0].upper() + text[1:]


def _rows(needs: Iterable[Need]) -> list[Row]:
    return list(dict.fromkeys(need.row for need in needs))


def _in_all(found: Sequence[Mapping[int, object]]) -> list[int]:
    """Seeds of which everything is there that there is of any."""
    begun = [one for one in found if one]
    return [seed for seed in begun[0] if all(seed in one for one in begun)] if begun else []
