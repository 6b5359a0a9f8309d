"""Looking things up by name, with help for misspelt ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


def unknown_name(kind: str, name: object, known: Iterable[str]) -> ValueError:
    """The error to raise for a name that does not exist: what is known, and the nearest to what came.

    >>> print(unknown_name("model", "GPRGN", ["GCN", "GPRGNN"]))
    unknown model 'GPRGN': did you mean 'GPRGNN'? Known: GCN, GPRGNN
    """
    known = list(known)
    spelling = {candidate.casefold(): candidate for candidate in known}
    near = difflib.get_close_matches(str(name).casefold(), spelling, n=1, cutoff=0.5)
    hint = f": did you mean {spelling[near[0]]!r}?" if near else "."
    return ValueError(f"unknown {kind} {name!r}{hint} Known: {', '.join(known)}")


def look_up(kind: str, name: object, table: Mapping[str, T]) -> T:
    """``table[name]``, or a :class:`ValueError` that names the nearest key."""
    if not isinstance(name, str) or name not in table:
        raise unknown_name(kind, name, table)
    return table[name]
