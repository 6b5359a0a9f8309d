"""Our figures beside the paper's."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from edgeproof.experiments.measure import Measure, value
from edgeproof.experiments.paper import Printed, Row
from edgeproof.experiments.plan import Selection
from edgeproof.experiments.recipe import protocols_of, recipes
from edgeproof.experiments.store import Store
from edgeproof.experiments.tables import Table

# Half of the last digit that the paper prints.
_ROUNDED = 0.05


@dataclass(frozen=True)
class Figure:
    """A mean over seeds, in percent.

    Args:
        values: one per seed.
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.mean(self.values)

    @property
    def error(self) -> float:
        """The standard error of the mean; 0 for a single seed."""
        return statistics.stdev(self.values) / len(self.values) ** 0.5 if len(self.values) > 1 else 0.0

    def __str__(self) -> str:
        return f"{self.mean:.1f} ± {self.error:.1f}" if len(self.values) > 1 else f"{self.mean:.1f}"


@dataclass(frozen=True)
class Cell:
    """One number of a table.

    Args:
        paper: what the paper prints.
        ours: our figure by protocol; where the protocols do not differ, the same figure twice; none while seeds are missing.
    """

    paper: Printed
    ours: dict[str, Figure | None]

    def verdict(self, protocol: str) -> str:
        """``"matched"`` (within two of the paper's standard errors), ``"better"``, ``"worse"`` or ``"not run"``.

        ``"not compared"`` where the paper has no number.
        """
        figure = self.ours[protocol]
        if figure is None:
            return "not run"
        if self.paper.mean is None or self.paper.error is None:
            return "not compared"
        difference = figure.mean - self.paper.mean
        if abs(difference) <= 2 * self.paper.error + _ROUNDED:
            return "matched"
        return "better" if difference > 0 else "worse"

    def apart(self, protocol: str) -> bool:
        """Whether ours and the paper's differ by more than two standard errors of the difference.

        :meth:`verdict` has the paper's error alone, which a mean over three splits may miss by chance. Errors are taken to be
        independent; where both sides have the same splits they are not, and fewer cells are apart than should be. A single
        seed has no error, and is never apart.
        """
        figure = self.ours[protocol]
        if figure is None or len(figure.values) < 2 or self.paper.mean is None or self.paper.error is None:
            return False
        return abs(figure.mean - self.paper.mean) > 2 * math.hypot(figure.error, self.paper.error) + _ROUNDED


@dataclass(frozen=True)
class Comparison:
    """A table, cell by cell.

    Args:
        table: which.
        cells: in the paper's order.
        fast: whether these are the figures of the smaller version.
    """

    table: Table
    cells: tuple[Cell, ...]
    fast: bool

    @property
    def rows(self) -> list[Row]:
        return list(dict.fromkeys(cell.paper.row for cell in self.cells))

    def counts(self, protocol: str) -> dict[str, int]:
        """How many cells there are of each verdict; those that cannot be compared count for none."""
        verdicts = [cell.verdict(protocol) for cell in self.cells]
        return {name: verdicts.count(name) for name in ("matched", "better", "worse", "not run")}

    def num_apart(self, protocol: str) -> int:
        """How many cells differ by more than two standard errors of the difference."""
        return sum(cell.apart(protocol) for cell in self.cells)


def compare(table: Table, store: Store, *, fast: bool = False, only: Selection | None = None) -> Comparison:
    """A table, or some of its rows, from what is in the store."""
    cells = [cell for cell in table.cells if only is None or only.has_row(cell.row)]
    return Comparison(table, tuple(Cell(cell, _ours(cell, store, fast)) for cell in cells), fast)


def _ours(cell: Printed, store: Store, fast: bool) -> dict[str, Figure | None]:
    figures = {protocol: _figure(cell, protocol, store, fast) for protocol in protocols_of(cell.row)}
    return {"as_released": figures.get("as_released", figures["strict"]), "strict": figures["strict"]}


def _figure(cell: Printed, protocol: str, store: Store, fast: bool) -> Figure | None:
    found = [store.get(Measure.of(recipe, cell.column).identity) for recipe in recipes(cell.row, protocol, fast)]
    if any(record is None for record in found):
        return None
    return Figure(tuple(value(record.values, cell.column) for record in found if record is not None))
