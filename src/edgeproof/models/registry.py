"""Every model by name, and the two ways in which the rest of the library touches a model."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof._names import look_up, unknown_name
from edgeproof.models.appnp import APPNP
from edgeproof.models.base import GraphModel
from edgeproof.models.chebnet2 import ChebNetII
from edgeproof.models.gat import GAT
from edgeproof.models.gcn import GCN
from edgeproof.models.gprgnn import GPRGNN
from edgeproof.models.mlp import MLP
from edgeproof.propagation import Adjacency

_MODELS: dict[str, type[GraphModel]] = {model.__name__: model for model in (APPNP, ChebNetII, GAT, GCN, GPRGNN, MLP)}


def available() -> list[str]:
    """Names of all models.

    >>> available()
    ['APPNP', 'ChebNetII', 'GAT', 'GCN', 'GPRGNN', 'MLP']
    """
    return list(_MODELS)


def build(
    name: str,
    in_channels: int,
    out_channels: int,
    settings: Mapping[str, Any] | None = None,
    *,
    seed: int | None = None,
) -> GraphModel:
    """A model by name, with initial parameters that depend on ``seed`` alone.

    Args:
        name: one of :func:`available`.
        in_channels: features per node.
        out_channels: classes.
        settings: further arguments of the model's constructor.
        seed: for the initial parameters; without it they come from torch's global generator.

    >>> build("GCN", 10, 4, {"hidden_channels": 8}, seed=0)
    GCN(in_channels=10, out_channels=4, hidden_channels=8, num_layers=2, dropout=0.5)
    """
    constructor = look_up("model", name, _MODELS)
    settings = dict(settings or {})
    known = [key for key in inspect.signature(constructor).parameters if not key.endswith("_channels")]
    known.append("hidden_channels")
    for key in settings:
        if key not in known:
            raise unknown_name(f"setting of {name}", key, known)
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        return constructor(in_channels, out_channels, **settings)


def graph_of(model: nn.Module, data: Data) -> Tensor | Adjacency:
    """What to hand ``model`` as its ``edge_index``, call after call.

    A model of this library takes a prepared :class:`~edgeproof.propagation.Adjacency` and so never sorts or
    normalises the same edges twice; anyone else's takes the edge list.
    """
    return Adjacency.from_data(data) if isinstance(model, GraphModel) else data.edge_index


def predict(model: nn.Module, data: Data) -> Tensor:
    """Logits of every node, in evaluation mode and without gradients; the model's mode is left as it was.

    >>> from torch_geometric.data import Data
    >>> data = Data(x=torch.ones(2, 3), edge_index=torch.tensor([[0, 1], [1, 0]]))
    >>> predict(MLP(3, 2), data).shape
    torch.Size([2, 2])
    """
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            logits: Tensor = model(data.x, graph_of(model, data))
    finally:
        model.train(training)
    return logits
