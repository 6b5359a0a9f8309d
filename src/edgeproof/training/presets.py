"""Named ways to train."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from edgeproof._names import look_up, unknown_name
from edgeproof.attacks.greedy_rbcd import GreedyRBCD
from edgeproof.training.adversarial import Threat
from edgeproof.training.config import TrainConfig, TrainSettings


@dataclass(frozen=True)
class Preset:
    """Settings that belong together.

    Args:
        about: what they are for.
        config: settings of the loop.
        threat: what is trained against, where the caller names no attack; none for clean training.
        self_training: whether unlabelled nodes are labelled first, where the caller does not say.
        labeller: the model that labels them, by name; none for one of the kind that is trained.
        labeller_settings: its settings.
    """

    about: str
    config: TrainConfig
    threat: Threat | None = None
    self_training: bool = False
    labeller: str | None = None
    labeller_settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.config, TrainConfig):
            raise TypeError(f"expected config as a TrainConfig, got {self.config!r}")
        if self.threat is not None and not isinstance(self.threat, Threat):
            raise TypeError(f"expected threat as a Threat, an attack with its budgets, got {self.threat!r}")


PRESETS = {
    "paper": Preset("the paper's settings; regular training unless an attack is given", TrainConfig()),
    "sturdy": Preset(
        "self-training on labels of GPRGNN, against a much larger budget than any that is evaluated; for models that look at "
        "a node's own features first, such as APPNP with alpha=0.8 and dropout=0.8",
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
        labeller="GPRGNN",
        labeller_settings={"init": "ppr", "alpha": 0.1, "dropout": 0.8},
    ),
}


def configure(preset: str | TrainConfig | Preset, settings: TrainSettings) -> Preset:
    """A preset, by name, as it is, or as settings of the loop, with some of these settings changed.

    >>> configure("paper", {"lr": 0.05}).config.lr
    0.05
    """
    if isinstance(preset, TrainConfig):
        preset = Preset("given", preset)
    chosen = preset if isinstance(preset, Preset) else look_up("preset", preset, PRESETS)
    known = [entry.name for entry in fields(TrainConfig)]
    for name in settings:
        if name not in known:
            raise unknown_name("setting", name, known)
    try:
        return replace(chosen, config=replace(chosen.config, **settings))
    except ValueError as error:
        hint = f"; what you did not name is that of preset {preset!r}, and can be named, too"
        raise ValueError(f"{error}{hint if isinstance(preset, str) and _is_sound(settings) else ''}") from error


def _is_sound(settings: TrainSettings) -> bool:
    """Whether settings fit together by themselves, so that what they do not fit is a preset's."""
    try:
        TrainConfig(**settings)
    except ValueError:
        return False
    return True
