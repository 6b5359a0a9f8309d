from __future__ import annotations

import pytest
from torch import nn

import edgeproof as ep
from edgeproof.certificates import SparseSmoothing


@pytest.fixture
def smoothing() -> SparseSmoothing:
    return SparseSmoothing(p_add=0.02, p_del=0.5)


@pytest.fixture
def untrained() -> nn.Module:
    return ep.models.build("GCN", 21, 2, {"hidden_channels": 8}, seed=0).eval()


@pytest.fixture
def trained(split: ep.splits.Split) -> nn.Module:
    model = ep.models.build("GPRGNN", 21, 2, {"hidden_channels": 8}, seed=0).eval()
    ep.train(model, split, max_epochs=60, progress=False)
    return model
