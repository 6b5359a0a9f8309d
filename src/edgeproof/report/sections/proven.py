"""Guaranteed and attained accuracy of models whose worst case was computed."""

from __future__ import annotations

from edgeproof.report import text
from edgeproof.report._html import join
from edgeproof.report.groups import Group
from edgeproof.report.sections._parts import Page, Section, TableCell, number_cell, paragraphs, table


def proven(page: Page) -> Section | None:
    """Return a table with one row per model and budget."""
    rows = [row for group in page.groups for row in _rows(group)]
    if not rows:
        return None
    intro = paragraphs(
        "Computed without sampling: no perturbation within the budget brings the accuracy below the guaranteed value, and the "
        "flips found by a matching attack bring it down to the attained value. The worst case lies between the two. Other "
        "attacks can only end at or above the guaranteed value."
    )
    head = ("model", "perturbation", "guaranteed accuracy", "attained accuracy")
    return Section("proven", "Guaranteed accuracy", join([intro, table("Guaranteed accuracy", head, rows)]))


def _rows(group: Group) -> list[list[TableCell]]:
    rows = []
    for budget in group.proven_budgets:
        guaranteed, attained = group.proven(budget, "guaranteed"), group.proven(budget, "attained")
        cells = (
            number_cell(None if value is None else value.mean, text.with_interval(value, len(group.runs)))
            for value in (guaranteed, attained)
        )
        rows.append([TableCell(group.name), TableCell(budget), *cells])
    return rows
