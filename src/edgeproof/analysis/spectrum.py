"""The spectral view of a model: which frequencies of the graph pass its filter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof._checks import check_data, check_int
from edgeproof._names import unknown_name
from edgeproof.analysis import polynomial
from edgeproof.analysis._figures import COLOURS, empty_figure, write_figure, zero_line
from edgeproof.analysis.coefficients import Coefficients, coefficients
from edgeproof.analysis.density import cell_shares, chebyshev_moments

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Eigenvalues closer than this are one eigenvalue: far above rounding, far below what a picture shows.
_SAME = 1e-8


@dataclass(frozen=True, eq=False)
class Spectrum:
    r"""The response :math:`g(\lambda)` of a filter at frequencies of a graph, and how frequent these are.

    Args:
        model: whose filter it is.
        frequency: :math:`\lambda`, ascending, between 0 and 2: the eigenvalues themselves if ``exact``, else cells' centres.
        response: :math:`g(\lambda)`, of coefficients whose sizes sum to 1, so between -1 and 1; same shape.
        share: the share of all eigenvalues that each stands for; same shape, sums to 1.
        exact: whether eigenvalues were computed, or their density estimated.
        self_loops: whether it is the Laplacian of :math:`A + I` or of :math:`A`.
    """

    model: str
    frequency: Tensor
    response: Tensor
    share: Tensor
    exact: bool
    self_loops: bool

    @property
    def relative(self) -> Tensor:
        """The response, its largest size 1."""
        return self.response / self.response.abs().max()

    @property
    def mean_frequency(self) -> float:
        r"""The mean frequency of white noise that went through the filter, :math:`\sum g^2 \lambda / \sum g^2`.

        An MLP, through which all passes alike, has the mean of all eigenvalues: 1 without self-loops. A low-pass filter is
        below the MLP on the same graph, a high-pass filter above it.
        """
        power = self.share * self.response.square()
        return float((power * self.frequency).sum() / power.sum())

    def filtered_by(self, found: Coefficients) -> Spectrum:
        """Another filter at the same frequencies: a graph has to be analysed only once.

        >>> every = Spectrum("MLP", torch.tensor([0.0, 2.0]), torch.ones(2), torch.full((2,), 0.5), True, False)
        >>> every.filtered_by(Coefficients.of([1.0, 1.0], self_loops=False)).response
        tensor([1., 0.], dtype=torch.float64)
        """
        if found.self_loops != self.self_loops:
            raise ValueError(f"expected a filter with self_loops={self.self_loops}, got {found.self_loops}")
        return replace(self, model=found.model, response=found.response(self.frequency))

    def histogram(self, num_bins: int = 41) -> Tensor:
        """Share of the eigenvalues in each of equal bins of [0, 2]; an odd number keeps the many at 1 within one bin."""
        check_int(1, num_bins=num_bins)
        # Eigenvalues on an edge all go to the bin above it, whichever way they were rounded.
        bins = ((self.frequency + _SAME) * num_bins / 2).long().clamp(max=num_bins - 1)
        return self.share.new_zeros(num_bins).index_add(0, bins, self.share)

    def figure(self) -> Figure:
        """The response above, the density of eigenvalues below."""
        figure = empty_figure(5, 4)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[5, 2])
        above.plot(self.frequency, self.relative, color=COLOURS[0], marker=".", markersize=3, linewidth=1)
        zero_line(above)
        above.set_ylabel(r"response $g(\lambda)$, largest 1")
        matrix = "A + I" if self.self_loops else "A"
        above.set_title(f"{self.model}, Laplacian of {matrix}", fontsize="medium")
        shares = 100 * self.histogram()
        width = 2 / shares.numel()
        below.bar((torch.arange(shares.numel()) + 0.5) * width, shares, width=width, color="0.5")
        below.set_ylabel("share of all, %")
        below.set_xlabel(r"frequency $\lambda$")
        below.set_xlim(0, 2)
        return figure

    def plot(self, path: str | Path) -> None:
        """:meth:`figure` as a PNG or SVG file."""
        write_figure(self.figure(), path)

    def __repr__(self) -> str:
        how = f"{self.frequency.numel()} {'eigenvalues' if self.exact else 'cells'}"
        return f"Spectrum({self.model!r}, {how}, mean_frequency={self.mean_frequency:.3f})"


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
    r"""How a model's filter answers the frequencies of a graph.

    The frequencies are the eigenvalues :math:`\lambda` of :math:`I - \hat A`, with the model's own :math:`\hat A`, and
    :math:`g(\lambda) = \sum_k \gamma_k (1 - \lambda)^k`. An isolated node counts as :math:`\lambda = 0` with self-loops and as
    :math:`\lambda = 1` without.

    With ``laplacian="plain"`` they are those of :math:`I - D^{-1/2} A D^{-1/2} = V \Lambda V^\top` for every model, as in the
    paper's figures. For a model with self-loops :math:`V^\top (\sum_k \gamma_k \hat A^k) V` is then not diagonal, and the
    response is its diagonal, averaged over eigenvectors of the same eigenvalue. Isolated nodes then stand out at 1:
    with self-loops, their signals pass as if they were at 0.

    Args:
        model: see :func:`coefficients`.
        data: the graph.
        laplacian: ``"model"`` or ``"plain"``.
        max_exact: with more nodes than this, the density is estimated instead of computing eigenvalues (and eigenvectors),
            which takes memory for the square of the nodes.
        points: cells of [0, 2] for the estimate; the bins of a histogram should divide them.
        num_moments: Chebyshev moments of the estimate; an eigenvalue is smeared over about :math:`\pi` divided by it.
        num_vectors: random vectors of the estimate. The share of a single eigenvalue, such as the 0 of a connected graph, is
            off by a factor of about :math:`1 \pm \sqrt{2 / \text{num\_vectors}}`, which a steep filter's mean frequency feels.
        seed: draws them.

    >>> cycle = torch.stack([torch.arange(4), torch.arange(4).roll(1)])
    >>> data = Data(x=torch.zeros(4, 1), edge_index=torch.cat([cycle, cycle.flip(0)], dim=1))
    >>> found = spectrum(Coefficients.of([0.5, 0.5], self_loops=False), data)
    >>> (found.frequency + 0.0).round(decimals=4), found.response.abs().round(decimals=4)
    (tensor([0., 1., 1., 2.], dtype=torch.float64), tensor([1.0000, 0.5000, 0.5000, 0.0000], dtype=torch.float64))
    """
    check_data(data, labels=False)
    check_int(1, max_exact=max_exact, points=points, num_moments=num_moments, num_vectors=num_vectors)
    found = coefficients(model)
    if laplacian == "plain" and found.self_loops:
        if data.x.size(0) > max_exact:
            raise ValueError(
                f"expected at most max_exact={max_exact} nodes for laplacian='plain', which needs all eigenvectors, "
                f"got {data.x.size(0)}"
            )
        return _plain(found, data)
    if laplacian not in ("model", "plain"):
        raise unknown_name("laplacian", laplacian, ["model", "plain"])
    if data.x.size(0) <= max_exact:
        frequency = frequencies(data, self_loops=found.self_loops)
        share = torch.full_like(frequency, 1 / frequency.numel())
        return Spectrum(found.model, frequency, found.response(frequency), share, True, found.self_loops)
    matrix = polynomial.normalized_adjacency(data, self_loops=found.self_loops)
    generator = torch.Generator(matrix.weight.device).manual_seed(seed)
    moments = chebyshev_moments(matrix, num_moments, num_vectors=num_vectors, generator=generator)
    frequency = (torch.arange(points, dtype=torch.float64) + 0.5) * 2 / points
    share = cell_shares(moments, points)
    return Spectrum(found.model, frequency, found.response(frequency), share, False, found.self_loops)


def frequencies(data: Data, *, self_loops: bool) -> Tensor:
    r"""All eigenvalues of :math:`I - \hat A`, ascending."""
    values: Tensor = torch.linalg.eigvalsh(polynomial.normalized_adjacency(data, self_loops=self_loops).dense())
    # Rounding must not carry them out of the range where a histogram looks for them.
    return (1 - values.flip(0)).clamp(0, 2).cpu()


def _plain(found: Coefficients, data: Data) -> Spectrum:
    values, vectors = torch.linalg.eigh(polynomial.normalized_adjacency(data, self_loops=False).dense())
    own = polynomial.normalized_adjacency(data, self_loops=found.self_loops)
    diagonal = (vectors * polynomial.times(found.gamma, own, vectors)).sum(dim=0)
    # Within an eigenspace single vectors are arbitrary, their mean is not.
    space = torch.cat([values.new_zeros(1), (values.diff() > _SAME).to(values)]).cumsum(0).long()
    total = values.new_zeros(values.numel()).index_add(0, space, diagonal)
    response = (total / space.bincount(minlength=values.numel()).clamp(min=1))[space]
    frequency = (1 - values.flip(0)).clamp(0, 2).cpu()
    share = torch.full_like(frequency, 1 / frequency.numel())
    return Spectrum(found.model, frequency, response.flip(0).cpu(), share, True, False)
