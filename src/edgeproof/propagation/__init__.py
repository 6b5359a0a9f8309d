"""How messages move along weighted edges."""

from edgeproof.propagation.adjacency import Adjacency, Pattern, as_adjacency
from edgeproof.propagation.propagate import propagate, spmm

__all__ = ["Adjacency", "Pattern", "as_adjacency", "propagate", "spmm"]
