"""Multi-layer perceptron: a model that ignores the graph, and the encoder of diffusion models."""

from __future__ import annotations

from torch import Tensor, nn

from edgeproof._features import dropout
from edgeproof.models.base import GraphModel
from edgeproof.propagation import Adjacency


class MLP(GraphModel):
    r"""Multi-layer perceptron, :math:`H^{(l)} = \mathrm{ReLU}(H^{(l-1)} W_l^\top + b_l)`, the last layer linear.

    Dropout is applied before every layer. Edges do not affect the output, so it is the baseline that a graph model must beat
    under attack.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        hidden_channels: Width of the hidden layers.
        num_layers: Number of linear layers.
        dropout: Dropout probability before every layer.

    >>> MLP(10, 3)
    MLP(in_channels=10, out_channels=3, hidden_channels=64, num_layers=2, dropout=0.2)
    """

    takes_sparse = True

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

    def input_weights(self) -> list[Tensor]:
        weight = self.layers[0].weight
        assert isinstance(weight, Tensor)
        return [weight.T]

    def encode(self, x: Tensor) -> Tensor:
        for index, layer in enumerate(self.layers):
            x = dropout(x, self.dropout, self.training)
            x = layer(x)
            if index < self.num_layers - 1:
                x = x.relu()
        return x

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        return h
