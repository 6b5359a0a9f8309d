"""Misclassified nodes by degree, margin and class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from edgeproof.report import text
from edgeproof.report._html import join, tag
from edgeproof.report.groups import WORST, Group
from edgeproof.report.outcomes import Outcomes
from edgeproof.report.runs import AttackTable
from edgeproof.report.sections._parts import Page, Section, TableCell, controls, figure, menu, number_cell, table

# Maximum number of misclassified nodes listed per view.
_MAX_LISTED = 200
_DEGREE_BINS = ((0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 6), (7, 9), (10, 19), (20, None))
_QUARTILES = ("lowest", "low", "high", "highest")


class _View(NamedTuple):
    """One attack at one budget: its row of the overview, and its data for the script."""

    attack: str
    row: tuple[TableCell, ...]
    data: dict[str, object]


class _Bar(NamedTuple):
    """One bar of a chart: number of nodes correct before the attack, and of those misclassified after it."""

    label: str
    correct: int
    misclassified: int


def nodes(page: Page) -> Section | None:
    """Return menus of model, attack and budget, with three charts and a list of the misclassified nodes."""
    views_by_run = list(_views(page))
    if not views_by_run:
        return None
    overview = [[TableCell(name), *view.row] for name, views in views_by_run for view in views if view.attack == WORST]
    means = ("degree, misclassified", "degree, robust", "margin, misclassified", "margin, robust")
    caption = "Fraction of the correctly classified nodes that the attack misclassifies"
    charts = (figure(f"nodes-by-{name}", f"{caption}, by {name}.") for name in ("degree", "margin", "class"))
    body = join(
        [
            table(
                "Nodes misclassified in the worst case; mean degree and clean margin of misclassified and robust nodes",
                ("model", "ε", "correct before", "misclassified", *means),
                overview,
            ),
            controls(*(menu(f"nodes-{name.lower()}", name, []) for name in ("Model", "Attack", "Budget"))),
            tag("p", {"id": "nodes-summary", "aria-live": "polite"}),
            tag("div", {"class": "three"}, *charts),
            tag("div", {"id": "nodes-list"}),
        ]
    )
    runs = [{"name": name, "views": [view.data for view in views]} for name, views in views_by_run]
    return Section("nodes", "Misclassified nodes", body, {"nodes": {"type": "nodes", "runs": runs}})


def _views(page: Page) -> Iterator[tuple[str, list[_View]]]:
    """Yield the name and the views of every run with per-node outcomes."""
    for scenario in page.scenarios:
        for group in scenario.groups:
            tables = group.attack_tables(scenario.threat_model)
            for run, attack_table in tables:
                keys = _keys(attack_table)
                views = [view for key in keys if (view := _view(attack_table, *key)) is not None]
                if views:
                    name = _name(group, run.seed, len(tables) > 1)
                    yield (f"{name}; {scenario.title}" if len(page.scenarios) > 1 else name), views


def _name(group: Group, seed: int | None, several: bool) -> str:
    return f"{group.name}, seed {seed}" if several else group.name


def _keys(attack_table: AttackTable) -> list[tuple[str, float]]:
    names = [WORST, *dict.fromkeys(row.attack for row in attack_table.rows)]
    return [(attack, epsilon) for attack in names for epsilon in attack_table.epsilons]


def _view(attack_table: AttackTable, attack: str, epsilon: float) -> _View | None:
    """Return the view of one attack at one budget; None if its per-node outcomes were not stored."""
    row = attack_table.worst(epsilon) if attack == WORST else attack_table.row(attack, epsilon)
    if row is None:
        return None
    key = row.attack, row.epsilon
    stored = [(outcomes, outcomes.keys.index(key)) for outcomes in attack_table.outcomes if key in outcomes.keys]
    if not stored:
        return None

    def accuracy_error(entry: tuple[Outcomes, int]) -> float:
        outcomes, k = entry
        return abs(float((outcomes.margins[k] > 0).double().mean()) - row.accuracy)

    # If the attack was run several times, take the run whose accuracy the row has.
    outcomes, k = min(stored, key=accuracy_error)
    return _describe(outcomes, outcomes.margins[k], outcomes.flips[k], attack, epsilon)


def _describe(outcomes: Outcomes, margins: Tensor, flips: Tensor, attack: str, epsilon: float) -> _View:
    correct, still_correct = outcomes.clean_margins > 0, margins > 0
    misclassified, robust = correct & ~still_correct, correct & still_correct
    order = misclassified.nonzero().squeeze(1)
    order = order[outcomes.clean_margins[order].argsort(descending=True)][:_MAX_LISTED]
    columns = [outcomes.nodes, outcomes.labels, outcomes.degree, flips, outcomes.clean_margins, margins]
    listed = [[None] * order.numel() if column is None else _rounded(column[order]) for column in columns]
    means = [
        _mean(values, mask) for values in (outcomes.degree, outcomes.clean_margins) for mask in (misclassified, robust)
    ]
    num_correct, num_misclassified = int(correct.sum()), int(misclassified.sum())
    more_flips_than_edges = int((flips > outcomes.degree)[misclassified].sum())
    without_flips = int((misclassified & (flips == 0)).sum())
    data: dict[str, object] = {
        "attack": attack,
        "epsilon": epsilon,
        "summary": _summary(num_correct, num_misclassified, more_flips_than_edges, without_flips, means),
        "degree": _by_degree(outcomes.degree, correct, misclassified),
        "margin": _by_margin(outcomes.clean_margins, correct, misclassified),
        "class": _by_class(outcomes.labels, correct, misclassified),
        "misclassified": list(zip(*listed, strict=True)),
        "omitted": max(0, num_misclassified - _MAX_LISTED),
    }
    cells = (number_cell(mean, text.number(mean)) for mean in means)
    row = (number_cell(epsilon, f"{epsilon:g}"), number_cell(num_correct), number_cell(num_misclassified), *cells)
    return _View(attack, row, data)


def _summary(
    correct: int, misclassified: int, more_flips_than_edges: int, without_flips: int, means: list[float | None]
) -> str:
    if not misclassified:
        return f"None of the {correct} correctly classified nodes is misclassified under attack."
    degree, degree_robust, margin, margin_robust = map(text.number, means)
    return (
        f"{misclassified} of the {correct} correctly classified nodes are misclassified under attack. Their mean degree is "
        f"{degree} (robust nodes: {degree_robust}), their mean clean margin {margin} (robust nodes: {margin_robust}). "
        f"{more_flips_than_edges} of them have more edge flips than edges; {without_flips} have no edge flip: only "
        "their neighbourhood changed."
    )


def _by_degree(degree: Tensor, correct: Tensor, misclassified: Tensor) -> list[_Bar]:
    bars = []
    for low, high in _DEGREE_BINS:
        within = (degree >= low) & (degree <= high if high is not None else degree >= low)
        label = str(low) if low == high else f"{low}+" if high is None else f"{low}–{high}"
        bars.append(_Bar(label, int((within & correct).sum()), int((within & misclassified).sum())))
    return [bar for bar in bars if bar.correct]


def _by_margin(margin: Tensor, correct: Tensor, misclassified: Tensor) -> list[_Bar]:
    """Count the nodes correct before the attack in quartiles of their clean margin."""
    order = correct.nonzero().squeeze(1)
    order = order[margin[order].argsort(stable=True)]
    quartiles = zip(_QUARTILES, order.tensor_split(4), strict=True)
    return [_Bar(label, part.numel(), int(misclassified[part].sum())) for label, part in quartiles if part.numel()]


def _by_class(labels: Tensor | None, correct: Tensor, misclassified: Tensor) -> list[_Bar]:
    if labels is None:
        return []
    masks = ((label, labels == label) for label in labels.unique().tolist())
    return [_Bar(str(label), int((mask & correct).sum()), int((mask & misclassified).sum())) for label, mask in masks]


def _mean(values: Tensor, mask: Tensor) -> float | None:
    return float(values[mask].double().mean()) if bool(mask.any()) else None


def _rounded(values: Tensor) -> list[float]:
    if not values.is_floating_point():
        return list(values.tolist())
    # JSON has no NaN and no Inf.
    return [float(f"{value:.3g}") for value in torch.nan_to_num(values).tolist()]
