"""Graph attention network (Veličković et al., ICLR 2018) over weighted edges."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgeproof.models.base import GraphModel, check_positive
from edgeproof.propagation import Adjacency, propagate
from edgeproof.propagation.attention import attention

_SLOPE = 0.2


class GAT(GraphModel):
    r"""Graph attention network whose attention respects edge weights.

    Per layer and head, with :math:`H = X W` and :math:`\tilde A = A + I`,

    .. math::
        o_u = b + \sum_v \alpha_{uv} H_v, \qquad
        \alpha_{uv} = \frac{\tilde A_{uv} \exp s_{uv}}{\sum_w \tilde A_{uw} \exp s_{uw}}, \qquad
        s_{uv} = \mathrm{LeakyReLU}(a_r^\top H_u + a_s^\top H_v).

    A weight thus enters the attention as its logarithm: 1 changes nothing, 0 is no edge. Hidden layers
    concatenate their heads, the last layer has one; ReLU and dropout stand between layers.

    Args:
        in_channels: features per node.
        out_channels: classes.
        hidden_channels: width of the hidden layers, all heads together.
        num_layers: number of attention layers.
        heads: attention heads of the hidden layers.
        dropout: share of hidden units dropped after every ReLU while training.

    >>> x, edge_index = torch.ones(3, 10), torch.tensor([[0, 1], [1, 0]])
    >>> GAT(10, 4, heads=8)(x, edge_index).shape
    torch.Size([3, 4])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden_channels: int = 64,
        num_layers: int = 2,
        heads: int = 1,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(in_channels, out_channels, hidden_channels, num_layers, dropout)
        check_positive(heads=heads)
        if hidden_channels % heads:
            raise ValueError(f"expected hidden_channels divisible by heads, got {hidden_channels} / {heads}")
        self.heads = heads
        self.weights = nn.ParameterList(nn.init.xavier_uniform_(torch.empty(size)) for size in self.layer_sizes)
        *hidden, last = (width for _, width in self.layer_sizes)
        self.attentions = nn.ModuleList([*(_Attention(width, heads) for width in hidden), _Attention(last, heads=1)])

    def encode(self, x: Tensor) -> Tensor:
        h: Tensor = x @ self.weights[0]
        return h

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        adjacency = adjacency.with_self_loops
        for layer, attend in enumerate(self.attentions):
            if layer > 0:
                h = F.dropout(h.relu(), self.dropout, self.training) @ self.weights[layer]
            h = attend(h, adjacency)
        return h


class _Attention(nn.Module):
    """Attention over neighbours: takes transformed features, heads side by side, and returns them mixed."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.receiver = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, channels // heads)))
        self.sender = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, channels // heads)))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        heads = h.chunk(self.receiver.size(0), dim=1)
        attended = [
            propagate(attention(adjacency, head @ receiver, head @ sender, _SLOPE), head)
            for head, receiver, sender in zip(heads, self.receiver, self.sender, strict=True)
        ]
        return torch.cat(attended, dim=1) + self.bias
