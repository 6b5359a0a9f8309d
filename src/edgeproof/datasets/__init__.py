"""Graphs: those of the paper by name, the contextual stochastic block model, and archives of one's own."""

from edgeproof.datasets.csbm import csbm
from edgeproof.datasets.npz import read_npz, write_npz
from edgeproof.datasets.registry import at_hand, available, find, keep_largest_component, load
from edgeproof.datasets.stand_in import arxiv_stand_in

__all__ = [
    "arxiv_stand_in",
    "at_hand",
    "available",
    "csbm",
    "find",
    "keep_largest_component",
    "load",
    "read_npz",
    "write_npz",
]
