"""Registry of models by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from edgeproof._checks import check_seed
from edgeproof._names import look_up, unknown_name
from edgeproof.models.appnp import APPNP
from edgeproof.models.base import GraphModel
from edgeproof.models.bounded import BoundedInfluence
from edgeproof.models.chebnet2 import ChebNetII
from edgeproof.models.gat import GAT
from edgeproof.models.gcn import GCN
from edgeproof.models.gprgnn import GPRGNN
from edgeproof.models.grand import GRAND
from edgeproof.models.mlp import MLP
from edgeproof.models.one_hop import OneHop
from edgeproof.models.soft_median import SoftMedianGDC

_MODELS: dict[str, type[GraphModel]] = {
    model.__name__: model
    for model in (APPNP, BoundedInfluence, ChebNetII, GAT, GCN, GPRGNN, GRAND, MLP, OneHop, SoftMedianGDC)
}


# Settings of the paper's models that differ from the defaults.
PAPER_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "ChebNetII": {"filter_lr": 1e-3, "filter_weight_decay": 5e-3},
    "GAT": {"attention_dropout": 0.0},
    "GPRGNN": {"init": "random", "dropout": 0.2},
}


def available() -> list[str]:
    """Return the names of all models.

    >>> available()
    ['APPNP', 'BoundedInfluence', 'ChebNetII', 'GAT', 'GCN', 'GPRGNN', 'GRAND', 'MLP', 'OneHop', 'SoftMedianGDC']
    """
    return list(_MODELS)


def is_listed(model: object) -> bool:
    """Return whether the type of ``model`` is registered, so that its name and settings determine its architecture."""
    if isinstance(model, BoundedInfluence):
        return is_listed(model.model) and type(model.own) is MLP and model.own.num_layers == 2
    return _MODELS.get(type(model).__name__) is type(model)


def build(
    name: str,
    in_channels: int,
    out_channels: int,
    settings: Mapping[str, Any] | None = None,
    *,
    seed: int | None = None,
) -> GraphModel:
    """Build a model by name.

    Args:
        name: One of :func:`available`.
        in_channels: Number of features.
        out_channels: Number of classes.
        settings: Further arguments of the model's constructor.
        seed: Seed of the initial parameters. Default: torch's global generator.

    >>> build("GCN", 10, 4, {"hidden_channels": 8}, seed=0)
    GCN(in_channels=10, out_channels=4, hidden_channels=8, num_layers=2, dropout=0.5)
    """
    constructor: Callable[..., GraphModel] = look_up("model", name, _MODELS)
    if constructor is BoundedInfluence:
        constructor = _build_bounded
    if seed is not None:
        check_seed(seed)
    settings = dict(settings or {})
    names = [key for key in inspect.signature(constructor).parameters if not key.endswith("_channels")]
    names.append("hidden_channels")
    for key in settings:
        if key not in names:
            raise unknown_name(f"setting of {name}", key, names)
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        return constructor(in_channels, out_channels, **settings)


def _build_bounded(
    in_channels: int,
    out_channels: int,
    *,
    model: str = "GPRGNN",
    bound: float = 1.0,
    hidden_channels: int = 64,
    dropout: float = 0.5,
    model_settings: Mapping[str, Any] | None = None,
) -> BoundedInfluence:
    """Build :class:`BoundedInfluence` around a model of the library."""
    if model == BoundedInfluence.__name__:
        raise ValueError(f"expected another model within BoundedInfluence, got {model!r}")
    own = MLP(in_channels, out_channels, hidden_channels=hidden_channels, dropout=dropout)
    inner = {"hidden_channels": hidden_channels, "dropout": dropout, **(model_settings or {})}
    return BoundedInfluence(build(model, in_channels, out_channels, inner), bound, own=own)
