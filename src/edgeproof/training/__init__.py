"""Training: one loop, visible settings, and a record of what happened."""

from edgeproof.training.adversarial import Threat
from edgeproof.training.checkpoint import CheckpointError
from edgeproof.training.config import TrainConfig
from edgeproof.training.history import Epoch, History
from edgeproof.training.memorize import Memorizing
from edgeproof.training.presets import PRESETS, Preset
from edgeproof.training.self_training import LabelWarning, PseudoLabels
from edgeproof.training.tensorboard import TensorBoardLog
from edgeproof.training.train import pseudo_labels, remove_checkpoints, train

__all__ = [
    "PRESETS",
    "CheckpointError",
    "Epoch",
    "History",
    "LabelWarning",
    "Memorizing",
    "Preset",
    "PseudoLabels",
    "TensorBoardLog",
    "Threat",
    "TrainConfig",
    "pseudo_labels",
    "remove_checkpoints",
    "train",
]
