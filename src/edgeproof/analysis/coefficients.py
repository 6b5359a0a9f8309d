"""Polynomial filter coefficients of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from numpy.polynomial.chebyshev import cheb2poly
from torch import Tensor, nn

from edgeproof._plotting import COLOURS, empty_figure, write_figure, zero_line
from edgeproof._tables import Layout, Record, TabularResult, records
from edgeproof.analysis import polynomial
from edgeproof.models import APPNP, GCN, GPRGNN, MLP, ChebNetII

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Coefficients(TabularResult):
    r"""Polynomial filter :math:`\sum_k \gamma_k \hat A^k`, normalized in sign and size.

    Hidden states can have any sign and size, so only the direction of :math:`\gamma` is meaningful. As in the paper,
    :math:`\sum_k |\gamma_k| = 1` and :math:`\gamma_0 > 0`; if :math:`\gamma_0 = 0`, the first non-zero coefficient is positive.

    Args:
        model: Name of the model.
        gamma: Coefficients :math:`\gamma` in double precision, shape ``[K + 1]``.
        scale: Factor that was divided out: the model computes with ``scale * gamma``. Negative if the sign was changed.
        self_loops: Matrix of the filter, :math:`\hat A = D^{-1/2} \tilde A D^{-1/2}` with :math:`\tilde A = A + I` if True and
            :math:`\tilde A = A` if False; :math:`D` holds the row sums of :math:`\tilde A`.

    >>> Coefficients.of([-1.0, 0.0, 3.0], self_loops=True)
    Coefficients('given', gamma=[0.25, 0, -0.75], scale=-4, basis='powers of the normalized A + I')
    """

    model: str
    gamma: Tensor
    scale: float
    self_loops: bool

    @classmethod
    def of(cls, gamma: Tensor | list[float], *, self_loops: bool, model: str = "given") -> Coefficients:
        r"""Normalize coefficients of any sign and size, for example those of your own model.

        Args:
            gamma: Finite coefficients, at least one of them non-zero.
            self_loops: Whether they weigh powers of the normalized :math:`A + I` (True) or of the normalized :math:`A`.
            model: Name of the model.
        """
        gamma = torch.as_tensor(gamma, dtype=torch.float64).detach().cpu()
        if gamma.dim() != 1 or gamma.numel() == 0 or not bool(gamma.isfinite().all()):
            raise ValueError(f"expected gamma as a non-empty list of finite numbers, got {gamma.tolist()}")
        if not bool(gamma.any()):
            raise ValueError(f"expected a filter with a non-zero coefficient, got gamma = 0 from {model}")
        first = gamma[gamma.nonzero()[0, 0]]
        scale = first.sign() * gamma.abs().sum()
        # Adding 0 turns -0 into 0.
        return cls(model, gamma / scale + 0.0, float(scale), self_loops)

    @property
    def basis(self) -> str:
        """The matrix powers that the coefficients weigh."""
        return f"powers of the normalized {'A + I' if self.self_loops else 'A'}"

    def response(self, frequency: Tensor) -> Tensor:
        r"""Return the filter :math:`g(\lambda) = \sum_k \gamma_k (1 - \lambda)^k` at eigenvalues of :math:`I - \hat A`.

        >>> Coefficients.of([1.0, 1.0], self_loops=True).response(torch.tensor([0.0, 1.0, 2.0]))
        tensor([1.0000, 0.5000, 0.0000], dtype=torch.float64)
        """
        return polynomial.evaluate(self.gamma, 1 - frequency.double().cpu())

    def figure(self) -> Figure:
        """Draw the coefficients as bars."""
        figure = empty_figure(5, 3)
        axes = figure.subplots()
        axes.bar(range(self.gamma.numel()), self.gamma, color=COLOURS[0])
        zero_line(axes)
        axes.set_xticks(range(self.gamma.numel()))
        axes.set_xlabel("steps k")
        axes.set_ylabel(r"$\gamma_k$, normalized to $\sum_k |\gamma_k| = 1$")
        axes.set_title(f"{self.model}, {self.basis}", fontsize="medium")
        return figure

    def plot(self, path: str | Path) -> None:
        """Write :meth:`figure` to a PNG or SVG file."""
        write_figure(self.figure(), path)

    def __repr__(self) -> str:
        gamma = ", ".join(f"{value:.4g}" for value in self.gamma.tolist())
        return f"Coefficients({self.model!r}, gamma=[{gamma}], scale={self.scale:.4g}, basis={self.basis!r})"

    def summary(self) -> Record:
        """Return the values that occur once, as numbers, text, lists and dictionaries."""
        return {"model": self.model, "basis": self.basis, "scale": self.scale}

    def _records(self) -> list[Record]:
        return records({"k": range(self.gamma.numel()), "gamma": self.gamma.tolist()})

    def _layout(self) -> Layout:
        lines = [(str(k), f"{value:.4f}") for k, value in enumerate(self.gamma.tolist())]
        return Layout(f"{self.model}, {self.basis}", ("k", "gamma"), lines)


def coefficients(model: nn.Module | Coefficients) -> Coefficients:
    r"""Return the filter coefficients :math:`\gamma` of a model as powers of its normalized adjacency matrix.

    - GPRGNN: the learned coefficients.
    - APPNP: :math:`\gamma_k = \alpha (1 - \alpha)^k` for :math:`k < K` and :math:`\gamma_K = (1 - \alpha)^K`.
    - ChebNetII: its Chebyshev series in :math:`\hat L = -\hat A`, expanded into powers of :math:`\hat A`, with
      :math:`T_k(-x) = (-1)^k T_k(x)`. The expansion is exact, but its terms grow as :math:`2^K` and cancel, so double precision
      is not enough beyond :math:`K \approx 30`.
    - MLP: :math:`\gamma_0 = 1`, for either matrix.
    - GCN: :math:`\gamma_L = 1` for :math:`L` layers. These are the coefficients of the GCN without ReLUs and biases: its
      receptive field, not its logits, which are not a fixed matrix times the hidden states.

    For all models except GCN, the logits in evaluation mode equal ``scale * diffusion(model, data) @ model.encode(x)``.

    Args:
        model: One of these models, or coefficients, which are returned unchanged.

    Raises:
        TypeError: If the model has no polynomial filter.

    >>> coefficients(APPNP(5, 2, K=2, alpha=0.5))
    Coefficients('APPNP', gamma=[0.5, 0.25, 0.25], scale=1, basis='powers of the normalized A + I')
    """
    if isinstance(model, Coefficients):
        return model
    if type(model) not in _READERS:
        names = ", ".join(sorted(kind.__name__ for kind in _READERS))
        raise TypeError(
            f"expected a model with a polynomial filter, one of {names}, or Coefficients, got {type(model).__name__}"
        )
    gamma, self_loops = _READERS[type(model)](model)
    return Coefficients.of(gamma, self_loops=self_loops, model=type(model).__name__)


def _gprgnn(model: GPRGNN) -> tuple[Tensor, bool]:
    return model.gamma, True


def _appnp(model: APPNP) -> tuple[Tensor, bool]:
    powers = (1 - model.alpha) ** torch.arange(model.K + 1, dtype=torch.float64)
    return torch.cat([model.alpha * powers[:-1], powers[-1:]]), True


def _chebnet2(model: ChebNetII) -> tuple[Tensor, bool]:
    # In double precision from the start, because the expansion amplifies rounding errors.
    series = model.coefficients(torch.float64).detach().cpu()
    series[1::2] *= -1  # from polynomials of the Laplacian -A to polynomials of A
    gamma = torch.zeros_like(series)
    # NumPy drops leading zeros.
    powers = torch.from_numpy(cheb2poly(series.numpy()))
    gamma[: powers.numel()] = powers
    return gamma, False


def _gcn(model: GCN) -> tuple[Tensor, bool]:
    return torch.eye(model.num_layers + 1, dtype=torch.float64)[-1], True


def _mlp(model: MLP) -> tuple[Tensor, bool]:
    return torch.ones(1, dtype=torch.float64), True


_READERS: dict[type[nn.Module], Callable[..., tuple[Tensor, bool]]] = {
    APPNP: _appnp,
    ChebNetII: _chebnet2,
    GCN: _gcn,
    GPRGNN: _gprgnn,
    MLP: _mlp,
}
