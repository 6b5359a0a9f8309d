"""What training leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from edgeproof.training.config import TrainConfig

if TYPE_CHECKING:
    from edgeproof.training.adversarial import Threat
    from edgeproof.training.self_training import PseudoLabels


@dataclass(frozen=True)
class Epoch:
    """One pass over the training graph. Epochs of the main loop count from 0, a warm-up that is part of the run from below.

    Args:
        epoch: its number.
        train_loss: what training lowers, the loss on the training nodes or the model's own objective, with dropout; in
            adversarial training on the attacked graph.
        train_accuracy: accuracy on them, likewise.
        val_loss: loss on the validation nodes after the step, in adversarial training on the attacked graph; none where it was
            not measured.
        val_accuracy: accuracy on them, likewise.
        clean_train_loss: loss on the training nodes of the clean graph after the step, without dropout; in adversarial
            training only.
        clean_train_accuracy: accuracy on them, likewise.
        clean_val_loss: loss on the validation nodes of the clean graph; in adversarial training only.
        clean_val_accuracy: accuracy on them, likewise.
        gamma: the coefficients of a learned diffusion after the step; none for models without.
    """

    epoch: int
    train_loss: float
    train_accuracy: float
    val_loss: float | None = None
    val_accuracy: float | None = None
    clean_train_loss: float | None = None
    clean_train_accuracy: float | None = None
    clean_val_loss: float | None = None
    clean_val_accuracy: float | None = None
    gamma: tuple[float, ...] | None = None


# Entries of a summary that say how a run went, rather than how it was meant.
OUTCOME_KEYS = frozenset(
    {
        "seed",
        "epochs",
        "best_epoch",
        "stopped",
        "seconds",
        "label_val_accuracy",
        "label_accuracy",
        "label_seconds",
        "gamma",
    }
)

# What is told of every epoch as soon as it is over.
Observer = Callable[[Epoch], None]


@dataclass(frozen=True)
class History:
    """The course of a training run.

    Args:
        config: its settings.
        epochs: every epoch of the main run; those of a warm-up only if it is part of it (``separate_warmup=False``).
        best_epoch: the epoch whose parameters the model now has.
        stopped: why it ended, ``"patience"`` or ``"max_epochs"``.
        seconds: how long it took with its warm-up, over all parts of an interrupted run; see also :attr:`label_seconds`.
        phases: seconds of each part of the attacks, of the steps and of validation, added up.
        threat: what it was trained against; none for clean training.
        pseudo_labels: what stood in for labels of unlabelled nodes; none without self-training.
    """

    config: TrainConfig
    epochs: tuple[Epoch, ...]
    best_epoch: int
    stopped: str
    seconds: float = field(compare=False)
    phases: dict[str, float] = field(compare=False, default_factory=dict)
    threat: Threat | None = None
    pseudo_labels: PseudoLabels | None = field(compare=False, default=None)

    @property
    def best(self) -> Epoch:
        """The record of the best epoch."""
        return next(record for record in self.epochs if record.epoch == self.best_epoch)

    @property
    def label_seconds(self) -> float:
        """How long the models took that gave the pseudo-labels."""
        return 0.0 if self.pseudo_labels is None else sum(one.seconds for one in self.pseudo_labels.histories)

    def summary(self) -> dict[str, Any]:
        """Settings and outcome in one flat, JSON-ready dictionary, without the single epochs; see :data:`OUTCOME_KEYS`."""
        summary = {
            **asdict(self.config),
            "epochs": self.epochs[-1].epoch + 1,
            "best_epoch": self.best_epoch,
            "stopped": self.stopped,
            "seconds": round(self.seconds, 2),
        }
        if self.threat is not None:
            summary |= {
                "attack": repr(self.threat.attack),
                "epsilon": self.threat.epsilon,
                "local": self.threat.local,
                "count": self.threat.count,
            }
        if self.pseudo_labels is not None:
            summary |= {
                "labeller": self.pseudo_labels.labeller,
                "label_val_accuracy": self.pseudo_labels.val_accuracy,
                "label_accuracy": self.pseudo_labels.accuracy,
                "label_seconds": round(self.label_seconds, 2),
            }
        if self.best.gamma is not None:
            summary["gamma"] = list(self.best.gamma)
        return summary
