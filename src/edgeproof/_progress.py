"""Progress bars for terminals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int, str], None]


@contextmanager
def progress_bar(description: str, total: int, *, show: bool) -> Iterator[Advance]:
    """Yield ``advance(done, text)``, which updates a progress bar on standard error and the text beside it.

    Nothing is drawn if ``show`` is False or standard error is not a terminal.
    """
    if not show:
        yield lambda done, text: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        # Narrow enough for all columns to fit on a line of 80 characters.
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[text]}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(description, total=total, text="")
        yield lambda done, text: bar.update(task, completed=done, text=text)
