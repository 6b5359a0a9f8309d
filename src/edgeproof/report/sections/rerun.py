"""How to get all this again."""

from __future__ import annotations

from edgeproof.report._html import join, tag
from edgeproof.report.sections._parts import Cell, Page, Section, paragraphs, table


def rerun(page: Page) -> Section:
    """The commands behind every figure, versions and machines."""
    commands = list(dict.fromkeys(one for group in page.groups for run in group.runs for one in run.commands))
    # A model is trained before it is tested.
    commands.sort(key=lambda command: not command.startswith("edgeproof train "))
    commands += [page.command] if page.command else []
    environments = [(group.name, run) for group in page.groups for run in group.runs]
    names = list(dict.fromkeys(name for _, run in environments for name in run.environment))
    rows = [
        [Cell(group), *(Cell(str(run.environment.get(name, "–"))) for name in names)] for group, run in environments
    ]
    parts = (
        [tag("pre", {"tabindex": 0, "aria-label": "commands"}, tag("code", {}, "\n".join(commands)))]
        if commands
        else []
    )
    parts.append(
        paragraphs("The same seeds, versions and machine give the same figures; another device rounds differently.")
    )
    distinct = list(dict.fromkeys(map(tuple, rows)))
    parts.append(table("Versions and machines", ["model", *names], distinct))
    return Section("rerun", "How to get this again", join(parts))
