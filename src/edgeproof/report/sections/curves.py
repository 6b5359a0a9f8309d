"""Accuracy over the budget."""

from __future__ import annotations

from edgeproof.report import words
from edgeproof.report._html import Html, join, tag
from edgeproof.report.groups import WORST, Group
from edgeproof.report.sections._parts import Cell, Page, Scenario, Section, choice, controls, figure, table, valued


def curves(page: Page) -> Section | None:
    """One chart for every graph and kind of budgets, a line for every model; a menu chooses the attack."""
    scenarios = page.scenarios
    if not scenarios:
        return None
    parts, charts = [], {}
    for number, scenario in enumerate(scenarios):
        id_ = f"curve-{number}"
        charts[id_] = {
            "type": "curves",
            "menu": f"{id_}-attack",
            "series": [_series(page, scenario, g) for g in scenario.groups],
        }
        parts += [tag("h3", {}, scenario.title)] if len(scenarios) > 1 else []
        parts.append(_figure(scenario, id_))
    return Section("curves", "Accuracy over the budget", join(parts), charts)


def _figure(scenario: Scenario, id_: str) -> Html:
    names = [WORST, *scenario.attacks]
    menu = controls(choice(f"{id_}-attack", "Attack", [(name, name) for name in names]))
    rows = [
        [
            Cell(f"{group.name}, {attack}"),
            *(_cell(scenario, group, attack, epsilon) for epsilon in [0.0, *scenario.epsilons]),
        ]
        for group in scenario.groups
        for attack in names
    ]
    head = ["model, attack", "clean", *(f"ε = {epsilon:g}" for epsilon in scenario.epsilons)]
    several = any(len(group.attacked(scenario.kind)) > 1 for group in scenario.groups)
    bars = "one standard error over runs; of a single run the 95 % interval for its number of test nodes"
    caption = (
        "Share of the test nodes that are classified correctly, by the share ε of the edges that may change; the worst case is "
        f"the lowest of all attacks. Bars: {bars if several else 'the 95 % interval for the number of test nodes'}."
    )
    return figure(id_, caption, controls=menu, alternative=table("Accuracy by model, attack and ε", head, rows))


def _cell(scenario: Scenario, group: Group, attack: str, epsilon: float) -> Cell:
    found = group.clean if epsilon == 0 else group.accuracy(scenario.kind, attack, epsilon)
    return valued(None if found is None else found.mean, words.estimated(found, of=len(group.runs)))


def _series(page: Page, scenario: Scenario, group: Group) -> dict[str, object]:
    clean = group.clean
    start = [] if clean is None else [[0.0, *clean[:3]]]
    points = {
        attack: start
        + [
            [epsilon, *found[:3]]
            for epsilon in scenario.epsilons
            if epsilon > 0 and (found := group.accuracy(scenario.kind, attack, epsilon)) is not None
        ]
        for attack in [WORST, *scenario.attacks]
    }
    return {"name": group.name, "slot": page.slot(group), "points": points}
