"""Tier of a model: how attacks compute the effect of edge flips on it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch_geometric.data import Data

from edgeproof._checks import check_data
from edgeproof.models.adapt import adapt
from edgeproof.propagation import EdgeGradientEngine
from edgeproof.propagation.autograd_path import weighted_logit_sum
from edgeproof.propagation.tiers import NoEdgeGradientError, Tier


@dataclass(frozen=True)
class ModelTier:
    """Result of :func:`tier_of`.

    Args:
        tier: ``"propagate"``, ``"autograd"`` or ``"black_box"``.
        reason: Why the model has no faster tier; empty for ``"propagate"``.
    """

    tier: Tier
    reason: str


def tier_of(model: nn.Module, data: Data) -> ModelTier:
    """Return the fastest tier that is correct for a model, measured with a few forward and backward passes.

    Args:
        model: Any module that returns logits, on the graph's device.
        data: Graph of the kind that the model is used on.

    Raises:
        ValueError: If no attack can be trusted on the model, for example because it reuses the graph of an earlier call.

    >>> from edgeproof import datasets
    >>> from torch_geometric.nn.models import GCN
    >>> data = datasets.load("csbm")
    >>> tier_of(GCN(data.num_features, 8, num_layers=2, out_channels=2), data)
    ModelTier(tier='propagate', reason='')
    """
    check_data(data, labels=False)
    model = adapt(model, data)
    nodes = torch.arange(data.x.size(0), device=data.x.device)
    try:
        engine = EdgeGradientEngine(model, data, nodes, labels=nodes, loss=weighted_logit_sum)
    except NoEdgeGradientError as error:
        return ModelTier("black_box", str(error))
    return ModelTier(engine.path, engine.reason)
