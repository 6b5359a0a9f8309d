"""What the models have learned about the graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from edgeproof.report._html import Html, join, tag
from edgeproof.report.filters import BINS, Filter
from edgeproof.report.sections._parts import Cell, Page, Section, figure, paragraphs, table

_BASIS = {True: "A + I", False: "A"}


class _Learned(NamedTuple):
    name: str
    slot: int
    filter: Filter


def filters(page: Page) -> Section | None:
    """For every graph, coefficients by steps, and the response by frequencies over the density of its eigenvalues."""
    found: dict[str, list[_Learned]] = {}
    for group in page.groups:
        if (one := group.filter) is not None:
            found.setdefault(group.dataset, []).append(_Learned(group.name, page.slot(group), one))
    if not found:
        return None
    parts, charts = [], {}
    for number, (dataset, learned) in enumerate(found.items()):
        parts += [tag("h3", {}, dataset)] if len(found) > 1 else []
        parts += _figures(learned, f"gamma-{number}", f"spectrum-{number}")
        charts[f"gamma-{number}"] = {
            "type": "lines",
            "x": "steps k",
            "y": "γ",
            "marks": True,
            "series": [_series(one, list(enumerate(one.filter.gamma))) for one in learned],
        }
        charts[f"spectrum-{number}"] = {
            "type": "lines",
            "x": "frequency λ",
            "y": "g(λ)",
            "marks": False,
            "series": [_series(one, one.filter.response()) for one in learned],
            "under": learned[0].filter.density,
        }
    about = paragraphs(
        "A model with a polynomial filter spreads hidden states by T = Σ γ_k Â^k. Where nearly all weight is in γ₀ the model "
        "ignores the graph, and no edge can harm it; where it is spread widely, the model listens far. Signs and sizes are "
        "fixed (the first coefficient that is not 0 is positive, sizes sum to 1), so that models compare."
    )
    return Section("filters", "What was learned", join([about, *parts]), charts)


def _series(one: _Learned, values: Iterable[tuple[float, float]]) -> dict[str, object]:
    return {"name": one.name, "slot": one.slot, "points": [[x, y, y, y] for x, y in values]}


def _figures(learned: list[_Learned], gamma: str, spectrum: str) -> list[Html]:
    most = max(len(one.filter.gamma) for one in learned)
    head = ["model", "matrix", *(f"γ{k}" for k in range(most))]
    rows = [[Cell(one.name), Cell(_BASIS[one.filter.self_loops]), *(_cells(one.filter.gamma, most))] for one in learned]
    frequencies = range(0, BINS, 5)
    middles = [(k + 0.5) * 2 / BINS for k in frequencies]
    responses = [
        [Cell(one.name), *_cells([one.filter.response()[k][1] for k in frequencies], len(middles))] for one in learned
    ]
    return [
        figure(gamma, "Coefficients γ of the diffusion, by steps.", alternative=table("Coefficients", head, rows)),
        figure(
            spectrum,
            "Response of the filters to the frequencies of the graph, its largest size 1; behind it, how many eigenvalues of "
            f"the normalised Laplacian lie where (of {learned[0].name}'s matrix). Falling: neighbours are averaged. Rising: "
            "differences between them count.",
            alternative=table("Response g(λ)", ["model", *(f"λ = {middle:.2f}" for middle in middles)], responses),
        ),
    ]


def _cells(values: list[float] | tuple[float, ...], most: int) -> list[Cell]:
    padded = [*values, *[0.0] * (most - len(values))]
    return [Cell(f"{value:.3f}", value) for value in padded]
