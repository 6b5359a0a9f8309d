"""The numbers that the paper prints, and what each of them is a number of."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from edgeproof._names import look_up

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
# A generated graph, for machines without a copy of ogbn-arxiv; it is treated as that one is.
STAND_IN = "arxiv-stand-in"
_MODELS = {"SoftMedian GDC": "SoftMedianGDC"}
_ATTACKS = {"LR-BCD": "LRBCD", "PR-BCD": "PRBCD"}


@dataclass(frozen=True)
class Row:
    """A way of training, as a table's row names it.

    Args:
        setting: ``"inductive"`` or ``"transductive"``.
        dataset: the graph.
        model: the model.
        self_training: whether unlabelled nodes were labelled first.
        attack: what it was trained against; none for clean training.
        epsilon: with which budget.
    """

    setting: str
    dataset: str
    model: str
    self_training: bool
    attack: str | None
    epsilon: float | None


def training_of(row: Row) -> str:
    """A row's training in words."""
    if row.attack is None:
        return "self-trained" if row.self_training else "regular"
    return f"{row.attack} {row.epsilon:g}" + ("" if row.self_training else ", no self-training")


@dataclass(frozen=True)
class Column:
    """What was measured.

    Args:
        attack: ``"clean"``, an attack, or ``"smoothing"``.
        epsilon: the attack's budget; 0 for none.
        r_add: certified radius of added edges.
        r_del: and of deleted ones.
    """

    attack: str
    epsilon: float = 0.0
    r_add: int = 0
    r_del: int = 0


@dataclass(frozen=True)
class Printed:
    """One number of a table, in percent, with its standard error; neither for a graph that the paper has no numbers of."""

    table: str
    row: Row
    column: Column
    mean: float | None
    error: float | None


def printed(table: str) -> list[Printed]:
    """All numbers of a table, in the paper's order.

    >>> cell = printed("tab:results")[0]
    >>> cell.row.model, cell.column.attack, cell.mean
    ('GCN', 'clean', 72.0)
    """
    return look_up("table", table, _by_table())


@lru_cache
def _by_table() -> dict[str, list[Printed]]:
    found: dict[str, list[Printed]] = {}
    with files("edgeproof.experiments").joinpath("paper.csv").open(encoding="utf-8") as lines:
        for line in csv.DictReader(lines):
            trained = line["train_attack"] != "none"
            # One table leaves the budget of training out; it is that of all others.
            epsilon = float(line["train_epsilon"] or 0.2) if trained else None
            row = Row(
                line["setting"],
                look_up("dataset", line["dataset"], _DATASETS),
                _MODELS.get(line["model"], line["model"]),
                # Unknown only for graphs whose nodes are all labelled: there is nothing to label.
                line["self_training"] == "true",
                _ATTACKS.get(line["train_attack"], line["train_attack"]) if trained else None,
                epsilon,
            )
            column = Column(
                _ATTACKS.get(line["eval_attack"], line["eval_attack"]),
                float(line["eval_epsilon"] or 0),
                int(line["r_add"] or 0),
                int(line["r_del"] or 0),
            )
            cell = Printed(line["table"], row, column, float(line["mean"]), float(line["error"]))
            found.setdefault(cell.table, []).append(cell)
    return found


def stands_for(dataset: str) -> str:
    """The graph that another stands in for; itself if it stands for none."""
    return "ogbn-arxiv" if dataset == STAND_IN else dataset


def is_large(dataset: str) -> bool:
    """Whether it is of arXiv's size, for which the paper has settings of its own."""
    return stands_for(dataset) == "ogbn-arxiv"


def epsilons(row: Row, attack: str) -> tuple[float, ...]:
    """All budgets at which the paper has this attack on this graph, in any of its tables, ascending.

    >>> epsilons(printed("tab:results")[0].row, "LRBCD")
    (0.05, 0.1, 0.25)
    """
    cells = (cell for table in _by_table().values() for cell in table)
    graph = stands_for(row.dataset)
    same = (cell for cell in cells if (cell.row.dataset, cell.row.setting) == (graph, row.setting))
    return tuple(sorted({cell.column.epsilon for cell in same if cell.column.attack == attack}))
