"""The paper's result tables, as data: their content follows from the numbers that the paper prints."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edgeproof._names import look_up
from edgeproof.experiments.graphs import STAND_IN
from edgeproof.paper.numbers import PaperColumn, PaperNumber, PaperRow, paper_numbers
from edgeproof.paper.recipes import PaperMeasurement, protocols_of, recipes


@dataclass(frozen=True)
class Table:
    """One table.

    Args:
        label: Label in the paper's source.
        number: Number in the paper; None for a table that the paper does not have.
        nickname: A short name.
        about: Subject.
        stands_for: Label of the table that this one repeats on a generated graph of the size of ogbn-arxiv.
        numbers: The numbers; None for those of the paper under this label.
    """

    label: str
    number: int | None
    nickname: str
    about: str
    stands_for: str | None = None
    numbers: tuple[PaperNumber, ...] | None = None

    @property
    def cells(self) -> list[PaperNumber]:
        """The numbers in the paper's order; those of a stand-in have no value."""
        if self.numbers is not None:
            return list(self.numbers)
        if self.stands_for is None:
            return paper_numbers(self.label)
        return [
            PaperNumber(self.label, replace(cell.row, dataset=STAND_IN), cell.column, None, None)
            for cell in paper_numbers(self.stands_for)
        ]

    @property
    def title(self) -> str:
        """The number and the subject of the table."""
        return f"Table {self.number}: {self.about}" if self.number else self.about

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the table."""
        return (self.label, self.nickname, *([] if self.number is None else [str(self.number)]))

    @property
    def rows(self) -> list[PaperRow]:
        """The rows, without repetitions."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> list[PaperColumn]:
        """The columns, without repetitions."""
        return list(dict.fromkeys(cell.column for cell in self.cells))

    def measurements(self, *, fast: bool = False) -> list[PaperMeasurement]:
        """Return all measurements that the table needs, under both protocols where they differ."""
        return [
            PaperMeasurement(recipe, cell.column.attack)
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
        "Stand-in for table 11: a SYNTHETIC graph of ogbn-arxiv's size, one seed; these are not results on ogbn-arxiv",
        stands_for="tab:app_results_arxiv",
    ),
)


def find_table(name: str) -> Table:
    """Return a table by label, number or nickname.

    >>> find_table("1") is find_table("main") is find_table("tab:results")
    True
    """
    return look_up("table", name, {known: table for table in (*TABLES, *STAND_INS) for known in table.names})
