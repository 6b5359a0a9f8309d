"""Model comparison: all models in one table."""

from __future__ import annotations

from edgeproof.report import text
from edgeproof.report._html import join, tag
from edgeproof.report.groups import WORST, Group
from edgeproof.report.sections._parts import Page, Scenario, Section, TableCell, number_cell, table


def comparison(page: Page) -> Section | None:
    """Return tables of accuracies, certificates and filters; None if there is only one model."""
    if len(page.groups) < 2:
        return None
    parts = []
    for scenario in page.scenarios:
        parts += [tag("h3", {}, scenario.title)] if len(page.scenarios) > 1 else []
        head = ["model", "clean", *(f"worst, ε = {epsilon:g}" for epsilon in scenario.epsilons)]
        rows = [[TableCell(group.name), *_accuracies(scenario, group)] for group in scenario.groups]
        rows += [
            [
                TableCell(name),
                *[number_cell(estimate.mean, text.with_interval(estimate))] * (1 + len(scenario.epsilons)),
            ]
            for name, estimate in scenario.baselines.items()
        ]
        parts.append(table("Clean and worst-case accuracy", head, rows))
    groups = [group for group in page.groups if group.certificate is not None or group.filter is not None]
    if groups:
        head = [
            "model",
            "certified, 1 added",
            "certified, 1 deleted",
            "γ₀",
            "weight of the node itself",
            "mean frequency",
        ]
        rows = [[TableCell(group.name), *_certificate(group), *_filter(group)] for group in groups]
        parts.append(table("Certificates and filters", head, rows))
    return Section("comparison", "Model comparison", join(parts))


def _accuracies(scenario: Scenario, group: Group) -> list[TableCell]:
    estimates = [
        group.clean,
        *(group.accuracy(scenario.threat_model, WORST, epsilon) for epsilon in scenario.epsilons),
    ]
    return [
        number_cell(None if estimate is None else estimate.mean, text.with_interval(estimate, len(group.runs)))
        for estimate in estimates
    ]


def _certificate(group: Group) -> list[TableCell]:
    fractions = {} if group.certificate is None else group.certificate.fractions
    return [number_cell(fractions.get(radius), text.percent(fractions.get(radius))) for radius in ((1, 0), (0, 1))]


def _filter(group: Group) -> list[TableCell]:
    learned = group.filter
    if learned is None:
        return [number_cell(None)] * 3
    return [
        number_cell(learned.gamma[0], text.number(learned.gamma[0])),
        number_cell(learned.own_share, text.percent(learned.own_share)),
        number_cell(learned.mean_frequency, text.number(learned.mean_frequency)),
    ]
