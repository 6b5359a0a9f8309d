"""Datasets: the graphs of the paper by name, generated graphs, and graph archives."""

from edgeproof.datasets.attributed_sbm import attributed_sbm
from edgeproof.datasets.csbm import csbm
from edgeproof.datasets.npz import read_npz, write_npz
from edgeproof.datasets.registry import available, find, is_local, keep_largest_component, load
from edgeproof.datasets.stand_in import arxiv_stand_in

__all__ = [
    "arxiv_stand_in",
    "attributed_sbm",
    "available",
    "csbm",
    "find",
    "is_local",
    "keep_largest_component",
    "load",
    "read_npz",
    "write_npz",
]
