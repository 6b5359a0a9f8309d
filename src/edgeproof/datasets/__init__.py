"""Graphs: those of the paper by name, the contextual stochastic block model, and archives of one's own."""

from edgeproof.datasets.csbm import csbm
from edgeproof.datasets.npz import read_npz, write_npz
from edgeproof.datasets.registry import available, find, keep_largest_component, load

__all__ = ["available", "csbm", "find", "keep_largest_component", "load", "read_npz", "write_npz"]
