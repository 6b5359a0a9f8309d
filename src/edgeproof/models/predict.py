"""How the rest of the library calls a model, its own or anyone else's."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof._checks import check_data, check_not_caching
from edgeproof._modules import eval_mode
from edgeproof.models.base import GraphModel
from edgeproof.propagation import Adjacency


def graph_of(model: nn.Module, data: Data) -> Tensor | Adjacency:
    """What to hand ``model`` as its ``edge_index``, call after call.

    A model of this library takes a prepared :class:`~edgeproof.propagation.Adjacency` and so never sorts or
    normalises the same edges twice; anyone else's takes the edge list.
    """
    return Adjacency.from_data(data) if isinstance(model, GraphModel) else data.edge_index


def predict(model: nn.Module, data: Data) -> Tensor:
    """Logits of every node, in evaluation mode and without gradients; the model's mode is left as it was.

    >>> from edgeproof.models import MLP
    >>> data = Data(x=torch.ones(2, 3), edge_index=torch.tensor([[0, 1], [1, 0]]))
    >>> predict(MLP(3, 2), data).shape
    torch.Size([2, 2])
    """
    check_data(data, labels=False)
    check_not_caching(model)
    with eval_mode(model), torch.no_grad():
        logits: Tensor = model(data.x, graph_of(model, data))
    if not isinstance(logits, Tensor) or logits.dim() != 2 or logits.size(0) != data.x.size(0):
        found = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(
            f"expected logits of shape [{data.x.size(0)}, classes] from {type(model).__name__}, got {found}"
        )
    return logits
