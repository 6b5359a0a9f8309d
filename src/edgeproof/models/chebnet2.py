"""ChebNetII (He et al., NeurIPS 2022): learnable diffusion by Chebyshev interpolation."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgeproof._checks import check_fraction, check_int
from edgeproof.models.base import MAX_STEPS, GraphModel
from edgeproof.models.mlp import MLP
from edgeproof.propagation import Adjacency, propagate
from edgeproof.propagation.incremental import Polynomial


class ChebNetII(GraphModel):
    r"""MLP followed by a learned polynomial filter, parameterized by its values at the Chebyshev nodes.

    .. math::
        Z = \tfrac{c_0}{2} H + \sum_{k=1}^K c_k T_k(\hat L) H, \qquad
        c_k = \tfrac{2}{K + 1} \sum_{j=0}^K \mathrm{ReLU}(\gamma_j) T_k(x_j), \qquad
        x_j = \cos\Bigl(\tfrac{K - j + 1/2}{K + 1} \pi\Bigr),

    with :math:`H = \mathrm{MLP}(X)`, the Chebyshev polynomials :math:`T_k(x) = 2 x T_{k-1}(x) - T_{k-2}(x)` and the
    shifted Laplacian without self-loops :math:`\hat L = -D^{-1/2} A D^{-1/2}`, whose eigenvalues lie in
    :math:`[-1, 1]`. The filter passes through :math:`\mathrm{ReLU}(\gamma_j)` at :math:`x_j`.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        hidden_channels: Width of the MLP's hidden layers.
        num_layers: Number of linear layers of the MLP.
        K: Degree of the polynomial.
        dropout: Dropout probability before every linear layer.
        propagation_dropout: Dropout probability before the diffusion.
        filter_lr: Learning rate of :math:`\gamma`; None for that of the other parameters.
        filter_weight_decay: Weight decay of :math:`\gamma`; None for that of the other parameters.

    >>> ChebNetII(10, 4, K=2).gamma.detach()
    tensor([1., 1., 1.])
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
        dropout: float = 0.8,
        propagation_dropout: float = 0.5,
        filter_lr: float | None = None,
        filter_weight_decay: float | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, hidden_channels, num_layers, dropout)
        check_int(1, MAX_STEPS, K=K)
        check_fraction(propagation_dropout=propagation_dropout)
        self.K, self.propagation_dropout = K, propagation_dropout
        self.filter_lr, self.filter_weight_decay = filter_lr, filter_weight_decay
        self.mlp = MLP(
            in_channels,
            out_channels,
            hidden_channels=hidden_channels,
            num_layers=num_layers,
            dropout=dropout,
        )
        self.gamma = nn.Parameter(torch.ones(K + 1))

    def input_weights(self) -> list[Tensor]:
        return self.mlp.input_weights()

    def polynomial(self) -> Polynomial:
        """Return the polynomial of the normalized adjacency matrix, in powers of it instead of Chebyshev polynomials."""
        c = self.coefficients(torch.float64).detach()
        # The argument is the negative of the matrix, so odd coefficients change their sign.
        sign = (-1.0) ** np.arange(c.numel())
        powers = np.polynomial.chebyshev.cheb2poly(sign * c.cpu().numpy())
        return Polynomial(torch.from_numpy(np.pad(powers, (0, c.numel() - powers.size))).to(c), self_loops=False)

    def encode(self, x: Tensor) -> Tensor:
        return F.dropout(self.mlp.encode(x), self.propagation_dropout, self.training)

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        adjacency = adjacency.normalized(self_loops=False)
        c = self.coefficients()
        previous, current = h, -propagate(adjacency, h)
        z = c[0] * previous + c[1] * current
        for k in range(2, self.K + 1):
            previous, current = current, -2 * propagate(adjacency, current) - previous
            z = z + c[k] * current
        return z

    def coefficients(self, dtype: torch.dtype | None = None) -> Tensor:
        r"""Return the coefficients :math:`(c_0 / 2, c_1, \dots, c_K)` of the Chebyshev polynomials.

        Args:
            dtype: Dtype of the computation. Default: that of the parameters.
        """
        gamma = self.gamma.to(dtype or self.gamma.dtype)
        return _nodes_to_chebyshev(self.K, gamma.dtype, gamma.device) @ gamma.relu()

    def parameter_groups(self) -> list[dict[str, Any]]:
        own = {"lr": self.filter_lr, "weight_decay": self.filter_weight_decay}
        given = {name: value for name, value in own.items() if value is not None}
        return [{"params": list(self.mlp.parameters())}, {"params": [self.gamma], **given}]


@lru_cache
def _nodes_to_chebyshev(K: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the matrix that maps filter values at the nodes to coefficients, by T_k(cos t) = cos(k t)."""
    # Cached tensors must not be inference tensors.
    with torch.inference_mode(False):
        angle = (torch.arange(K, -1, -1, dtype=torch.float64) + 0.5) / (K + 1) * math.pi
        matrix = 2 / (K + 1) * torch.cos(torch.arange(K + 1)[:, None] * angle)
        matrix[0] /= 2
        return matrix.to(device, dtype)
