"""Single nodes: the smallest changes that flip predictions."""

from __future__ import annotations

from collections.abc import Iterable

from edgeproof.evaluation import Explanation
from edgeproof.report._html import Html, join, tag
from edgeproof.report.node_drawing import class_legend, neighborhood, num_omitted
from edgeproof.report.runs import FragilityCounts
from edgeproof.report.sections._parts import Page, Section, TableCell, number_cell, paragraphs, table

_WIDTH, _BAR, _GAP = 420, 16, 6


def single_nodes(page: Page) -> Section | None:
    """Return the histogram of flips per node of every model, and one part per explained node."""
    searched = [(_name(group.name, run.seed, len(group.runs)), run) for group in page.groups for run in group.runs]
    counts = [(name, run.fragility) for name, run in searched if run.fragility is not None]
    explained = [(name, explanation) for name, run in searched for explanation in run.explanations]
    if not counts and not explained:
        return None
    parts = [_histogram(name, each) for name, each in counts]
    parts += [_explanation(name if len(searched) > 1 else "", each) for name, each in explained]
    return Section("single-nodes", "Single nodes", join(parts))


def _name(name: str, seed: int | None, several: int) -> str:
    return f"{name}, seed {seed}" if several > 1 else name


def _histogram(name: str, counts: FragilityCounts) -> Html:
    rows = [(str(k), count, counts.exact[k]) for k, count in sorted(counts.histogram.items())]
    rows.append((f"> {counts.max_flips}", counts.surviving, 0))
    total = sum(count for _, count, _ in rows)
    cells = [
        [
            TableCell(label),
            number_cell(count),
            number_cell(count / max(1, total), f"{100 * count / max(1, total):.1f} %"),
            number_cell(exact) if label.isdigit() else TableCell("–", -1),
        ]
        for label, count, exact in rows
    ]
    pairs = "pairs with the node" if counts.scope == "direct" else "pairs anywhere in the graph"
    limits = f"; {counts.constraints}" if counts.constraints else ""
    intro = paragraphs(
        "Number of test nodes by the fewest edge flips found that misclassify the node, each node attacked on its own; 0 for "
        f"nodes that are misclassified on the clean graph. Flips: {pairs}{limits}. Proven fewest: an exhaustive search has "
        "shown that fewer flips do not suffice."
    )
    chart = tag("figure", {}, tag("div", {"class": "chart"}, _bars([(label, count) for label, count, _ in rows])))
    head = ("flips", "nodes", "share", "proven fewest")
    return join(
        [tag("h3", {}, f"Flips per node: {name}"), intro, chart, table(f"Flips per node of {name}", head, cells)]
    )


def _bars(rows: Iterable[tuple[str, int]]) -> Html:
    """Return a horizontal bar chart."""
    rows = list(rows)
    largest = max(1, *(count for _, count in rows))
    marks: list[Html] = []
    for number, (label, count) in enumerate(rows):
        y = number * (_BAR + _GAP)
        width = count / largest * (_WIDTH - 110)
        marks.append(tag("text", {"x": 60, "y": y + 12, "text-anchor": "end"}, f"{label} flips"))
        marks.append(tag("rect", {"class": "fraction", "x": 66, "y": y, "width": f"{width:.1f}", "height": _BAR}))
        marks.append(tag("text", {"class": "value", "x": f"{70 + width:.1f}", "y": y + 12}, str(count)))
    height = len(rows) * (_BAR + _GAP)
    label = ", ".join(f"{label} flips: {count} nodes" for label, count in rows)
    return tag(
        "svg", {"viewBox": f"0 0 {_WIDTH} {height}", "width": _WIDTH, "role": "img", "aria-label": label}, *marks
    )


def _explanation(name: str, explanation: Explanation) -> Html:
    entry = explanation.fragility
    title = f"Node {entry.node}" + (f": {name}" if name else "")
    margins = zip(explanation.flips, entry.margins[1:], strict=True)
    steps = [f"{kind} {u} – {v}: margin {margin:.3g}" for (u, v, kind), margin in margins]
    figures = (
        tag("figure", {}, neighborhood(explanation, after=after), tag("figcaption", {}, caption))
        for after, caption in ((False, "Before the flips."), (True, "After the flips."))
    )
    omitted = num_omitted(explanation)
    note = (
        "Colors are predicted classes. Dashed: removed edges, before; thick: added edges, after."
        + (f" {omitted} more neighbors are not drawn." if omitted else "")
        + " Contribution: the margin minus the margin without the edge; positive if the neighbor supports the class."
    )
    return tag(
        "article",
        {},
        tag("h3", {}, title),
        tag("p", {}, explanation.text[0].upper() + explanation.text[1:] + "."),
        tag("ol", {}, *(tag("li", {}, step) for step in steps)),
        tag("div", {"class": "three"}, *figures),
        class_legend(explanation),
        tag("p", {"class": "note"}, note),
        table(
            f"Neighbors of node {entry.node}",
            ("neighbor", "edge", "predicted", "after", "true class", "contribution", "contribution after"),
            [
                [
                    TableCell(str(each.node)),
                    TableCell(each.status),
                    number_cell(each.predicted_before),
                    number_cell(each.predicted_after),
                    number_cell(each.true_class),
                    _contribution(each.before),
                    _contribution(each.after),
                ]
                for each in explanation.neighbors
            ],
        ),
    )


def _contribution(value: float | None) -> TableCell:
    return TableCell("–", -1e9) if value is None else TableCell(f"{value:+.3g}", value)
