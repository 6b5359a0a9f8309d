"""Lookup by name with suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


def unknown_name(kind: str, name: object, known: Iterable[str]) -> ValueError:
    """Return the error for an unknown name; its message lists the known names and suggests the nearest one.

    >>> print(unknown_name("model", "GPRGN", ["GCN", "GPRGNN"]))
    unknown model 'GPRGN': did you mean 'GPRGNN'? Known: GCN, GPRGNN
    """
    known = list(known)
    spelling = {candidate.casefold(): candidate for candidate in known}
    near = difflib.get_close_matches(str(name).casefold(), spelling, n=1, cutoff=0.5)
    hint = f": did you mean {spelling[near[0]]!r}?" if near else "."
    return ValueError(f"unknown {kind} {name!r}{hint} Known: {', '.join(known)}")


def look_up(kind: str, name: object, table: Mapping[str, T]) -> T:
    """Return ``table[name]``, or raise the :class:`ValueError` of :func:`unknown_name`."""
    if not isinstance(name, str) or name not in table:
        raise unknown_name(kind, name, table)
    return table[name]
