"""Every table and figure of the paper behind one command: what to train and measure, where to run it, where results go."""

from edgeproof.experiments.compare import Cell, Comparison, compare
from edgeproof.experiments.figures import FIGURES, PaperFigure, find_figure
from edgeproof.experiments.plan import Experiment, Job, Selection, missing
from edgeproof.experiments.store import Record, Store, StoreWarning
from edgeproof.experiments.tables import STAND_INS, TABLES, Table, find

__all__ = [
    "FIGURES",
    "STAND_INS",
    "TABLES",
    "Cell",
    "Comparison",
    "Experiment",
    "Job",
    "PaperFigure",
    "Record",
    "Selection",
    "Store",
    "StoreWarning",
    "Table",
    "compare",
    "find",
    "find_figure",
    "missing",
]
