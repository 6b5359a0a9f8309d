"""What determines a training run, besides the model, the split and the adversary."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypedDict, TypeGuard

from edgeproof import losses

# Every epoch of every run has a seed of its own, and all of them fit into 64 bits.
MOST_SEEDS = 1 << 32


@dataclass(frozen=True)
class TrainConfig:
    """Settings of a training run; the defaults are the paper's.

    Args:
        loss: of the main loop, ``"tanh_margin"`` or ``"cross_entropy"``.
        lr: Adam's learning rate.
        weight_decay: Adam's weight decay.
        warmup_epochs: clean epochs with cross-entropy before the main loop.
        separate_warmup: whether the warm-up is a run of its own: on the labelled nodes alone, with the weight decay of label
            models, left at its best epoch, and with an optimizer of which the main loop knows nothing, as in the paper's
            released scripts. Otherwise its epochs are the first ones of the run, on the same nodes and labels and with the same
            optimizer, which then often is at its best after few epochs.
        max_epochs: most epochs of the main loop.
        min_epochs: epochs of the main loop that cannot be the best one, and do not count towards patience; label models may end
            before.
        patience: epochs without a better validation loss after which training stops.
        validate_every: epochs between validations, each of them under attack in adversarial training; the last epoch is
            validated always.
        epsilon_warmup: epochs in which the budget of the attack on the training graph rises from nothing to all of it;
            validation has all of it.
        warm_start: whether the attack on the training graph begins at its last flips; with an attack of one step this is
            "free" adversarial training.
        clean_share: how much of the loss in adversarial training is that on the clean graph.
        averaging: how much of the averaged parameters stays in every epoch; 0 for no averaging. The averaged model is the one
            that is validated and kept.
        label_models: models that vote on pseudo-labels in self-training.
        label_weight_decay: their weight decay.
        seed: for everything random while training.
    """

    loss: str = "tanh_margin"
    lr: float = 1e-2
    weight_decay: float = 1e-3
    warmup_epochs: int = 10
    separate_warmup: bool = True
    max_epochs: int = 3000
    min_epochs: int = 0
    patience: int = 200
    validate_every: int = 1
    epsilon_warmup: int = 0
    warm_start: bool = False
    clean_share: float = 0.0
    averaging: float = 0.0
    label_models: int = 1
    label_weight_decay: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        losses.get(self.loss)
        whole = {
            "warmup_epochs": 0,
            "max_epochs": 1,
            "min_epochs": 0,
            "patience": 1,
            "validate_every": 1,
            "epsilon_warmup": 0,
            "label_models": 1,
            "seed": 0,
        }
        for name, least in whole.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"expected {name} to be a whole number >= {least}, got {value!r}")
        for name in ("lr", "weight_decay", "label_weight_decay"):
            value = getattr(self, name)
            if not _is_number(value) or not (math.isfinite(value) and value >= 0):
                raise ValueError(f"expected {name} to be a finite number >= 0, got {value!r}")
        for name in ("averaging", "clean_share"):
            value = getattr(self, name)
            if not _is_number(value) or not 0 <= value < 1:
                raise ValueError(f"expected 0 <= {name} < 1, got {value!r}")
        for name in ("warm_start", "separate_warmup"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"expected {name} to be True or False, got {getattr(self, name)!r}")
        if self.seed >= MOST_SEEDS:
            raise ValueError(f"expected seed < {MOST_SEEDS}, got {self.seed}")
        if self.min_epochs >= self.max_epochs:
            raise ValueError(f"expected min_epochs < max_epochs, got {self.min_epochs} and {self.max_epochs}")

    def on_labelled_nodes(self) -> TrainConfig:
        """The settings of a clean run before this one, on the labelled nodes alone: of label models, and of a warm-up apart.

        Such runs are at their best after few epochs, every one of which is looked at, however this one is watched.
        """
        return replace(
            self,
            loss="cross_entropy",
            weight_decay=self.label_weight_decay,
            warmup_epochs=0,
            separate_warmup=False,
            min_epochs=0,
            validate_every=1,
            averaging=0.0,
            warm_start=False,
        )

    def after_warm_up(self) -> TrainConfig:
        """The settings of the main run, which has no warm-up any more where that is a run of its own."""
        return replace(self, warmup_epochs=0, separate_warmup=False) if self.has_separate_warmup else self

    @property
    def has_separate_warmup(self) -> bool:
        """Whether there is a warm-up, and it is a run of its own."""
        return self.separate_warmup and self.warmup_epochs > 0


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class TrainSettings(TypedDict, total=False):
    """The settings of :class:`TrainConfig`, each of them optional: those that differ from a preset."""

    loss: str
    lr: float
    weight_decay: float
    warmup_epochs: int
    separate_warmup: bool
    max_epochs: int
    min_epochs: int
    patience: int
    validate_every: int
    epsilon_warmup: int
    warm_start: bool
    clean_share: float
    averaging: float
    label_models: int
    label_weight_decay: float
    seed: int
