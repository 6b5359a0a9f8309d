"""Tables of the paper beside our values: for terminals, as CSV, LaTeX and Markdown, and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table as RichTable

from edgeproof.experiments.export import as_text
from edgeproof.experiments.provenance import Provenance, measured_on_several_models
from edgeproof.experiments.store import Store
from edgeproof.paper.compare import ComparedCell, TableComparison
from edgeproof.paper.numbers import PaperColumn, PaperRow, training_of
from edgeproof.paper.recipes import FAST_EPOCHS, FEWER_SAMPLES, SAMPLES, kind_of
from edgeproof.paper.tables import Table

PROTOCOLS = ("as_released", "strict")
_COLOURS = {"matched": "green", "better": "cyan", "worse": "red", "not run": "dim", "not compared": "none"}
_SUMMARY_TITLES = ("table", "about", "protocol", "cells", "matched", "better", "worse", "not run", "differ")
_TOTAL_TITLES = ("protocol", "cells", "matched", "better", "worse", "not run", "differ")
Place = tuple[PaperRow, PaperColumn]


def title_of(column: PaperColumn) -> str:
    """Return the title of a column.

    >>> title_of(PaperColumn("LRBCD", 0.25)), title_of(PaperColumn("smoothing", r_add=0, r_del=5))
    ('LRBCD 0.25', '+0 -5')
    """
    if column.attack == "clean":
        return "clean"
    if column.attack == "smoothing":
        return f"+{column.r_add} -{column.r_del}"
    return f"{column.attack} {column.epsilon:g}"


@dataclass(frozen=True)
class _Layout:
    """Arrangement of the cells of a table.

    Args:
        names: Titles of the columns that name a line.
        columns: Titles of the columns with numbers.
        lines: Names and cells of each line.
    """

    names: tuple[str, ...]
    columns: tuple[str, ...]
    lines: Sequence[tuple[tuple[str, ...], Sequence[Place]]]


def in_terminal(comparison: TableComparison) -> RichTable:
    """Return a table with one line for the paper and one per protocol; colours show the verdicts."""
    table = comparison.table
    layout = _attack_by_attack(table) if len(table.rows) == 1 else _row_by_row(table, comparison.rows)
    shown = RichTable(title=f"{table.label}: {table.title}{', fast' if comparison.fast else ''}")
    for title in (*layout.names, ""):
        shown.add_column(title, no_wrap=not title)
    for title in layout.columns:
        shown.add_column(title, justify="right", no_wrap=True)
    cells: dict[Place, list[ComparedCell]] = {}
    for cell in comparison.cells:
        cells.setdefault((cell.paper.row, cell.paper.column), []).append(cell)
    for names, places in layout.lines:
        matching_cells = [cells.get(place, []) for place in places]
        # Some tables print a clean accuracy beside every attack, with different values.
        shown.add_row(
            *names, "paper", *(" / ".join(dict.fromkeys(map(_printed, matching))) for matching in matching_cells)
        )
        for protocol in PROTOCOLS:
            marked = (_marked(matching[0], protocol) if matching else "" for matching in matching_cells)
            blank = ("",) * len(names)
            shown.add_row(*blank, protocol.replace("_", " "), *marked, end_section=protocol == PROTOCOLS[-1])
    return shown


def _row_by_row(table: Table, rows: Sequence[PaperRow]) -> _Layout:
    """Arrange one line per training."""
    lines = [((row.dataset, row.model, training_of(row)), [(row, column) for column in table.columns]) for row in rows]
    return _Layout(("graph", "model", "training"), tuple(map(title_of, table.columns)), lines)


def _attack_by_attack(table: Table) -> _Layout:
    """Arrange one line per attack on the only model of the table, as in the paper; budgets become columns."""
    (row,) = table.rows
    budgets = sorted({column.epsilon for column in table.columns})
    attacks = dict.fromkeys(column.attack for column in table.columns if column.attack != "clean")
    lines = [
        (
            (row.dataset, row.model, training_of(row), attack),
            [(row, PaperColumn(attack, budget) if budget else PaperColumn("clean")) for budget in budgets],
        )
        for attack in attacks
    ]
    return _Layout(("graph", "model", "training", "attack"), tuple(f"{budget:.0%}" for budget in budgets), lines)


def in_terminal_summary(comparisons: list[TableComparison]) -> RichTable:
    """Return a table with one line per table: the number of cells by verdict and protocol; and a total."""
    label = ", fast" if any(comparison.fast for comparison in comparisons) else ""
    shown = RichTable(title=f"cells within two of the paper's standard errors / better / worse{label}")
    shown.caption = (
        "differ: the difference exceeds two standard errors of the difference; as released / strict. "
        "Numbers printed in several tables of the paper are counted once per table."
    )
    for title in ("table", "cells", *(protocol.replace("_", " ") for protocol in PROTOCOLS), "not run", "differ"):
        shown.add_column(title, justify="left" if title == "table" else "right", no_wrap=True)
    everything = _sum_of(comparisons)
    for comparison in (*comparisons, everything):
        counts = [comparison.counts(protocol) for protocol in PROTOCOLS]
        verdicts = (f"{count['matched']} / {count['better']} / {count['worse']}" for count in counts)
        # The protocols may have been run separately.
        not_run = " / ".join(dict.fromkeys(str(count["not run"]) for count in counts))
        differing = " / ".join(str(comparison.num_differing(protocol)) for protocol in PROTOCOLS)
        is_total = comparison is everything
        name = "all" if is_total else comparison.table.label
        if is_total:
            shown.add_section()
        shown.add_row(
            name, str(len(comparison.cells)), *verdicts, not_run, differing, style="bold" if is_total else None
        )
    return shown


def export(comparisons: Sequence[TableComparison], form: str) -> str:
    """Return all cells, one per line, as ``"csv"``, ``"latex"`` or ``"markdown"``."""
    titles = ["table", *_titles(fast=any(comparison.fast for comparison in comparisons))]
    lines = [[comparison.table.label, *line] for comparison in comparisons for line in _lines(comparison.cells)]
    return as_text(titles, lines, form)


def export_summary(comparisons: Sequence[TableComparison], form: str) -> str:
    """Return the content of :func:`in_terminal_summary`, one line per protocol, in another format."""
    return as_text(_SUMMARY_TITLES, _summary_lines(comparisons), form)


def _summary_lines(comparisons: Sequence[TableComparison]) -> list[list[str]]:
    lines = []
    named = [(comparison.table.label, comparison.table.about, comparison) for comparison in comparisons]
    for label, about, comparison in (*named, ("all", "all of these", _sum_of(comparisons))):
        for protocol in PROTOCOLS:
            counts = [len(comparison.cells), *comparison.counts(protocol).values(), comparison.num_differing(protocol)]
            lines.append([label, about, protocol.replace("_", " "), *map(str, counts)])
    return lines


def _sum_of(comparisons: Sequence[TableComparison]) -> TableComparison:
    """Return a comparison with the cells of all tables."""
    return TableComparison(
        comparisons[0].table, tuple(cell for comparison in comparisons for cell in comparison.cells), False
    )


def _titles(*, fast: bool) -> list[str]:
    """Return the titles of the columns of :func:`_lines`."""
    protocols = [protocol.replace("_", " ") for protocol in PROTOCOLS]
    ours = [f"{protocol}, fast" if fast else protocol for protocol in protocols]
    return [
        "graph",
        "model",
        "training",
        "measured",
        "paper",
        *ours,
        *(f"verdict, {protocol}" for protocol in protocols),
    ]


def _lines(cells: Sequence[ComparedCell]) -> list[list[str]]:
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


def page(
    comparisons: list[TableComparison], several: Mapping[Provenance, Sequence[Sequence[str]]], stem: str
) -> dict[str, str]:
    """Return a Markdown page with the number of matching cells, and CSV files with all cells.

    Args:
        comparisons: The tables.
        several: Trainings with results of more than one model; see :func:`several_models`.
        stem: Name of the page without its suffix; names of the CSV files begin with it.

    Returns:
        The content of each file by its name.
    """
    files = {f"{stem}.csv": export(comparisons, "csv")}
    if several:
        lines = [[str(run), "; ".join(", ".join(kinds) for kinds in models)] for run, models in several.items()]
        files[f"{stem}-retrained.csv"] = as_text(("training", "results by model"), lines, "csv")
    return {f"{stem}.md": _page(comparisons, len(several), stem), **files}


def _page(comparisons: list[TableComparison], num_several: int, stem: str) -> str:
    fast = any(comparison.fast for comparison in comparisons)
    printed = [comparison for comparison in comparisons if comparison.table.stands_for is None]
    totals = [_total(printed, protocol) for protocol in PROTOCOLS]
    fewer = ", ".join(f"those of {model} use {samples:,}" for model, samples in FEWER_SAMPLES.items())
    lines = [
        "# Comparison with the paper, number by number",
        "",
        _conclusion(printed),
        "",
        as_text(_TOTAL_TITLES, totals, "markdown").rstrip(),
        "",
        "- A number *matches* if our mean is within two of the paper's standard errors. It *differs* if the difference exceeds",
        "  two standard errors of the difference.",
        "- `as_released` uses the splits of the released scripts, for comparison with the paper. Draw conclusions from",
        "  `strict`.",
        f"- Certificates use {SAMPLES:,} samples; {fewer}.",
        "- A number that several tables print is counted once per table.",
        "- Rows of `*_stand_in` are measured on a SYNTHETIC graph of ogbn-arxiv's size; they are not results on ogbn-arxiv.",
        *(["", "**The fast version: few epochs, weak attacks, one seed.**"] if fast else []),
        "",
        "## All numbers",
        "",
        f"[All numbers as CSV]({stem}.csv)",
        "",
        "## Numbers by table",
        "",
        "Matched / better / worse / not run / differ:",
        "",
        as_text(("table", "about", "cells", *PROTOCOLS), _counts_by_table(printed), "markdown").rstrip(),
    ]
    if num_several:
        lines += [
            "",
            "## Models trained more than once",
            "",
            "The repository does not contain the models, so later measurements use retrained ones.",
            f"{num_several} trainings have results of more than one model. Random numbers differ between GPU and CPU, and",
            "rounding differs between CPUs, numbers of threads and versions of the code; both can change the last epoch of",
            "training by hundreds. In the table, a semicolon separates models, and a question mark means that the model was",
            "not recorded.",
            "",
            f"[Trainings with more than one model as CSV]({stem}-retrained.csv)",
        ]
    lines += [
        "",
        "## Reproduce",
        "",
        "    edgeproof reproduce run all",
        "    edgeproof reproduce show --page docs/reproduction.md",
        "",
        "The second command runs nothing. It writes this page and its CSV files from the store `results/experiments`, which",
        "records the command and machine of every result.",
    ]
    return "\n".join(lines) + "\n"


def _conclusion(comparisons: Sequence[TableComparison]) -> str:
    everything = _sum_of(comparisons)
    run = len(everything.cells) - everything.counts("strict")["not run"]
    differing = [everything.num_differing(protocol) for protocol in PROTOCOLS]
    return (
        f"Of {run:,} printed numbers that have been run, {differing[0]} differ from ours with the splits of the released\n"
        f"scripts, and {differing[1]} with unseen test nodes."
    )


def _total(comparisons: Sequence[TableComparison], protocol: str) -> list[str]:
    everything = _sum_of(comparisons)
    counts = [len(everything.cells), *everything.counts(protocol).values(), everything.num_differing(protocol)]
    return [f"`{protocol}`", *map(str, counts)]


def _counts_by_table(comparisons: Sequence[TableComparison]) -> list[list[str]]:
    lines = []
    for comparison in comparisons:
        counts = [
            " / ".join(map(str, [*comparison.counts(protocol).values(), comparison.num_differing(protocol)]))
            for protocol in PROTOCOLS
        ]
        lines.append([f"`{comparison.table.label}`", comparison.table.about, str(len(comparison.cells)), *counts])
    return lines


def several_models(store: Store, *, fast: bool = False) -> dict[Provenance, list[list[str]]]:
    """Find trainings whose results are of more than one model.

    Args:
        store: The results.
        fast: Whether to return those of the fast version, or the others.
    """
    found = measured_on_several_models(store, kind_of)
    return {run: models for run, models in found.items() if (run.max_epochs == FAST_EPOCHS) == fast}


def _printed(cell: ComparedCell) -> str:
    return "-" if cell.paper.mean is None else f"{cell.paper.mean:.1f} ± {cell.paper.error:.1f}"


def _ours(cell: ComparedCell, protocol: str) -> str:
    mean = cell.ours[protocol]
    return "-" if mean is None else str(mean)


def _marked(cell: ComparedCell, protocol: str) -> str:
    return f"[{_COLOURS[cell.verdict(protocol)]}]{_ours(cell, protocol)}[/]"
