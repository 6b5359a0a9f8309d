"""Figures as files, and as a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from edgeproof._plotting import write_figure
from edgeproof.experiments.figures.base import Drawing, PaperFigure

FORMATS = ("png", "svg")
# Small enough to live in a repository; the SVG beside it has no resolution.
_DPI = 100


def write_drawing(drawing: Drawing, folder: Path, forms: Iterable[str] = FORMATS) -> list[Path]:
    """Write a picture; nothing if there is nothing to see."""
    if drawing.figure is None:
        return []
    paths = [folder / f"{drawing.stem}.{form}" for form in forms]
    for path in paths:
        write_figure(drawing.figure, path, dpi=_DPI)
    return paths


def figures_page(drawings: Sequence[tuple[PaperFigure, Drawing]], folder: str) -> str:
    """A page in Markdown with all pictures, and what each of them lacks.

    Args:
        drawings: figures, and what there is of them.
        folder: where their files are, from the page.
    """
    lines = [
        "# The paper's figures, drawn anew",
        "",
        "Made by `edgeproof reproduce figures --page` from the store, `results/experiments`, where every measurement lies with",
        "the command and the machine that made it. They show what the paper's figures show, not how those look.",
    ]
    for figure, drawing in drawings:
        lines += ["", f"## {figure.title}", ""]
        if drawing.figure is not None:
            picture = f"{folder}/{drawing.stem}"
            lines += [f"![{figure.title}]({picture}.png)", "", f"[SVG]({picture}.svg). {drawing.note}"]
        else:
            lines += [f"Not run yet. {drawing.note}"]
        command = f"`edgeproof reproduce run {figure.label}`"
        lines += ["", f"{command}: {drawing.there} of {drawing.wanted} measurements are there."]
        # Of a figure without any, all are.
        if drawing.missing and drawing.there:
            lines += ["", "Missing:", "", *(f"- {one}" for one in drawing.missing)]
    return "\n".join(lines) + "\n"
