"""Settings of training runs, and presets of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypedDict

import numpy as np

from edgeproof import losses
from edgeproof._checks import check_bool, check_fraction, check_int, check_non_negative, check_seed
from edgeproof._names import look_up, unknown_name
from edgeproof.attacks.base import WarmStarting
from edgeproof.attacks.greedy_rbcd import GreedyRBCD
from edgeproof.training.adversarial import Threat


@dataclass(frozen=True)
class TrainConfig:
    """Settings of a training run; the defaults are the paper's.

    Args:
        loss: Loss of the main loop: ``"tanh_margin"``, ``"cross_entropy"`` or another of :mod:`edgeproof.losses`.
        lr: Learning rate of Adam.
        weight_decay: Weight decay of Adam.
        warmup_epochs: Number of clean epochs with cross-entropy before the main loop.
        separate_warmup: Whether the warm-up is a run of its own, as in the paper's released scripts: on the labelled nodes
            only, with the weight decay of label models, restored to its best epoch, and with its own optimizer. Otherwise its
            epochs are the first ones of the run, with the same nodes, labels and optimizer.
        max_epochs: Maximum number of epochs of the main loop.
        min_epochs: Number of epochs of the main loop that cannot be the best one and do not count towards patience. Does not
            apply to label models.
        patience: Number of epochs without a lower validation loss after which training stops.
        validate_every: Number of epochs between validations. The last epoch is always validated.
        epsilon_warmup: Number of epochs over which the budget on the training graph rises linearly to its full size.
            Validation always uses the full budget.
        warm_start: Whether the attack on the training graph starts at its flips of the previous epoch. With an attack of one
            step this is "free" adversarial training.
        clean_weight: Weight of the loss on the clean graph in adversarial training, in [0, 1).
        averaging: Decay of an exponential moving average of the parameters, in [0, 1); 0 for no averaging. The averaged model
            is validated and kept.
        label_models: Number of models that vote on pseudo-labels in self-training.
        label_weight_decay: Weight decay of label models.
        seed: Seed of all random choices in training.
    """

    loss: str = field(default="tanh_margin", metadata={"help": "Loss of the main loop; see edgeproof.losses."})
    lr: float = field(default=1e-2, metadata={"help": "Learning rate of Adam."})
    weight_decay: float = field(default=1e-3, metadata={"help": "Weight decay of Adam."})
    warmup_epochs: int = field(
        default=10, metadata={"help": "Number of clean epochs with cross-entropy before the main loop."}
    )
    separate_warmup: bool = field(
        default=True, metadata={"help": "Run the warm-up as a run of its own on the labelled nodes."}
    )
    max_epochs: int = field(default=3000, metadata={"help": "Maximum number of epochs of the main loop."})
    min_epochs: int = field(default=0, metadata={"help": "Number of first epochs that cannot be the best one."})
    patience: int = field(
        default=200, metadata={"help": "Number of epochs without a lower validation loss before training stops."}
    )
    validate_every: int = field(default=1, metadata={"help": "Number of epochs between validations."})
    epsilon_warmup: int = field(
        default=0, metadata={"help": "Number of epochs over which the budget rises to its full size."}
    )
    warm_start: bool = field(default=False, metadata={"help": "Start each attack at the flips of the previous epoch."})
    clean_weight: float = field(
        default=0.0, metadata={"help": "Weight of the loss on the clean graph in adversarial training, in [0, 1)."}
    )
    averaging: float = field(
        default=0.0, metadata={"help": "Decay of a moving average of the parameters, in [0, 1); 0 for no averaging."}
    )
    label_models: int = field(
        default=1, metadata={"help": "Number of models that vote on pseudo-labels in self-training."}
    )
    label_weight_decay: float = field(default=0.0, metadata={"help": "Weight decay of label models."})
    seed: int = field(default=0, metadata={"help": "Seed of all random choices in training."})

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            # Settings are written as JSON, which has no NumPy scalars.
            if isinstance(value, np.generic):
                object.__setattr__(self, entry.name, value.item())
        losses.get(self.loss)
        check_int(0, warmup_epochs=self.warmup_epochs, min_epochs=self.min_epochs, epsilon_warmup=self.epsilon_warmup)
        check_int(1, max_epochs=self.max_epochs, patience=self.patience)
        check_int(1, validate_every=self.validate_every, label_models=self.label_models)
        check_seed(self.seed)
        check_non_negative(lr=self.lr, weight_decay=self.weight_decay, label_weight_decay=self.label_weight_decay)
        check_fraction(averaging=self.averaging, clean_weight=self.clean_weight)
        check_bool(warm_start=self.warm_start, separate_warmup=self.separate_warmup)
        if self.min_epochs >= self.max_epochs:
            raise ValueError(f"expected min_epochs < max_epochs, got {self.min_epochs} and {self.max_epochs}")

    @property
    def has_separate_warmup(self) -> bool:
        """Whether there is a warm-up that is a run of its own."""
        return self.separate_warmup and self.warmup_epochs > 0

    def for_label_models(self) -> TrainConfig:
        """Return the settings of label models: clean training on the labelled nodes, every epoch validated."""
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

    def for_warmup(self) -> TrainConfig:
        """Return the settings of the separate warm-up."""
        return replace(self.for_label_models(), max_epochs=self.warmup_epochs, patience=self.warmup_epochs)

    def for_main_run(self) -> TrainConfig:
        """Return the settings of the main run, which has no warm-up epochs after a separate warm-up."""
        return replace(self, warmup_epochs=0, separate_warmup=False) if self.has_separate_warmup else self


class TrainSettings(TypedDict, total=False):
    """Keyword arguments that override a preset: the fields of :class:`TrainConfig`, all optional."""

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
    clean_weight: float
    averaging: float
    label_models: int
    label_weight_decay: float
    seed: int


@dataclass(frozen=True)
class Preset:
    """Named combination of settings, threat model and self-training.

    Args:
        description: Purpose of the preset.
        config: Settings of the training loop.
        threat: Default threat model; None for clean training.
        self_training: Default for self-training.
        label_model: Name of the label model in self-training; None for the architecture of the trained model.
        label_model_settings: Settings of the label model.
    """

    description: str
    config: TrainConfig
    threat: Threat | None = None
    self_training: bool = False
    label_model: str | None = None
    label_model_settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.config, TrainConfig):
            raise TypeError(f"expected config as a TrainConfig, got {self.config!r}")
        if self.threat is not None and not isinstance(self.threat, Threat):
            raise TypeError(f"expected threat as a Threat, an attack with its budgets, got {self.threat!r}")


PRESETS = {
    "paper": Preset("the paper's settings; clean training unless an attack is given", TrainConfig()),
    "sturdy": Preset(
        "self-training on labels of GPRGNN, against a much larger budget than is usually evaluated; for models that weight a "
        "node's own features strongly, such as APPNP with alpha=0.8 and dropout=0.8",
        TrainConfig(
            weight_decay=5e-3,
            min_epochs=50,
            max_epochs=300,
            patience=100,
            label_models=5,
            label_weight_decay=5e-3,
        ),
        Threat(GreedyRBCD(loss="log_margin").for_training(), epsilon=1.5, local=2.0),
        self_training=True,
        label_model="GPRGNN",
        label_model_settings={"init": "ppr", "alpha": 0.1, "dropout": 0.8},
    ),
}


def configure(preset: str | TrainConfig | Preset, settings: TrainSettings) -> Preset:
    """Return a preset with some settings changed.

    Args:
        preset: Name of a preset, a :class:`Preset`, or settings of the training loop.
        settings: Settings to change.

    >>> configure("paper", {"lr": 0.05}).config.lr
    0.05
    """
    if isinstance(preset, TrainConfig):
        preset = Preset("custom settings", preset)
    base = preset if isinstance(preset, Preset) else look_up("preset", preset, PRESETS)
    names = [entry.name for entry in fields(TrainConfig)]
    for name in settings:
        if name not in names:
            raise unknown_name("setting", name, names)
    try:
        return replace(base, config=replace(base.config, **settings))
    except ValueError as error:
        hint = f"; settings that are not given are those of preset {preset!r}" if isinstance(preset, str) else ""
        raise ValueError(f"{error}{hint if _is_valid(settings) else ''}") from error


def check_threat_settings(config: TrainConfig, threat: Threat | None) -> None:
    """Raise for settings that need an attack, or one that can start at given flips, if there is none."""
    if config.warm_start and (threat is None or not isinstance(threat.attack, WarmStarting)):
        raise ValueError(f"expected warm_start only with PGD, PRBCD or LRBCD, got {threat and threat.attack!r}")
    for name in ("clean_weight", "epsilon_warmup"):
        if threat is None and getattr(config, name):
            raise ValueError(f"expected {name} only with an attack to train against, got None")


def _is_valid(settings: TrainSettings) -> bool:
    """Return whether the settings are valid with the defaults, so that any conflict is with the preset."""
    try:
        TrainConfig(**settings)
    except ValueError:
        return False
    return True
