"""Training recipes that robust_training.py compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgeproof.attacks import LRBCD, GreedyRBCD
from edgeproof.experiments import (
    AttackSpec,
    DatasetSpec,
    Job,
    Measurement,
    ModelSpec,
    Sweep,
    TrainingSpec,
    as_settings,
)

DATASET = "citeseer"
# Splits of the comparisons, and splits used to select settings.
THREE, TEN, SELECTION = (0, 1, 5), tuple(range(10)), (10, 11, 12, 13)


@dataclass(frozen=True)
class Recipe:
    """A model and its training.

    Args:
        about: Description for tables.
        model: The architecture.
        training: Specification of the training.
        seeds: Seeds of the runs.
    """

    about: str
    model: ModelSpec
    training: TrainingSpec
    seeds: tuple[int, ...] = THREE

    def jobs(self, measurements: tuple[Measurement, ...]) -> list[Job]:
        """Return one job per seed."""
        return Sweep(
            datasets=(DatasetSpec(DATASET),),
            models=(self.model,),
            measurements=measurements,
            trainings=(self.training,),
            seeds=self.seeds,
        ).jobs()


_JOINT = {"separate_warmup": False}
_LABELS = {"label_models": 5, "label_weight_decay": 1e-3}
_DECAYED_LABELS = {"label_models": 5, "label_weight_decay": 5e-3}
_SHORT = {"min_epochs": 50, "max_epochs": 300, "patience": 100}
# Label model of several recipes: GPRGNN from the coefficients of PageRank with a teleport of 0.1.
_LABEL_MODEL = ModelSpec("GPRGNN", as_settings({"init": "ppr", "alpha": 0.1, "dropout": 0.8}))
_APPNP = ModelSpec("APPNP", as_settings({"alpha": 0.8, "dropout": 0.8}))


def _model(name: str, **settings: Any) -> ModelSpec:
    return ModelSpec.of_paper(name, settings)


def _regular(about: str, seeds: tuple[int, ...] = THREE, **config: Any) -> Recipe:
    return Recipe(about, ModelSpec.of_paper("GPRGNN"), TrainingSpec(config=as_settings(config)), seeds)


def _self_training(
    about: str,
    model: ModelSpec,
    config: Mapping[str, Any],
    *,
    label_model: ModelSpec | None = None,
    seeds: tuple[int, ...] = THREE,
) -> Recipe:
    training = TrainingSpec(config=as_settings(config), self_training=True, label_model=label_model)
    return Recipe(about, model, training, seeds)


def _lrbcd(
    about: str,
    model: str = "GPRGNN",
    *,
    seeds: tuple[int, ...] = THREE,
    attack: AttackSpec | None = None,
    **config: Any,
) -> Recipe:
    training = TrainingSpec(
        config=as_settings(config),
        attack=attack or AttackSpec.for_training("LRBCD"),
        epsilon=0.2,
        local=0.5,
        self_training=True,
    )
    return Recipe(about, ModelSpec.of_paper(model), training, seeds)


def _pagerank(
    about: str, seeds: tuple[int, ...], epsilon: float = 1.5, dropout: float = 0.5, *, label_model: bool = False
) -> Recipe:
    """Return GPRGNN from the coefficients of PageRank, with strong weight decay, against Greedy R-BCD."""
    labels = {**_LABELS, "label_weight_decay": 5e-3 if label_model else 1e-3}
    training = TrainingSpec(
        config=as_settings({"weight_decay": 2e-2, **_SHORT, **labels}),
        attack=AttackSpec.of(GreedyRBCD(loss="log_margin").for_training()),
        epsilon=epsilon,
        local=4 / 3 * epsilon,
        self_training=True,
        label_model=_LABEL_MODEL if label_model else None,
    )
    return Recipe(about, _model("GPRGNN", init="ppr", alpha=0.9, dropout=dropout), training, seeds)


def _appnp(about: str, alpha: float, seeds: tuple[int, ...], **config: Any) -> Recipe:
    """Return APPNP with a large teleport, self-trained on labels of a GPRGNN with a small one."""
    config = {"weight_decay": 5e-3, **_DECAYED_LABELS, **config}
    return _self_training(
        about, _model("APPNP", alpha=alpha, dropout=0.8), config, label_model=_LABEL_MODEL, seeds=seeds
    )


def _sturdy(about: str, seeds: tuple[int, ...] = THREE, **config: Any) -> Recipe:
    return Recipe(about, _APPNP, TrainingSpec(preset="sturdy", config=as_settings(config)), seeds)


# Names appear on the page; a description that starts with dots continues that of the recipe above.
RECIPES = {
    "regular": _regular("regular training", TEN),
    "regular-joint": _regular("... with the warm-up as part of the run", **_JOINT),
    "self": _self_training("self-training, as in the paper", ModelSpec.of_paper("GPRGNN"), {}, seeds=TEN),
    "self-joint": _self_training("... with the warm-up as part of the run", ModelSpec.of_paper("GPRGNN"), _JOINT),
    "mlp-drop": _self_training(
        "an MLP on labels of GPRGNN, dropout 0.8, weight decay 0.005",
        _model("MLP", dropout=0.8),
        {"weight_decay": 5e-3, **_LABELS},
        label_model=ModelSpec.of_paper("GPRGNN"),
        seeds=TEN + SELECTION,
    ),
    "lrbcd": _lrbcd("LR-BCD training, as in the paper", seeds=TEN),
    "lrbcd-labels": _lrbcd("... five label models with weight decay", seeds=TEN, **_LABELS),
    "lrbcd-min": _lrbcd("... first 100 epochs cannot be the best", min_epochs=100, **_LABELS),
    "lrbcd-average": _lrbcd("... and parameters averaged (0.98)", min_epochs=100, averaging=0.98, **_LABELS),
    "lrbcd-warm": _lrbcd("... and warm starts", min_epochs=100, warm_start=True, **_LABELS),
    "lrbcd-every5": _lrbcd("... and validation every 5 epochs", min_epochs=100, validate_every=5, **_LABELS),
    "lrbcd-free": _lrbcd(
        "... and free training: one attack step an epoch, warm starts",
        attack=AttackSpec.of(LRBCD(steps=1, block_size=1_000_000, lr=2000.0)),
        min_epochs=100,
        warm_start=True,
        **_LABELS,
    ),
    "cheb-lrbcd-labels": _lrbcd(
        "ChebNetII, LR-BCD training on labels of a model with weight decay",
        "ChebNetII",
        seeds=(0,),
        label_weight_decay=1e-3,
    ),
    "pagerank": _pagerank(
        "Greedy R-BCD with the log margin, ε = 1.5, twice the degree; GPRGNN from PageRank's coefficients, five label models, "
        "dropout 0.5, weight decay 0.02",
        TEN + SELECTION,
    ),
    "pagerank-drop": _pagerank("`pagerank` with dropout 0.8", TEN, dropout=0.8),
    "pagerank-3": _pagerank("`pagerank` with ε = 3, four times the degree", TEN, 3.0),
    "pagerank-3-drop": _pagerank("`pagerank` with dropout 0.8, ε = 3, four times the degree", SELECTION, 3.0, 0.8),
    "pagerank-6-drop": _pagerank("`pagerank` with dropout 0.8, ε = 6, eight times the degree", SELECTION, 6.0, 0.8),
    "pagerank-12-drop": _pagerank("`pagerank` with dropout 0.8, ε = 12, 16 times the degree", SELECTION, 12.0, 0.8),
    "pagerank-labels": _pagerank(
        "`pagerank` on labels of GPRGNN with a teleport of 0.1, dropout 0.8 and weight decay 0.005",
        TEN + SELECTION,
        label_model=True,
    ),
    "pagerank-3-labels": _pagerank("`pagerank-3` on labels as in `pagerank-labels`", TEN, 3.0, label_model=True),
    **{
        f"pagerank-{epsilon}-drop-labels": _pagerank(
            f"`pagerank-{epsilon}-drop` on labels as in `pagerank-labels`",
            SELECTION,
            float(epsilon),
            0.8,
            label_model=True,
        )
        for epsilon in (3, 6, 12)
    },
    "self-labels-drop": _self_training(
        "self-training on labels as in `pagerank-labels`, dropout 0.8, weight decay 0.005",
        _model("GPRGNN", dropout=0.8),
        {"weight_decay": 5e-3, **_DECAYED_LABELS},
        label_model=_LABEL_MODEL,
        seeds=TEN + SELECTION,
    ),
    "mlp-labels-drop": _self_training(
        "an MLP on labels as in `pagerank-labels`, dropout 0.8, weight decay 0.005",
        _model("MLP", dropout=0.8),
        {"weight_decay": 5e-3, **_DECAYED_LABELS},
        label_model=_LABEL_MODEL,
        seeds=TEN + SELECTION,
    ),
    **{
        f"appnp-{alpha}": _appnp(
            f"APPNP with a teleport of {alpha} on labels as in `pagerank-labels`, dropout 0.8, weight decay 0.005",
            alpha,
            seeds,
        )
        for alpha, seeds in ((0.7, SELECTION[:2]), (0.8, TEN))
    },
    "appnp-0.8-300": _appnp("`appnp-0.8` with the epochs of `sturdy`, 300 at most", 0.8, TEN, **_SHORT),
    "sturdy": _sturdy(
        "the preset `sturdy`: `appnp-0.8-300` against Greedy R-BCD with the log margin, ε = 1.5, twice the degree", TEN
    ),
    "sturdy-clean": _sturdy("... and half of the loss on the clean graph", clean_weight=0.5),
    "sturdy-average": _sturdy("`sturdy`, parameters averaged (0.95)", averaging=0.95),
    "sturdy-slow": _sturdy("`sturdy`, the budget rises over 50 epochs", epsilon_warmup=50),
}
