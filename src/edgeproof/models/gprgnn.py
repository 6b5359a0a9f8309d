"""Generalized PageRank network (Chien et al., ICLR 2021): learnable diffusion in the monomial basis."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from edgeproof._checks import check_fraction, check_int, check_seed
from edgeproof._names import unknown_name
from edgeproof.models.base import MAX_STEPS, GraphModel
from edgeproof.models.mlp import MLP
from edgeproof.propagation import Adjacency, propagate
from edgeproof.propagation.incremental import Polynomial


class GPRGNN(GraphModel):
    r"""MLP followed by a learned polynomial of the normalized adjacency matrix ("robust diffusion").

    .. math::
        Z = \sum_{k=0}^K \gamma_k \hat A^k H, \qquad H = \mathrm{MLP}(X), \qquad
        \hat A = D^{-1/2} (A + I) D^{-1/2}.

    The coefficients :math:`\gamma` are learned, with weight decay like all parameters: without it, the scale between
    :math:`\gamma` and :math:`H` is undetermined.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        hidden_channels: Width of the MLP's hidden layers.
        num_layers: Number of linear layers of the MLP.
        K: Degree of the polynomial.
        init: Initialization of :math:`\gamma`. ``"ppr"``: the coefficients of APPNP; ``"random"`` (the paper's): uniform in
            :math:`\pm\sqrt{3 / (K + 1)}`, divided by :math:`\sum |\gamma_k|`; ``"sgc"``: :math:`\gamma_K = 1`, the rest 0.
        alpha: Teleport probability for ``init="ppr"``.
        init_seed: Seed of NumPy's generator, from which ``init="random"`` then draws :math:`\gamma`, as the paper's released
            scripts do. Default: torch's generator. The result of regular training depends strongly on the initial values.
        dropout: Dropout probability before every linear layer (the paper: 0.2).

    >>> GPRGNN(10, 4, K=3, alpha=0.5).gamma.detach()
    tensor([0.5000, 0.2500, 0.1250, 0.1250])
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
        init: str = "ppr",
        alpha: float = 0.1,
        init_seed: int | None = None,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(in_channels, out_channels, hidden_channels, num_layers, dropout)
        check_int(1, MAX_STEPS, K=K)
        check_fraction(alpha=alpha)
        if init_seed is not None:
            if init != "random":
                raise ValueError(f"expected init_seed only with init='random', got init={init!r}")
            check_seed(init_seed, "init_seed")
        self.K, self.init, self.alpha, self.init_seed = K, init, alpha, init_seed
        self.mlp = MLP(
            in_channels,
            out_channels,
            hidden_channels=hidden_channels,
            num_layers=num_layers,
            dropout=dropout,
        )
        self.gamma = nn.Parameter(_initial_gamma(K, init, alpha, init_seed))

    def input_weights(self) -> list[Tensor]:
        return self.mlp.input_weights()

    def alternative_starts(self) -> list[dict[str, Tensor]]:
        """Return the coefficients of PageRank with alternating signs, a high-pass filter: a start for heterophilous graphs."""
        gamma = _initial_gamma(self.K, "ppr", self.alpha, None).to(self.gamma)
        return [{"gamma": gamma * (-1) ** torch.arange(self.K + 1, device=gamma.device)}]

    def polynomial(self) -> Polynomial:
        """Return the polynomial of the normalized adjacency matrix."""
        return Polynomial(self.gamma.detach().double(), self_loops=True)

    def encode(self, x: Tensor) -> Tensor:
        return self.mlp.encode(x)

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        adjacency = adjacency.normalized(self_loops=True)
        # Horner's scheme: the backward pass has only products with the matrix between propagations.
        *gammas, last = self.gamma.unbind()
        z = last * h
        for gamma in reversed(gammas):
            z = torch.addcmul(propagate(adjacency, z), gamma, h)
        return z


def _initial_gamma(K: int, init: str, alpha: float, seed: int | None) -> Tensor:
    if init == "random":
        if seed is None:
            gamma = torch.empty(K + 1).uniform_(-1, 1) * math.sqrt(3 / (K + 1))
        else:
            bound = math.sqrt(3 / (K + 1))
            gamma = torch.from_numpy(np.random.RandomState(seed).uniform(-bound, bound, K + 1)).float()
        return gamma / gamma.abs().sum()
    if init == "ppr":
        gamma = alpha * (1 - alpha) ** torch.arange(K + 1.0)
        gamma[K] = (1 - alpha) ** K
        return gamma
    if init == "sgc":
        gamma = torch.zeros(K + 1)
        gamma[K] = 1.0
        return gamma
    raise unknown_name("init", init, ["random", "ppr", "sgc"])
