"""edgeproof makes graph neural networks proof against changed edges, and shows how proof they are."""

from edgeproof import datasets, losses, models, propagation, splits
from edgeproof._version import __version__
from edgeproof.graph import check_data, num_classes
from edgeproof.serialization import load, save
from edgeproof.training import train

__all__ = [
    "__version__",
    "check_data",
    "datasets",
    "load",
    "losses",
    "models",
    "num_classes",
    "propagation",
    "save",
    "splits",
    "train",
]
