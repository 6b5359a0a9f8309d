"""Datasets: the graphs of the paper by name, generated graphs, users' own graphs, and archives."""

from edgeproof.datasets.attributed_sbm import attributed_sbm
from edgeproof.datasets.convert import from_edges, from_networkx, from_scipy
from edgeproof.datasets.csbm import csbm
from edgeproof.datasets.describe import GraphDescription, describe
from edgeproof.datasets.npz import read_npz, write_npz
from edgeproof.datasets.registry import available, find, is_local, keep_largest_component, load
from edgeproof.datasets.simplify import DatasetWarning, Fixes
from edgeproof.datasets.stand_in import arxiv_stand_in

__all__ = [
    "DatasetWarning",
    "Fixes",
    "GraphDescription",
    "arxiv_stand_in",
    "attributed_sbm",
    "available",
    "csbm",
    "describe",
    "find",
    "from_edges",
    "from_networkx",
    "from_scipy",
    "is_local",
    "keep_largest_component",
    "load",
    "read_npz",
    "write_npz",
]
