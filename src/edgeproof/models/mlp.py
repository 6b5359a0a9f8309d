"""The multi-layer perceptron: a model that hears no neighbour, and the front half of those that do."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from edgeproof.models.base import GraphModel
from edgeproof.propagation import Adjacency


class MLP(GraphModel):
    r"""Multi-layer perceptron, :math:`H^{(l)} = \mathrm{ReLU}(H^{(l-1)} W_l^\top + b_l)`, the last layer linear.

    Dropout comes before every layer. No edge changes its output: the ceiling of robustness, and the floor of
    what a graph model must beat.

    Args:
        in_channels: features per node.
        out_channels: classes.
        hidden_channels: width of the hidden layers.
        num_layers: number of linear layers.
        dropout: share of inputs dropped before every layer while training.

    >>> MLP(10, 3)
    MLP(in_channels=10, out_channels=3, hidden_channels=64, num_layers=2, dropout=0.2)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden_channels: int = 64,
        num_layers: int = 2,
        dropout: float = 0.2,
    ) -> None:
        super().__init__(in_channels, out_channels, hidden_channels, num_layers, dropout)
        self.layers = nn.ModuleList(nn.Linear(*size) for size in self.layer_sizes)

    def encode(self, x: Tensor) -> Tensor:
        for index, layer in enumerate(self.layers):
            x = F.dropout(x, self.dropout, self.training)
            x = layer(x)
            if index < self.num_layers - 1:
                x = x.relu()
        return x

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        return h
