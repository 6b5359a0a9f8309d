"""All models in one table."""

from __future__ import annotations

from edgeproof.report import words
from edgeproof.report._html import join, tag
from edgeproof.report.groups import WORST, Group
from edgeproof.report.sections._parts import Cell, Page, Scenario, Section, table, valued


def comparison(page: Page) -> Section | None:
    """Clean and worst-case accuracies, certificates and filters, side by side; nothing where there is but one model."""
    if len(page.groups) < 2:
        return None
    parts = []
    for scenario in page.scenarios:
        parts += [tag("h3", {}, scenario.title)] if len(page.scenarios) > 1 else []
        head = ["model", "clean", *(f"worst, ε = {epsilon:g}" for epsilon in scenario.epsilons)]
        rows = [[Cell(group.name), *_accuracies(scenario, group)] for group in scenario.groups]
        parts.append(table("Accuracy, clean and in the worst case", head, rows))
    others = [group for group in page.groups if group.certified is not None or group.filter is not None]
    if others:
        head = ["model", "certified, 1 added", "certified, 1 deleted", "γ₀", "heard from itself", "mean frequency"]
        parts.append(table("Certificates and filters", head, [[Cell(group.name), *_rest(group)] for group in others]))
    return Section("comparison", "Side by side", join(parts))


def _accuracies(scenario: Scenario, group: Group) -> list[Cell]:
    found = [group.clean, *(group.accuracy(scenario.kind, WORST, epsilon) for epsilon in scenario.epsilons)]
    return [valued(None if one is None else one.mean, words.estimated(one, of=len(group.runs))) for one in found]


def _rest(group: Group) -> list[Cell]:
    shares = {} if group.certified is None else group.certified.shares
    certified = [valued(shares.get(key), words.percent(shares.get(key))) for key in ((1, 0), (0, 1))]
    one = group.filter
    if one is None:
        return [*certified, valued(None), valued(None), valued(None)]
    return [
        *certified,
        valued(one.gamma[0], words.number(one.gamma[0])),
        valued(one.own_share, words.percent(one.own_share)),
        valued(one.mean_frequency, words.number(one.mean_frequency)),
    ]
