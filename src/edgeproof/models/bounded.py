"""Any model with a bound on the influence of edges."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from edgeproof._checks import check_module, check_positive
from edgeproof.models.base import GraphModel
from edgeproof.models.mlp import MLP
from edgeproof.propagation import Adjacency, EncodeDiffuse


class BoundedInfluence(GraphModel):
    r"""Logits of a node's own features, changed by at most :math:`s` through any model of the graph.

    .. math::
        Z = F(X) + s \tanh\bigl(G(X, A) / s\bigr)

    Edges change every logit by less than :math:`s` from :math:`F(X)`, and the difference between two logits by less than
    :math:`2 s`. So a node whose margin under :math:`F` is at least :math:`2 s` keeps its class for any edges at all:
    :class:`edgeproof.certificates.WorstCase`.

    Args:
        model: Model :math:`G`, of this library or any module called as ``model(x, edge_index, edge_weight)``. The parameters
            are shared with it. A module that does not take ``edge_weight`` can be certified, but has no edge gradients.
        bound: Maximum change :math:`s` of a logit through edges.
        own: Model :math:`F` of the features alone, called as ``own(x)``. Default: an :class:`~edgeproof.models.MLP` with the
            hidden width and dropout of ``model``, where it has these.

    >>> from edgeproof.models import GCN
    >>> model = BoundedInfluence(GCN(10, 4), bound=0.5).eval()
    >>> x, edge_index = torch.ones(3, 10), torch.tensor([[0, 1], [1, 0]])
    >>> bool(((model(x, edge_index) - model.own_logits(x)).abs() <= 0.5).all())
    True
    """

    def __init__(self, model: nn.Module, bound: float = 1.0, *, own: nn.Module | None = None) -> None:
        check_module(model)
        check_positive(bound=bound)
        features, classes = getattr(model, "in_channels", None), getattr(model, "out_channels", None)
        if not isinstance(features, int) or not isinstance(classes, int):
            raise ValueError(
                f"expected a model with the attributes in_channels and out_channels, got {type(model).__name__}: set them to "
                "its numbers of features and classes"
            )
        hidden, dropout = getattr(model, "hidden_channels", 64), getattr(model, "dropout", 0.5)
        hidden, dropout = (hidden if isinstance(hidden, int) else 64), (dropout if isinstance(dropout, float) else 0.5)
        super().__init__(features, classes, hidden, getattr(own, "num_layers", 2), dropout)
        self.bound = bound
        self.model = model
        self.own = MLP(features, classes, hidden_channels=hidden, dropout=dropout) if own is None else own

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of :func:`edgeproof.models.build`; of other models than those of the library only their class name."""
        inner = self.model.settings if isinstance(self.model, GraphModel) else {}
        return {
            "in_channels": self.in_channels,
            "out_channels": self.out_channels,
            "model": type(self.model).__name__,
            "bound": self.bound,
            "hidden_channels": self.hidden_channels,
            "dropout": self.dropout,
            "model_settings": {name: value for name, value in inner.items() if name not in _SIZES},
        }

    @property
    def influence(self) -> float:
        """Maximum change :math:`s` of a logit through edges."""
        return self.bound

    def input_weights(self) -> list[Tensor]:
        parts = (self.own, self.model)
        if not all(isinstance(part, GraphModel) and part.input_weights() for part in parts):
            return []
        return [weight for part in parts if isinstance(part, GraphModel) for weight in part.input_weights()]

    def own_logits(self, x: Tensor) -> Tensor:
        """Return the logits of the features alone."""
        logits: Tensor = self.own.encode(x) if isinstance(self.own, GraphModel) else self.own(x)
        return logits

    def encode(self, x: Tensor) -> Tensor:
        inner = self.model.encode(x) if isinstance(self.model, EncodeDiffuse) else x
        return torch.cat([self.own_logits(x), inner], dim=1)

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        own, inner = h[:, : self.out_channels], h[:, self.out_channels :]
        if isinstance(self.model, EncodeDiffuse):
            logits = self.model.diffuse(inner, adjacency)
        else:
            logits = self._run_on_edges(inner, adjacency)
        return own + self.bound * torch.tanh(logits / self.bound)

    def _run_on_edges(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        """Call a module that takes an edge list."""
        row, col, weight = adjacency.pattern.row, adjacency.pattern.col, adjacency.weight
        # The diagonal of the pattern has no edges, and layers that add self-loops would take it for existing ones.
        is_edge = row != col
        if "edge_weight" in inspect.signature(self.model.forward).parameters:
            logits: Tensor = self.model(x, torch.stack([col, row])[:, is_edge], weight[is_edge])
            return logits
        if bool(((weight != 0) & (weight != 1)).any()):
            raise ValueError(
                f"expected weights of 0 and 1 only, because {type(self.model).__name__} takes no edge_weight"
            )
        unweighted: Tensor = self.model(x, torch.stack([col, row])[:, is_edge & (weight > 0)])
        return unweighted


_SIZES = ("in_channels", "out_channels")
