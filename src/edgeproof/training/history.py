"""Records of training runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from edgeproof._progress import duration
from edgeproof._tables import Layout, Record, TabularResult
from edgeproof.training.adversarial import Threat
from edgeproof.training.config import TrainConfig

if TYPE_CHECKING:
    from edgeproof.training.self_training import PseudoLabels


@dataclass(frozen=True)
class Epoch:
    """Metrics of one epoch.

    Args:
        epoch: Index of the epoch. The main loop starts at 0; the epochs of a warm-up within the run are negative.
        train_loss: Training objective (the loss, or the model's own) with dropout, in adversarial training on the perturbed
            graph.
        train_accuracy: Accuracy on the training nodes, likewise.
        val_loss: Loss on the validation nodes after the step, in adversarial training on the perturbed graph; None in epochs
            without validation.
        val_accuracy: Accuracy on the validation nodes, likewise.
        clean_train_loss: Loss on the training nodes of the clean graph after the step, without dropout; in adversarial
            training only.
        clean_train_accuracy: Accuracy on the training nodes, likewise.
        clean_val_loss: Loss on the validation nodes of the clean graph; in adversarial training only.
        clean_val_accuracy: Accuracy on the validation nodes, likewise.
        gamma: Coefficients of a learned diffusion after the step; None for other models.
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


# Keys of a summary that are outcomes (or the seed) rather than settings.
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
        "restarts",
    }
)

# Called with every epoch of the main run as soon as it is over.
Observer = Callable[[Epoch], None]


@dataclass(frozen=True, repr=False)
class History(TabularResult):
    """Record of a training run.

    Args:
        config: Settings.
        epochs: All epochs of the main run, including a warm-up within it (``separate_warmup=False``).
        best_epoch: Epoch to which the model has been restored.
        stopped: Reason for the end, ``"patience"`` or ``"max_epochs"``.
        seconds: Runtime with warm-up, over all parts of a resumed run, without label models (:attr:`label_seconds`).
        phases: Seconds per phase of the attacks, of the steps and of validation.
        threat: Threat model; None for clean training.
        pseudo_labels: Pseudo-labels; None without self-training.
        restarts: Number of earlier runs that failed and were replaced by this one.
        warning: Reason to doubt the model, with its code; None if there is none.
    """

    config: TrainConfig
    epochs: tuple[Epoch, ...]
    best: Epoch
    stopped: str
    seconds: float = field(compare=False)
    phases: dict[str, float] = field(compare=False, default_factory=dict)
    threat: Threat | None = None
    pseudo_labels: PseudoLabels | None = field(compare=False, default=None)
    restarts: int = 0
    warning: str | None = None

    @property
    def best_epoch(self) -> int:
        """Index of the best epoch."""
        return self.best.epoch

    @property
    def label_seconds(self) -> float:
        """Runtime of training the label models."""
        return 0.0 if self.pseudo_labels is None else sum(run.seconds for run in self.pseudo_labels.histories)

    def summary(self) -> dict[str, Any]:
        """Return settings and outcome as one flat, JSON-ready dictionary, without single epochs; see :data:`OUTCOME_KEYS`."""
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
                "label_model": self.pseudo_labels.label_model,
                "label_val_accuracy": self.pseudo_labels.val_accuracy,
                "label_accuracy": self.pseudo_labels.accuracy,
                "label_seconds": round(self.label_seconds, 2),
            }
        if self.restarts:
            summary["restarts"] = self.restarts
        if self.best.gamma is not None:
            summary["gamma"] = list(self.best.gamma)
        return summary

    def __repr__(self) -> str:
        return f"History({len(self.epochs)} epochs, best {self.best_epoch}, stopped by {self.stopped})"

    def to_dict(self) -> dict[str, Any]:
        """Return :meth:`summary`, the warning, and all epochs as ``"rows"``."""
        return {**super().to_dict(), "warning": self.warning}

    def _records(self) -> list[Record]:
        return [asdict(epoch) for epoch in self.epochs]

    def _layout(self) -> Layout:
        best, threat = self.best, self.threat
        accuracies = {
            "validation accuracy": best.val_accuracy if threat is None else best.clean_val_accuracy,
            "validation accuracy under attack": None if threat is None else best.val_accuracy,
        }
        seconds = self.seconds + self.label_seconds
        lines = [
            ("epochs", f"{len(self.epochs):,}, the best is {self.best_epoch} (stopped by {self.stopped})"),
            *((name, f"{value:.1%}") for name, value in accuracies.items() if value is not None),
            *([] if threat is None else [("attack", f"{threat.attack!r}, epsilon {threat.epsilon:g}")]),
            *([] if self.pseudo_labels is None else [("pseudo-labels", repr(self.pseudo_labels))]),
            *([("restarts", str(self.restarts))] if self.restarts else []),
            ("time", duration(seconds)),
        ]
        return Layout("", (), lines, left=2, notes=[] if self.warning is None else [f"warning: {self.warning}"])
