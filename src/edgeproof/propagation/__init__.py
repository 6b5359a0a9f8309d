"""Message passing over weighted edges, and gradients of the loss with respect to edge flips."""

from edgeproof.propagation.adjacency import Adjacency, Pattern, as_adjacency
from edgeproof.propagation.autograd_path import EncodeDiffuse
from edgeproof.propagation.edge_gradient import EdgeGradient, EdgeGradientEngine
from edgeproof.propagation.layer_rules import UnsupportedLayerError
from edgeproof.propagation.message_rules import UnknownRuleError
from edgeproof.propagation.pairs import Pairs
from edgeproof.propagation.ppr import top_ppr
from edgeproof.propagation.propagate import Tape, propagate, spmm
from edgeproof.propagation.search import BestPairs, SearchOptions
from edgeproof.propagation.tiers import TIERS, NoEdgeGradientError, Tier

__all__ = [
    "TIERS",
    "Adjacency",
    "BestPairs",
    "EdgeGradient",
    "EdgeGradientEngine",
    "EncodeDiffuse",
    "NoEdgeGradientError",
    "Pairs",
    "Pattern",
    "SearchOptions",
    "Tape",
    "Tier",
    "UnknownRuleError",
    "UnsupportedLayerError",
    "as_adjacency",
    "propagate",
    "spmm",
    "top_ppr",
]
