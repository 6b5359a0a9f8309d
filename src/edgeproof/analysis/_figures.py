"""What all pictures have in common: their colours, and how they are written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgeproof._files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers tell apart; black comes last.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":")


def empty_figure(width: float, height: float) -> Figure:
    """A figure of this size in inches, outside of pyplot, so that it is gone when nobody holds it any more."""
    # Drawing is no part of computing, and takes its time to import.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def write_figure(figure: Figure, path: str | Path, *, dpi: int = 150) -> None:
    """As PNG or SVG, by the suffix of ``path``; the file appears whole or not at all."""
    path = Path(path)
    kind = path.suffix.lower().lstrip(".")
    if kind not in ("png", "svg"):
        raise ValueError(f"expected a path that ends in .png or .svg, got {str(path)!r}")
    from matplotlib import rc_context

    # Neither a date nor a version nor random names: the same picture is the same file, which a diff can tell.
    nothing = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}[kind]
    with replacing(path) as temporary, rc_context({"svg.hashsalt": "edgeproof", "svg.fonttype": "none"}):
        figure.savefig(temporary, format=kind, dpi=dpi, metadata=nothing)
        if kind == "png":
            _with_palette(temporary)


def _with_palette(path: Path) -> None:
    """256 colours are more than these pictures have, but for the edges of letters, and take a third of the room.

    Maximal coverage keeps the rare ones, such as the lower end of a scale.
    """
    from PIL import Image

    with Image.open(path) as image:
        small = image.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE)
    small.save(path, format="png", optimize=True)


def whole_numbers(axis: Axis) -> None:
    """Ticks of a count."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def zero_line(axes: Axes) -> None:
    axes.axhline(0, color="0.6", linewidth=0.8, zorder=0)
