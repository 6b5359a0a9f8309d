"""What sections are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from edgeproof.report._html import Html, join, tag
from edgeproof.report.groups import Group


class Cell(NamedTuple):
    """A cell of a table: what it shows, and what it is sorted by (by default what it shows)."""

    text: str
    value: float | None = None


def valued(value: float | None, text: str | None = None) -> Cell:
    """The cell of a number; what is not known is a dash, and sorted before everything else.

    >>> valued(0.5, "50 %"), valued(3), valued(None)
    (Cell(text='50 %', value=0.5), Cell(text='3', value=3), Cell(text='–', value=-1))
    """
    return Cell("–", -1) if value is None else Cell(str(value) if text is None else text, value)


class Scenario(NamedTuple):
    """A graph and a kind of budgets: models are compared within one."""

    dataset: str
    kind: tuple[str, str]
    groups: tuple[Group, ...]

    @property
    def title(self) -> str:
        local = self.kind[0]
        limits = {"None": "no limit at single nodes", "given": "limits at every node"}
        return f"{self.dataset}, {limits.get(local, f'at most {local} of the edges at a node')}"

    @property
    def epsilons(self) -> list[float]:
        return sorted({e for group in self.groups for _, one in group.attacked(self.kind) for e in one.epsilons})

    @property
    def attacks(self) -> list[str]:
        rows = (row for group in self.groups for _, one in group.attacked(self.kind) for row in one.rows)
        return list(dict.fromkeys(row.attack for row in rows))


@dataclass(frozen=True)
class Page:
    """All that is shown.

    Args:
        title: of the page.
        groups: the models.
        command: how the page was made, if by a command.
    """

    title: str
    groups: tuple[Group, ...]
    command: str = ""

    @property
    def scenarios(self) -> list[Scenario]:
        found: dict[tuple[str, tuple[str, str]], list[Group]] = {}
        for group in self.groups:
            for kind in dict.fromkeys(one.kind for run in group.runs for one in run.attacked):
                found.setdefault((group.dataset, kind), []).append(group)
        return [Scenario(dataset, kind, tuple(groups)) for (dataset, kind), groups in found.items()]

    def slot(self, group: Group) -> int:
        """The colour, dash and marker of a model, the same all over the page."""
        return self.groups.index(group)


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Args:
        id: where links lead.
        title: its heading.
        body: below it.
        charts: what the page's script draws, by the id of the figure.
    """

    id: str
    title: str
    body: Html
    charts: Mapping[str, object] = field(default_factory=dict)


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Html:
    """A table that a small screen can move sideways; its first column names the row."""
    lines = list(rows)
    numbers = [cell.value is not None for cell in lines[0]] if lines else [False] * len(head)
    titles = (
        tag("th", {"scope": "col", "class": "number" if number else None}, title)
        for title, number in zip(head, numbers, strict=True)
    )
    body = (tag("tr", {}, *(_cell(cell, first=not number) for number, cell in enumerate(row))) for row in lines)
    inner = tag(
        "table",
        {"class": "sortable"},
        tag("caption", {}, tag("span", {}, caption)),
        tag("thead", {}, tag("tr", {}, *titles)),
        tag("tbody", {}, *body),
    )
    return tag("div", {"class": "wide", "tabindex": 0, "role": "region", "aria-label": caption}, inner)


def _cell(cell: Cell, *, first: bool) -> Html:
    if first:
        return tag("th", {"scope": "row"}, cell.text)
    return tag("td", {"data-value": cell.value, "class": None if cell.value is None else "number"}, cell.text)


def figure(id_: str, caption: str, *, controls: Html | None = None, alternative: Html | None = None) -> Html:
    """A place for a chart, what it shows in words, and its values as a table."""
    more = () if alternative is None else (tag("details", {}, tag("summary", {}, "Values as a table"), alternative),)
    place = tag("div", {"class": "chart", "id": id_})
    return tag("figure", {}, *(() if controls is None else (controls,)), place, tag("figcaption", {}, caption), *more)


def choice(id_: str, label: str, options: Sequence[tuple[str, str]]) -> Html:
    """A labelled menu."""
    shown = (tag("option", {"value": value}, text) for value, text in options)
    return tag("label", {"for": id_}, f"{label} ", tag("select", {"id": id_}, *shown))


def controls(*parts: Html) -> Html:
    """Menus, which the page's script brings to light: without it they would do nothing."""
    return tag("div", {"class": "controls", "hidden": True}, *parts)


def paragraphs(*texts: str) -> Html:
    return join(tag("p", {}, text) for text in texts)
