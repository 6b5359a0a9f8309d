"""Paired differences that support the paper's findings, from the results of ``edgeproof reproduce run``.

python studies/findings.py    write docs/findings.md; runs nothing
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from _pages import DOCS, PROTOCOL_STORE, command_line, csv_text, mean_and_error
from _pages import table as as_table

from edgeproof.analysis import Coefficients
from edgeproof.experiments.analyses import BINS
from edgeproof.paper import compare, find_figure, find_table
from edgeproof.paper.compare import ComparedCell
from edgeproof.paper.numbers import PaperColumn, PaperRow
from edgeproof.paper.recipes import training_name
from edgeproof.paper.render import title_of

PAGE = DOCS / "findings.md"
GRAPHS = {"citeseer": "Citeseer", "cora": "Cora", "cora_ml": "Cora-ML", "pubmed": "Pubmed"}
ATTACKED = ("citeseer", "cora", "cora-ml", "pubmed")
CERTIFIED = ("certified-citeseer", "certified-cora", "certified-cora-ml")
MODELS = ("GCN", "GAT", "APPNP", "ChebNetII", "GPRGNN")
TRAINED = ("LRBCD", "PRBCD")
CLEAN, EPSILONS = PaperColumn("clean"), (0.05, 0.1, 0.25)
RADII = ((0, 0), (4, 0), (0, 5))
# Radius of the certificates on the page; the CSV file has all.
SHOWN_RADIUS = (4, 0)
FREQUENCIES = (0.5, 1.0)
NUM_STEPS = 5
# Graph, model, training, protocol and column: one accuracy per split.
Accuracies = dict[tuple[str, str, str, str, PaperColumn], tuple[float, ...]]


@dataclass(frozen=True)
class Difference:
    """Column of a table: accuracy after one training minus accuracy after another.

    Args:
        title: Title of the column.
        column: Measurement to compare.
        training: Training of the minuend, with the model of the row.
        baseline: Training of the subtrahend.
        baseline_model: Model of the subtrahend; None for that of the row.
    """

    title: str
    column: PaperColumn
    training: str
    baseline: str
    baseline_model: str | None = None


@cache
def compared_cells() -> tuple[ComparedCell, ...]:
    """Return the cells of all tables."""
    return tuple(cell for name in (*ATTACKED, *CERTIFIED) for cell in compare(find_table(name), PROTOCOL_STORE).cells)


@cache
def all_accuracies() -> Accuracies:
    """Return the accuracies of all cells."""
    accuracies: Accuracies = {}
    for cell in compared_cells():
        row = cell.paper.row
        for protocol, ours in cell.ours.items():
            if ours is not None:
                accuracies[row.dataset, row.model, training_name(row), protocol, cell.paper.column] = ours.values
    return accuracies


def comparisons() -> dict[str, list[Difference]]:
    """Return the columns of each comparison by name."""
    return {
        "adversarial training minus self-training": self_training_columns(),
        "LR-BCD training minus PR-BCD training": attack_columns(),
        "LR-BCD training minus SoftMedian GDC": soft_median_columns(),
        "adversarial training minus regular training, certified": certified_columns(),
    }


def page() -> str:
    """Return the page."""
    self_training, attacks, soft_median, certified = (
        shown_differences(all_accuracies(), columns) for columns in comparisons().values()
    )
    return PAGE_TEXT.format(
        self_training=self_training,
        attacks=attacks,
        losses=losses(compared_cells()),
        soft_median=soft_median,
        certified=certified,
        filters=table(*filters(only_largest=True)),
    )


def other_files() -> dict[str, str]:
    """Return all differences and filters as CSV files by name."""
    lines = []
    for name, columns in comparisons().items():
        for graph, model, *cells in difference_rows(all_accuracies(), columns):
            measured = zip(columns, cells, strict=True)
            lines += [[name, graph, model, column.title, cell] for column, cell in measured if cell != "-"]
    return {
        "findings.csv": csv_text(["comparison", "graph", "model", "measured", "difference"], lines),
        "findings-filters.csv": csv_text(*filters()),
        "findings-coefficients.csv": csv_text(*coefficients()),
    }


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table without rows that contain only dashes."""
    return as_table(titles, [row for row in rows if set(row[2:]) != {"-"}])


def shown_differences(accuracies: Accuracies, columns: Sequence[Difference]) -> str:
    """Return a Markdown table of the differences at the largest budget, or against added edges."""
    shown = [
        column for column in columns if column.column.epsilon == EPSILONS[-1] or column.column.r_add == SHOWN_RADIUS[0]
    ]
    return table(["graph", "model", *(column.title for column in shown)], difference_rows(accuracies, shown))


