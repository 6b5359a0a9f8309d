r"""A defence that is perfect on paper: remember the clean graph (Propositions 1 and 2 of the paper).

In the transductive setting a model sees the clean graph, test nodes included, while it is trained. Whatever the model
:math:`f`, the defence :math:`\tilde f` that answers every later question with :math:`f`'s answers on the clean graph has

.. math::
    L_{0/1}(\tilde f) = L_{0/1}(f) = \max_{\tilde{\mathcal G}} L_{0/1}(\tilde f(\tilde{\mathcal G}), y):

no attack can lower its accuracy, and it has learned nothing. On nodes that were not there it is as fragile as :math:`f`.
So accuracy under attack in the transductive setting does not show robustness; only the inductive setting can.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof._checks import check_data
from edgeproof.models.base import predict


class Memorizing(nn.Module):
    """Answers for nodes that it knows as ``model`` did on ``data``, whatever the edges; for all others as ``model`` does.

    A node is known by its features. Several nodes with the same features are told apart by their place, if the whole graph has
    the features of ``data``; otherwise they are not known.

    Args:
        model: whose answers are remembered.
        data: the clean graph.

    >>> from edgeproof import datasets, models
    >>> data = datasets.load("csbm")
    >>> model = models.build("GCN", data.num_features, 2, seed=0).eval()
    >>> defence = Memorizing(model, data)
    >>> no_edges = data.edge_index[:, :0]
    >>> bool((defence(data.x, no_edges) == model(data.x, data.edge_index)).all())
    True
    """

    features: Tensor
    answers: Tensor
    place: Tensor

    def __init__(self, model: nn.Module, data: Data) -> None:
        super().__init__()
        check_data(data, labels=False)
        self.model = model
        unique, which, count = data.x.unique(dim=0, return_inverse=True, return_counts=True)
        place = torch.full((len(unique),), -1, device=data.x.device)
        place[which] = torch.arange(len(which), device=data.x.device)
        # Shared features name no node.
        place[count > 1] = -1
        self.register_buffer("features", data.x.clone())
        self.register_buffer("answers", predict(model, data))
        self.register_buffer("place", place[which])

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Logits of every node; see the class."""
        if x.shape == self.features.shape and torch.equal(x, self.features):
            return self.answers
        logits: Tensor = self.model(x, edge_index, edge_weight)
        known = self.known(x)
        return torch.where((known >= 0)[:, None], self.answers[known.clamp(min=0)], logits)

    def known(self, x: Tensor) -> Tensor:
        """Which remembered node each row of features is; -1 for none."""
        rows, which = torch.cat([self.features, x]).unique(dim=0, return_inverse=True)
        remembered, asked = which[: len(self.features)], which[len(self.features) :]
        found = torch.full((len(rows),), -1, device=x.device)
        found[remembered] = self.place
        return found[asked]
