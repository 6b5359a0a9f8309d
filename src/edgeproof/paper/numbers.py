"""The numbers printed in the paper, each with its training and measurement."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from edgeproof._names import look_up
from edgeproof.experiments.graphs import STAND_IN

_DATASETS = {
    "Citeseer": "citeseer",
    "Cora": "cora",
    "Cora-ML": "cora_ml",
    "Pubmed": "pubmed",
    "SBM (hetero.)": "csbm",
    "Squirrel": "squirrel",
    "WikiCS": "wikics",
    "OGB-arXiv": "ogbn-arxiv",
}
_MODELS = {"SoftMedian GDC": "SoftMedianGDC"}
_ATTACKS = {"LR-BCD": "LRBCD", "PR-BCD": "PRBCD"}


@dataclass(frozen=True)
class PaperRow:
    """One row of a table: a model and its training.

    Args:
        setting: ``"inductive"`` or ``"transductive"``.
        dataset: Name of the graph.
        model: Name of the model.
        self_training: Whether the model is trained on pseudo-labels.
        attack: Attack in training; None for clean training.
        epsilon: Budget of that attack.
    """

    setting: str
    dataset: str
    model: str
    self_training: bool
    attack: str | None
    epsilon: float | None


def training_of(row: PaperRow) -> str:
    """Describe the training of a row as text."""
    if row.attack is None:
        return "self-trained" if row.self_training else "regular"
    return f"{row.attack} {row.epsilon:g}" + ("" if row.self_training else ", no self-training")


@dataclass(frozen=True)
class PaperColumn:
    """One column of a table: a measurement.

    Args:
        attack: ``"clean"``, an attack, or ``"smoothing"``.
        epsilon: Budget of the attack; 0 without one.
        r_add: Certified radius of added edges.
        r_del: Certified radius of deleted edges.
    """

    attack: str
    epsilon: float = 0.0
    r_add: int = 0
    r_del: int = 0


@dataclass(frozen=True)
class PaperNumber:
    """One number of a table in percent, with its standard error.

    Args:
        table: Label of the table.
        row: The training.
        column: The measurement.
        mean: The printed mean; None for a graph that the paper does not have.
        error: The printed standard error; None likewise.
    """

    table: str
    row: PaperRow
    column: PaperColumn
    mean: float | None
    error: float | None


def paper_numbers(table: str) -> list[PaperNumber]:
    """Return all numbers of a table, in the paper's order.

    >>> cell = paper_numbers("tab:results")[0]
    >>> cell.row.model, cell.column.attack, cell.mean
    ('GCN', 'clean', 72.0)
    """
    return look_up("table", table, _by_table())


def labels() -> set[str]:
    """Return the labels of all tables with numbers."""
    return set(_by_table())


@lru_cache
def _by_table() -> dict[str, list[PaperNumber]]:
    tables: dict[str, list[PaperNumber]] = {}
    with files("edgeproof.paper").joinpath("paper.csv").open(encoding="utf-8") as lines:
        for line in csv.DictReader(lines):
            trained = line["train_attack"] != "none"
            # One table does not print the budget of training; all others have this one.
            epsilon = float(line["train_epsilon"] or 0.2) if trained else None
            row = PaperRow(
                line["setting"],
                look_up("dataset", line["dataset"], _DATASETS),
                _MODELS.get(line["model"], line["model"]),
                # Empty only for graphs without unlabelled nodes, where self-training does not apply.
                line["self_training"] == "true",
                _ATTACKS.get(line["train_attack"], line["train_attack"]) if trained else None,
                epsilon,
            )
            column = PaperColumn(
                _ATTACKS.get(line["eval_attack"], line["eval_attack"]),
                float(line["eval_epsilon"] or 0),
                int(line["r_add"] or 0),
                int(line["r_del"] or 0),
            )
            number = PaperNumber(line["table"], row, column, float(line["mean"]), float(line["error"]))
            tables.setdefault(number.table, []).append(number)
    return tables


def stands_for(dataset: str) -> str:
    """Return the name of the graph that a generated graph replaces; other names are returned unchanged."""
    return "ogbn-arxiv" if dataset == STAND_IN else dataset


def is_large(dataset: str) -> bool:
    """Whether a graph has the size of ogbn-arxiv, for which the paper has separate settings."""
    return stands_for(dataset) == "ogbn-arxiv"


def epsilons(row: PaperRow, attack: str) -> tuple[float, ...]:
    """Return all budgets, ascending, at which any table of the paper has this attack on the graph of a row.

    >>> epsilons(paper_numbers("tab:results")[0].row, "LRBCD")
    (0.05, 0.1, 0.25)
    """
    return _epsilons(stands_for(row.dataset), row.setting, attack)


@lru_cache
def _epsilons(dataset: str, setting: str, attack: str) -> tuple[float, ...]:
    numbers = (number for table in _by_table().values() for number in table)
    same = (number for number in numbers if (number.row.dataset, number.row.setting) == (dataset, setting))
    return tuple(sorted({number.column.epsilon for number in same if number.column.attack == attack}))
