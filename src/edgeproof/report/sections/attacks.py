"""Every attack, and whether to believe it."""

from __future__ import annotations

from edgeproof.report import words
from edgeproof.report._html import Html, join, tag
from edgeproof.report.sections._parts import Cell, Page, Scenario, Section, choice, controls, table, valued

_ALL = ("", "all")


def attacks(page: Page) -> Section | None:
    """One row for every model, run, attack and budget, which menus thin out; and the warnings of the self-checks."""
    scenarios = page.scenarios
    if not scenarios:
        return None
    parts = [_warnings(page)]
    for number, scenario in enumerate(scenarios):
        parts += [tag("h3", {}, scenario.title)] if len(scenarios) > 1 else []
        parts.append(_table(scenario, f"rows-{number}"))
    return Section("attacks", "Attack by attack", join(parts))


def _warnings(page: Page) -> Html:
    found = [(group.name, warning) for group in page.groups for warning in words.warnings(group)]
    unchecked = [
        group.name for group in page.groups if any(not one.checked for run in group.runs for one in run.attacked)
    ]
    parts = []
    if found:
        items = (tag("li", {}, tag("strong", {}, f"{name}: "), warning) for name, warning in found)
        title = tag("h3", {"id": "warnings"}, "⚠ Reasons not to trust these figures")
        parts.append(tag("div", {"class": "warning", "role": "note"}, title, tag("ul", {}, *items)))
    if unchecked:
        which = f"No self-checks were run on these figures, or not on all of them: {', '.join(unchecked)}. "
        parts.append(tag("p", {}, which, tag("code", {}, "edgeproof evaluate"), " runs them."))
    elif not found:
        parts.append(tag("p", {}, "The self-checks of the evaluation found no reason to distrust these figures."))
    return join(parts)


def _table(scenario: Scenario, id_: str) -> Html:
    menus = controls(
        choice(f"{id_}-0", "Model", [_ALL, *((group.name, group.name) for group in scenario.groups)]),
        choice(f"{id_}-1", "Attack", [_ALL, *((name, name) for name in scenario.attacks)]),
        choice(f"{id_}-2", "ε", [_ALL, *((f"{epsilon:g}", f"{epsilon:g}") for epsilon in scenario.epsilons)]),
    )
    rows = [
        [
            Cell(group.name),
            Cell(row.attack),
            valued(row.epsilon, f"{row.epsilon:g}"),
            valued(row.accuracy, words.percent(row.accuracy)),
            valued(lost := None if run.clean is None else run.clean - row.accuracy, words.percent(lost)),
            valued(row.total),
            valued(row.flips),
            valued(row.seconds, words.number(row.seconds, 2)),
            valued(run.seed),
        ]
        for group in scenario.groups
        for run, one in group.attacked(scenario.kind)
        for row in one.rows
    ]
    head = ("model", "attack", "ε", "accuracy", "lost", "budget", "used", "seconds", "seed")
    return tag("div", {"class": "thinned", "id": id_}, menus, table("Every attack at every budget", head, rows))
