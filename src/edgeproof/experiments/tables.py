"""The paper's result tables, as data: what is in them follows from the numbers that it prints."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edgeproof._names import look_up
from edgeproof.experiments.measure import Measure
from edgeproof.experiments.paper import STAND_IN, Column, Printed, Row, printed
from edgeproof.experiments.recipe import protocols_of, recipes


@dataclass(frozen=True)
class Table:
    """One table.

    Args:
        label: its label in the paper's source.
        number: its number; none if the paper has no such table.
        nickname: a short name.
        about: what it shows.
        stands_for: the label of a table of ogbn-arxiv, whose rows and columns this one has on a generated graph of that size.
    """

    label: str
    number: int | None
    nickname: str
    about: str
    stands_for: str | None = None

    @property
    def cells(self) -> list[Printed]:
        """Its numbers, in the paper's order; of a stand-in, what they would be numbers of."""
        if self.stands_for is None:
            return printed(self.label)
        return [
            Printed(self.label, replace(cell.row, dataset=STAND_IN), cell.column, None, None)
            for cell in printed(self.stands_for)
        ]

    @property
    def title(self) -> str:
        return f"Table {self.number}: {self.about}" if self.number else self.about

    @property
    def names(self) -> tuple[str, ...]:
        """All that it may be called."""
        return (self.label, self.nickname, *([] if self.number is None else [str(self.number)]))

    @property
    def rows(self) -> list[Row]:
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> list[Column]:
        return list(dict.fromkeys(cell.column for cell in self.cells))

    def measures(self, *, fast: bool = False) -> list[Measure]:
        """Everything that it is made from, under both protocols where they differ."""
        return [
            Measure.of(recipe, cell.column)
            for cell in self.cells
            for protocol in protocols_of(cell.row)
            for recipe in recipes(cell.row, protocol, fast)
        ]


TABLES = (
    Table("tab:results", 1, "main", "Citeseer: attacks and certificates, regular and adversarial training"),
    Table("tab:result_hetero", 2, "other-graphs", "GPRGNN on six other graphs"),
    Table("tab:app_adv_causes_overfitting", 4, "perfect-cora", "perfect robustness, transductively, on Cora"),
    Table("tab:app_adv_causes_overfitting_coraml", 5, "perfect-cora-ml", "the same on Cora-ML"),
    Table("tab:app_adv_causes_overfitting_citeseer", 6, "perfect-citeseer", "the same on Citeseer"),
    Table("tab:app_results_citeseer", 7, "citeseer", "Citeseer: all trainings, attacks at three budgets"),
    Table("tab:app_results_cora", 8, "cora", "the same on Cora"),
    Table("tab:app_results_cora_ml", 9, "cora-ml", "the same on Cora-ML"),
    Table("tab:app_results_pubmed", 10, "pubmed", "the same on Pubmed"),
    Table("tab:app_results_arxiv", 11, "arxiv", "the same on ogbn-arxiv"),
    Table("tab:app_result_grand_and_attacks", 12, "more-attacks", "GRAND, and the attacks PGD and DICE, on Citeseer"),
    Table("tab:app_smooth_citeseer", 13, "certified-citeseer", "certified accuracy on Citeseer"),
    Table("tab:app_smooth_cora", 14, "certified-cora", "certified accuracy on Cora"),
    Table("tab:app_smooth_cora_ml", 15, "certified-cora-ml", "certified accuracy on Cora-ML"),
)
STAND_INS = (
    Table(
        "tab:arxiv_stand_in",
        None,
        "arxiv-table-stand-in",
        "Stand-in for table 11: a SYNTHETIC graph of ogbn-arxiv's size, one seed; its figures are not those of ogbn-arxiv",
        stands_for="tab:app_results_arxiv",
    ),
)


def find(name: str) -> Table:
    """A table by label, number or nickname.

    >>> find("1") is find("main") is find("tab:results")
    True
    """
    return look_up("table", name, {known: table for table in (*TABLES, *STAND_INS) for known in table.names})
