"""Certified accuracy by number of added and deleted edges."""

from __future__ import annotations

from edgeproof.report import text
from edgeproof.report._html import Html, join, tag
from edgeproof.report.runs import CertificateSummary
from edgeproof.report.sections._parts import Page, Section, paragraphs

# Largest radii that fit on a page.
_MAX_ADDED, _MAX_DELETED = 12, 16


def certificates(page: Page) -> Section | None:
    """Return one heatmap per certified model, as a table."""
    found = [(group.name, group.certificate) for group in page.groups]
    heatmaps = [_heatmap(name, certificate) for name, certificate in found if certificate is not None]
    if not heatmaps:
        return None
    intro = paragraphs(
        "Fraction of the test nodes that the smoothed model classifies correctly, provably for every perturbation that adds "
        "and deletes at most these numbers of edges. The smoothed model predicts the majority class of the model over random "
        "perturbations of the graph. Attacks give an upper bound on the robust accuracy of the model, certificates a lower "
        "bound on that of the smoothed model."
    )
    return Section("certificates", "Certified accuracy", join([intro, *heatmaps]))


def _heatmap(name: str, certificate: CertificateSummary) -> Html:
    nonzero = [radius for radius, fraction in certificate.fractions.items() if fraction > 0] or [(0, 0)]
    max_added, max_deleted = (max(radii) for radii in zip(*nonzero, strict=True))
    added, deleted = range(min(max_added, _MAX_ADDED) + 1), range(min(max_deleted, _MAX_DELETED) + 1)
    complete = max_added == added[-1] and max_deleted == deleted[-1]
    cut = "" if complete else f"; cut: non-zero up to {max_added} added and {max_deleted} deleted edges"
    settings = ", ".join(f"{key} = {value:g}" for key, value in certificate.settings.items())
    quantity = "Certified accuracy" if certificate.labelled else "Certified nodes"
    caption = f"{quantity} of {name}, % ({settings}; abstained on {text.percent(certificate.abstained)}{cut})"
    head = (tag("th", {"scope": "col"}, str(d)) for d in deleted)
    rows = (
        tag(
            "tr",
            {},
            tag("th", {"scope": "row"}, str(a)),
            *(_cell(certificate.fractions.get((a, d))) for d in deleted),
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
    return tag("div", {"class": "wide", "tabindex": 0, "role": "region", "aria-label": f"{quantity} of {name}"}, body)


def _cell(fraction: float | None) -> Html:
    if fraction is None:
        return tag("td", {}, "–")
    return tag("td", {"class": f"h{round(10 * fraction)}"}, f"{100 * fraction:.0f}")
