"""Figures as files and as a Markdown page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from edgeproof._plotting import write_figure
from edgeproof.paper.figures.base import Drawing, PaperFigure

FORMATS = ("png", "svg")
# Keeps files small enough for a repository; does not affect SVG.
_DPI = 100


def write_drawing(drawing: Drawing, folder: Path, forms: Iterable[str] = FORMATS) -> list[Path]:
    """Write a picture in several formats and return the paths; empty without a picture."""
    if drawing.figure is None:
        return []
    paths = [folder / f"{drawing.stem}.{form}" for form in forms]
    for path in paths:
        write_figure(drawing.figure, path, dpi=_DPI)
    return paths


def figures_page(drawings: Sequence[tuple[PaperFigure, Drawing]], folder: str) -> str:
    """Return a Markdown page with all figures and their missing measurements.

    Args:
        drawings: The figures and their drawings.
        folder: Folder of the files, relative to the page.
    """
    lines = [
        "# Reproduced figures",
        "",
        "Written by `edgeproof reproduce figures --page` from the store `results/experiments`, which records the command and",
        "machine of every measurement. The style differs from the paper's.",
    ]
    for figure, drawing in drawings:
        lines += ["", f"## {figure.title}", ""]
        if drawing.figure is not None:
            picture = f"{folder}/{drawing.stem}"
            lines += [f"![{figure.title}]({picture}.png)", "", f"[SVG]({picture}.svg). {drawing.note}"]
        else:
            lines += [f"Not run yet. {drawing.note}"]
        command = f"`edgeproof reproduce run {figure.label}`"
        lines += ["", f"{command}: {drawing.available} of {drawing.wanted} measurements are stored."]
        # Without any measurement, all of them are missing.
        if drawing.missing and drawing.available:
            lines += ["", "Missing:", "", *(f"- {missing}" for missing in drawing.missing)]
    return "\n".join(lines) + "\n"
