"""The ways to train that robust_training.py compares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from edgeproof.attacks import LRBCD, Attack, GreedyRBCD
from edgeproof.training.config import TrainSettings


@dataclass(frozen=True)
class Way:
    """A way to train.

    Args:
        about: what it is, in a few words.
        model: which model.
        model_settings: its settings.
        self_training: whether all nodes of the training graph count.
        labeller: which model labels them, if not one of the same kind.
        labeller_settings: its settings.
        attack: what it is trained against.
        epsilon: with this budget in all.
        local: and this one at each node.
        settings: what differs from the preset.
        preset: which preset; ``sturdy`` has an attack and label models of its own.
    """

    about: str
    model: str = "GPRGNN"
    model_settings: dict[str, Any] = field(default_factory=dict)
    self_training: bool = True
    labeller: str | None = None
    labeller_settings: dict[str, Any] = field(default_factory=dict)
    attack: Attack | None = None
    epsilon: float | None = None
    local: float | None = None
    settings: TrainSettings = field(default_factory=TrainSettings)
    preset: str = "paper"


_JOINT: Any = {"separate_warmup": False}
_LABELS: Any = {"label_models": 5, "label_weight_decay": 1e-3}
_PAGERANK = {"init": "ppr", "alpha": 0.9, "dropout": 0.5}
_LABELLER = {"init": "ppr", "alpha": 0.1, "dropout": 0.8}


def _lrbcd(about: str, model: str = "GPRGNN", **settings: Any) -> Way:
    return Way(
        about,
        model=model,
        attack=LRBCD().for_training(),
        epsilon=0.2,
        local=0.5,
        settings=TrainSettings(**settings),
    )


def _pagerank(about: str, epsilon: float = 1.5, dropout: float = 0.5, labeller: bool = False) -> Way:
    """GPRGNN that begins with PageRank's coefficients, with much weight decay; perhaps on labels of another model."""
    settings: Any = {"weight_decay": 2e-2, "min_epochs": 50, "max_epochs": 300, "patience": 100, **_LABELS}
    return Way(
        about,
        model_settings={**_PAGERANK, "dropout": dropout},
        labeller="GPRGNN" if labeller else None,
        labeller_settings=_LABELLER if labeller else {},
        attack=GreedyRBCD(loss="log_margin").for_training(),
        epsilon=epsilon,
        local=4 / 3 * epsilon,
        settings=TrainSettings(**settings | ({"label_weight_decay": 5e-3} if labeller else {})),
    )


def _near(about: str, alpha: float, **settings: Any) -> Way:
    """APPNP that looks at a node itself first, trained on the labels of a model that looks further."""
    return Way(
        about,
        model="APPNP",
        model_settings={"alpha": alpha, "dropout": 0.8},
        labeller="GPRGNN",
        labeller_settings=_LABELLER,
        settings=TrainSettings(label_models=5, label_weight_decay=5e-3, weight_decay=5e-3, **settings),
    )


def _sturdy(about: str, **settings: Any) -> Way:
    model_settings = {"alpha": 0.8, "dropout": 0.8}
    return Way(about, model="APPNP", model_settings=model_settings, settings=TrainSettings(**settings), preset="sturdy")


