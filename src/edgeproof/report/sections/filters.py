"""What the models have learned about the graph."""

from __future__ import annotations

from edgeproof.report._html import Html, join
from edgeproof.report.filters import BINS, Filter
from edgeproof.report.sections._parts import Cell, Page, Section, figure, paragraphs, table

_BASIS = {True: "A + I", False: "A"}


def filters(page: Page) -> Section | None:
    """Coefficients by steps, and the response by frequencies over the density of the graph's eigenvalues."""
    found = [(group.name, page.slot(group), one) for group in page.groups if (one := group.filter) is not None]
    if not found:
        return None
    gamma = [
        {"name": name, "slot": slot, "points": [[k, v, v, v] for k, v in enumerate(one.gamma)]}
        for name, slot, one in found
    ]
    spectra = [
        {"name": name, "slot": slot, "points": [[x, y, y, y] for x, y in one.response()]} for name, slot, one in found
    ]
    density = found[0][2].density
    charts = {
        "gamma": {"type": "lines", "x": "steps k", "y": "γ", "marks": True, "series": gamma},
        "spectrum": {
            "type": "lines",
            "x": "frequency λ",
            "y": "g(λ)",
            "marks": False,
            "series": spectra,
            "under": density,
        },
    }
    about = paragraphs(
        "A model with a polynomial filter spreads hidden states by T = Σ γ_k Â^k. Where nearly all weight is in γ₀ the model "
        "ignores the graph, and no edge can harm it; where it is spread widely, the model listens far. Signs and sizes are "
        "fixed (γ₀ > 0, sizes sum to 1), so that models compare."
    )
    return Section("filters", "What was learned", join([about, *_figures(found)]), charts)


def _figures(found: list[tuple[str, int, Filter]]) -> list[Html]:
    most = max(len(one.gamma) for _, _, one in found)
    head = ["model", "matrix", *(f"γ{k}" for k in range(most))]
    rows = [[Cell(name), Cell(_BASIS[one.self_loops]), *(_cells(one.gamma, most))] for name, _, one in found]
    frequencies = range(0, BINS, 5)
    middles = [(k + 0.5) * 2 / BINS for k in frequencies]
    responses = [
        [Cell(name), *_cells([one.response()[k][1] for k in frequencies], len(middles))] for name, _, one in found
    ]
    return [
        figure("gamma", "Coefficients γ of the diffusion, by steps.", alternative=table("Coefficients", head, rows)),
        figure(
            "spectrum",
            "Response of the filters to the frequencies of the graph, its largest size 1; behind it, how many eigenvalues of "
            f"the normalised Laplacian lie where (of {found[0][0]}'s matrix). Falling: neighbours are averaged. Rising: "
            "differences between them count.",
            alternative=table("Response g(λ)", ["model", *(f"λ = {middle:.2f}" for middle in middles)], responses),
        ),
    ]


def _cells(values: list[float] | tuple[float, ...], most: int) -> list[Cell]:
    padded = [*values, *[0.0] * (most - len(values))]
    return [Cell(f"{value:.3f}", value) for value in padded]