def difference_rows(accuracies: Accuracies, columns: Sequence[Difference]) -> list[list[str]]:
    """Return a row for each graph, model and protocol; only GPRGNN's protocols differ."""
    rows = []
    for graph in GRAPHS:
        for model in MODELS:
            for protocol in ("strict", "as_released") if model == "GPRGNN" else ("strict",):
                cells = [
                    difference(
                        accuracies.get((graph, model, column.training, protocol, column.column)),
                        accuracies.get(
                            (graph, column.baseline_model or model, column.baseline, protocol, column.column)
                        ),
                    )
                    for column in columns
                ]
                rows.append([GRAPHS[graph], model if protocol == "strict" else f"{model}, {protocol}", *cells])
    return rows


def difference(minuend: Sequence[float] | None, subtrahend: Sequence[float] | None) -> str:
    """Return mean and standard error of the differences on each split, with a sign."""
    if minuend is None or subtrahend is None:
        return "-"
    text = mean_and_error([left - right for left, right in zip(minuend, subtrahend, strict=True)])
    return text if text.startswith("-") else f"+{text}"


def self_training_columns() -> list[Difference]:
    """Return adversarial training minus self-training, clean and under the training attack."""
    return [
        Difference(f"{attack}: {title}", column, attack, "self")
        for attack in TRAINED
        for title, column in [
            ("clean", CLEAN),
            *((f"{epsilon:g}", PaperColumn(attack, epsilon)) for epsilon in EPSILONS),
        ]
    ]


def attack_columns() -> list[Difference]:
    """Return training against LR-BCD minus training against PR-BCD, clean and under both attacks."""
    attacked = [PaperColumn(attack, epsilon) for attack in TRAINED for epsilon in EPSILONS]
    return [
        Difference("clean", CLEAN, *TRAINED),
        *(Difference(f"under {title_of(column)}", column, *TRAINED) for column in attacked),
    ]


def soft_median_columns() -> list[Difference]:
    """Return training against LR-BCD minus SoftMedian GDC, under LR-BCD."""
    return [
        Difference(f"at {epsilon:g}", PaperColumn("LRBCD", epsilon), "LRBCD", "regular", "SoftMedianGDC")
        for epsilon in EPSILONS
    ]


def certified_columns() -> list[Difference]:
    """Return adversarial training minus regular training, certified."""
    radii = [PaperColumn("smoothing", r_add=added, r_del=deleted) for added, deleted in RADII]
    return [
        Difference(f"{attack}: {title_of(column)}", column, attack, "regular") for attack in TRAINED for column in radii
    ]


def losses(cells: Sequence[ComparedCell]) -> str:
    """Return a table of the accuracy lost under attack, for a regular and for an adversarially trained model."""
    by_name = {
        (cell.paper.row.dataset, cell.paper.row.model, training_name(cell.paper.row), cell.paper.column): cell
        for cell in cells
    }

    def loss(graph: str, model: str, training: str, attack: str, source: str) -> float | None:
        """Return the accuracy lost at the largest budget: the paper's, or ours by protocol."""
        both = [by_name[graph, model, training, column] for column in (CLEAN, PaperColumn(attack, EPSILONS[-1]))]
        numbers = [cell.paper if source == "paper" else cell.ours[source] for cell in both]
        clean, attacked = (None if number is None else number.mean for number in numbers)
        return None if clean is None or attacked is None else clean - attacked

    def cell(graph: str, attack: str, source: str) -> str:
        regular = loss(graph, "GCN", "regular", attack, source)
        robust = loss(graph, "GPRGNN", attack, attack, source)
        return "-" if regular is None or robust is None else f"{regular:.1f}, {robust:.1f}: {regular / robust:.1f}"

    sources = ("paper", "as_released", "strict")
    rows = [
        [GRAPHS[graph], attack, *(cell(graph, attack, source) for source in sources)]
        for graph in GRAPHS
        for attack in TRAINED
    ]
    return table(["graph", "attack", *sources], rows)


def filters(*, only_largest: bool = False) -> tuple[list[str], list[list[str]]]:
    """Return titles and rows of filter responses relative to frequency 0, or only those at the graph's largest frequency."""

    def describe(measured: list[dict[str, Any]]) -> list[str]:
        responses, largest = [], []
        for values in measured:
            learned = Coefficients.of(values["gamma"], self_loops=values["self_loops"])
            largest.append(max(place for place, density in enumerate(values["density"], 1) if density) * 2 / BINS)
            at = torch.tensor([0.0, *FREQUENCIES, largest[-1], 2.0], dtype=torch.double)
            response = learned.response(at)
            responses.append((response / response[0]).tolist()[1:])
        return [
            *(mean_and_range(column) for column in zip(*responses, strict=True)),
            f"{min(largest):.2f} to {max(largest):.2f}",
        ]

    at = [f"at {frequency:g}" for frequency in FREQUENCIES]
    titles = ["graph", "training", *at, "at the graph's largest", "at 2", "its largest"]
    rows = filter_rows(describe)
    chosen = [0, 1, 4] if only_largest else range(len(titles))
    return [titles[place] for place in chosen], [[row[place] for place in chosen] for row in rows]


