"""Checks of stored values, so that tables and figures contain no damaged results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgeproof._checks import is_int, is_number
from edgeproof.experiments.sweep import KINDS


def check_values(identity: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Raise unless the values are valid for a result with this identity."""
    kind = identity["kind"]
    if kind == "training":
        best, epochs = values["best_epoch"], values["epochs"]
        require(values, is_int(best) and is_int(epochs) and best >= 0 and epochs >= 1)
    elif kind in KINDS:
        KINDS[kind].check(identity, values)
    else:
        raise ValueError(f"unknown kind {kind!r}")


def check_accuracies(rows: Any, expected: Sequence[tuple[Any, ...]]) -> None:
    """Raise unless ``rows`` has exactly one fraction for each of the expected positions."""
    if [tuple(row[:-1]) for row in rows] != list(expected):
        raise ValueError(f"expected accuracies at {list(expected)}, got {rows!r}")
    if not all(are_numbers(row[-1:], 1) and 0 <= row[-1] <= 1 for row in rows):
        raise ValueError(f"expected accuracies from 0 to 1, got {rows!r}")


def require(values: Mapping[str, Any], valid: bool) -> None:
    """Raise unless ``valid``."""
    if not valid:
        raise ValueError(f"invalid values {values!r}")


def are_numbers(values: Any, count: int) -> bool:
    """Whether ``values`` consists of ``count`` finite numbers."""
    return len(values) == count and all(map(is_number, values))
