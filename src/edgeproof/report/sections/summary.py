"""Summary: clean and worst-case accuracy of every model."""

from __future__ import annotations

from edgeproof.report import text
from edgeproof.report._html import Html, join, tag
from edgeproof.report.groups import WORST, Group
from edgeproof.report.sections._parts import Page, Scenario, Section


def summary(page: Page) -> Section | None:
    """Return one card per model and threat model, at the largest budget that all of the model's runs have."""
    scenarios = page.scenarios
    if not scenarios:
        return None
    cards = [_scenario(page, scenario, title=len(scenarios) > 1) for scenario in scenarios]
    lead = (
        "Accuracy on the test nodes of the clean graph, and the lowest accuracy that any attack reached at the largest budget. "
        "The worst case is an upper bound on the robust accuracy: a stronger attack may find a lower value."
    )
    return Section("summary", "Summary", join([tag("p", {}, lead), *cards]))


def _scenario(page: Page, scenario: Scenario, *, title: bool) -> Html:
    level = "h4" if title else "h3"
    cards = tag("div", {"class": "cards"}, *(_card(page, scenario, group, level) for group in scenario.groups))
    return join([tag("h3", {}, scenario.title), cards]) if title else cards


def _card(page: Page, scenario: Scenario, group: Group, level: str) -> Html:
    epsilon = group.largest_epsilon(scenario.threat_model)
    # Clean and worst-case accuracy must be means over the same runs.
    attacked = group.attacked_at(scenario.threat_model, epsilon)
    worst_estimate, clean_estimate = attacked.accuracy(scenario.threat_model, WORST, epsilon), attacked.clean
    worst = None if worst_estimate is None else worst_estimate.mean
    incomplete = clean_estimate is None or clean_estimate.runs < len(attacked.runs)
    clean = None if clean_estimate is None or incomplete else clean_estimate.mean
    certificate = group.certificate
    notes = [f"at ε = {epsilon:g}{_num_runs(len(attacked.runs), len(group.runs))}"]
    if certificate is not None and (0, 1) in certificate.fractions:
        notes.append(f"{text.percent(certificate.fractions[0, 1])} certified against the deletion of any one edge")
    problems = text.warnings(group)
    if problems:
        notes.append(f"⚠ {len(problems)} warning{'s' if len(problems) > 1 else ''}: see the attack results")
    return tag(
        "article",
        {"class": f"card s{page.slot(group) % 7}"},
        tag(level, {}, group.name),
        tag(
            "p",
            {"class": "drop"},
            tag("span", {}, text.percent(clean), tag("small", {}, "clean")),
            tag("span", {"class": "arrow", "aria-hidden": "true"}, "→"),
            tag("span", {"class": "visually-hidden"}, "drops to"),
            tag("strong", {}, text.percent(worst), tag("small", {}, "worst case")),
        ),
        _bar(clean or 0.0, worst or 0.0),
        *(tag("p", {"class": "note"}, note) for note in notes),
    )


def _num_runs(runs: int, total: int) -> str:
    if runs < total:
        return f", {'mean of ' if runs > 1 else ''}{runs} of {total} runs"
    return f", mean of {runs} runs" if runs > 1 else ""


def _bar(clean: float, worst: float) -> Html:
    """Return a bar of all test nodes, with the worst-case accuracy drawn over the clean accuracy."""
    widths = [("all", 1.0), ("clean", clean), ("worst", worst)]
    bars = (tag("rect", {"class": name, "width": f"{100 * width:.2f}", "height": 6}) for name, width in widths)
    return tag("svg", {"viewBox": "0 0 100 6", "preserveAspectRatio": "none", "aria-hidden": "true"}, *bars)
