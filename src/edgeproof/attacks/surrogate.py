"""Surrogate models for transfer attacks."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.data import Data

from edgeproof.models import GCN, build, graph_of
from edgeproof.models.base import predict

_EPOCHS = 100


def fit_surrogate(model: nn.Module, data: Data, *, seed: int) -> GCN:
    """Fit a GCN to the predictions of ``model`` on the clean graph.

    Flips found on the surrogate often transfer to ``model`` where its own gradients vanish or mislead.

    Args:
        model: Model whose predictions are fitted.
        data: Clean graph.
        seed: Seed of the initial parameters.
    """
    logits = predict(model, data)
    predictions = logits.argmax(dim=1)
    surrogate = build("GCN", data.x.size(1), logits.size(1), seed=seed).to(data.x.device, data.x.dtype)
    assert isinstance(surrogate, GCN)
    optimizer = torch.optim.Adam(surrogate.parameters(), lr=0.01, weight_decay=1e-3)
    graph = graph_of(surrogate, data)
    # Without dropout, only the initial parameters are random.
    surrogate.eval()
    with torch.enable_grad():
        for _ in range(_EPOCHS):
            optimizer.zero_grad()
            F.cross_entropy(surrogate(data.x, graph), predictions).backward()
            optimizer.step()
    return surrogate
