"""What the paper's findings rest on, split by split, from what is in the store.

    python benchmarks/findings.py     write docs/findings.md; runs nothing

Differences are taken on the same split, and averaged over the splits 0, 1 and 5: what two models have in common through the
split drops out of them. ``edgeproof reproduce run citeseer cora cora-ml pubmed certified-citeseer certified-cora
certified-cora-ml gamma-all`` runs what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from _runs import summary

from edgeproof.analysis import Coefficients
from edgeproof.experiments import Store
from edgeproof.experiments.analyses import BINS
from edgeproof.paper import compare, find_figure, find_table
from edgeproof.paper.compare import ComparedCell
from edgeproof.paper.numbers import PaperColumn, PaperRow
from edgeproof.paper.recipes import training_name
from edgeproof.paper.render import title_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "findings.md"
GRAPHS = {"citeseer": "Citeseer", "cora": "Cora", "cora_ml": "Cora-ML", "pubmed": "Pubmed"}
ATTACKED = ("citeseer", "cora", "cora-ml", "pubmed")
CERTIFIED = ("certified-citeseer", "certified-cora", "certified-cora-ml")
MODELS = ("GCN", "GAT", "APPNP", "ChebNetII", "GPRGNN")
TRAINED = ("LRBCD", "PRBCD")
CLEAN, EPSILONS = PaperColumn("clean"), (0.05, 0.1, 0.25)
RADII = ((0, 0), (4, 0), (0, 5))
FREQUENCIES = (0.5, 1.0)
# Graph, model, training, protocol and column: one figure per split.
Found = dict[tuple[str, str, str, str, PaperColumn], tuple[float, ...]]


@dataclass(frozen=True)
class Difference:
    """A column of a table: what one training has more than another.

    Args:
        title: of the column.
        measured: what is compared.
        training: the one; of the row's model.
        less: the other.
        less_model: whose; of the row's model by default.
    """

    title: str
    measured: PaperColumn
    training: str
    less: str
    less_model: str | None = None


TEXT = """# What the findings rest on

Every difference is taken on the same split, then averaged over the splits 0, 1 and 5, with the standard error of that mean:
what the split does to both sides drops out. With three splits a difference of less than four standard errors may be chance (a
t-test with two degrees of freedom asks for 4.3), and among so many some larger ones will be, too. `strict` unless a line says
otherwise; points of accuracy. Made by `python benchmarks/findings.py` from the store; what is not there has a dash.

## What adversarial training adds to self-training

Trained against an attack, less self-trained, clean and under that attack:

{added}

## LR-BCD or PR-BCD to train against

Trained against LR-BCD, less trained against PR-BCD:

{kinds}

## How many times more robust

Points of accuracy that an attack takes at ε = 0.25, from the means: from regular GCN, and from GPRGNN trained against that
attack; and how many times more from the former.

{fold}

## Ahead of SoftMedian GDC

Trained against LR-BCD, less SoftMedian GDC, which is regularly trained, under LR-BCD:

{median}

## What adversarial training certifies

Trained against an attack, less regularly trained: smoothed accuracy, and with a certificate against any four added edges, and
against any five deleted ones:

{certified}

## What GPRGNN lets pass

The filter's response $`g(\\lambda) = \\sum_k \\gamma_k (1 - \\lambda)^k`$ as a share of $`g(0)`$, mean and range over splits:
$`\\lambda = 0`$ is what neighbours have in common; the larger, the more they differ. With self-loops, which GPRGNN has, no
graph has frequencies up to 2: the last column has the largest of the graph of the test nodes, to the width of a bin. A response
that is largest at 0 is low-pass; one that is largest at the largest frequency of the graph is high-pass.

{filters}

And the coefficients themselves, as shares of the sum of their sizes, the first one taken as positive:

{coefficients}
"""


def page() -> str:
    store = Store(ROOT / "results" / "experiments")
    cells = [cell for name in (*ATTACKED, *CERTIFIED) for cell in compare(find_table(name), store).cells]
    found = {
        (
            cell.paper.row.dataset,
            cell.paper.row.model,
            training_name(cell.paper.row),
            protocol,
            cell.paper.column,
        ): one.values
        for cell in cells
        for protocol, one in cell.ours.items()
        if one is not None
    }
    sections = {
        "added": differences(found, added()),
        "kinds": differences(found, kinds()),
        "fold": fold(cells),
        "median": differences(found, median()),
        "certified": differences(found, certified()),
        "filters": filters(store),
        "coefficients": shares(store),
    }
    return TEXT.format(**{name: "\n".join(rows) for name, rows in sections.items()})


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Its lines, without rows of dashes alone."""
    kept = [row for row in rows if set(row[2:]) != {"-"}]
    return ["| " + " | ".join(row) + " |" for row in (titles, ["---"] * len(titles), *kept)]


