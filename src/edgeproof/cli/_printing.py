"""Printing to terminals: tables, and one-line errors and warnings."""

from __future__ import annotations

import io
import shlex
import sys
import warnings
from typing import TYPE_CHECKING, TextIO

from edgeproof._warnings import EdgeproofWarning

if TYPE_CHECKING:
    from rich.table import Table

# Width if standard output is not a terminal.
_WIDTH = 240


def command_line() -> str:
    """Return the running command, quoted for a shell."""
    return shlex.join(["edgeproof", *sys.argv[1:]])


def print_table(table: Table) -> None:
    """Print a table without truncating cells; lines wrap if the terminal is too narrow."""
    from rich.console import Console
    from rich.measure import Measurement

    console = Console(emoji=False) if sys.stdout.isatty() else Console(width=_WIDTH, emoji=False)
    unlimited = Console(width=10 * _WIDTH, emoji=False)
    for column in table.columns:
        sizes = [unlimited.measure(cell) for cell in (column.header, *column.cells)]
        column.min_width = max(size.maximum if column.no_wrap else size.minimum for size in sizes)
    width = Measurement.get(unlimited, unlimited.options, table).minimum
    if console.width < width:
        console = Console(width=width, emoji=False)
    console.print(table)


def print_line(message: str) -> None:
    """Print one line to standard error, without wrapping."""
    print(one_line(message), file=sys.stderr, flush=True)


def one_line(text: str) -> str:
    """Replace line breaks by spaces, and escape other control characters, which terminals would execute.

    >>> print(one_line("first\\n  second \\x1b[31m"))
    first second \\x1b[31m
    """
    joined = (
        " ".join(part for line in text.splitlines() if (part := line.strip())) if len(text.splitlines()) > 1 else text
    )
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode() for each in joined
    )


def replace_unprintable() -> None:
    """Let standard output and error escape characters that their encoding cannot represent, such as those of file names."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def print_error(message: str) -> None:
    """Print an error to standard error."""
    _print_labelled("error", "red", message)


def print_warning(message: str) -> None:
    """Print a warning to standard error."""
    _print_labelled("warning", "yellow", message)


def _print_labelled(label: str, color: str, message: str) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True, highlight=False, emoji=False)
    console.print(f"[bold {color}]{label}:[/] {escape(one_line(message))}", soft_wrap=True)


def print_warnings_in_one_line() -> None:
    """Print every :class:`~edgeproof._warnings.EdgeproofWarning` once and in one line; other warnings are unchanged."""
    show_others, printed = warnings.showwarning, set[str]()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if file is not None or not issubclass(category, EdgeproofWarning):
            show_others(message, category, filename, lineno, file, line)
        elif str(message) not in printed:
            printed.add(str(message))
            print_warning(str(message))

    warnings.showwarning = show
    if not sys.warnoptions:
        # The "once" action resets whenever a filter changes.
        warnings.simplefilter("always", EdgeproofWarning)
