"""Graph attention network (Veličković et al., ICLR 2018) with edge weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgeproof._checks import check_fraction, check_int
from edgeproof.models.base import MAX_LAYERS, GraphModel
from edgeproof.propagation import Adjacency, propagate
from edgeproof.propagation.message_rules import attention

_NEGATIVE_SLOPE = 0.2


class GAT(GraphModel):
    r"""Graph attention network with edge weights in the attention.

    Per layer and head, with :math:`H = X W` and :math:`\tilde A = A + I`,

    .. math::
        o_u = b + \sum_v \alpha_{uv} H_v, \qquad
        \alpha_{uv} = \frac{\tilde A_{uv} \exp s_{uv}}{\sum_w \tilde A_{uw} \exp s_{uw}}, \qquad
        s_{uv} = \mathrm{LeakyReLU}(a_r^\top H_u + a_s^\top H_v).

    An edge weight thus acts as an additive logarithm in the softmax: weight 1 has no effect, weight 0 equals no edge. Hidden
    layers concatenate their heads, the last layer has one head; ReLU and dropout are applied between layers.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        hidden_channels: Width of the hidden layers, summed over heads.
        num_layers: Number of attention layers.
        heads: Number of attention heads in the hidden layers.
        dropout: Dropout probability after every ReLU.
        attention_dropout: Dropout probability of the attention weights in training.

    >>> x, edge_index = torch.ones(3, 10), torch.tensor([[0, 1], [1, 0]])
    >>> GAT(10, 4, heads=8)(x, edge_index).shape
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
        heads: int = 1,
        dropout: float = 0.5,
        attention_dropout: float = 0.5,
    ) -> None:
        super().__init__(in_channels, out_channels, hidden_channels, num_layers, dropout)
        check_int(1, MAX_LAYERS, heads=heads)
        check_fraction(attention_dropout=attention_dropout)
        if hidden_channels % heads:
            raise ValueError(f"expected hidden_channels divisible by heads, got {hidden_channels} / {heads}")
        self.heads, self.attention_dropout = heads, attention_dropout
        self.weights = nn.ParameterList(nn.init.xavier_uniform_(torch.empty(size)) for size in self.layer_sizes)
        *hidden, last = (width for _, width in self.layer_sizes)
        self.attentions = nn.ModuleList([*(_Attention(width, heads) for width in hidden), _Attention(last, heads=1)])

    def input_weights(self) -> list[Tensor]:
        return [self.weights[0]]

    def encode(self, x: Tensor) -> Tensor:
        h: Tensor = x @ self.weights[0]
        return h

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        adjacency = adjacency.with_self_loops
        for layer, attention_layer in enumerate(self.attentions):
            if layer > 0:
                h = F.dropout(h.relu(), self.dropout, self.training) @ self.weights[layer]
            h = attention_layer(h, adjacency, self.attention_dropout)
        return h


class _Attention(nn.Module):
    """Attention layer without the linear map; the heads are concatenated along the channels."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.receiver = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, channels // heads)))
        self.sender = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, channels // heads)))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, h: Tensor, adjacency: Adjacency, dropout: float) -> Tensor:
        heads = h.chunk(self.receiver.size(0), dim=1)
        outputs = []
        for head, receiver, sender in zip(heads, self.receiver, self.sender, strict=True):
            weights = attention(adjacency, head @ receiver, head @ sender, _NEGATIVE_SLOPE)
            if self.training and dropout:
                weights = weights.with_weight(F.dropout(weights.weight, dropout))
            outputs.append(propagate(weights, head))
        return torch.cat(outputs, dim=1) + self.bias
