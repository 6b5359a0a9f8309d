"""Building blocks of sections: tables, figures, menus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from edgeproof.report._html import Html, join, tag
from edgeproof.report.groups import Estimate, Group
from edgeproof.report.runs import ThreatModel


class TableCell(NamedTuple):
    """Cell of a table.

    Args:
        text: Displayed text.
        value: Sort key. Default: the text.
    """

    text: str
    value: float | None = None


def number_cell(value: float | None, text: str | None = None) -> TableCell:
    """Return the cell of a number; None is shown as a dash and sorted first.

    >>> number_cell(0.5, "50 %"), number_cell(3), number_cell(None)
    (TableCell(text='50 %', value=0.5), TableCell(text='3', value=3), TableCell(text='–', value=-1))
    """
    return TableCell("–", -1) if value is None else TableCell(str(value) if text is None else text, value)


class Scenario(NamedTuple):
    """Graph and threat model under which models are compared."""

    dataset: str
    threat_model: ThreatModel
    groups: tuple[Group, ...]

    @property
    def title(self) -> str:
        local = self.threat_model.local
        limits = {"None": "no local budget", "given": "individual local budgets"}
        title = f"{self.dataset}, {limits.get(local, f'local budget of {local} times the degree')}"
        return f"{title}, {self.threat_model.constraints}" if self.threat_model.constraints else title

    @property
    def epsilons(self) -> list[float]:
        tables = (table for group in self.groups for _, table in group.attack_tables(self.threat_model))
        return sorted({epsilon for table in tables for epsilon in table.epsilons})

    @property
    def attacks(self) -> list[str]:
        tables = (table for group in self.groups for _, table in group.attack_tables(self.threat_model))
        return list(dict.fromkeys(row.attack for table in tables for row in table.rows))

    @property
    def baselines(self) -> dict[str, Estimate]:
        """Accuracies of the baselines by name; runs on the same split count once."""
        runs = {
            run.split.get("fingerprint") or tuple(run.baselines.items()): run
            for group in self.groups
            for run in group.runs
            if run.baselines
        }
        names = dict.fromkeys(name for run in runs.values() for name in run.baselines)
        found = {name: Group(name, tuple(runs.values())).baseline(name) for name in names}
        return {name: estimate for name, estimate in found.items() if estimate is not None}


@dataclass(frozen=True)
class Page:
    """Content of the report.

    Args:
        title: Title of the page.
        groups: Models.
        command: Command that creates the page. Empty if there is none.
    """

    title: str
    groups: tuple[Group, ...]
    command: str = ""

    @property
    def scenarios(self) -> list[Scenario]:
        found: dict[tuple[str, ThreatModel], list[Group]] = {}
        for group in self.groups:
            for threat_model in dict.fromkeys(table.threat_model for run in group.runs for table in run.attacks):
                found.setdefault((group.dataset, threat_model), []).append(group)
        return [Scenario(dataset, threat_model, tuple(groups)) for (dataset, threat_model), groups in found.items()]

    def slot(self, group: Group) -> int:
        """Return the index that selects the colour, dash and marker of a model in all charts."""
        return self.groups.index(group)


@dataclass(frozen=True)
class Section:
    """Section of the page.

    Args:
        id: Target of links to the section.
        title: Heading.
        body: Content below the heading.
        charts: Data for the charts that the script draws, by the id of the figure.
    """

    id: str
    title: str
    body: Html
    charts: Mapping[str, object] = field(default_factory=dict)


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[TableCell]]) -> Html:
    """Return a sortable table that scrolls horizontally; the first column names the row."""
    lines = list(rows)
    numeric = [cell.value is not None for cell in lines[0]] if lines else [False] * len(head)
    titles = (
        tag("th", {"scope": "col", "class": "number" if is_number else None}, title)
        for title, is_number in zip(head, numeric, strict=True)
    )
    body = (tag("tr", {}, *(_cell(cell, first=not column) for column, cell in enumerate(row))) for row in lines)
    inner = tag(
        "table",
        {"class": "sortable"},
        tag("caption", {}, tag("span", {}, caption)),
        tag("thead", {}, tag("tr", {}, *titles)),
        tag("tbody", {}, *body),
    )
    return tag("div", {"class": "wide", "tabindex": 0, "role": "region", "aria-label": caption}, inner)


def _cell(cell: TableCell, *, first: bool) -> Html:
    if first:
        return tag("th", {"scope": "row"}, cell.text)
    return tag("td", {"data-value": cell.value, "class": None if cell.value is None else "number"}, cell.text)


def figure(id_: str, caption: str, *, controls: Html | None = None, alternative: Html | None = None) -> Html:
    """Return an empty chart, filled by the script, with menus, a caption and its values as a table."""
    details = () if alternative is None else (tag("details", {}, tag("summary", {}, "Values as a table"), alternative),)
    chart = tag("div", {"class": "chart", "id": id_})
    return tag(
        "figure", {}, *(() if controls is None else (controls,)), chart, tag("figcaption", {}, caption), *details
    )


def menu(id_: str, label: str, options: Sequence[tuple[str, str]]) -> Html:
    """Return a labelled menu of ``(value, text)`` options."""
    items = (tag("option", {"value": value}, text) for value, text in options)
    return tag("label", {"for": id_}, f"{label} ", tag("select", {"id": id_}, *items))


def controls(*menus: Html) -> Html:
    """Return menus that are hidden until the script runs."""
    return tag("div", {"class": "controls", "hidden": True}, *menus)


def paragraphs(*texts: str) -> Html:
    """Return one paragraph per text."""
    return join(tag("p", {}, text) for text in texts)
