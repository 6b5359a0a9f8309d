"""Models, one architecture per file, each called as ``model(x, edge_index, edge_weight=None)``."""

from edgeproof.models.adapt import adapt
from edgeproof.models.adapters import EdgeWeighted
from edgeproof.models.appnp import APPNP
from edgeproof.models.base import GraphModel, WithObjective, graph_of, predict
from edgeproof.models.bounded import BoundedInfluence
from edgeproof.models.chebnet2 import ChebNetII
from edgeproof.models.factory import build_own
from edgeproof.models.gat import GAT
from edgeproof.models.gcn import GCN
from edgeproof.models.gprgnn import GPRGNN
from edgeproof.models.gps import GPS, random_walk_encoding
from edgeproof.models.grand import GRAND
from edgeproof.models.io import load_own, save_own
from edgeproof.models.mlp import MLP
from edgeproof.models.one_hop import OneHop
from edgeproof.models.registry import PAPER_SETTINGS, available, build, is_listed
from edgeproof.models.soft_median import SoftMedianConv, SoftMedianGDC, soft_median
from edgeproof.models.tiers import LayerTier, ModelTier, expected_seconds, tier_of

__all__ = [
    "APPNP",
    "GAT",
    "GCN",
    "GPRGNN",
    "GPS",
    "GRAND",
    "MLP",
    "PAPER_SETTINGS",
    "BoundedInfluence",
    "ChebNetII",
    "EdgeWeighted",
    "GraphModel",
    "LayerTier",
    "ModelTier",
    "OneHop",
    "SoftMedianConv",
    "SoftMedianGDC",
    "WithObjective",
    "adapt",
    "available",
    "build",
    "build_own",
    "expected_seconds",
    "graph_of",
    "is_listed",
    "load_own",
    "predict",
    "random_walk_encoding",
    "save_own",
    "soft_median",
    "tier_of",
]
