"""Accuracy as a function of the budget."""

from __future__ import annotations

from edgeproof.report import text
from edgeproof.report._html import Html, join, tag
from edgeproof.report.groups import WORST, Group
from edgeproof.report.sections._parts import (
    Page,
    Scenario,
    Section,
    TableCell,
    controls,
    figure,
    menu,
    number_cell,
    table,
)


def curves(page: Page) -> Section | None:
    """Return one chart per graph and threat model, with one line per model and a menu of attacks."""
    scenarios = page.scenarios
    if not scenarios:
        return None
    parts, charts = [], {}
    for number, scenario in enumerate(scenarios):
        id_ = f"curve-{number}"
        charts[id_] = {
            "type": "curves",
            "menu": f"{id_}-attack",
            "series": [*(_series(page, scenario, group) for group in scenario.groups), *_baselines(page, scenario)],
        }
        parts += [tag("h3", {}, scenario.title)] if len(scenarios) > 1 else []
        parts.append(_figure(scenario, id_))
    return Section("curves", "Accuracy by budget", join(parts), charts)


def _figure(scenario: Scenario, id_: str) -> Html:
    names = [WORST, *scenario.attacks]
    attack_menu = controls(menu(f"{id_}-attack", "Attack", [(name, name) for name in names]))
    rows = [
        [
            TableCell(f"{group.name}, {attack}"),
            *(_cell(scenario, group, attack, epsilon) for epsilon in [0.0, *scenario.epsilons]),
        ]
        for group in scenario.groups
        for attack in names
    ]
    rows += [
        [TableCell(name), *[number_cell(estimate.mean, text.with_interval(estimate))] * (1 + len(scenario.epsilons))]
        for name, estimate in scenario.baselines.items()
    ]
    head = ["model, attack", "clean", *(f"ε = {epsilon:g}" for epsilon in scenario.epsilons)]
    repeated = any(len(group.attack_tables(scenario.threat_model)) > 1 for group in scenario.groups)
    one_run = "95 % interval for the number of test nodes"
    bars = f"one standard error over runs, or for a single run the {one_run}" if repeated else one_run
    caption = (
        "Accuracy on the test nodes by budget ε, the fraction of edges that may be flipped. The worst case is the lowest "
        f"accuracy over all attacks. Error bars: {bars}."
    )
    if scenario.baselines:
        caption += " The baselines use no edges, so no budget changes their accuracy."
    return figure(id_, caption, controls=attack_menu, alternative=table("Accuracy by model, attack and ε", head, rows))


def _cell(scenario: Scenario, group: Group, attack: str, epsilon: float) -> TableCell:
    estimate = group.clean if epsilon == 0 else group.accuracy(scenario.threat_model, attack, epsilon)
    return number_cell(None if estimate is None else estimate.mean, text.with_interval(estimate, len(group.runs)))


def _series(page: Page, scenario: Scenario, group: Group) -> dict[str, object]:
    clean = group.clean
    start = [] if clean is None else [[0.0, *clean[:3]]]
    points = {
        attack: start
        + [
            [epsilon, *estimate[:3]]
            for epsilon in scenario.epsilons
            if epsilon > 0 and (estimate := group.accuracy(scenario.threat_model, attack, epsilon)) is not None
        ]
        for attack in [WORST, *scenario.attacks]
    }
    return {"name": group.name, "slot": page.slot(group), "points": points}


def _baselines(page: Page, scenario: Scenario) -> list[dict[str, object]]:
    """Return one horizontal line per baseline, the same for all attacks."""
    budgets = sorted({0.0, *scenario.epsilons})
    return [
        {
            "name": name,
            "slot": len(page.groups) + number,
            "points": {
                attack: [[epsilon, *estimate[:3]] for epsilon in budgets] for attack in [WORST, *scenario.attacks]
            },
        }
        for number, (name, estimate) in enumerate(scenario.baselines.items())
    ]
