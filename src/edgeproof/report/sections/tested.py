"""What was tested, and against whom."""

from __future__ import annotations

from edgeproof.report import words
from edgeproof.report._html import Html, join, tag
from edgeproof.report.groups import Group
from edgeproof.report.sections._parts import Cell, Page, Scenario, Section, table, valued

_CHANNELS = ("in_channels", "out_channels")


def tested(page: Page) -> Section:
    """Models, graphs, nodes, and the threat in plain words."""
    head = ("model", "architecture", "trained", "graph", "tested on", "clean accuracy", "parameters", "runs")
    parts = [table("The models and what they were tested on", head, map(_row, page.groups))]
    parts += [_threat(scenario, several=len(page.scenarios) > 1) for scenario in page.scenarios]
    return Section("tested", "What was tested", join(parts))


def _row(group: Group) -> list[Cell]:
    run = group.runs[0]
    # How many features and classes there are is the graph's business.
    own = ((name, value) for name, value in dict(run.model.get("settings") or {}).items() if name not in _CHANNELS)
    settings = ", ".join(f"{name} = {value}" for name, value in own)
    parameters = run.model.get("parameters")
    return [
        Cell(group.name),
        Cell(f"{run.model['name']} ({settings})" if settings else str(run.model["name"])),
        Cell(words.training(run)),
        Cell(run.dataset),
        Cell(words.tested_on(run)),
        valued(None if group.clean is None else group.clean.mean, words.estimated(group.clean, of=len(group.runs))),
        valued(parameters, None if parameters is None else f"{parameters:,}"),
        valued(len(group.runs)),
    ]


def _threat(scenario: Scenario, *, several: bool) -> Html:
    parts = [one for group in scenario.groups for _, one in group.attacked(scenario.kind)]
    lines = [*words.threat(*scenario.kind), *words.budgets(parts)]
    title = f"Against whom: {scenario.title}" if several else "Against whom"
    return join([tag("h3", {}, title), tag("ul", {}, *(tag("li", {}, line) for line in lines))])
