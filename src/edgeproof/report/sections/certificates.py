"""What no change of so many edges can alter."""

from __future__ import annotations

from edgeproof.report import words
from edgeproof.report._html import Html, join, tag
from edgeproof.report.runs import Certified
from edgeproof.report.sections._parts import Page, Section, paragraphs

# More radii than these fit no page.
_MOST_ADDED, _MOST_DELETED = 12, 16


def certificates(page: Page) -> Section | None:
    """A heatmap for every model that was certified; it is a table, and reads as one."""
    found = [(group.name, group.certified) for group in page.groups]
    maps = [_heatmap(name, certified) for name, certified in found if certified is not None]
    if not maps:
        return None
    about = paragraphs(
        "Share of the test nodes that the smoothed model answers correctly and that provably stay so, whichever edges are "
        "added and deleted, up to these numbers, by whomever. The smoothed model asks the model about many random graphs "
        "around this one. Attacks bound the accuracy from above, certificates bound that of the smoothed model from below."
    )
    return Section("certificates", "Certified accuracy", join([about, *maps]))


def _heatmap(name: str, certified: Certified) -> Html:
    alive = [key for key, share in certified.shares.items() if share > 0] or [(0, 0)]
    most_added, most_deleted = (max(radii) for radii in zip(*alive, strict=True))
    added, deleted = range(min(most_added, _MOST_ADDED) + 1), range(min(most_deleted, _MOST_DELETED) + 1)
    whole = most_added == added[-1] and most_deleted == deleted[-1]
    cut = "" if whole else f"; cut, something is certified up to {most_added} added and up to {most_deleted} deleted"
    settings = ", ".join(f"{key} = {value:g}" for key, value in certified.settings.items())
    what = "Certified accuracy" if certified.labelled else "Certified nodes"
    caption = f"{what} of {name}, % ({settings}; abstained at {words.percent(certified.abstained)}{cut})"
    head = (tag("th", {"scope": "col"}, str(d)) for d in deleted)
    rows = (
        tag(
            "tr",
            {},
            tag("th", {"scope": "row"}, str(a)),
            *(_cell(certified.shares.get((a, d))) for d in deleted),
        )
        for a in added
    )
    corner = tag("th", {"scope": "col"}, "added ↓ deleted →")
    body = tag(
        "table",
        {"class": "heat"},
        tag("caption", {}, tag("span", {}, caption)),
        tag("thead", {}, tag("tr", {}, corner, *head)),
        tag("tbody", {}, *rows),
    )
    return tag("div", {"class": "wide", "tabindex": 0, "role": "region", "aria-label": f"{what} of {name}"}, body)


def _cell(share: float | None) -> Html:
    if share is None:
        return tag("td", {}, "–")
    return tag("td", {"class": f"h{round(10 * share)}"}, f"{100 * share:.0f}")
