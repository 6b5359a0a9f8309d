"""What determines a training run, besides the model and the split."""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgeproof import losses


@dataclass(frozen=True)
class TrainConfig:
    """Settings of a training run; the defaults are the paper's.

    Args:
        loss: of the main loop, ``"tanh_margin"`` or ``"cross_entropy"``.
        lr: Adam's learning rate.
        weight_decay: Adam's weight decay.
        warmup_epochs: clean epochs with cross-entropy before the main loop.
        max_epochs: most epochs of the main loop.
        patience: epochs without a better validation loss after which training stops.
        validate_every: epochs between validations.
        seed: for everything random while training.
    """

    loss: str = "tanh_margin"
    lr: float = 1e-2
    weight_decay: float = 1e-3
    warmup_epochs: int = 10
    max_epochs: int = 3000
    patience: int = 200
    validate_every: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        losses.get(self.loss)
        whole = {"warmup_epochs": 0, "max_epochs": 1, "patience": 1, "validate_every": 1, "seed": 0}
        for name, least in whole.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"expected {name} to be a whole number >= {least}, got {value!r}")
        for name in ("lr", "weight_decay"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not (math.isfinite(value) and value >= 0):
                raise ValueError(f"expected {name} to be a finite number >= 0, got {value!r}")
