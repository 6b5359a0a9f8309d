"""Colours, helpers and file output shared by all figures. Importing it does not import matplotlib, an optional extra."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgeproof._files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# The colour-blind safe palette of Okabe and Ito.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":")


def require_matplotlib() -> None:
    """Raise unless matplotlib is installed.

    Raises:
        ImportError: If it is missing; the message contains the command that installs it.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("matplotlib is needed for plots: pip install 'edgeproof[plot]'") from error


def empty_figure(width: float, height: float) -> Figure:
    """Create a figure of this size in inches that is not registered in pyplot, so it is freed after use."""
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def write_figure(figure: Figure, path: str | Path, *, dpi: int = 150) -> None:
    """Write a figure as PNG or SVG, chosen by the suffix of ``path``, atomically and with reproducible bytes."""
    path = Path(path)
    file_format = path.suffix.lower().lstrip(".")
    if file_format not in ("png", "svg"):
        raise ValueError(f"expected a path that ends in .png or .svg, got {str(path)!r}")
    require_matplotlib()
    from matplotlib import rc_context

    # Without dates, versions and random ids, equal figures give equal files.
    metadata = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}[file_format]
    with replacing(path) as temporary, rc_context({"svg.hashsalt": "edgeproof", "svg.fonttype": "none"}):
        figure.savefig(temporary, format=file_format, dpi=dpi, metadata=metadata)
        if file_format == "png":
            _reduce_palette(temporary)


def _reduce_palette(path: Path) -> None:
    """Reduce a PNG to 256 colours, which makes the file about three times smaller.

    Maximum coverage keeps rare colours, such as the ends of a colour scale.
    """
    from PIL import Image

    with Image.open(path) as image:
        quantized = image.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE)
    quantized.save(path, format="png", optimize=True)


def integer_ticks(axis: Axis) -> None:
    """Put the ticks of an axis at integers."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def zero_line(axes: Axes) -> None:
    """Draw a thin horizontal line at 0."""
    axes.axhline(0, color="0.6", linewidth=0.8, zorder=0)
