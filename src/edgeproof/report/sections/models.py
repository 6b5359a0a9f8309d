"""Tested models and threat models."""

from __future__ import annotations

from edgeproof.report import text
from edgeproof.report._html import Html, join, tag
from edgeproof.report.groups import Group
from edgeproof.report.sections._parts import Page, Scenario, Section, TableCell, number_cell, table

# Settings that follow from the graph.
_CHANNELS = ("in_channels", "out_channels")


def models(page: Page) -> Section:
    """Return a table of the models, their graphs and test nodes, and a description of each threat model."""
    head = ("model", "architecture", "training", "graph", "tested on", "tier", "clean accuracy", "parameters", "runs")
    parts = [table("Tested models", head, map(_row, page.groups))]
    parts += [_threat_model(scenario, several=len(page.scenarios) > 1) for scenario in page.scenarios]
    return Section("models", "Tested models", join(parts))


def _row(group: Group) -> list[TableCell]:
    run = group.runs[0]
    shown = ((name, value) for name, value in dict(run.model.get("settings") or {}).items() if name not in _CHANNELS)
    settings = ", ".join(f"{name} = {value}" for name, value in shown)
    parameters, clean = run.model.get("parameters"), group.clean
    return [
        TableCell(group.name),
        TableCell(f"{run.model['name']} ({settings})" if settings else str(run.model["name"])),
        TableCell(text.training(run)),
        TableCell(run.dataset),
        TableCell(text.tested_nodes(run)),
        TableCell(", ".join(text.tiers(group)) or "–"),
        number_cell(None if clean is None else clean.mean, text.with_interval(clean, len(group.runs))),
        number_cell(parameters, None if parameters is None else f"{parameters:,}"),
        number_cell(len(group.runs)),
    ]


def _threat_model(scenario: Scenario, *, several: bool) -> Html:
    tables = [each for group in scenario.groups for _, each in group.attack_tables(scenario.threat_model)]
    lines = [*text.threat_model(scenario.threat_model), *text.budgets(tables)]
    title = f"Threat model: {scenario.title}" if several else "Threat model"
    return join([tag("h3", {}, title), tag("ul", {}, *(tag("li", {}, line) for line in lines))])
