"""Results of every attack, and the warnings of the self-checks."""

from __future__ import annotations

from edgeproof.report import text
from edgeproof.report._html import Html, join, tag
from edgeproof.report.sections._parts import (
    Page,
    Scenario,
    Section,
    TableCell,
    controls,
    menu,
    number_cell,
    table,
)

_ALL = ("", "all")


def attacks(page: Page) -> Section | None:
    """Return the warnings, and a filterable table with one row per model, run, attack and budget."""
    scenarios = page.scenarios
    if not scenarios:
        return None
    parts = [_warnings(page)]
    for number, scenario in enumerate(scenarios):
        parts += [tag("h3", {}, scenario.title)] if len(scenarios) > 1 else []
        parts.append(_table(scenario, f"rows-{number}"))
    return Section("attacks", "Attack results", join(parts))


def _warnings(page: Page) -> Html:
    warnings = [(group.name, warning) for group in page.groups for warning in text.warnings(group)]
    unchecked = [
        group.name for group in page.groups if any(not table.checked for run in group.runs for table in run.attacks)
    ]
    parts = []
    if warnings:
        items = (tag("li", {}, tag("strong", {}, f"{name}: "), warning) for name, warning in warnings)
        title = tag("h3", {"id": "warnings"}, "⚠ Warnings: these results may be unreliable")
        parts.append(tag("div", {"class": "warning", "role": "note"}, title, tag("ul", {}, *items)))
    if unchecked:
        names = f"Self-checks were not run on all results of: {', '.join(unchecked)}. Run them with "
        parts.append(tag("p", {}, names, tag("code", {}, "edgeproof evaluate"), "."))
    elif not warnings:
        parts.append(tag("p", {}, "The self-checks of the evaluation found no problems."))
    efforts = [(group.name, effort) for group in page.groups for effort in text.efforts(group)]
    if efforts:
        names = "; ".join(f"{name}: {effort}" for name, effort in efforts)
        parts.append(tag("p", {}, f"Effort of the evaluation: {names}."))
    return join(parts)


def _table(scenario: Scenario, id_: str) -> Html:
    menus = controls(
        menu(f"{id_}-0", "Model", [_ALL, *((group.name, group.name) for group in scenario.groups)]),
        menu(f"{id_}-1", "Attack", [_ALL, *((name, name) for name in scenario.attacks)]),
        menu(f"{id_}-2", "ε", [_ALL, *((f"{epsilon:g}", f"{epsilon:g}") for epsilon in scenario.epsilons)]),
    )
    rows = [
        [
            TableCell(group.name),
            TableCell(row.attack),
            number_cell(row.epsilon, f"{row.epsilon:g}"),
            number_cell(row.accuracy, text.percent(row.accuracy)),
            number_cell(drop := None if run.clean is None else run.clean - row.accuracy, text.percent(drop)),
            number_cell(row.total),
            number_cell(row.flips),
            number_cell(row.seconds, text.number(row.seconds, 2)),
            number_cell(run.seed),
        ]
        for group in scenario.groups
        for run, attack_table in group.attack_tables(scenario.threat_model)
        for row in attack_table.rows
    ]
    head = ("model", "attack", "ε", "accuracy", "drop", "budget", "flips used", "seconds", "seed")
    return tag("div", {"class": "filterable", "id": id_}, menus, table("Every attack at every budget", head, rows))
