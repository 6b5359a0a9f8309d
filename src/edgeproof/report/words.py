"""Figures and threats in plain words."""

from __future__ import annotations

from collections.abc import Iterable

from edgeproof.report.groups import Estimate, Group
from edgeproof.report.runs import Attacked, Run, self_trained

_COUNTED = {
    "incident": "edges with at least one end among the test nodes",
    "half_degree": "edges at the test nodes, those between two of them counted once",
}


def percent(share: float | None) -> str:
    """A share as people read it; a dash for none.

    >>> percent(0.4567), percent(None)
    ('45.7 %', '–')
    """
    return "–" if share is None else f"{100 * share:.1f} %"


def estimated(found: Estimate | None, of: int = 1) -> str:
    """A mean with its interval, and how many of the runs have it unless all have.

    >>> estimated(Estimate(0.5, 0.4, 0.6)), estimated(Estimate(0.5, 0.5, 0.5), of=2)
    ('50.0 % (40.0 to 60.0)', '50.0 %, 1 of 2 runs')
    """
    if found is None:
        return percent(None)
    interval = "" if found.low == found.high else f" ({100 * found.low:.1f} to {100 * found.high:.1f})"
    return percent(found.mean) + interval + (f", {found.runs} of {of} runs" if found.runs < of else "")


def number(value: float | None, digits: int = 3) -> str:
    """A number of so many digits; a dash for none."""
    return "–" if value is None else f"{value:.{digits}g}"


def budgets(parts: Iterable[Attacked]) -> list[str]:
    """What each epsilon allows, in flips."""
    found: dict[float, set[int]] = {}
    for row in (row for part in parts for row in part.rows):
        found.setdefault(row.epsilon, set()).update([] if row.total is None else [row.total])
    return [
        f"At ε = {epsilon:g}: {_range(totals)} changed pairs of nodes."
        for epsilon, totals in sorted(found.items())
        if totals
    ]


def _range(values: set[int]) -> str:
    return (
        f"at most {max(values)}" if len(values) == 1 else f"at most {min(values)} to {max(values)}, by model and seed,"
    )


def threat(local: str, count: str) -> list[str]:
    """What the adversary may do, knows, and may not do."""
    limits = {"None": "Nothing limits the changes at a single node.", "given": "Every node has a limit of its own."}
    return [
        "After training, somebody adds edges to the graph and removes others, so that as many test nodes as possible are "
        "classified wrongly. Features and labels stay as they are.",
        "They know the model with all its parameters, the whole graph and the true classes: the worst case.",
        f"The budget ε is a share of the {_COUNTED.get(count, count)}; adding or removing one edge is one change.",
        limits.get(local, f"At no node may more than {local} times its number of edges change, rounded down."),
    ]


def tested_on(run: Run) -> str:
    """Which nodes, and whether training has seen them."""
    setting, total, seen = run.split.get("setting"), run.split.get("test"), run.split.get("test_nodes_seen")
    shown = "test nodes" if total is None else f"{total} test nodes"
    if seen == 0:
        return f"{shown}, none of which training or validation has seen"
    if seen:
        return f"{shown}, {seen} of which training or validation has seen"
    return f"{shown}, {setting}" if setting else shown


def training(run: Run) -> str:
    """How the model came about."""
    how = run.training
    if not how:
        return "not known"
    labels = "self-trained" if self_trained(how) else ""
    if not how.get("attack"):
        return labels or "regular"
    local = "" if how.get("local") is None else f", at most {how['local']:g} of each node's edges"
    return f"{labels + ', ' if labels else ''}against {str(how['attack']).partition('(')[0]} at ε = {how['epsilon']:g}{local}"


def warnings(group: Group) -> list[str]:
    """Everything that speaks against trusting a model's figures."""
    found = [warning for run in group.runs for warning in run.warnings]
    found += [warning for run in group.runs for one in run.attacked for warning in one.warnings]
    for run in group.runs:
        seen = run.split.get("test_nodes_seen")
        if seen:
            found.append(
                f"{seen} of {run.split.get('test')} test nodes were in graphs that training or validation saw: a model that "
                "remembers them looks robust"
            )
    return list(dict.fromkeys(found))
