"""Models, one architecture per file, each called as ``model(x, edge_index, edge_weight=None)``."""

from edgeproof.models.adapters import EdgeWeighted
from edgeproof.models.appnp import APPNP
from edgeproof.models.base import GraphModel, WithObjective, graph_of, predict
from edgeproof.models.bounded import BoundedInfluence
from edgeproof.models.chebnet2 import ChebNetII
from edgeproof.models.gat import GAT
from edgeproof.models.gcn import GCN
from edgeproof.models.gprgnn import GPRGNN
from edgeproof.models.grand import GRAND
from edgeproof.models.mlp import MLP
from edgeproof.models.one_hop import OneHop
from edgeproof.models.registry import PAPER_SETTINGS, available, build, is_listed
from edgeproof.models.soft_median import SoftMedianConv, SoftMedianGDC, soft_median

__all__ = [
    "APPNP",
    "GAT",
    "GCN",
    "GPRGNN",
    "GRAND",
    "MLP",
    "PAPER_SETTINGS",
    "BoundedInfluence",
    "ChebNetII",
    "EdgeWeighted",
    "GraphModel",
    "OneHop",
    "SoftMedianConv",
    "SoftMedianGDC",
    "WithObjective",
    "available",
    "build",
    "graph_of",
    "is_listed",
    "predict",
    "soft_median",
]
