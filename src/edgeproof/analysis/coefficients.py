"""The polynomial view of a model: how much of what it says comes from how many steps away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from numpy.polynomial.chebyshev import cheb2poly
from torch import Tensor, nn

from edgeproof._plotting import COLOURS, empty_figure, write_figure, zero_line
from edgeproof.analysis import polynomial
from edgeproof.models import APPNP, GCN, GPRGNN, MLP, ChebNetII

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Coefficients:
    r"""A filter :math:`\sum_k \gamma_k \hat A^k`, its sign and size taken out.

    Hidden states bear any sign and size, so that only the direction of :math:`\gamma` means something. As in the paper,
    :math:`\sum_k |\gamma_k| = 1` and :math:`\gamma_0 > 0`; where :math:`\gamma_0 = 0`, the first that is not 0 is positive.

    Args:
        model: whose filter it is.
        gamma: :math:`\gamma`, shape ``[K + 1]``, double precision.
        scale: what was taken out: the model itself computes with ``scale * gamma``. Negative where the sign was changed.
        self_loops: the basis. Powers of :math:`\hat A = D^{-1/2} \tilde A D^{-1/2}` with :math:`\tilde A = A + I` if true, and
            :math:`\tilde A = A` if not; :math:`D` holds the row sums of :math:`\tilde A`.

    >>> Coefficients.of([-1.0, 0.0, 3.0], self_loops=True)
    Coefficients('given', gamma=[0.25, 0, -0.75], scale=-4, basis='powers of the normalised A + I')
    """

    model: str
    gamma: Tensor
    scale: float
    self_loops: bool

    @classmethod
    def of(cls, gamma: Tensor | list[float], *, self_loops: bool, model: str = "given") -> Coefficients:
        r"""Bring :math:`\gamma` of any sign and size to the form above: also the way in for models of your own.

        Args:
            gamma: at least one number, not all 0.
            self_loops: whether it weighs powers of the normalised :math:`A + I` or of the normalised :math:`A`.
            model: a name.
        """
        gamma = torch.as_tensor(gamma, dtype=torch.float64).detach().cpu()
        if gamma.dim() != 1 or gamma.numel() == 0 or not bool(gamma.isfinite().all()):
            raise ValueError(f"expected gamma as a list of finite numbers, at least one, got {gamma.tolist()}")
        if not bool(gamma.any()):
            raise ValueError(f"expected a filter that lets something pass, got gamma = 0 throughout from {model}")
        first = gamma[gamma.nonzero()[0, 0]]
        scale = first.sign() * gamma.abs().sum()
        # Adding 0 turns -0 into 0.
        return cls(model, gamma / scale + 0.0, float(scale), self_loops)

    @property
    def basis(self) -> str:
        return f"powers of the normalised {'A + I' if self.self_loops else 'A'}"

    def response(self, frequency: Tensor) -> Tensor:
        r"""The filter :math:`g(\lambda) = \sum_k \gamma_k (1 - \lambda)^k` at eigenvalues of :math:`I - \hat A`.

        >>> Coefficients.of([1.0, 1.0], self_loops=True).response(torch.tensor([0.0, 1.0, 2.0]))
        tensor([1.0000, 0.5000, 0.0000], dtype=torch.float64)
        """
        return polynomial.at(self.gamma, 1 - frequency.double().cpu())

    def figure(self) -> Figure:
        """Bars of the coefficients."""
        figure = empty_figure(5, 3)
        axes = figure.subplots()
        axes.bar(range(self.gamma.numel()), self.gamma, color=COLOURS[0])
        zero_line(axes)
        axes.set_xticks(range(self.gamma.numel()))
        axes.set_xlabel("steps k")
        axes.set_ylabel(r"$\gamma_k$, sum of sizes 1")
        axes.set_title(f"{self.model}, {self.basis}", fontsize="medium")
        return figure

    def plot(self, path: str | Path) -> None:
        """:meth:`figure` as a PNG or SVG file."""
        write_figure(self.figure(), path)

    def __repr__(self) -> str:
        gamma = ", ".join(f"{value:.4g}" for value in self.gamma.tolist())
        return f"Coefficients({self.model!r}, gamma=[{gamma}], scale={self.scale:.4g}, basis={self.basis!r})"


def coefficients(model: nn.Module | Coefficients) -> Coefficients:
    r"""The coefficients :math:`\gamma` of a model's diffusion, in one basis for all models.

    - GPRGNN: as learned.
    - APPNP: :math:`\gamma_k = \alpha (1 - \alpha)^k` for :math:`k < K` and :math:`\gamma_K = (1 - \alpha)^K`.
    - ChebNetII: its Chebyshev series in :math:`\hat L = -\hat A`, expanded and sorted by powers of :math:`\hat A`, with
      :math:`T_k(-x) = (-1)^k T_k(x)`. The expansion is exact; its terms grow as :math:`2^K` and cancel, so that beyond
      :math:`K \approx 30` doubles no longer carry the sum.
    - MLP: :math:`\gamma_0 = 1`, in whatever matrix.
    - GCN: :math:`\gamma_L = 1` for :math:`L` layers. This is the GCN without its ReLUs and biases, which is how far it reaches;
      nothing is claimed about its logits, which are no fixed matrix times hidden states.

    For all but GCN, logits are exactly ``scale * diffusion(model, data) @ model.encode(x)`` in evaluation mode.

    Args:
        model: one of these models, or coefficients, which are returned as they are.

    >>> coefficients(APPNP(5, 2, K=2, alpha=0.5))
    Coefficients('APPNP', gamma=[0.5, 0.25, 0.25], scale=1, basis='powers of the normalised A + I')
    """
    if isinstance(model, Coefficients):
        return model
    if type(model) not in _READERS:
        known = ", ".join(sorted(reader.__name__ for reader in _READERS))
        raise TypeError(
            f"expected a model with a polynomial filter, one of {known}, or Coefficients, got {type(model).__name__}"
        )
    gamma, self_loops = _READERS[type(model)](model)
    return Coefficients.of(gamma, self_loops=self_loops, model=type(model).__name__)


def _of_gprgnn(model: GPRGNN) -> tuple[Tensor, bool]:
    return model.gamma, True


def _of_appnp(model: APPNP) -> tuple[Tensor, bool]:
    rest = (1 - model.alpha) ** torch.arange(model.K + 1, dtype=torch.float64)
    return torch.cat([model.alpha * rest[:-1], rest[-1:]]), True


def _of_chebnet2(model: ChebNetII) -> tuple[Tensor, bool]:
    # Expanding multiplies rounding errors, too, so doubles from the start.
    series = model.coefficients(torch.float64).detach().cpu()
    series[1::2] *= -1  # from polynomials of the Laplacian -A to polynomials of A
    gamma = torch.zeros_like(series)
    # Leading zeros are left out by numpy.
    powers = torch.from_numpy(cheb2poly(series.numpy()))
    gamma[: powers.numel()] = powers
    return gamma, False


def _of_gcn(model: GCN) -> tuple[Tensor, bool]:
    return torch.eye(model.num_layers + 1, dtype=torch.float64)[-1], True


def _of_mlp(model: MLP) -> tuple[Tensor, bool]:
    return torch.ones(1, dtype=torch.float64), True


_READERS: dict[type[nn.Module], Callable[..., tuple[Tensor, bool]]] = {
    APPNP: _of_appnp,
    ChebNetII: _of_chebnet2,
    GCN: _of_gcn,
    GPRGNN: _of_gprgnn,
    MLP: _of_mlp,
}
