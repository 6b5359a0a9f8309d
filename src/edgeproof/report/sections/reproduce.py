"""Commands, versions and machines behind the results."""

from __future__ import annotations

from edgeproof.report._html import join, tag
from edgeproof.report.sections._parts import Page, Section, TableCell, paragraphs, table


def reproduce(page: Page) -> Section:
    """Return the commands that reproduce the results, and the versions and machines that were used."""
    commands = list(dict.fromkeys(command for group in page.groups for run in group.runs for command in run.commands))
    # Training commands come first: the others need their models.
    commands.sort(key=lambda command: not command.startswith("edgeproof train "))
    commands += [page.command] if page.command else []
    runs = [(group.name, run) for group in page.groups for run in group.runs]
    names = list(dict.fromkeys(name for _, run in runs for name in run.environment))
    rows = [
        [TableCell(group), *(TableCell(str(run.environment.get(name, "–"))) for name in names)] for group, run in runs
    ]
    parts = (
        [tag("pre", {"tabindex": 0, "aria-label": "commands"}, tag("code", {}, "\n".join(commands)))]
        if commands
        else []
    )
    parts.append(
        paragraphs("The same seeds, versions and machine give the same results. Other devices round differently.")
    )
    distinct = list(dict.fromkeys(map(tuple, rows)))
    parts.append(table("Versions and machines", ["model", *names], distinct))
    return Section("reproduce", "Reproduce", join(parts))
