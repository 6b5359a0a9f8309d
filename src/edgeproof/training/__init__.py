"""Clean training, self-training and adversarial training."""

from edgeproof.training.adversarial import Threat
from edgeproof.training.checkpoint import CheckpointError, remove_checkpoints
from edgeproof.training.config import PRESETS, Preset, TrainConfig
from edgeproof.training.history import Epoch, History
from edgeproof.training.memorize import Memorizing
from edgeproof.training.safeguards import LabelWarning, TrainingWarning
from edgeproof.training.self_training import PseudoLabels
from edgeproof.training.tensorboard import TensorBoardLog
from edgeproof.training.train import pseudo_labels, train

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
    "TrainingWarning",
    "pseudo_labels",
    "remove_checkpoints",
    "train",
]
