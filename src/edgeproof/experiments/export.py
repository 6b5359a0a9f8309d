"""Tables as CSV, LaTeX and Markdown text."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from edgeproof._names import unknown_name

FORMATS = ("csv", "latex", "markdown")


def as_text(titles: Sequence[str], lines: Sequence[Sequence[str]], form: str) -> str:
    """Return a table as text.

    Args:
        titles: Titles of the columns.
        lines: Cells, line by line.
        form: ``"csv"``, ``"latex"`` or ``"markdown"``.

    >>> print(as_text(["model", "clean"], [["GCN", "72.0"]], "csv"), end="")
    model,clean
    GCN,72.0
    """
    check_format(form)
    if form == "csv":
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([titles, *lines])
        return text.getvalue()
    if form == "markdown":
        return "\n".join("| " + " | ".join(line) + " |" for line in [titles, ["---"] * len(titles), *lines]) + "\n"
    rows = [" & ".join(_escaped(cell) for cell in line) + r" \\" for line in [titles, *lines]]
    return "\n".join([rf"\begin{{tabular}}{{{'l' * len(titles)}}}", *rows, r"\end{tabular}"]) + "\n"


def check_format(form: str) -> None:
    """Raise ``ValueError`` for an unknown format."""
    if form not in FORMATS:
        raise unknown_name("format", form, FORMATS)


def _escaped(text: str) -> str:
    for character, escaped in (("±", r"$\pm$"), ("_", r"\_"), ("%", r"\%"), ("&", r"\&")):
        text = text.replace(character, escaped)
    return text
