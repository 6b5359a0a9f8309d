"""Text of the report: numbers, threat models, training and warnings as phrases."""

from __future__ import annotations

from collections.abc import Iterable

from edgeproof.report.groups import Estimate, Group
from edgeproof.report.runs import AttackTable, Run, ThreatModel, is_self_trained

_COUNTED = {
    "incident": "edges with at least one end among the test nodes",
    "half_degree": "edges at the test nodes, counted as half the sum of their degrees",
}


def percent(fraction: float | None) -> str:
    """Format a fraction; None as a dash.

    >>> percent(0.4567), percent(None)
    ('45.7 %', '–')
    """
    return "–" if fraction is None else f"{100 * fraction:.1f} %"


def with_interval(estimate: Estimate | None, total_runs: int = 1) -> str:
    """Format a mean with its interval, and the number of runs if it is less than ``total_runs``.

    >>> with_interval(Estimate(0.5, 0.4, 0.6)), with_interval(Estimate(0.5, 0.5, 0.5), total_runs=2)
    ('50.0 % (40.0 to 60.0)', '50.0 %, 1 of 2 runs')
    """
    if estimate is None:
        return percent(None)
    empty = estimate.low == estimate.high
    interval = "" if empty else f" ({100 * estimate.low:.1f} to {100 * estimate.high:.1f})"
    return (
        percent(estimate.mean)
        + interval
        + (f", {estimate.runs} of {total_runs} runs" if estimate.runs < total_runs else "")
    )


def number(value: float | None, digits: int = 3) -> str:
    """Format a number with significant digits; None as a dash."""
    return "–" if value is None else f"{value:.{digits}g}"


def budgets(tables: Iterable[AttackTable]) -> list[str]:
    """Return one sentence per epsilon with its budget in edge flips."""
    totals: dict[float, set[int]] = {}
    for row in (row for table in tables for row in table.rows):
        totals.setdefault(row.epsilon, set()).update([] if row.total is None else [row.total])
    return [f"At ε = {epsilon:g}: {_at_most(values)}." for epsilon, values in sorted(totals.items()) if values]


def _at_most(values: set[int]) -> str:
    if len(values) == 1:
        return f"at most {max(values)} edge flips"
    return f"at most {min(values)} to {max(values)} edge flips, depending on model and seed"


def threat_model(kind: ThreatModel) -> list[str]:
    """Return the capabilities, the knowledge and the limits of the adversary, one sentence or two each."""
    limits = {"None": "There is no local budget.", "given": "Every node has its own local budget."}
    return [
        "After training, the adversary adds and deletes edges so that as many test nodes as possible are misclassified. "
        "Features and labels stay unchanged.",
        "The adversary knows the model and its parameters, the whole graph and the true classes (white box).",
        f"The budget ε is a fraction of the {_COUNTED.get(kind.count, kind.count)}. Adding or deleting one undirected edge is "
        "one edge flip.",
        limits.get(
            kind.local, f"Local budget: edge flips at a node are at most {kind.local} times its degree, rounded down."
        ),
        *([f"Constraints on the flips: {kind.constraints}."] if kind.constraints else []),
    ]


def tested_nodes(run: Run) -> str:
    """Return the number of test nodes, and how many of them are in a training or validation graph."""
    setting, total, seen = run.split.get("setting"), run.split.get("test"), run.split.get("test_nodes_seen")
    nodes = "test nodes" if total is None else f"{total} test nodes"
    if seen == 0:
        return f"{nodes}, none of them seen in training or validation"
    if seen:
        return f"{nodes}, {seen} of them seen in training or validation"
    return f"{nodes}, {setting}" if setting else nodes


def training(run: Run) -> str:
    """Return how the model was trained."""
    settings = run.training
    if not settings:
        return "unknown"
    labels = "self-trained" if is_self_trained(settings) else ""
    if not settings.get("attack"):
        return labels or "regular"
    local = "" if settings.get("local") is None else f", local budget {settings['local']:g}"
    attack = str(settings["attack"]).partition("(")[0]
    return f"{labels + ', ' if labels else ''}adversarial ({attack}, ε = {settings['epsilon']:g}{local})"


def warnings(group: Group) -> list[str]:
    """Return all warnings of a model's runs, each once."""
    found = [warning for run in group.runs for warning in run.warnings]
    found += [warning for run in group.runs for table in run.attacks for warning in table.warnings]
    for run in group.runs:
        seen = run.split.get("test_nodes_seen")
        if seen:
            found.append(
                f"{seen} of {run.split.get('test')} test nodes are in graphs seen in training or validation: a model that "
                "memorizes them looks robust"
            )
    return list(dict.fromkeys(found))


def tiers(group: Group) -> list[str]:
    """Return the tiers of all attacked runs of a model, each once."""
    return list(dict.fromkeys(tier for run in group.runs for table in run.attacks for tier in table.tiers))


def efforts(group: Group) -> list[str]:
    """Return the efforts of all evaluations of a model, each once."""
    return list(dict.fromkeys(effort for run in group.runs for table in run.attacks for effort in table.efforts))
