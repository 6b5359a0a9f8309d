"""The paper's figures: what each is made from, and how it is drawn from what the store has."""

from edgeproof.experiments.figures.base import Drawing, Found, Need, PaperFigure
from edgeproof.experiments.figures.catalogue import FIGURES, find_figure
from edgeproof.experiments.figures.page import figures_page, write_drawing

__all__ = [
    "FIGURES",
    "Drawing",
    "Found",
    "Need",
    "PaperFigure",
    "figures_page",
    "find_figure",
    "write_drawing",
]
