"""The paper's figures: their inputs, and how they are drawn from the results in a store."""

from edgeproof.paper.figures.base import Drawing, FigureData, FigureInput, PaperFigure
from edgeproof.paper.figures.catalogue import FIGURES, find_figure
from edgeproof.paper.figures.page import figures_page, write_drawing

__all__ = [
    "FIGURES",
    "Drawing",
    "FigureData",
    "FigureInput",
    "PaperFigure",
    "figures_page",
    "find_figure",
    "write_drawing",
]
