"""Tables for people: in a terminal, in Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table as RichTable

from edgeproof.experiments.compare import Cell, Comparison
from edgeproof.experiments.measure import FEWER_SAMPLES, SAMPLES
from edgeproof.experiments.origins import Origin
from edgeproof.experiments.paper import Column, Row, training_of
from edgeproof.experiments.tables import Table

PROTOCOLS = ("as_released", "strict")
_COLOURS = {"matched": "green", "better": "cyan", "worse": "red", "not run": "dim", "not compared": "none"}
_FORMATS = ("csv", "latex", "markdown")
_SUMMARY_TITLES = ("table", "about", "protocol", "cells", "matched", "better", "worse", "not run", "apart")
Place = tuple[Row, Column]


def title_of(column: Column) -> str:
    """A column's title.

    >>> title_of(Column("LRBCD", 0.25)), title_of(Column("smoothing", r_add=0, r_del=5))
    ('LRBCD 0.25', '+0 -5')
    """
    if column.attack == "clean":
        return "clean"
    if column.attack == "smoothing":
        return f"+{column.r_add} -{column.r_del}"
    return f"{column.attack} {column.epsilon:g}"


@dataclass(frozen=True)
class _Layout:
    """Where the cells of a table go.

    Args:
        names: titles of what names a line.
        columns: titles of the columns with cells.
        lines: the names of each, and its cells.
    """

    names: tuple[str, ...]
    columns: tuple[str, ...]
    lines: Sequence[tuple[tuple[str, ...], Sequence[Place]]]


def in_terminal(comparison: Comparison) -> RichTable:
    """A line for the paper and one for each protocol, coloured by whether ours is within two standard errors."""
    table = comparison.table
    layout = _attack_by_attack(table) if len(table.rows) == 1 else _row_by_row(table, comparison.rows)
    shown = RichTable(title=f"{table.label}: {table.title}{', fast' if comparison.fast else ''}")
    for title in (*layout.names, ""):
        shown.add_column(title, no_wrap=not title)
    for title in layout.columns:
        shown.add_column(title, justify="right", no_wrap=True)
    cells: dict[Place, list[Cell]] = {}
    for cell in comparison.cells:
        cells.setdefault((cell.paper.row, cell.paper.column), []).append(cell)
    for names, places in layout.lines:
        here = [cells.get(place, []) for place in places]
        # Some tables print a clean accuracy beside every attack, not always the same one.
        shown.add_row(*names, "paper", *(" / ".join(dict.fromkeys(map(_printed, one))) for one in here))
        for protocol in PROTOCOLS:
            marked = (_marked(one[0], protocol) if one else "" for one in here)
            nothing = ("",) * len(names)
            shown.add_row(*nothing, protocol.replace("_", " "), *marked, end_section=protocol == PROTOCOLS[-1])
    return shown


def _row_by_row(table: Table, rows: Sequence[Row]) -> _Layout:
    """A line for each way of training."""
    lines = [((row.dataset, row.model, training_of(row)), [(row, column) for column in table.columns]) for row in rows]
    return _Layout(("graph", "model", "training"), tuple(map(title_of, table.columns)), lines)


def _attack_by_attack(table: Table) -> _Layout:
    """A line for each attack on the table's one model: as the paper has it, and all budgets fit beside each other."""
    (row,) = table.rows
    budgets = sorted({column.epsilon for column in table.columns})
    attacks = dict.fromkeys(column.attack for column in table.columns if column.attack != "clean")
    lines = [
        (
            (row.dataset, row.model, training_of(row), attack),
            [(row, Column(attack, budget) if budget else Column("clean")) for budget in budgets],
        )
        for attack in attacks
    ]
    return _Layout(("graph", "model", "training", "attack"), tuple(f"{budget:.0%}" for budget in budgets), lines)


def in_terminal_summary(comparisons: list[Comparison]) -> RichTable:
    """One line per table: how many of its cells match, are better or worse, and are apart, for both protocols; and a total."""
    label = ", fast" if any(one.fast for one in comparisons) else ""
    shown = RichTable(title=f"cells within two of the paper's standard errors / better / worse{label}")
    shown.caption = (
        "apart: by more than two standard errors of the difference (ours has one, too); as released / strict. "
        "Numbers that the paper prints in several tables are counted in each."
    )
    for title in ("table", "cells", *(protocol.replace("_", " ") for protocol in PROTOCOLS), "not run", "apart"):
        shown.add_column(title, justify="left" if title == "table" else "right", no_wrap=True)
    everything = _sum_of(comparisons)
    for comparison in (*comparisons, everything):
        counts = [comparison.counts(protocol) for protocol in PROTOCOLS]
        verdicts = (f"{one['matched']} / {one['better']} / {one['worse']}" for one in counts)
        # Whoever has run one protocol may not have run the other.
        not_run = " / ".join(dict.fromkeys(str(one["not run"]) for one in counts))
        apart = " / ".join(str(comparison.num_apart(protocol)) for protocol in PROTOCOLS)
        is_sum = comparison is everything
        name = "all" if is_sum else comparison.table.label
        if is_sum:
            shown.add_section()
        shown.add_row(name, str(len(comparison.cells)), *verdicts, not_run, apart, style="bold" if is_sum else None)
    return shown


def export(comparisons: Sequence[Comparison], form: str) -> str:
    """All cells, one per line, as ``"csv"``, ``"latex"`` or ``"markdown"``."""
    titles = ["table", *_titles(fast=any(one.fast for one in comparisons))]
    lines = [[one.table.label, *line] for one in comparisons for line in _lines(one.cells)]
    return as_text(titles, lines, form)


