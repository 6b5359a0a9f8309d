"""Which nodes fell, and what they have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from edgeproof.report import words
from edgeproof.report._html import join, tag
from edgeproof.report.groups import WORST, Group
from edgeproof.report.outcomes import Outcomes
from edgeproof.report.runs import Attacked
from edgeproof.report.sections._parts import Cell, Page, Section, choice, controls, figure, table, valued

# Of so many fallen nodes a view lists all.
_LISTED = 200
_DEGREES = ((0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 6), (7, 9), (10, 19), (20, None))
_QUARTERS = ("lowest", "low", "high", "highest")


class _View(NamedTuple):
    """One attack at one budget: a row of the overview, and what the page's script shows."""

    attack: str
    row: tuple[Cell, ...]
    shown: dict[str, object]


def nodes(page: Page) -> Section | None:
    """Menus choose model, attack and budget; three charts and a list say who fell."""
    found = list(_views(page))
    if not found:
        return None
    overview = [[Cell(name), *view.row] for name, views in found for view in views if view.attack == WORST]
    means = ("degree, fell", "degree, stand", "margin, fell", "margin, stand")
    caption = "Share of the nodes that were right before the attack and are wrong after it"
    charts = (figure(f"nodes-by-{name}", f"{caption}, by {name}.") for name in ("degree", "margin", "class"))
    body = join(
        [
            table(
                "Nodes that fell in the worst case, and means over them and over those that stand",
                ("model", "ε", "right before", "fell", *means),
                overview,
            ),
            controls(*(choice(f"nodes-{name.lower()}", name, []) for name in ("Model", "Attack", "Budget"))),
            tag("p", {"id": "nodes-says", "aria-live": "polite"}),
            tag("div", {"class": "three"}, *charts),
            tag("div", {"id": "nodes-list"}),
        ]
    )
    runs = [{"name": name, "views": [view.shown for view in views]} for name, views in found]
    return Section("nodes", "Which nodes fell, and why", body, {"nodes": {"type": "nodes", "runs": runs}})


def _views(page: Page) -> Iterator[tuple[str, list[_View]]]:
    for scenario in page.scenarios:
        several = len(page.scenarios) > 1
        for group in scenario.groups:
            for run, one in group.attacked(scenario.kind):
                views = [view for key in _keys(one) if (view := _view(one, *key)) is not None]
                if views:
                    name = _name(group, run.seed, len(group.attacked(scenario.kind)) > 1)
                    yield (f"{name}; {scenario.title}" if several else name), views


def _name(group: Group, seed: int | None, several: bool) -> str:
    return f"{group.name}, seed {seed}" if several else group.name


def _keys(one: Attacked) -> list[tuple[str, float]]:
    return [(attack, e) for attack in [WORST, *dict.fromkeys(r.attack for r in one.rows)] for e in one.epsilons]


def _view(one: Attacked, attack: str, epsilon: float) -> _View | None:
    """Everything about one attack at one budget; none where the single nodes were not kept."""
    row = one.worst(epsilon) if attack == WORST else one.at(attack, epsilon)
    if row is None:
        return None
    key = row.attack, row.epsilon
    kept = [(found, found.keys.index(key)) for found in one.outcomes if key in found.keys]
    if not kept:
        return None
    # Of an attack that was run twice, the run that the row is about.
    found, k = min(kept, key=lambda one: abs(float((one[0].margins[one[1]] > 0).double().mean()) - row.accuracy))
    return _described(found, found.margins[k], found.flips[k], attack, epsilon)


def _described(found: Outcomes, after: Tensor, flips: Tensor, attack: str, epsilon: float) -> _View:
    right, still = found.clean_margins > 0, after > 0
    fell, stands = right & ~still, right & still
    order = fell.nonzero().squeeze(1)
    order = order[found.clean_margins[order].argsort(descending=True)][:_LISTED]
    columns = [found.nodes, found.labels, found.degree, flips, found.clean_margins, after]
    listed = [None if column is None else _rounded(column[order]) for column in columns]
    means = [_mean(values, which) for values in (found.degree, found.clean_margins) for which in (fell, stands)]
    total, lost = int(right.sum()), int(fell.sum())
    shown = {
        "attack": attack,
        "epsilon": epsilon,
        "says": _says(total, lost, int((flips > found.degree)[fell].sum()), int((fell & (flips == 0)).sum()), means),
        "degree": _by_degree(found.degree, right, fell),
        "margin": _by_margin(found.clean_margins, right, fell),
        "class": _by_class(found.labels, right, fell),
        "fallen": list(zip(*(c if c is not None else [None] * order.numel() for c in listed), strict=True)),
        "left_out": max(0, lost - _LISTED),
    }
    cells = (valued(mean, words.number(mean)) for mean in means)
    return _View(attack, (valued(epsilon, f"{epsilon:g}"), valued(total), valued(lost), *cells), shown)


def _says(total: int, lost: int, beyond: int, untouched: int, means: list[float | None]) -> str:
    if not lost:
        return f"None of the {total} nodes that were right before the attack fell."
    degree_fell, degree_stands, margin_fell, margin_stands = map(words.number, means)
    return (
        f"{lost} of the {total} nodes that were right before the attack fell. They have {degree_fell} edges on average, those "
        f"that stand {degree_stands}; their margin before the attack was {margin_fell}, that of the others {margin_stands}. "
        f"{beyond} of them got more changed edges than they had edges; {untouched} fell without a change at themselves, "
        "through their neighbours."
    )


def _by_degree(degree: Tensor, right: Tensor, fell: Tensor) -> list[tuple[str, int, int]]:
    found = []
    for low, high in _DEGREES:
        within = (degree >= low) & (degree <= high if high is not None else degree >= low)
        label = str(low) if low == high else f"{low}+" if high is None else f"{low}–{high}"
        found.append((label, int((within & right).sum()), int((within & fell).sum())))
    return [one for one in found if one[1]]


def _by_margin(margin: Tensor, right: Tensor, fell: Tensor) -> list[tuple[str, int, int]]:
    """Nodes that were right, in four equal parts by their margin."""
    order = right.nonzero().squeeze(1)
    order = order[margin[order].argsort(stable=True)]
    parts = zip(_QUARTERS, order.tensor_split(4), strict=True)
    return [(label, part.numel(), int(fell[part].sum())) for label, part in parts if part.numel()]


def _by_class(labels: Tensor | None, right: Tensor, fell: Tensor) -> list[tuple[str, int, int]]:
    if labels is None:
        return []
    classes = ((one, labels == one) for one in labels.unique().tolist())
    return [(str(one), int((within & right).sum()), int((within & fell).sum())) for one, within in classes]


def _mean(values: Tensor, which: Tensor) -> float | None:
    return float(values[which].double().mean()) if bool(which.any()) else None


def _rounded(values: Tensor) -> list[float]:
    if not values.is_floating_point():
        return list(values.tolist())
    # A margin that is not finite has no place in JSON.
    return [float(f"{one:.3g}") for one in torch.nan_to_num(values).tolist()]
