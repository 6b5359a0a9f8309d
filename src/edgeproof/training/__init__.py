"""Training: one loop, visible settings, and a record of what happened."""

from edgeproof.training.config import TrainConfig
from edgeproof.training.fit import train
from edgeproof.training.history import Epoch, History

__all__ = ["Epoch", "History", "TrainConfig", "train"]
