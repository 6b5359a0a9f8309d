"""Every table of the paper behind one command: what to train and measure, where to run it, and where results are kept."""

from edgeproof.experiments.compare import Cell, Comparison, compare
from edgeproof.experiments.plan import Job, missing
from edgeproof.experiments.store import Record, Store, StoreWarning
from edgeproof.experiments.tables import TABLES, Table, find

__all__ = [
    "TABLES",
    "Cell",
    "Comparison",
    "Job",
    "Record",
    "Store",
    "StoreWarning",
    "Table",
    "compare",
    "find",
    "missing",
]
