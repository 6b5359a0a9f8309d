"""Drawing of a node's neighborhood before and after flips, as inline SVG."""

from __future__ import annotations

import math

from edgeproof.evaluation import Explanation
from edgeproof.report._html import Html, join, tag

# Size of a drawing, radii of the rings, and the largest number of neighbors drawn.
_SIZE, _INNER, _OUTER, MAX_DRAWN = 360, 95, 155, 24
_NODE = 11
_NUM_COLORS = 7


def neighborhood(explanation: Explanation, *, after: bool) -> Html:
    """Draw the node, its neighbors and the ends of flips; nodes have the color of their predicted class.

    Both drawings have the same layout. Added edges are drawn after the flips, removed edges before them, both emphasized.

    Args:
        explanation: Explanation of the node.
        after: Whether to draw the graph after the flips.
    """
    position = _layout(explanation)
    node, flips = explanation.fragility.node, explanation.flips
    added = [(u, v) for u, v, kind in flips if kind == "add"]
    removed = {frozenset((u, v)) for u, v, kind in flips if kind == "remove"}
    lines = [
        _line(position, edge, "removed" if frozenset(edge) in removed else "edge")
        for edge in explanation.edges
        if set(edge) <= position.keys() and not (after and frozenset(edge) in removed)
    ]
    lines += [_line(position, edge, "added") for edge in added if after]
    marks = [_node(position[each], each, explanation.classes[each][after], own=each == node) for each in position]
    label = f"Neighborhood of node {node} {'after' if after else 'before'} the flips"
    attributes = {"viewBox": f"0 0 {_SIZE} {_SIZE}", "role": "img", "aria-label": label, "class": "nodes"}
    return tag("svg", attributes, *lines, *marks)


def class_legend(explanation: Explanation) -> Html:
    """Return the colors of the classes in both drawings."""
    classes = sorted({each for pair in explanation.classes.values() for each in pair})
    items = (
        tag(
            "li",
            {},
            tag(
                "svg",
                {"viewBox": "0 0 12 12", "class": f"s{each % _NUM_COLORS}", "aria-hidden": "true"},
                tag("circle", {"class": "mark", "cx": 6, "cy": 6, "r": 5}),
            ),
            f"class {each}",
        )
        for each in classes
    )
    return tag("ul", {"class": "legend"}, *items)


def num_omitted(explanation: Explanation) -> int:
    """Return the number of neighbors that are not drawn."""
    return len({each.node for each in explanation.neighbors} - _layout(explanation).keys())


def _layout(explanation: Explanation) -> dict[int, tuple[float, float]]:
    """Return the center for the node, an inner ring for its neighbors, and an outer ring for the other ends of flips."""
    node = explanation.fragility.node
    ends = dict.fromkeys(end for u, v, _ in explanation.flips for end in (u, v) if end != node)
    neighbors = [each.node for each in explanation.neighbors]
    # Ends of flips are always drawn.
    inner = sorted(neighbors, key=lambda each: each not in ends)[:MAX_DRAWN]
    inner = [each for each in neighbors if each in inner]
    outer = [each for each in ends if each not in neighbors]
    center = _SIZE / 2
    position = {node: (center, center)}
    for ring, radius, turn in ((inner, _INNER if outer else _OUTER, 0.0), (outer, _OUTER, 0.5)):
        for number, each in enumerate(ring):
            angle = 2 * math.pi * (number + turn) / len(ring) - math.pi / 2
            position[each] = (center + radius * math.cos(angle), center + radius * math.sin(angle))
    return position


def _line(position: dict[int, tuple[float, float]], edge: tuple[int, int], kind: str) -> Html:
    (x1, y1), (x2, y2) = position[edge[0]], position[edge[1]]
    ends = {"x1": f"{x1:.1f}", "y1": f"{y1:.1f}", "x2": f"{x2:.1f}", "y2": f"{y2:.1f}"}
    return tag("line", {"class": kind, **ends})


def _node(place: tuple[float, float], node: int, predicted: int, *, own: bool) -> Html:
    x, y = place
    radius = _NODE + 4 if own else _NODE
    circle = tag("circle", {"class": "mark own" if own else "mark", "cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": radius})
    text = tag("text", {"x": f"{x:.1f}", "y": f"{y + radius + 11:.1f}", "text-anchor": "middle"}, str(node))
    title = tag("title", {}, f"node {node}, predicted class {predicted}")
    return tag("g", {"class": f"s{predicted % _NUM_COLORS}"}, join([title, circle, text]))
