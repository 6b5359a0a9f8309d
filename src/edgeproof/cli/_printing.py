"""What is printed, as wide as it has to be."""

from __future__ import annotations

import sys
import warnings
from typing import TextIO

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from edgeproof.evaluation.checks import EvaluationWarning
from edgeproof.experiments.engines import EngineWarning
from edgeproof.experiments.store import StoreWarning
from edgeproof.training.self_training import LabelWarning

# Columns of what is not printed in a terminal: it is read by a program, or later.
_WIDE = 240
_OURS = (EvaluationWarning, EngineWarning, LabelWarning, StoreWarning)


def print_table(table: Table) -> None:
    """Print a table whole: in a terminal too narrow for its words and figures, lines go on in the next."""
    console = Console() if sys.stdout.isatty() else Console(width=_WIDE)
    roomy = Console(width=10 * _WIDE)
    for column in table.columns:
        needed = [roomy.measure(cell) for cell in (column.header, *column.cells)]
        column.min_width = max(one.maximum if column.no_wrap else one.minimum for one in needed)
    least = Measurement.get(roomy, roomy.options, table).minimum
    if console.width < least:
        console = Console(width=least)
    console.print(table)


def print_warning(message: str) -> None:
    """One line on standard error."""
    Console(stderr=True, highlight=False).print(f"[bold yellow]warning:[/] {escape(message)}", soft_wrap=True)


def warn_in_one_line() -> None:
    """Show what this package warns of as it shows errors, each only once; others' warnings stay as they are."""
    others, told = warnings.showwarning, set[str]()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if file is not None or not issubclass(category, _OURS):
            others(message, category, filename, lineno, file, line)
        elif str(message) not in told:
            told.add(str(message))
            print_warning(str(message))

    warnings.showwarning = show
    if not sys.warnoptions:
        # Python's own "once" forgets what was told whenever filters change somewhere.
        for category in _OURS:
            warnings.simplefilter("always", category)