# The options of training, one at a time.
OPTIONS = {
    "regular": Way("regular training", self_training=False),
    "regular-joint": Way("... with the warm-up as part of the run", self_training=False, settings=_JOINT),
    "self": Way("self-training, as in the paper"),
    "self-joint": Way("... with the warm-up as part of the run", settings=_JOINT),
    "mlp-drop": Way(
        "an MLP on labels of GPRGNN, dropout 0.8, weight decay 0.005",
        model="MLP",
        model_settings={"dropout": 0.8},
        labeller="GPRGNN",
        settings=TrainSettings(weight_decay=5e-3, **_LABELS),
    ),
    "lrbcd": _lrbcd("LR-BCD training, as in the paper"),
    "lrbcd-labels": _lrbcd("... five label models with weight decay", **_LABELS),
    "lrbcd-min": _lrbcd("... first 100 epochs cannot be the best", min_epochs=100, **_LABELS),
    "lrbcd-average": _lrbcd("... and parameters averaged (0.98)", min_epochs=100, averaging=0.98, **_LABELS),
    "lrbcd-warm": _lrbcd("... and warm starts", min_epochs=100, warm_start=True, **_LABELS),
    "lrbcd-every5": _lrbcd("... and validation every 5 epochs", min_epochs=100, validate_every=5, **_LABELS),
    "lrbcd-free": Way(
        "... and free training: one attack step an epoch, warm starts",
        attack=LRBCD(steps=1, block_size=1_000_000, lr=2000.0),
        epsilon=0.2,
        local=0.5,
        settings=TrainSettings(min_epochs=100, warm_start=True, **_LABELS),
    ),
    "cheb-lrbcd": _lrbcd("ChebNetII, LR-BCD training, as in the paper", "ChebNetII"),
    "cheb-lrbcd-labels": _lrbcd("... labels of a model with weight decay", "ChebNetII", label_weight_decay=1e-3),
    "pagerank": _pagerank(
        "Greedy R-BCD with the log margin, ε = 1.5, twice the degree; GPRGNN from PageRank's coefficients, five label models, "
        "dropout 0.5, weight decay 0.02"
    ),
    "pagerank-drop": _pagerank("`pagerank` with dropout 0.8", dropout=0.8),
    "pagerank-3": _pagerank("`pagerank` with ε = 3, four times the degree", 3.0),
    "pagerank-3-drop": _pagerank("`pagerank` with dropout 0.8, ε = 3, four times the degree", 3.0, dropout=0.8),
    "pagerank-6-drop": _pagerank("`pagerank` with dropout 0.8, ε = 6, eight times the degree", 6.0, dropout=0.8),
    "pagerank-12-drop": _pagerank("`pagerank` with dropout 0.8, ε = 12, 16 times the degree", 12.0, dropout=0.8),
    "pagerank-labels": _pagerank(
        "`pagerank` on labels of GPRGNN with a teleport of 0.1, dropout 0.8 and weight decay 0.005", labeller=True
    ),
    "pagerank-3-labels": _pagerank("`pagerank-3` on labels of that kind", 3.0, labeller=True),
    "pagerank-3-drop-labels": _pagerank("`pagerank-3-drop` on labels of that kind", 3.0, dropout=0.8, labeller=True),
    "pagerank-6-drop-labels": _pagerank("`pagerank-6-drop` on labels of that kind", 6.0, dropout=0.8, labeller=True),
    "pagerank-12-drop-labels": _pagerank("`pagerank-12-drop` on labels of that kind", 12.0, dropout=0.8, labeller=True),
    "self-labels-drop": Way(
        "self-training on labels of that kind, dropout 0.8, weight decay 0.005",
        model_settings={"dropout": 0.8},
        labeller="GPRGNN",
        labeller_settings=_LABELLER,
        settings=TrainSettings(label_models=5, label_weight_decay=5e-3, weight_decay=5e-3),
    ),
    "mlp-labels-drop": Way(
        "an MLP on labels of that kind, dropout 0.8, weight decay 0.005",
        model="MLP",
        model_settings={"dropout": 0.8},
        labeller="GPRGNN",
        labeller_settings=_LABELLER,
        settings=TrainSettings(label_models=5, label_weight_decay=5e-3, weight_decay=5e-3),
    ),
    **{
        f"appnp-{alpha}": _near(
            f"APPNP with a teleport of {alpha} on labels of that kind, dropout 0.8, weight decay 0.005", alpha
        )
        for alpha in (0.7, 0.8, 0.9)
    },
    "appnp-0.8-300": _near(
        "`appnp-0.8` with the epochs of `sturdy`, 300 at most", 0.8, min_epochs=50, max_epochs=300, patience=100
    ),
    "sturdy": _sturdy(
        "the preset `sturdy`: `appnp-0.8-300` against Greedy R-BCD with the log margin, ε = 1.5, twice the degree"
    ),
    "sturdy-clean": _sturdy("... and half of the loss on the clean graph", clean_share=0.5),
    "sturdy-average": _sturdy("`sturdy`, parameters averaged (0.95)", averaging=0.95),
    "sturdy-slow": _sturdy("`sturdy`, the budget rises over 50 epochs", epsilon_warmup=50),
}
