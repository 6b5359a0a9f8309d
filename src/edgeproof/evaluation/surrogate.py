"""A second model that imitates the first, to see whether attacks carry over from it."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.data import Data

from edgeproof.models import GCN, build, graph_of
from edgeproof.models.base import predict

_EPOCHS = 100


def imitate(model: nn.Module, data: Data, *, seed: int) -> GCN:
    """A GCN taught to answer as ``model`` does on the clean graph.

    A model that hides its gradients falls to an attack on its imitation more easily than to one on itself.
    """
    logits = predict(model, data)
    answers = logits.argmax(dim=1)
    student = build("GCN", data.x.size(1), logits.size(1), seed=seed).to(data.x.device, data.x.dtype)
    assert isinstance(student, GCN)
    optimizer = torch.optim.Adam(student.parameters(), lr=0.01, weight_decay=1e-3)
    graph = graph_of(student, data)
    # Without dropout, so that nothing is random but the initial parameters.
    student.eval()
    with torch.enable_grad():
        for _ in range(_EPOCHS):
            optimizer.zero_grad()
            F.cross_entropy(student(data.x, graph), answers).backward()
            optimizer.step()
    return student
