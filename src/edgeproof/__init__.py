"""edgeproof makes graph neural networks proof against changed edges, and shows how proof they are."""

from edgeproof import analysis, attacks, certificates, datasets, evaluation, losses, models, propagation, report, splits
from edgeproof._checks import check_data
from edgeproof._version import __version__
from edgeproof.budget import Budget
from edgeproof.evaluation import evaluate
from edgeproof.graph import num_classes
from edgeproof.models.io import load, save
from edgeproof.training import train

__all__ = [
    "Budget",
    "__version__",
    "analysis",
    "attacks",
    "certificates",
    "check_data",
    "datasets",
    "evaluate",
    "evaluation",
    "load",
    "losses",
    "models",
    "num_classes",
    "propagation",
    "report",
    "save",
    "splits",
    "train",
]
