"""Progress bars that keep quiet where nobody watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int, str], None]


@contextmanager
def progress_bar(description: str, total: int, *, show: bool) -> Iterator[Advance]:
    """Yield ``advance(done, text)``, which moves a bar on standard error and writes a text beside it.

    Nothing is drawn when ``show`` is false or standard error is not a terminal.
    """
    # Imported here, because ``import edgeproof`` does not need rich.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        # Narrow enough for everything beside it to fit on a line of 80.
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[text]}"),
        console=console,
        transient=True,
        disable=not (show and console.is_terminal),
    ) as bar:
        task = bar.add_task(description, total=total, text="")
        yield lambda done, text: bar.update(task, completed=done, text=text)
