"""Base classes of the paper's figures, and their inputs in a store."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from edgeproof.experiments.store import Store
from edgeproof.paper.numbers import PaperRow, training_of
from edgeproof.paper.recipes import SEEDS, PaperMeasurement, Recipe, protocols_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAST = "FAST VERSION: few epochs, weak attacks, one seed"


class FigureInput(NamedTuple):
    """One kind of measurement of one training, over all seeds.

    Args:
        row: The training.
        kind: The kind; see :class:`~edgeproof.paper.recipes.PaperMeasurement`.
    """

    row: PaperRow
    kind: str


@dataclass(frozen=True)
class FigureData:
    """The stored values of a figure's inputs.

    Args:
        values: Values of each input, one entry per stored seed.
    """

    values: Mapping[FigureInput, tuple[dict[str, Any], ...]]

    def of(self, row: PaperRow, kind: str) -> tuple[dict[str, Any], ...]:
        """Return the values of one input."""
        return self.values[FigureInput(row, kind)]


class Content(Protocol):
    """Content of a figure."""

    @property
    def inputs(self) -> tuple[FigureInput, ...]:
        """Required measurements."""

    @property
    def over(self) -> str:
        """How seeds are aggregated, as used in captions, such as ``"sum over"``."""

    def draw(self, data: FigureData) -> Figure:
        """Draw the available data; parts without data remain empty and are marked."""


@dataclass(frozen=True)
class Drawing:
    """A figure drawn from a store.

    Args:
        figure: The picture; None if no measurement is available.
        available: Number of available measurements.
        wanted: Number of measurements that the figure needs.
        missing: Descriptions of the missing measurements.
        note: Protocol, seeds and caveats.
        stem: Stem of its file names; versions of one figure have different stems.
    """

    figure: Figure | None
    available: int
    wanted: int
    missing: tuple[str, ...]
    note: str
    stem: str


@dataclass(frozen=True)
class PaperFigure:
    """One figure.

    Args:
        label: Label in the paper's source, or a similar one.
        number: Number in the paper; None for a figure that the paper does not have.
        nickname: A short name.
        about: Subject.
        content: Required measurements, and the function that draws them.
        seeds: Seeds of the models behind it.
        protocol: Protocol of the splits, where protocols differ; see :func:`edgeproof.splits.by_protocol`.
        caveat: Limitation to state in the caption.
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
        """The number and the subject of the figure."""
        return f"Figure {self.number}: {self.about}" if self.number else self.about

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the figure."""
        return (self.label, self.nickname, *([] if self.number is None else [f"fig{self.number}"]))

    def measurements(self, *, fast: bool = False) -> list[PaperMeasurement]:
        """Return all measurements that the figure needs."""
        return [measurement for needed in self.content.inputs for measurement in self._measurements(needed, fast)]

    def draw(self, store: Store, *, fast: bool = False) -> Drawing:
        """Draw the figure from the results in a store."""
        by_seed: dict[FigureInput, dict[int, dict[str, Any]]] = {}
        missing: dict[PaperRow, list[str]] = {}
        for needed in self.content.inputs:
            wanted = self._measurements(needed, fast)
            records = {measurement.recipe.seed: store.get(measurement.identity) for measurement in wanted}
            by_seed[needed] = {seed: record.values for seed, record in records.items() if record is not None}
            if len(by_seed[needed]) < len(wanted):
                lacking = len(wanted) - len(by_seed[needed])
                some = f" ({lacking} of {len(wanted)} seeds)" if by_seed[needed] else ""
                missing.setdefault(needed.row, []).append(f"{needed.kind}{some}")
        # All measurements of one training in a figure must be of the same models.
        seeds = {
            row: _common_seeds([values for needed, values in by_seed.items() if needed.row == row])
            for row in _rows(by_seed)
        }
        data = {needed: tuple(each[seed] for seed in seeds[needed.row] if each) for needed, each in by_seed.items()}
        available, total = sum(map(len, by_seed.values())), len(self.measurements(fast=fast))
        note = f"{self._note(available, total, fast, seeds)} {self._best_epochs(store, fast)}".strip()
        listed = tuple(
            f"{row.dataset} {row.model}, {training_of(row)}: {', '.join(kinds)}" for row, kinds in missing.items()
        )
        stem = self.nickname + ("" if self.protocol == "strict" else f"-{self.protocol}") + ("-fast" if fast else "")
        if not available:
            return Drawing(None, available, total, listed, note, stem)
        figure = self.content.draw(FigureData(data))
        title = f"{self.about}\n{FAST}" if fast else self.about
        figure.suptitle(title, x=0.01, ha="left", fontsize="medium", fontweight="bold")
        width = round(14 * figure.get_figwidth())
        figure.supxlabel(textwrap.fill(note, width), x=0.01, ha="left", fontsize="x-small", color="0.35")
        return Drawing(figure, available, total, listed, note, stem)

    def _measurements(self, needed: FigureInput, fast: bool) -> list[PaperMeasurement]:
        protocol = self.protocol if self.protocol in protocols_of(needed.row) else "strict"
        seeds = self.seeds[:1] if fast else self.seeds
        return [PaperMeasurement(Recipe(needed.row, seed, protocol, fast), needed.kind) for seed in seeds]

    def _best_epochs(self, store: Store, fast: bool) -> str:
        """Summarize the best epochs of the stored trainings, because early stopping may select one near the start."""
        recipes = dict.fromkeys(measurement.recipe for measurement in self.measurements(fast=fast))
        records = [record for record in (store.get(recipe.identity) for recipe in recipes) if record is not None]
        best = sorted(record.values["best_epoch"] for record in records)
        partial = "" if len(best) == len(recipes) else f" (stored for {len(best)} of {len(recipes)} trainings)"
        return f"Best epochs: {best[0]} to {best[-1]}, median {statistics.median_low(best)}{partial}." if best else ""

    def _note(self, available: int, total: int, fast: bool, drawn: Mapping[PaperRow, Sequence[int]]) -> str:
        settings = {needed.row.setting for needed in self.content.inputs}
        splits = (
            "transductive splits" if settings == {"transductive"} else f"inductive splits, protocol {self.protocol}"
        )
        seeds = self.seeds[:1] if fast else self.seeds
        sets = sorted({tuple(sorted(used)) for used in drawn.values() if used}, key=len) or [seeds]
        named = " or ".join(", ".join(map(str, used)) for used in sets)
        over = f"{self.content.over} seeds" if any(len(used) > 1 for used in sets) else "seed"
        parts = [f"{splits}; {over} {named}."]
        if available < total:
            wanted = "" if sets == [seeds] else f"; seeds {', '.join(map(str, seeds))} are required"
            parts.append(f"INCOMPLETE: {total - available} of {total} measurements are missing{wanted}.")
        if self.caveat:
            parts.append(self.caveat)
        if fast:
            parts.append(f"{FAST}.")
        text = " ".join(parts)
        return text[0].upper() + text[1:]


def _rows(inputs: Iterable[FigureInput]) -> list[PaperRow]:
    return list(dict.fromkeys(needed.row for needed in inputs))


def _common_seeds(by_seed: Sequence[Mapping[int, object]]) -> list[int]:
    """Return the seeds that all inputs with any data have."""
    started = [values for values in by_seed if values]
    return [seed for seed in started[0] if all(seed in values for values in started)] if started else []
