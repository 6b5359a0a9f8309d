"""Progress bars for terminals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[float, str], None]


@contextmanager
def progress_bar(description: str, total: float, *, show: bool, counts: bool = True) -> Iterator[Advance]:
    """Yield ``advance(done, text)``, which updates a progress bar on standard error and the text beside it.

    Nothing is drawn if ``show`` is False or standard error is not a terminal.

    Args:
        description: Text before the bar; may be empty.
        total: Value of ``done`` at the end.
        show: Whether to draw the bar.
        counts: Whether to show ``done``, ``total`` and the elapsed time.
    """
    if not show:
        yield lambda done, text: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    with Progress(
        *((TextColumn("{task.description}"),) if description else ()),
        # Narrow enough for all columns to fit on a line of 80 characters.
        BarColumn(bar_width=16),
        *((MofNCompleteColumn(), TimeElapsedColumn()) if counts else ()),
        TextColumn("{task.fields[text]}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(description, total=total, text="")
        yield lambda done, text: bar.update(task, completed=done, text=text)


def duration(seconds: float) -> str:
    """Return a duration in a suitable unit.

    >>> duration(42), duration(600), duration(5400)
    ('42 s', '10 min', '1.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.2g} h"
