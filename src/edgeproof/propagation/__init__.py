"""How messages move along weighted edges."""

from edgeproof.propagation.adjacency import Adjacency, Pattern, as_adjacency
from edgeproof.propagation.best_pairs import BestPairs
from edgeproof.propagation.edge_gradient import EdgeGradient, EdgeGradientEngine
from edgeproof.propagation.pairs import Pairs
from edgeproof.propagation.ppr import top_ppr
from edgeproof.propagation.propagate import Tape, propagate, spmm

__all__ = [
    "Adjacency",
    "BestPairs",
    "EdgeGradient",
    "EdgeGradientEngine",
    "Pairs",
    "Pattern",
    "Tape",
    "as_adjacency",
    "propagate",
    "spmm",
    "top_ppr",
]