def coefficients() -> tuple[list[str], list[list[str]]]:
    """Return titles and rows of the first coefficients, as fractions of the sum of all absolute values."""

    def describe(measured: list[dict[str, Any]]) -> list[str]:
        gammas = [torch.tensor(values["gamma"]) for values in measured]
        # A filter and its negative are equivalent: the other layers of the model can change sign.
        scaled = [gamma / gamma.abs().sum() * gamma[0].sign() for gamma in gammas]
        return [mean_and_range([float(gamma[step]) for gamma in scaled]) for step in range(NUM_STEPS)]

    return ["graph", "training", *(f"step {step}" for step in range(NUM_STEPS))], filter_rows(describe)


def filter_rows(describe: Callable[[list[dict[str, Any]]], list[str]]) -> list[list[str]]:
    """Return a row for each graph and training whose filters have been measured."""
    measured: dict[PaperRow, list[dict[str, Any]]] = {}
    for measurement in find_figure("gamma-all").measurements():
        record = PROTOCOL_STORE.get(measurement.identity) if measurement.kind == "filter" else None
        if record is not None:
            measured.setdefault(measurement.recipe.row, []).append(record.values)
    return [
        [
            GRAPHS[row.dataset],
            training_name(row) + (f" ({len(values)} splits)" if len(values) < 3 else ""),
            *describe(values),
        ]
        for row, values in measured.items()
    ]


def mean_and_range(values: Sequence[float]) -> str:
    """Return mean, smallest and largest value as text.

    >>> mean_and_range([1.0, 2.0])
    '1.50 (1.00 to 2.00)'
    """
    mean = sum(values) / len(values)
    return f"{mean:.2f} ({min(values):.2f} to {max(values):.2f})"


PAGE_TEXT = """# Differences between trainings

- Adversarial training makes GPRGNN more robust at ε = 0.25 than self-training on Citeseer, Cora-ML and Pubmed, but hardly on
  Cora.
- With unseen test nodes, adversarially trained GPRGNN loses 1.4 to 3.3 times less accuracy than regular GCN; in the paper, 2.6
  to 7.4 times less.
- Adversarial training raises the certified accuracy of GPRGNN on Citeseer, Cora and Cora-ML, but not that of every model.
- Training against PR-BCD makes the learned filters less low-pass than training against LR-BCD.

Differences are paired: computed per split, then averaged over the splits 0, 1 and 5, with the standard error of this mean. With
three splits, a difference of less than four standard errors may be chance (a t-test with two degrees of freedom requires 4.3).
Splits are `strict` unless a row says `as_released`. Differences are in points of accuracy. The tables have ε = 0.25; this one
has all budgets:

[All differences as CSV](findings.csv)

## Adversarial training compared with self-training

Adversarial training minus self-training, under the attack of the training:

{self_training}

## Training against LR-BCD or PR-BCD

Training against LR-BCD minus training against PR-BCD:

{attacks}

## Accuracy lost under attack

Points of accuracy lost at ε = 0.25, computed from the means: by regular GCN, by GPRGNN trained against the same attack, and
the ratio of the two.

{losses}

## Comparison with SoftMedian GDC

Training against LR-BCD minus regular training of SoftMedian GDC, under LR-BCD:

{soft_median}

## Certified accuracy

Adversarial training minus regular training, certified against four added edges:

{certified}

## Filters of GPRGNN

Response $`g(\\lambda) = \\sum_k \\gamma_k (1 - \\lambda)^k`$ at the largest frequency of the test graph, as a fraction of
$`g(0)`$: mean and range over splits. Signals of frequency $`\\lambda = 0`$ are equal at neighbours (up to a factor of the
degree). A value below 1 at the largest frequency is closer to low-pass, above 1 to high-pass.

{filters}

[Responses at other frequencies as CSV](findings-filters.csv)

Coefficients divided by the sum of their absolute values, with a positive first coefficient:

[Coefficients as CSV](findings-coefficients.csv)

## Reproduce

    python studies/findings.py

writes this page and its CSV files from the stored results. `edgeproof reproduce run citeseer cora cora-ml pubmed
certified-citeseer certified-cora certified-cora-ml gamma-all` computes missing results.
"""


if __name__ == "__main__":
    command_line(PAGE, page, other_files=other_files)()
