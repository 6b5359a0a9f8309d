"""Spectral response of a model's filter on a graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof._checks import check_data, check_int, check_seed
from edgeproof._names import unknown_name
from edgeproof._plotting import COLOURS, empty_figure, write_figure, zero_line
from edgeproof._tables import Layout, Record, TabularResult, records
from edgeproof.analysis import polynomial
from edgeproof.analysis.coefficients import Coefficients, coefficients
from edgeproof.analysis.density import bin_fractions, chebyshev_moments

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Eigenvalues closer than this count as equal: far above rounding errors, far below the resolution of a figure.
_EIGENVALUE_TOLERANCE = 1e-8


@dataclass(frozen=True, eq=False)
class Spectrum(TabularResult):
    r"""Response :math:`g(\lambda)` of a filter at the frequencies of a graph.

    Args:
        model: Name of the model.
        frequency: Frequencies :math:`\lambda` in [0, 2], ascending: the eigenvalues if ``exact``, otherwise centres of bins.
        response: Response :math:`g(\lambda)` in [-1, 1], because the absolute coefficients sum to 1; same shape.
        fraction: Fraction of all eigenvalues at each frequency; same shape, sums to 1.
        exact: Whether the eigenvalues were computed (True) or their density was estimated (False).
        self_loops: Whether the frequencies are those of the Laplacian of :math:`A + I` (True) or of :math:`A` (False).
    """

    model: str
    frequency: Tensor
    response: Tensor
    fraction: Tensor
    exact: bool
    self_loops: bool

    @property
    def relative(self) -> Tensor:
        """The response divided by its largest absolute value."""
        return self.response / self.response.abs().max()

    @property
    def mean_frequency(self) -> float:
        r"""Mean frequency of filtered white noise, :math:`\sum g^2 \lambda / \sum g^2`.

        For an MLP, an all-pass filter, it is the mean eigenvalue: 1 without self-loops. On the same graph a low-pass filter
        has a lower value than the MLP, a high-pass filter a higher one.
        """
        power = self.fraction * self.response.square()
        return float((power * self.frequency).sum() / power.sum())

    def with_filter(self, model_filter: Coefficients) -> Spectrum:
        """Return the response of another filter at the same frequencies, without computing them again.

        >>> all_pass = Spectrum("MLP", torch.tensor([0.0, 2.0]), torch.ones(2), torch.full((2,), 0.5), True, False)
        >>> all_pass.with_filter(Coefficients.of([1.0, 1.0], self_loops=False)).response
        tensor([1., 0.], dtype=torch.float64)
        """
        if model_filter.self_loops != self.self_loops:
            raise ValueError(f"expected a filter with self_loops={self.self_loops}, got {model_filter.self_loops}")
        return replace(self, model=model_filter.model, response=model_filter.response(self.frequency))

    def histogram(self, num_bins: int = 41) -> Tensor:
        """Return the fraction of the eigenvalues in each of equal bins of [0, 2].

        An odd number of bins keeps the many eigenvalues at 1 within one bin.
        """
        check_int(1, num_bins=num_bins)
        # Eigenvalues at a bin edge belong to the bin above it, whichever way they were rounded.
        bins = ((self.frequency + _EIGENVALUE_TOLERANCE) * num_bins / 2).long().clamp(max=num_bins - 1)
        return self.fraction.new_zeros(num_bins).index_add(0, bins, self.fraction)

    def figure(self) -> Figure:
        """Draw the response and, below it, the density of the eigenvalues."""
        figure = empty_figure(5, 4)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[5, 2])
        above.plot(self.frequency, self.relative, color=COLOURS[0], marker=".", markersize=3, linewidth=1)
        zero_line(above)
        above.set_ylabel(r"response $g(\lambda)$, maximum 1")
        matrix = "A + I" if self.self_loops else "A"
        above.set_title(f"{self.model}, Laplacian of {matrix}", fontsize="medium")
        percentages = 100 * self.histogram()
        width = 2 / percentages.numel()
        centres = (torch.arange(percentages.numel()) + 0.5) * width
        below.bar(centres, percentages, width=width, color="0.5")
        below.set_ylabel("eigenvalues, %")
        below.set_xlabel(r"frequency $\lambda$")
        below.set_xlim(0, 2)
        return figure

    def plot(self, path: str | Path) -> None:
        """Write :meth:`figure` to a PNG or SVG file."""
        write_figure(self.figure(), path)

    def __repr__(self) -> str:
        size = f"{self.frequency.numel()} {'eigenvalues' if self.exact else 'bins'}"
        return f"Spectrum({self.model!r}, {size}, mean_frequency={self.mean_frequency:.3f})"

    def summary(self) -> Record:
        """Return the values that occur once, as numbers, text, lists and dictionaries."""
        names = ("model", "exact", "self_loops", "mean_frequency")
        return {name: getattr(self, name) for name in names}

    def _records(self) -> list[Record]:
        return records({name: getattr(self, name).tolist() for name in ("frequency", "response", "fraction")})

    def _layout(self) -> Layout:
        """Return the mean response in ten bins of frequencies."""
        bins = (self.frequency * 5).long().clamp(0, 9)
        lines = []
        for number in bins.unique().tolist():
            weight = self.fraction[bins == number]
            response = float((weight * self.response[bins == number]).sum() / weight.sum()) if weight.sum() > 0 else 0.0
            lines.append(
                (f"{number / 5:.1f} to {(number + 1) / 5:.1f}", f"{float(weight.sum()):.1%}", f"{response:.3f}")
            )
        title = f"{self.model}, mean frequency {self.mean_frequency:.3f}"
        return Layout(title, ("frequency", "eigenvalues", "mean response"), lines)


def spectrum(
    model: nn.Module | Coefficients,
    data: Data,
    *,
    laplacian: str = "model",
    max_exact: int = 3000,
    points: int = 410,
    num_moments: int = 200,
    num_vectors: int = 16,
    seed: int = 0,
) -> Spectrum:
    r"""Compute the response of a model's filter at the frequencies of a graph.

    The frequencies are the eigenvalues :math:`\lambda` of :math:`I - \hat A`, with the model's own :math:`\hat A`, and
    :math:`g(\lambda) = \sum_k \gamma_k (1 - \lambda)^k`. An isolated node has :math:`\lambda = 0` with self-loops and
    :math:`\lambda = 1` without.

    With ``laplacian="plain"`` they are the eigenvalues of :math:`I - D^{-1/2} A D^{-1/2} = V \Lambda V^\top` for every model,
    as in the paper's figures. For a model with self-loops :math:`V^\top (\sum_k \gamma_k \hat A^k) V` is not diagonal, and the
    response is its diagonal, averaged over the eigenvectors of each eigenvalue. Isolated nodes are then outliers at frequency
    1, because with self-loops their signals pass like those at frequency 0.

    Args:
        model: Model or coefficients, see :func:`coefficients`.
        data: Graph.
        laplacian: ``"model"`` or ``"plain"``.
        max_exact: Largest number of nodes for which eigenvalues (and eigenvectors) are computed; memory is quadratic in it.
            Beyond it, the density of the eigenvalues is estimated.
        points: Number of bins of [0, 2] for the estimate, ideally a multiple of the number of bins of a histogram.
        num_moments: Number of Chebyshev moments of the estimate; an eigenvalue is smeared over :math:`\pi` divided by it.
        num_vectors: Number of random vectors of the estimate. The estimated fraction of a single eigenvalue, such as the 0 of a
            connected graph, has a relative error of about :math:`\sqrt{2 / \text{num\_vectors}}`, which affects the mean
            frequency of a steep filter.
        seed: Random seed of the estimate.

    >>> cycle = torch.stack([torch.arange(4), torch.arange(4).roll(1)])
    >>> data = Data(x=torch.zeros(4, 1), edge_index=torch.cat([cycle, cycle.flip(0)], dim=1))
    >>> result = spectrum(Coefficients.of([0.5, 0.5], self_loops=False), data)
    >>> (result.frequency + 0.0).round(decimals=4), result.response.abs().round(decimals=4)
    (tensor([0., 1., 1., 2.], dtype=torch.float64), tensor([1.0000, 0.5000, 0.5000, 0.0000], dtype=torch.float64))
    """
    check_data(data, labels=False)
    seed = check_seed(seed)
    check_int(1, max_exact=max_exact, points=points, num_moments=num_moments, num_vectors=num_vectors)
    if laplacian not in ("model", "plain"):
        raise unknown_name("laplacian", laplacian, ["model", "plain"])
    model_filter = coefficients(model)
    self_loops = model_filter.self_loops
    if laplacian == "plain" and self_loops:
        if data.x.size(0) > max_exact:
            raise ValueError(
                f"expected at most max_exact={max_exact} nodes for laplacian='plain', which needs all eigenvectors, "
                f"got {data.x.size(0)}"
            )
        return _plain_spectrum(model_filter, data)
    if data.x.size(0) <= max_exact:
        frequency = frequencies(data, self_loops=self_loops)
        fraction = torch.full_like(frequency, 1 / frequency.numel())
        return Spectrum(model_filter.model, frequency, model_filter.response(frequency), fraction, True, self_loops)
    matrix = polynomial.normalized_adjacency(data, self_loops=self_loops)
    generator = torch.Generator(matrix.weight.device).manual_seed(seed)
    moments = chebyshev_moments(matrix, num_moments, num_vectors=num_vectors, generator=generator)
    frequency = (torch.arange(points, dtype=torch.float64) + 0.5) * 2 / points
    fraction = bin_fractions(moments, points)
    return Spectrum(model_filter.model, frequency, model_filter.response(frequency), fraction, False, self_loops)


def frequencies(data: Data, *, self_loops: bool) -> Tensor:
    r"""Return all eigenvalues of :math:`I - \hat A`, ascending."""
    values: Tensor = torch.linalg.eigvalsh(polynomial.normalized_adjacency(data, self_loops=self_loops).dense())
    # Rounding can move eigenvalues slightly out of [0, 2].
    return (1 - values.flip(0)).clamp(0, 2).cpu()


def _plain_spectrum(model_filter: Coefficients, data: Data) -> Spectrum:
    values, vectors = torch.linalg.eigh(polynomial.normalized_adjacency(data, self_loops=False).dense())
    matrix = polynomial.normalized_adjacency(data, self_loops=model_filter.self_loops)
    diagonal = (vectors * polynomial.apply(model_filter.gamma, matrix, vectors)).sum(dim=0)
    # Eigenvectors within an eigenspace are arbitrary, but the mean over them is not.
    eigenspace = torch.cat([values.new_zeros(1), (values.diff() > _EIGENVALUE_TOLERANCE).to(values)]).cumsum(0).long()
    total = values.new_zeros(values.numel()).index_add(0, eigenspace, diagonal)
    response = (total / eigenspace.bincount(minlength=values.numel()).clamp(min=1))[eigenspace]
    frequency = (1 - values.flip(0)).clamp(0, 2).cpu()
    fraction = torch.full_like(frequency, 1 / frequency.numel())
    return Spectrum(model_filter.model, frequency, response.flip(0).cpu(), fraction, True, False)
