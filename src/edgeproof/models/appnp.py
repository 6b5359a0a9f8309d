"""Personalized propagation of neural predictions (Gasteiger et al., ICLR 2019)."""

from __future__ import annotations

import torch
from torch import Tensor

from edgeproof._checks import check_fraction, check_int
from edgeproof.models.base import MAX_STEPS, GraphModel
from edgeproof.models.mlp import MLP
from edgeproof.propagation import Adjacency, propagate
from edgeproof.propagation.incremental import Polynomial


class APPNP(GraphModel):
    r"""MLP followed by ``K`` steps of personalized PageRank.

    .. math::
        Z^{(0)} = H = \mathrm{MLP}(X), \qquad
        Z^{(k)} = (1 - \alpha) \hat A Z^{(k-1)} + \alpha H, \qquad
        \hat A = D^{-1/2} (A + I) D^{-1/2},

    that is :math:`\sum_k \gamma_k \hat A^k H` with :math:`\gamma_k = \alpha (1 - \alpha)^k` for :math:`k < K` and
    :math:`\gamma_K = (1 - \alpha)^K`.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        hidden_channels: Width of the MLP's hidden layers.
        num_layers: Number of linear layers of the MLP.
        K: Number of propagation steps.
        alpha: Teleport probability :math:`\alpha`, the weight of a node's own prediction in every step.
        dropout: Dropout probability before every linear layer.

    >>> APPNP(10, 4).alpha
    0.1
    """

    takes_sparse = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden_channels: int = 64,
        num_layers: int = 2,
        K: int = 10,
        alpha: float = 0.1,
        dropout: float = 0.2,
    ) -> None:
        super().__init__(in_channels, out_channels, hidden_channels, num_layers, dropout)
        check_int(1, MAX_STEPS, K=K)
        check_fraction(alpha=alpha)
        self.K, self.alpha = K, alpha
        self.mlp = MLP(
            in_channels,
            out_channels,
            hidden_channels=hidden_channels,
            num_layers=num_layers,
            dropout=dropout,
        )

    def input_weights(self) -> list[Tensor]:
        return self.mlp.input_weights()

    def polynomial(self) -> Polynomial:
        """Return the polynomial of the normalized adjacency matrix."""
        gamma = self.alpha * (1 - self.alpha) ** torch.arange(self.K + 1, dtype=torch.float64)
        gamma[self.K] = (1 - self.alpha) ** self.K
        return Polynomial(gamma, self_loops=True)

    def encode(self, x: Tensor) -> Tensor:
        return self.mlp.encode(x)

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        adjacency = adjacency.normalized(self_loops=True)
        z = h
        for _ in range(self.K):
            z = (1 - self.alpha) * propagate(adjacency, z) + self.alpha * h
        return z
