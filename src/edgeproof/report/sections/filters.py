"""Learned filters: coefficients and frequency responses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from edgeproof.report._html import Html, join, tag
from edgeproof.report.filters import BINS, Filter
from edgeproof.report.sections._parts import Page, Section, TableCell, figure, paragraphs, table

_BASIS = {True: "A + I", False: "A"}


class _LearnedFilter(NamedTuple):
    name: str
    slot: int
    filter: Filter


def filters(page: Page) -> Section | None:
    """Return two charts per graph: coefficients by step, and responses over the density of the eigenvalues."""
    by_dataset: dict[str, list[_LearnedFilter]] = {}
    for group in page.groups:
        if (mean := group.filter) is not None:
            by_dataset.setdefault(group.dataset, []).append(_LearnedFilter(group.name, page.slot(group), mean))
    if not by_dataset:
        return None
    parts, charts = [], {}
    for number, (dataset, learned) in enumerate(by_dataset.items()):
        parts += [tag("h3", {}, dataset)] if len(by_dataset) > 1 else []
        parts += _figures(learned, f"gamma-{number}", f"spectrum-{number}")
        charts[f"gamma-{number}"] = {
            "type": "lines",
            "x": "step k",
            "y": "γ",
            "marks": True,
            "series": [_series(each, list(enumerate(each.filter.gamma))) for each in learned],
        }
        charts[f"spectrum-{number}"] = {
            "type": "lines",
            "x": "frequency λ",
            "y": "g(λ)",
            "marks": False,
            "series": [_series(each, each.filter.response()) for each in learned],
            "background": learned[0].filter.density,
        }
    intro = paragraphs(
        "A model with a polynomial filter diffuses hidden states by T = Σ γ_k Â^k. A model with nearly all weight on γ₀ "
        "ignores the graph and is robust to edge flips; weight on large k means that distant nodes influence the prediction. "
        "Filters are normalized to be comparable: the first non-zero coefficient is positive, absolute values sum to 1."
    )
    return Section("filters", "Learned filters", join([intro, *parts]), charts)


def _series(learned: _LearnedFilter, values: Iterable[tuple[float, float]]) -> dict[str, object]:
    return {"name": learned.name, "slot": learned.slot, "points": [[x, y, y, y] for x, y in values]}


def _figures(learned: list[_LearnedFilter], gamma: str, spectrum: str) -> list[Html]:
    length = max(len(each.filter.gamma) for each in learned)
    head = ["model", "matrix", *(f"γ{k}" for k in range(length))]
    rows = [
        [TableCell(each.name), TableCell(_BASIS[each.filter.self_loops]), *_cells(each.filter.gamma, length)]
        for each in learned
    ]
    bins = range(0, BINS, 5)
    centres = [(k + 0.5) * 2 / BINS for k in bins]
    responses = [
        [TableCell(each.name), *_cells([each.filter.response()[k][1] for k in bins], len(centres))] for each in learned
    ]
    return [
        figure(gamma, "Diffusion coefficients γ by step.", alternative=table("Coefficients", head, rows)),
        figure(
            spectrum,
            "Frequency response of the filters, scaled to a maximum of 1. Background: density of the eigenvalues of the "
            f"normalized Laplacian (for the matrix of {learned[0].name}). A falling response averages neighbours; a rising "
            "response uses differences between neighbours.",
            alternative=table("Response g(λ)", ["model", *(f"λ = {centre:.2f}" for centre in centres)], responses),
        ),
    ]


def _cells(values: list[float] | tuple[float, ...], length: int) -> list[TableCell]:
    padded = [*values, *[0.0] * (length - len(values))]
    return [TableCell(f"{value:.3f}", value) for value in padded]
