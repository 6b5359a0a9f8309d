"""Settings of training runs, and presets of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypedDict

import numpy as np

from edgeproof import losses
from edgeproof._checks import check_bool, check_fraction, check_int, check_non_negative, check_seed, is_number
from edgeproof._names import look_up, unknown_name
from edgeproof.attacks.base import WarmStarting
from edgeproof.attacks.greedy_rbcd import GreedyRBCD
from edgeproof.training.adversarial import Threat

SELECT = ("loss", "accuracy")
_WARMUP_PATIENCE = 200


@dataclass(frozen=True)
class TrainConfig:
    """Settings of a training run; the defaults are those of the preset ``"paper"``.

    Args:
        loss: Loss of the main loop: ``"tanh_margin"``, ``"cross_entropy"`` or another of :mod:`edgeproof.losses`.
        lr: Learning rate of Adam.
        weight_decay: Weight decay of Adam.
        warmup_epochs: Number of clean epochs with cross-entropy before the main loop; at most ``max_epochs`` in a separate
            warm-up. A separate warm-up is skipped if the main run would only repeat it: without an attack and pseudo-labels,
            and with cross-entropy.
        separate_warmup: Whether the warm-up is a separate run, as in the paper's released scripts: on the labelled
            nodes only, with the weight decay of label models, restored to its best epoch, and with its own optimizer. Otherwise
            its epochs are the first ones of the run, with the same nodes, labels and optimizer.
        max_epochs: Maximum number of epochs of the main loop.
        min_epochs: Number of first epochs of the main loop that are ignored when the best epoch is chosen and do not
            count towards patience. Does not apply to label models.
        fine_tune_epochs: Maximum number of epochs of adversarial training after a separate warm-up, with a patience of
            half as many epochs; 0 to use ``max_epochs`` and ``patience``.
        patience: Number of epochs without a better validation result after which training stops; at most 200 in a separate
            warm-up.
        select: Criterion for the best epoch: the lowest validation ``"loss"``, or the highest validation ``"accuracy"``, where
            the loss breaks ties.
        max_clean_drop: In adversarial training, how far the clean validation accuracy of the best epoch may lie below that
            after the warm-up; a drop by one node is always allowed. Epochs with a larger drop are used only if all have one; 1
            for no limit.
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
        try_starts: Whether to also train from the other initial parameters that the model proposes
            (:meth:`GraphModel.alternative_starts <edgeproof.models.GraphModel.alternative_starts>`), in the first clean stage
            (warm-up, or main run without one), and to keep the best run on the validation nodes.
        scale_features: Whether to divide features by their scale during training (:mod:`edgeproof.training.safeguards`). The
            model itself takes unscaled features before and after.
        max_restarts: Maximum number of restarts of a failed run, each with another seed (:mod:`edgeproof.training.safeguards`).
        seed: Seed of all random choices in training.
    """

    loss: str = field(default="tanh_margin", metadata={"help": "Loss of the main loop; see edgeproof.losses."})
    lr: float = field(default=1e-2, metadata={"help": "Learning rate of Adam."})
    weight_decay: float = field(default=1e-3, metadata={"help": "Weight decay of Adam."})
    warmup_epochs: int = field(
        default=10, metadata={"help": "Number of clean epochs with cross-entropy before the main loop."}
    )
    separate_warmup: bool = field(
        default=True, metadata={"help": "Run the warm-up as a separate run on the labelled nodes."}
    )
    max_epochs: int = field(default=3000, metadata={"help": "Maximum number of epochs of the main loop."})
    min_epochs: int = field(
        default=0, metadata={"help": "Number of first epochs that are not considered for the best one."}
    )
    fine_tune_epochs: int = field(
        default=0,
        metadata={"help": "Maximum number of epochs of adversarial training after a separate warm-up; 0: max_epochs."},
    )
    patience: int = field(
        default=200, metadata={"help": "Number of epochs without a better validation result before training stops."}
    )
    select: str = field(
        default="loss", metadata={"help": "Criterion for the best epoch on the validation nodes: loss or accuracy."}
    )
    max_clean_drop: float = field(
        default=1.0,
        metadata={"help": "Largest drop of the clean validation accuracy in adversarial training; 1: no limit."},
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
    try_starts: bool = field(
        default=False,
        metadata={"help": "Also try other initial parameters that the model proposes; keep the best run."},
    )
    scale_features: bool = field(default=False, metadata={"help": "Divide features by their scale during training."})
    max_restarts: int = field(
        default=0, metadata={"help": "Maximum number of restarts of a failed run, each with another seed."}
    )
    seed: int = field(default=0, metadata={"help": "Seed of all random choices in training."})

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            # Settings are written as JSON, which has no NumPy scalars.
            if isinstance(value, np.generic):
                object.__setattr__(self, entry.name, value.item())
        losses.get(self.loss)
        check_int(0, warmup_epochs=self.warmup_epochs, min_epochs=self.min_epochs, epsilon_warmup=self.epsilon_warmup)
        check_int(0, max_restarts=self.max_restarts, fine_tune_epochs=self.fine_tune_epochs)
        check_int(1, max_epochs=self.max_epochs, patience=self.patience)
        check_int(1, validate_every=self.validate_every, label_models=self.label_models)
        object.__setattr__(self, "seed", check_seed(self.seed))
        check_non_negative(lr=self.lr, weight_decay=self.weight_decay, label_weight_decay=self.label_weight_decay)
        check_fraction(averaging=self.averaging, clean_weight=self.clean_weight)
        check_bool(warm_start=self.warm_start, separate_warmup=self.separate_warmup)
        check_bool(scale_features=self.scale_features, try_starts=self.try_starts)
        if self.select not in SELECT:
            raise unknown_name("criterion for the best epoch", self.select, SELECT)
        if not is_number(self.max_clean_drop) or not 0 <= self.max_clean_drop <= 1:
            raise ValueError(f"expected 0 <= max_clean_drop <= 1, got {self.max_clean_drop!r}")
        if self.min_epochs >= self.max_epochs:
            raise ValueError(f"expected min_epochs < max_epochs, got {self.min_epochs} and {self.max_epochs}")

    @property
    def has_separate_warmup(self) -> bool:
        """Whether the warm-up is a separate run."""
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
            max_clean_drop=1.0,
            fine_tune_epochs=0,
        )

    def for_warmup(self) -> TrainConfig:
        """Return the settings of the separate warm-up."""
        epochs = min(self.warmup_epochs, self.max_epochs)
        return replace(self.for_label_models(), max_epochs=epochs, patience=min(epochs, _WARMUP_PATIENCE))

    def for_main_run(self, *, is_adversarial: bool) -> TrainConfig:
        """Return the settings of the main run, which has no warm-up epochs after a separate warm-up."""
        if not self.has_separate_warmup:
            # Attacks make alternative starts expensive.
            return replace(self, try_starts=False) if is_adversarial else self
        main = replace(self, warmup_epochs=0, separate_warmup=False, try_starts=False)
        if not (is_adversarial and self.fine_tune_epochs):
            return main
        epochs = min(self.max_epochs, self.fine_tune_epochs)
        return replace(main, max_epochs=epochs, patience=min(self.patience, max(1, epochs // 2)))

    def without_redundant_warmup(self, *, is_clean: bool, has_pseudo_labels: bool) -> TrainConfig:
        """Return the settings without a separate warm-up if the main run would only repeat it."""
        is_redundant = is_clean and not has_pseudo_labels and self.loss == "cross_entropy"
        if not (is_redundant and self.has_separate_warmup):
            return self
        return replace(self, warmup_epochs=0, separate_warmup=False)


class TrainSettings(TypedDict, total=False):
    """Keyword arguments that override a preset: the fields of :class:`TrainConfig`, all optional."""

    loss: str
    lr: float
    weight_decay: float
    warmup_epochs: int
    separate_warmup: bool
    max_epochs: int
    fine_tune_epochs: int
    min_epochs: int
    patience: int
    validate_every: int
    epsilon_warmup: int
    warm_start: bool
    clean_weight: float
    averaging: float
    label_models: int
    label_weight_decay: float
    select: str
    max_clean_drop: float
    try_starts: bool
    scale_features: bool
    max_restarts: int
    seed: int


@dataclass(frozen=True)
class Preset:
    """Named combination of settings, threat model and self-training.

    Args:
        description: Purpose of the preset.
        config: Settings of the training loop.
        threat: Default threat model; None for clean training.
        self_training: Default for self-training; None for adversarial training only, if there are unlabelled nodes.
        label_model: Name of the label model in self-training; None for the architecture of the trained model.
        label_model_settings: Settings of the label model.
    """

    description: str
    config: TrainConfig
    threat: Threat | None = None
    self_training: bool | None = False
    label_model: str | None = None
    label_model_settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.config, TrainConfig):
            raise TypeError(f"expected config as a TrainConfig, got {self.config!r}")
        if self.threat is not None and not isinstance(self.threat, Threat):
            raise TypeError(f"expected threat as a Threat, an attack with its budgets, got {self.threat!r}")


PRESETS = {
    "default": Preset(
        "settings that work across graphs and models; clean training unless an attack is given",
        TrainConfig(
            loss="cross_entropy",
            weight_decay=5e-4,
            warmup_epochs=1000,
            max_epochs=1000,
            fine_tune_epochs=100,
            patience=200,
            select="accuracy",
            max_clean_drop=0.02,
            clean_weight=0.5,
            label_models=2,
            label_weight_decay=5e-4,
            try_starts=True,
            scale_features=True,
            max_restarts=2,
        ),
        self_training=None,
        label_model="GPRGNN",
    ),
    "certified": Preset(
        "self-training on labels of five GPRGNNs, for models whose worst case can be computed, such as OneHop",
        TrainConfig(
            separate_warmup=False,
            min_epochs=50,
            max_epochs=300,
            patience=100,
            label_models=5,
            label_weight_decay=5e-3,
        ),
        self_training=True,
        label_model="GPRGNN",
        label_model_settings={"init": "ppr", "alpha": 0.1, "dropout": 0.8},
    ),
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


def check_threat_settings(config: TrainConfig, threat: Threat | None, given: Collection[str]) -> None:
    """Raise for settings that need an attack (or one that supports a warm start) if none is given.

    Args:
        config: All settings.
        threat: Threat model; None for clean training.
        given: Names of the settings that were given explicitly. A preset may have settings for adversarial training only.
    """
    if config.warm_start and (threat is None or not isinstance(threat.attack, WarmStarting)):
        raise ValueError(f"expected warm_start only with PGD, PRBCD or LRBCD, got {threat and threat.attack!r}")
    for name in ("clean_weight", "epsilon_warmup"):
        if threat is None and name in given and getattr(config, name):
            raise ValueError(f"expected {name} only with an attack to train against, got None")


def _is_valid(settings: TrainSettings) -> bool:
    """Return whether the settings are valid with the defaults, so that any conflict is with the preset."""
    try:
        TrainConfig(**settings)
    except ValueError:
        return False
    return True
