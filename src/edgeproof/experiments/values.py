"""What a result of each kind holds: checked whenever one is read, so that nothing damaged gets into a table or a figure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from edgeproof import attacks

# What can be measured of a model.
KINDS = (
    "clean",
    *attacks.available(),
    "LRBCD-global",
    "LRBCD-global-slow",
    "smoothing",
    "filter",
    "degrees",
    "diffusion",
)
# Radii that certificates keep: all that the paper prints, and those in between, of both kinds together.
MOST_ADDED, MOST_DELETED = 4, 7


def radii() -> list[tuple[int, int]]:
    """Numbers of added and deleted edges that accuracies are certified for."""
    return [(added, deleted) for added in range(MOST_ADDED + 1) for deleted in range(MOST_DELETED + 1)]


def check_values(identity: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Raise unless the values are what a result of this identity has."""
    kind = identity["kind"]
    if kind not in ("training", *KINDS):
        raise ValueError(f"there is no kind {kind!r}")
    if kind == "training":
        counts = [values["best_epoch"], values["epochs"]]
        _check(values, _are_numbers(counts, 2) and counts[0] >= 0 and counts[1] >= 1)
    elif kind == "clean":
        _check_rows(values["accuracy"], [(0.0,)])
    elif kind == "smoothing":
        _check_rows(values["certified_accuracy"], radii())
        radius, abstained = values["average_certifiable_radius"], values["abstained"]
        _check(values, _are_numbers(radius, 2) and min(radius) >= 0)
        _check(values, _are_numbers([abstained], 1) and 0 <= abstained <= 1)
    elif kind == "filter":
        density = values["density"]
        _check(values, bool(values["gamma"]) and _are_numbers(values["gamma"], len(values["gamma"])))
        _check(values, isinstance(values["self_loops"], bool) and _are_numbers([values["mean_frequency"]], 1))
        _check(values, _are_numbers(density, identity["bins"]))
    elif kind == "diffusion":
        nodes = len(values["classes"])
        _check(values, len(values["matrix"]) == nodes > 0 and all(_are_numbers(row, nodes) for row in values["matrix"]))
        _check(values, all(len(pair) == 2 and set(pair) <= set(range(nodes)) for pair in values["edges"]))
    elif kind == "degrees":
        _check(values, [epsilon for epsilon, _ in values["nodes"]] == identity["epsilons"])
        _check(values, all(_are_numbers(line, 4) for _, lines in values["nodes"] for line in lines))
    else:
        _check_rows(values["accuracy"], [(epsilon,) for epsilon in identity["epsilons"]])


def _check_rows(rows: Any, wanted: list[Any]) -> None:
    """Raise unless there is a share behind each of these places, and nothing else."""
    if [tuple(row[:-1]) for row in rows] != wanted:
        raise ValueError(f"accuracies are {rows!r}, but were asked for at {wanted}")
    if not all(_are_numbers(row[-1:], 1) and 0 <= row[-1] <= 1 for row in rows):
        raise ValueError(f"accuracies are {rows!r}")


def _check(values: Mapping[str, Any], sound: bool) -> None:
    if not sound:
        raise ValueError(f"values are {values!r}")


def _are_numbers(values: Any, count: int) -> bool:
    """Whether these are so many finite numbers."""
    return len(values) == count and all(
        isinstance(one, (int, float)) and not isinstance(one, bool) and math.isfinite(one) for one in values
    )
