r"""Graph transformer with random-walk encodings that are recomputed on every graph (GPS, Rampasek et al., 2022)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, GPSConv

from edgeproof._checks import check_fraction, check_int


def random_walk_encoding(
    edge_index: Tensor, num_nodes: int, steps: int, edge_weight: Tensor | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    r"""Return the probabilities that a random walk is back at its start after 1, 2, ... steps.

    .. math::
        e_v = \big[(P)_{vv}, (P^2)_{vv}, \dots, (P^K)_{vv}\big], \qquad
        P = \max(D, I)^{-1} A, \quad D = \mathrm{diag}(A \mathbf 1)

    The encoding is differentiable in the edge weights, so an attack that uses its gradient adapts to the change of the
    encodings. An edge of weight 0 equals no edge. Time :math:`O(K n^3)` and memory :math:`O(K n^2)`.

    Args:
        edge_index: Edges, shape ``[2, edges]``.
        num_nodes: Number of nodes :math:`n`.
        steps: Number of steps :math:`K`.
        edge_weight: Weight of each edge, shape ``[edges]``. Default: 1.
        dtype: Dtype of the encoding. Default: that of the weights, or torch's default.

    Returns:
        Encodings, shape ``[nodes, steps]``.

    >>> random_walk_encoding(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), 4, 2)
    tensor([[0.0000, 0.5000],
            [0.0000, 1.0000],
            [0.0000, 0.5000],
            [0.0000, 0.0000]])
    """
    check_int(1, steps=steps)
    dtype = dtype or (torch.get_default_dtype() if edge_weight is None else edge_weight.dtype)
    if edge_weight is None:
        edge_weight = torch.ones(edge_index.size(1), dtype=dtype, device=edge_index.device)
    matrix = torch.zeros(num_nodes, num_nodes, dtype=dtype, device=edge_index.device)
    matrix = matrix.index_put((edge_index[0], edge_index[1]), edge_weight.to(dtype), accumulate=True)
    walk = matrix / matrix.sum(dim=1, keepdim=True).clamp(min=1)
    power, returns = walk, [walk.diagonal()]
    for _ in range(steps - 1):
        power = power @ walk
        returns.append(power.diagonal())
    return torch.stack(returns, dim=1)


class GPS(nn.Module):
    r"""Graph transformer: each layer adds a graph convolution and attention between all nodes.

    .. math::
        h^0 = W [x \,\|\, e], \qquad h^{l+1} = \mathrm{MLP}\big(\mathrm{GCN}(h^l) + \mathrm{Attention}(h^l)\big)

    with the encodings :math:`e` of :func:`random_walk_encoding`, recomputed for every graph and differentiable in its edge
    weights, and with residual connections and norms. Attention has the cost :math:`O(n^2)`. Its tier is ``"autograd"``.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        hidden_channels: Width of the layers, a multiple of ``heads``.
        num_layers: Number of layers.
        heads: Number of attention heads.
        walk_steps: Length of the encodings.
        dropout: Dropout probability.

    >>> model = GPS(3, 2, hidden_channels=8, heads=2)
    >>> model(torch.ones(4, 3), torch.tensor([[0, 1], [1, 0]])).shape
    torch.Size([4, 2])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden_channels: int = 64,
        num_layers: int = 2,
        heads: int = 4,
        walk_steps: int = 8,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        check_int(1, in_channels=in_channels, out_channels=out_channels, hidden_channels=hidden_channels)
        check_int(1, num_layers=num_layers, heads=heads, walk_steps=walk_steps)
        check_fraction(dropout=dropout)
        if hidden_channels % heads:
            raise ValueError(f"expected hidden_channels to be a multiple of heads={heads}, got {hidden_channels}")
        self.walk_steps = walk_steps
        self.encode = nn.Linear(in_channels + walk_steps, hidden_channels)
        self.layers = nn.ModuleList(
            GPSConv(hidden_channels, GCNConv(hidden_channels, hidden_channels), heads, dropout, norm="layer_norm")
            for _ in range(num_layers)
        )
        self.decode = nn.Linear(hidden_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Return the logits of every node, shape ``[nodes, out_channels]``. An edge of weight 0 equals no edge."""
        encoding = random_walk_encoding(edge_index, x.size(0), self.walk_steps, edge_weight, x.dtype)
        h = self.encode(torch.cat([x, encoding], dim=1))
        for layer in self.layers:
            h = layer(h, edge_index, edge_weight=edge_weight)
        out: Tensor = self.decode(h)
        return out