def differences(found: Found, columns: Sequence[Difference]) -> list[str]:
    """A row for each graph, model and protocol; GPRGNN's protocols differ."""
    rows = []
    for graph in GRAPHS:
        for model in MODELS:
            for protocol in ("strict", "as_released") if model == "GPRGNN" else ("strict",):
                shown = [
                    by_split(
                        found.get((graph, model, one.training, protocol, one.measured)),
                        found.get((graph, one.less_model or model, one.less, protocol, one.measured)),
                    )
                    for one in columns
                ]
                rows.append([GRAPHS[graph], model if protocol == "strict" else f"{model}, `{protocol}`", *shown])
    return table(["graph", "model", *(one.title for one in columns)], rows)


def by_split(one: Sequence[float] | None, other: Sequence[float] | None) -> str:
    """The difference split by split, with its sign."""
    if one is None or other is None:
        return "-"
    text = summary([left - right for left, right in zip(one, other, strict=True)])
    return text if text.startswith("-") else f"+{text}"


def added() -> list[Difference]:
    return [
        Difference(f"{attack}: {title}", column, attack, "self")
        for attack in TRAINED
        for title, column in [("clean", CLEAN), *((f"{one:g}", PaperColumn(attack, one)) for one in EPSILONS)]
    ]


def kinds() -> list[Difference]:
    attacked = [PaperColumn(attack, epsilon) for attack in TRAINED for epsilon in EPSILONS]
    return [
        Difference("clean", CLEAN, *TRAINED),
        *(Difference(f"under {title_of(column)}", column, *TRAINED) for column in attacked),
    ]


def median() -> list[Difference]:
    return [
        Difference(f"at {one:g}", PaperColumn("LRBCD", one), "LRBCD", "regular", "SoftMedianGDC") for one in EPSILONS
    ]


def certified() -> list[Difference]:
    radii = [PaperColumn("smoothing", r_add=added, r_del=deleted) for added, deleted in RADII]
    return [
        Difference(f"{attack}: {title_of(column)}", column, attack, "regular") for attack in TRAINED for column in radii
    ]


def fold(cells: Sequence[ComparedCell]) -> list[str]:
    found = {
        (cell.paper.row.dataset, cell.paper.row.model, training_name(cell.paper.row), cell.paper.column): cell
        for cell in cells
    }

    def taken(graph: str, model: str, training: str, attack: str, source: str) -> float | None:
        """Points lost: the paper's, or ours by protocol."""
        both = [found[graph, model, training, column] for column in (CLEAN, PaperColumn(attack, EPSILONS[-1]))]
        figures = [cell.paper if source == "paper" else cell.ours[source] for cell in both]
        before, after = (None if one is None else one.mean for one in figures)
        return None if before is None or after is None else before - after

    def said(graph: str, attack: str, source: str) -> str:
        plain, robust = taken(graph, "GCN", "regular", attack, source), taken(graph, "GPRGNN", attack, attack, source)
        return "-" if plain is None or robust is None else f"{plain:.1f}, {robust:.1f}: {plain / robust:.1f}"

    sources = ("paper", "as_released", "strict")
    rows = [
        [GRAPHS[graph], attack, *(said(graph, attack, source) for source in sources)]
        for graph in GRAPHS
        for attack in TRAINED
    ]
    return table(["graph", "attack", *sources], rows)


def filters(store: Store) -> list[str]:
    def described(found: list[dict[str, Any]]) -> list[str]:
        curves, largest = [], []
        for values in found:
            gamma = Coefficients.of(values["gamma"], self_loops=values["self_loops"])
            largest.append(max(place for place, share in enumerate(values["density"], 1) if share) * 2 / BINS)
            at = torch.tensor([0.0, *FREQUENCIES, largest[-1], 2.0], dtype=torch.double)
            response = gamma.response(at)
            curves.append((response / response[0]).tolist()[1:])
        return [
            *(mean_and_range(one) for one in zip(*curves, strict=True)),
            f"{min(largest):.2f} to {max(largest):.2f}",
        ]

    titles = [
        "graph",
        "training",
        *(f"at {one:g}" for one in FREQUENCIES),
        "at the graph's largest",
        "at 2",
        "its largest",
    ]
    return table(titles, of_filters(store, described))


def shares(store: Store) -> list[str]:
    def described(found: list[dict[str, Any]]) -> list[str]:
        # A filter and its negative are one: the model's other layers turn either into the other.
        sizes = [torch.tensor(values["gamma"]) for values in found]
        sizes = [one / one.abs().sum() * one[0].sign() for one in sizes]
        return [mean_and_range([float(one[step]) for one in sizes]) for step in range(5)]

    return table(["graph", "training", *(f"step {step}" for step in range(5))], of_filters(store, described))


def of_filters(store: Store, described: Callable[[list[dict[str, Any]]], list[str]]) -> list[list[str]]:
    """A row for each graph and training whose filters have been measured."""
    found: dict[PaperRow, list[dict[str, Any]]] = {}
    for one in find_figure("gamma-all").measurements():
        record = store.get(one.identity) if one.kind == "filter" else None
        if record is not None:
            found.setdefault(one.recipe.row, []).append(record.values)
    return [
        [
            GRAPHS[row.dataset],
            training_name(row) + (f" ({len(values)} splits)" if len(values) < 3 else ""),
            *described(values),
        ]
        for row, values in found.items()
    ]


def mean_and_range(values: Sequence[float]) -> str:
    mean = sum(values) / len(values)
    return f"{mean:.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
