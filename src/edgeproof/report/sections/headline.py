"""Clean accuracy and what is left of it in the worst case."""

from __future__ import annotations

from edgeproof.report import words
from edgeproof.report._html import Html, join, tag
from edgeproof.report.groups import WORST, Group
from edgeproof.report.sections._parts import Page, Scenario, Section


def headline(page: Page) -> Section | None:
    """One card for every model under every kind of budget, at the largest budget."""
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
    epsilon = max(e for _, one in group.attacked(scenario.kind) for e in one.epsilons)
    worst, clean = group.accuracy(scenario.kind, WORST, epsilon), group.clean
    left = 0.0 if worst is None else worst.mean
    before = left if clean is None else clean.mean
    runs = len(group.attacked(scenario.kind))
    certified = group.certified
    notes = [f"at ε = {epsilon:g}" + (f", mean of {runs} runs" if runs > 1 else "")]
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
            tag("span", {"class": "arrow", "aria-label": "falls to"}, "→"),
            tag("strong", {}, words.percent(left), tag("small", {}, "worst case")),
        ),
        _bar(before, left),
        *(tag("p", {"class": "note"}, note) for note in notes),
    )


def _bar(before: float, left: float) -> Html:
    """What is left, and what is lost, of all test nodes."""
    rows = [("all", 1.0), ("lost", before), ("left", left)]
    bars = (tag("rect", {"class": name, "width": f"{100 * width:.2f}", "height": 6}) for name, width in rows)
    return tag("svg", {"viewBox": "0 0 100 6", "preserveAspectRatio": "none", "aria-hidden": "true"}, *bars)
