r"""Memorizing the clean graph: a perfect transductive defence without robustness (paper, Propositions 1 and 2).

In the transductive setting a model sees the clean graph during training, including the test nodes. For any model :math:`f`,
let :math:`\tilde f` be the defence that returns the predictions of :math:`f` on the clean graph for every perturbed graph. Then

.. math::
    L_{0/1}(\tilde f) = L_{0/1}(f) = \max_{\tilde{\mathcal G}} L_{0/1}(\tilde f(\tilde{\mathcal G}), y):

no attack lowers its accuracy, although nothing was learned. On new nodes it is as fragile as :math:`f`. Robust accuracy in the
transductive setting therefore does not show robustness; the inductive setting does.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof._checks import check_data
from edgeproof._features import for_model
from edgeproof.models.base import predict


class Memorizing(nn.Module):
    """Model that returns the clean logits of ``model`` for all nodes of ``data``, whatever the edges.

    Nodes are identified by their features. Nodes with identical features are identified by their position if all features of
    the graph equal those of ``data``, and otherwise treated as new nodes, which get the logits of ``model``.

    Args:
        model: Model whose logits are memorized.
        data: Clean graph.

    >>> from edgeproof import datasets, models
    >>> data = datasets.load("csbm")
    >>> model = models.build("GCN", data.num_features, 2, seed=0).eval()
    >>> defence = Memorizing(model, data)
    >>> no_edges = data.edge_index[:, :0]
    >>> bool((defence(data.x, no_edges) == model(data.x, data.edge_index)).all())
    True
    """

    features: Tensor
    clean_logits: Tensor
    node_of: Tensor

    def __init__(self, model: nn.Module, data: Data) -> None:
        super().__init__()
        check_data(data, labels=False)
        data = for_model(data, self)
        self.model = model
        unique, inverse, count = data.x.unique(dim=0, return_inverse=True, return_counts=True)
        node_of = torch.full((len(unique),), -1, device=data.x.device)
        node_of[inverse] = torch.arange(len(inverse), device=data.x.device)
        # Features shared by several nodes identify none of them.
        node_of[count > 1] = -1
        self.register_buffer("features", data.x.clone())
        self.register_buffer("clean_logits", predict(model, data))
        self.register_buffer("node_of", node_of[inverse])

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Return the memorized logits of known nodes and the logits of ``model`` for all others."""
        if x.shape == self.features.shape and torch.equal(x, self.features):
            return self.clean_logits
        logits: Tensor = self.model(x, edge_index, edge_weight)
        ids = self.node_ids(x)
        return torch.where((ids >= 0)[:, None], self.clean_logits[ids.clamp(min=0)], logits)

    def node_ids(self, x: Tensor) -> Tensor:
        """Return the id of the memorized node of each row of features; -1 for new nodes."""
        unique, inverse = torch.cat([self.features, x]).unique(dim=0, return_inverse=True)
        memorized, queried = inverse[: len(self.features)], inverse[len(self.features) :]
        ids = torch.full((len(unique),), -1, device=x.device)
        ids[memorized] = self.node_of
        return ids[queried]
