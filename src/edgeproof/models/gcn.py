"""Graph convolutional network (Kipf and Welling, ICLR 2017)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgeproof.models.base import GraphModel
from edgeproof.propagation import Adjacency, propagate


class GCN(GraphModel):
    r"""Graph convolutional network.

    .. math::
        H^{(l)} = \mathrm{ReLU}\bigl(\hat A H^{(l-1)} W_l + b_l\bigr), \qquad
        \hat A = D^{-1/2} (A + I) D^{-1/2},

    without ReLU in the last layer, and with dropout between layers.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        hidden_channels: Width of the hidden layers.
        num_layers: Number of convolutions.
        dropout: Dropout probability after every ReLU.

    >>> x, edge_index = torch.ones(3, 10), torch.tensor([[0, 1], [1, 0]])
    >>> GCN(10, 4)(x, edge_index).shape
    torch.Size([3, 4])
    """

    takes_sparse = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden_channels: int = 64,
        num_layers: int = 2,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(in_channels, out_channels, hidden_channels, num_layers, dropout)
        self.weights = nn.ParameterList(nn.init.xavier_uniform_(torch.empty(size)) for size in self.layer_sizes)
        self.biases = nn.ParameterList(torch.zeros(width) for _, width in self.layer_sizes)

    def input_weights(self) -> list[Tensor]:
        return [self.weights[0]]

    def convolutions(self) -> list[tuple[Tensor, Tensor]]:
        """Return weight and bias of each convolution."""
        return list(zip(self.weights, self.biases, strict=True))

    def encode(self, x: Tensor) -> Tensor:
        h: Tensor = x @ self.weights[0]
        return h

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        adjacency = adjacency.normalized(self_loops=True)
        h = propagate(adjacency, h) + self.biases[0]
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            h = F.dropout(h.relu(), self.dropout, self.training)
            h = propagate(adjacency, h @ weight) + bias
        return h
