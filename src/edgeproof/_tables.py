"""Results as text, HTML, dictionaries and data frames."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

Record = dict[str, Any]


class Layout(NamedTuple):
    """Cells of a printed table.

    Args:
        title: Line above the table; may be empty.
        header: Headings of the columns; empty for a list of names and values.
        lines: Cells of each line.
        left: Number of columns that are aligned to the left; the others are aligned to the right.
        notes: Lines below the table, such as warnings.
    """

    title: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    left: int = 1
    notes: Sequence[str] = ()

    def as_text(self) -> str:
        """Return aligned text.

        >>> print(Layout("Accuracy", ["attack", "0.1"], [["clean", "81.0"], ["LRBCD", "9.5"]]).as_text())
        Accuracy
        attack   0.1
        clean   81.0
        LRBCD    9.5
        """
        lines = [*([self.header] if self.header else []), *self.lines]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rows = [
            "  ".join(
                cell.ljust(width) if number < self.left else cell.rjust(width)
                for number, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([*([self.title] if self.title else []), *rows, *self.notes])

    def as_html(self) -> str:
        """Return an HTML table; all text is escaped.

        >>> Layout("", [], [["a < b", "1"]]).as_html()
        '<table><tbody><tr><td>a &lt; b</td><td>1</td></tr></tbody></table>'
        """
        caption = f"<caption>{escape(self.title)}</caption>" if self.title else ""
        head = f"<thead>{_row('th', self.header)}</thead>" if self.header else ""
        body = "".join(_row("td", line) for line in self.lines)
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<table>{caption}{head}<tbody>{body}</tbody></table>{notes}"


class TabularResult(ABC):
    """Base class of results: one description gives text, HTML, a dictionary and a data frame."""

    @abstractmethod
    def summary(self) -> Record:
        """Return the values that occur once, as numbers, text, lists and dictionaries."""

    @abstractmethod
    def _records(self) -> list[Record]:
        """Return the lines of the data frame."""

    @abstractmethod
    def _layout(self) -> Layout:
        """Return the printed table."""

    def __str__(self) -> str:
        return self._layout().as_text()

    def _repr_html_(self) -> str:
        """Return the table that notebooks show."""
        return self._layout().as_html()

    def to_dict(self) -> dict[str, Any]:
        """Return the result as numbers, text, lists and dictionaries; the lines of :meth:`to_dataframe` are in ``"rows"``."""
        return {**self.summary(), "rows": self._records()}

    def to_dataframe(self) -> pd.DataFrame:
        """Return the lines of the result as a pandas data frame, with all other values in its ``attrs``.

        Raises:
            ImportError: If pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_dataframe needs pandas: pip install pandas. to_dict needs nothing") from error
        frame = pd.DataFrame(self._records())
        frame.attrs = self.summary()
        return frame


def records(columns: Mapping[str, Sequence[Any]]) -> list[Record]:
    """Return one dictionary per line of equally long columns.

    >>> records({"node": [0, 1], "margin": [0.5, -0.2]})
    [{'node': 0, 'margin': 0.5}, {'node': 1, 'margin': -0.2}]
    """
    return [dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)]


def _row(name: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{name}>{escape(cell)}</{name}>" for cell in cells) + "</tr>"
