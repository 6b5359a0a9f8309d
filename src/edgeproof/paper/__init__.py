"""The tables and figures of the paper, as data for :mod:`edgeproof.experiments`."""

from edgeproof.paper.compare import ComparedCell, TableComparison, compare
from edgeproof.paper.figures import FIGURES, PaperFigure, find_figure
from edgeproof.paper.plan import Experiment, Selection, missing
from edgeproof.paper.recipes import PaperMeasurement, Recipe
from edgeproof.paper.tables import STAND_INS, TABLES, Table, find_table

__all__ = [
    "FIGURES",
    "STAND_INS",
    "TABLES",
    "ComparedCell",
    "Experiment",
    "PaperFigure",
    "PaperMeasurement",
    "Recipe",
    "Selection",
    "Table",
    "TableComparison",
    "compare",
    "find_figure",
    "find_table",
    "missing",
]