def export_summary(comparisons: Sequence[Comparison], form: str) -> str:
    """What :func:`in_terminal_summary` shows, a line for each protocol, in another form."""
    return as_text(_SUMMARY_TITLES, _summary_lines(comparisons), form)


def _summary_lines(comparisons: Sequence[Comparison]) -> list[list[str]]:
    lines = []
    named = [(one.table.label, one.table.about, one) for one in comparisons]
    for label, about, comparison in (*named, ("all", "all of these", _sum_of(comparisons))):
        for protocol in PROTOCOLS:
            counts = [len(comparison.cells), *comparison.counts(protocol).values(), comparison.num_apart(protocol)]
            lines.append([label, about, protocol.replace("_", " "), *map(str, counts)])
    return lines


def _sum_of(comparisons: Sequence[Comparison]) -> Comparison:
    """All of their cells, as of one table."""
    return Comparison(comparisons[0].table, tuple(cell for one in comparisons for cell in one.cells), False)


def _titles(*, fast: bool) -> list[str]:
    """Of what :func:`_lines` gives."""
    protocols = [protocol.replace("_", " ") for protocol in PROTOCOLS]
    ours = [f"{protocol}, fast" if fast else protocol for protocol in protocols]
    return ["graph", "model", "training", "measured", "paper", *ours, *(f"verdict, {one}" for one in protocols)]


def _lines(cells: Sequence[Cell]) -> list[list[str]]:
    return [
        [
            cell.paper.row.dataset,
            cell.paper.row.model,
            training_of(cell.paper.row),
            title_of(cell.paper.column),
            _printed(cell),
            *(_ours(cell, protocol) for protocol in PROTOCOLS),
            *(cell.verdict(protocol) for protocol in PROTOCOLS),
        ]
        for cell in cells
    ]


def as_text(titles: Sequence[str], lines: Sequence[Sequence[str]], form: str) -> str:
    """A table as ``"csv"``, ``"latex"`` or ``"markdown"``."""
    check_format(form)
    if form == "csv":
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([titles, *lines])
        return text.getvalue()
    if form == "markdown":
        return "\n".join("| " + " | ".join(line) + " |" for line in [titles, ["---"] * len(titles), *lines]) + "\n"
    rows = [" & ".join(_escaped(entry) for entry in line) + r" \\" for line in [titles, *lines]]
    return "\n".join([rf"\begin{{tabular}}{{{'l' * len(titles)}}}", *rows, r"\end{tabular}"]) + "\n"


def check_format(form: str) -> None:
    """Raise unless :func:`as_text` knows this form."""
    if form not in _FORMATS:
        raise ValueError(f"expected one of {', '.join(_FORMATS)}, got {form!r}")


def page(comparisons: list[Comparison], several: Mapping[Origin, Sequence[Sequence[str]]]) -> str:
    """A page in Markdown: how many cells match, and every cell that has been run.

    Args:
        comparisons: the tables.
        several: trainings whose results are of more than one model, as ``of_several_models`` finds them.
    """
    fast = any(comparison.fast for comparison in comparisons)
    summed = _summary_lines([one for one in comparisons if one.table.stands_for is None])
    fewer = ", ".join(f"those of {model}, of {samples:,}" for model, samples in FEWER_SAMPLES.items())
    lines = [
        "# Our figures beside the paper's",
        "",
        "Made by `edgeproof reproduce show --page`; every result, with the command and machine that made it, is in the store,",
        "`results/experiments`. A cell matches if the mean of ours is within two of the paper's standard errors; it is apart",
        "if they differ by more than two standard errors of the difference, as ours has one, too.",
        "`as_released` has the splits of the released scripts, `strict` is what conclusions may be drawn from.",
        f"Certificates are of {SAMPLES:,} samples, but for {fewer}.",
        *(["", "**The fast version: few epochs, weak attacks, one seed.**"] if fast else []),
        "",
        as_text(_SUMMARY_TITLES, [[f"`{label}`", *rest] for label, *rest in summed], "markdown").rstrip(),
    ]
    for comparison in comparisons:
        run = [cell for cell in comparison.cells if any(figure is not None for figure in cell.ours.values())]
        if run:
            shown = as_text(_titles(fast=fast), _lines(run), "markdown").rstrip()
            lines += ["", f"## {comparison.table.title}", "", shown]
    if several:
        lines += [
            "",
            "## Trained more than once",
            "",
            "Models are not in the repository: what is measured later is measured of the same training done again. A GPU draws",
            "other random numbers than a CPU; another kind of CPU, another number of threads or code that has changed since",
            "rounds otherwise; and with either a training may end hundreds of epochs earlier or later. Here results are of",
            "more than one model (`edgeproof results` has a column for it), or perhaps so: where there is a question mark, it",
            "was not noted of which.",
            "",
            *(f"- {origin}: {'; '.join(', '.join(kinds) for kinds in models)}" for origin, models in several.items()),
        ]
    return "\n".join(lines) + "\n"


def _printed(cell: Cell) -> str:
    return "-" if cell.paper.mean is None else f"{cell.paper.mean:.1f} ± {cell.paper.error:.1f}"


def _ours(cell: Cell, protocol: str) -> str:
    figure = cell.ours[protocol]
    return "-" if figure is None else str(figure)


def _marked(cell: Cell, protocol: str) -> str:
    return f"[{_COLOURS[cell.verdict(protocol)]}]{_ours(cell, protocol)}[/]"


def _escaped(text: str) -> str:
    for plain, escaped in (("±", r"$\pm$"), ("_", r"\_"), ("%", r"\%"), ("&", r"\&")):
        text = text.replace(plain, escaped)
    return text
