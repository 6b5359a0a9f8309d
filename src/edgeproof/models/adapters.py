"""Adapters for users' models."""

from __future__ import annotations

from torch import Tensor, nn

from edgeproof._checks import check_module
from edgeproof.propagation import Adjacency
from edgeproof.propagation.layer_rules import ConvertedModel


class EdgeWeighted(ConvertedModel):
    """Model of PyG layers with edge weights added, so that its output is differentiable in the edges.

    Models of ``GCNConv``, ``SGConv``, ``APPNP``, ``GraphConv`` and ``GATConv`` need no adapter. ``SAGEConv`` (mean and sum) and
    ``GINConv`` take no edge weights: here a weight multiplies the message, so weight 0 equals no edge. With all weights 1 the
    logits do not change, which the first call verifies.

    The parameters are shared with the model: training one trains the other.

    Args:
        model: Model called as ``model(x, edge_index)``.

    Raises:
        UnsupportedLayerError: If the model has a layer without a replacement; on the first call, if the logits differ.

    >>> import torch
    >>> from torch_geometric.nn.models import GraphSAGE
    >>> model = EdgeWeighted(GraphSAGE(3, 8, num_layers=2, out_channels=2))
    >>> x, edge_index = torch.ones(3, 3), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> weight = torch.ones(4, requires_grad=True)
    >>> model(x, edge_index, weight).sum().backward()
    >>> weight.grad.shape
    torch.Size([4])
    """

    def __init__(self, model: nn.Module) -> None:
        check_module(model)
        super().__init__(model)
        # In a tuple, so that it is not registered as a submodule. Empty after the first call.
        self._unchecked: tuple[nn.Module, ...] = (model,)

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        """Return the logits of every node."""
        for original in self._unchecked:
            self.check_same_logits(original, h, adjacency)
        self._unchecked = ()
        return super().diffuse(h, adjacency)
