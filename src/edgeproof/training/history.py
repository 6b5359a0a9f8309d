"""What training leaves behind."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from edgeproof.training.config import TrainConfig


@dataclass(frozen=True)
class Epoch:
    """One pass over the training graph. Epochs of the main loop count from 0, warm-up before them from below.

    Args:
        epoch: its number.
        train_loss: loss on the labelled training nodes, with dropout.
        train_accuracy: accuracy on them, with dropout.
        val_loss: loss on the validation nodes after the step; none where it was not measured.
        val_accuracy: accuracy on them.
    """

    epoch: int
    train_loss: float
    train_accuracy: float
    val_loss: float | None
    val_accuracy: float | None


@dataclass(frozen=True)
class History:
    """The course of a training run.

    Args:
        config: its settings.
        epochs: every epoch, warm-up included.
        best_epoch: the epoch whose parameters the model now has.
        stopped: why it ended, ``"patience"`` or ``"max_epochs"``.
        seconds: how long it took, over all parts of an interrupted run.
    """

    config: TrainConfig
    epochs: tuple[Epoch, ...]
    best_epoch: int
    stopped: str
    seconds: float = field(compare=False)

    @property
    def best(self) -> Epoch:
        """The record of the best epoch."""
        return next(record for record in self.epochs if record.epoch == self.best_epoch)

    def summary(self) -> dict[str, Any]:
        """Settings and outcome in one flat, JSON-ready dictionary, without the single epochs."""
        return {
            **asdict(self.config),
            "epochs": self.epochs[-1].epoch + 1,
            "best_epoch": self.best_epoch,
            "stopped": self.stopped,
            "seconds": round(self.seconds, 2),
        }
