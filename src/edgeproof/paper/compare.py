"""Comparison of reproduced values with the numbers of the paper."""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgeproof.experiments.store import Store
from edgeproof.experiments.summary import SeedMean
from edgeproof.paper.numbers import PaperNumber, PaperRow
from edgeproof.paper.plan import Selection
from edgeproof.paper.recipes import PaperMeasurement, protocols_of, recipes, value
from edgeproof.paper.tables import Table

# Half a unit of the last digit that the paper prints.
_ROUNDING = 0.05


@dataclass(frozen=True)
class ComparedCell:
    """One number of a table.

    Args:
        paper: The number of the paper.
        ours: Our mean by protocol; the same mean twice where the protocols do not differ, None while seeds are missing.
    """

    paper: PaperNumber
    ours: dict[str, SeedMean | None]

    def verdict(self, protocol: str) -> str:
        """Return ``"matched"`` (within two standard errors of the paper), ``"better"``, ``"worse"`` or ``"not run"``.

        ``"not compared"`` where the paper has no number.
        """
        mean = self.ours[protocol]
        if mean is None:
            return "not run"
        if self.paper.mean is None or self.paper.error is None:
            return "not compared"
        difference = mean.mean - self.paper.mean
        if abs(difference) <= 2 * self.paper.error + _ROUNDING:
            return "matched"
        return "better" if difference > 0 else "worse"

    def differs(self, protocol: str) -> bool:
        """Whether the difference exceeds two standard errors of the difference.

        :meth:`verdict` uses the standard error of the paper only, which a mean over three splits may exceed by chance. Errors
        are assumed to be independent. With the same splits on both sides they are correlated, so this test is conservative. A
        single seed has no error and never differs.
        """
        mean = self.ours[protocol]
        if mean is None or len(mean.values) < 2 or self.paper.mean is None or self.paper.error is None:
            return False
        return abs(mean.mean - self.paper.mean) > 2 * math.hypot(mean.error, self.paper.error) + _ROUNDING


@dataclass(frozen=True)
class TableComparison:
    """Comparison of all cells of a table.

    Args:
        table: The table.
        cells: Its cells in the paper's order.
        fast: Whether our values are from the fast version.
    """

    table: Table
    cells: tuple[ComparedCell, ...]
    fast: bool

    @property
    def rows(self) -> list[PaperRow]:
        """The rows, without repetitions."""
        return list(dict.fromkeys(cell.paper.row for cell in self.cells))

    def counts(self, protocol: str) -> dict[str, int]:
        """Return the number of cells by verdict, without those that cannot be compared."""
        verdicts = [cell.verdict(protocol) for cell in self.cells]
        return {name: verdicts.count(name) for name in ("matched", "better", "worse", "not run")}

    def num_differing(self, protocol: str) -> int:
        """Return the number of cells that differ by more than two standard errors of the difference."""
        return sum(cell.differs(protocol) for cell in self.cells)


def compare(table: Table, store: Store, *, fast: bool = False, only: Selection | None = None) -> TableComparison:
    """Compare a table, or some of its rows, with the results in a store."""
    cells = [cell for cell in table.cells if only is None or only.has_row(cell.row)]
    return TableComparison(table, tuple(ComparedCell(cell, _ours(cell, store, fast)) for cell in cells), fast)


def _ours(cell: PaperNumber, store: Store, fast: bool) -> dict[str, SeedMean | None]:
    means = {protocol: _mean(cell, protocol, store, fast) for protocol in protocols_of(cell.row)}
    return {"as_released": means.get("as_released", means["strict"]), "strict": means["strict"]}


def _mean(cell: PaperNumber, protocol: str, store: Store, fast: bool) -> SeedMean | None:
    measurements = [PaperMeasurement(recipe, cell.column.attack) for recipe in recipes(cell.row, protocol, fast)]
    records = [store.get(measurement.identity) for measurement in measurements]
    if any(record is None for record in records):
        return None
    return SeedMean(tuple(value(record.values, cell.column) for record in records if record is not None))
