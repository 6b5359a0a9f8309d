"""Clean accuracy and what is left of it in the worst case."""

from __future__ import annotations

from edgeproof.report import words
from edgeproof.report._html import Html, join, tag
from edgeproof.report.groups import WORST, Group
from edgeproof.report.sections._parts import Page, Scenario, Section


def headline(page: Page) -> Section | None:
    """One card for every model under every kind of budget, at the largest budget that all of its runs have."""
    scenarios = page.scenarios
    if not scenarios:
        return None
    cards = [_scenario(page, scenario, title=len(scenarios) > 1) for scenario in scenarios]
    lead = (
        "Accuracy at the test nodes on the graph as it is, and what is left of it when somebody changes edges as badly as the "
        "attacks here could, within the largest budget."
    )
    return Section("headline", "In short", join([tag("p", {}, lead), *cards]))


def _scenario(page: Page, scenario: Scenario, *, title: bool) -> Html:
    level = "h4" if title else "h3"
    cards = tag("div", {"class": "cards"}, *(_card(page, scenario, group, level) for group in scenario.groups))
    return join([tag("h3", {}, scenario.title), cards]) if title else cards


def _card(page: Page, scenario: Scenario, group: Group, level: str) -> Html:
    epsilon = group.largest(scenario.kind)
    # Before and after of the same runs: a difference between others means nothing.
    same = group.at(scenario.kind, epsilon)
    worst, clean = same.accuracy(scenario.kind, WORST, epsilon), same.clean
    left = None if worst is None else worst.mean
    before = None if clean is None or clean.runs < len(same.runs) else clean.mean
    certified = group.certified
    notes = [f"at ε = {epsilon:g}{_mean_of(len(same.runs), len(group.runs))}"]
    if certified is not None and (0, 1) in certified.shares:
        notes.append(f"{words.percent(certified.shares[0, 1])} certified against any one deleted edge")
    problems = words.warnings(group)
    if problems:
        notes.append(f"⚠ {len(problems)} warning{'s' if len(problems) > 1 else ''}: see the self-checks")
    return tag(
        "article",
        {"class": f"card s{page.slot(group) % 7}"},
        tag(level, {}, group.name),
        tag(
            "p",
            {"class": "fall"},
            tag("span", {}, words.percent(before), tag("small", {}, "clean")),
            tag("span", {"class": "arrow", "aria-hidden": "true"}, "→"),
            tag("span", {"class": "unseen"}, "falls to"),
            tag("strong", {}, words.percent(left), tag("small", {}, "worst case")),
        ),
        _bar(before or 0.0, left or 0.0),
        *(tag("p", {"class": "note"}, note) for note in notes),
    )


def _mean_of(runs: int, of: int) -> str:
    if runs < of:
        return f", {'mean of ' if runs > 1 else ''}{runs} of {of} runs"
    return f", mean of {runs} runs" if runs > 1 else ""


def _bar(before: float, left: float) -> Html:
    """What is left, and what is lost, of all test nodes."""
    rows = [("all", 1.0), ("lost", before), ("left", left)]
    bars = (tag("rect", {"class": name, "width": f"{100 * width:.2f}", "height": 6}) for name, width in rows)
    return tag("svg", {"viewBox": "0 0 100 6", "preserveAspectRatio": "none", "aria-hidden": "true"}, *bars)
