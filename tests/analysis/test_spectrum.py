"""Tests of spectra against closed-form eigenvalues, and of estimated spectra against exact ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import wasserstein_distance
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.analysis import Coefficients, coefficients, diffusion, spectrum
from edgeproof.analysis.density import bin_fractions, chebyshev_moments, jackson_kernel
from edgeproof.analysis.polynomial import normalized_adjacency
from edgeproof.models import APPNP, GPRGNN, MLP, ChebNetII

LOW = Coefficients.of([1.0, 1.0], self_loops=False)


def test_spectrum_of_cycle(cycle: Data) -> None:
    result = spectrum(LOW, cycle)
    expected = (1 - torch.cos(2 * math.pi * torch.arange(12, dtype=torch.float64) / 12)).sort().values
    torch.testing.assert_close(result.frequency, expected)
    torch.testing.assert_close(result.response, 1 - expected / 2)
    assert result.exact
    assert result.fraction.sum() == pytest.approx(1)


def test_spectrum_of_cycle_with_self_loops(cycle: Data) -> None:
    result = spectrum(MLP(3, 2), cycle)
    cosine = torch.cos(2 * math.pi * torch.arange(12, dtype=torch.float64) / 12)
    torch.testing.assert_close(result.frequency, (1 - (1 + 2 * cosine) / 3).sort().values)
    assert torch.equal(result.response, torch.ones(12, dtype=torch.float64))


def test_spectrum_of_path() -> None:
    """The random walk on a path has eigenvalues cos(pi j / (n - 1))."""
    pairs = torch.stack([torch.arange(8), torch.arange(1, 9)])
    path = Data(x=torch.ones(9, 3), edge_index=torch.cat([pairs, pairs.flip(0)], dim=1))
    expected = 1 - torch.cos(math.pi * torch.arange(9, dtype=torch.float64) / 8)
    torch.testing.assert_close(spectrum(LOW, path).frequency, expected)


@pytest.mark.parametrize("kind", [GPRGNN, APPNP, ChebNetII])
def test_response_equals_eigenvalues_of_diffusion(kind: type, graph: Data) -> None:
    torch.manual_seed(0)
    model = kind(5, 3, K=6)
    if kind is ChebNetII:
        torch.nn.init.uniform_(model.gamma)
    result = spectrum(model, graph)
    matrix = diffusion(model, graph)
    _, vectors = torch.linalg.eigh(normalized_adjacency(graph, self_loops=result.self_loops).dense())
    rotated = vectors.T @ matrix @ vectors
    torch.testing.assert_close(rotated, torch.diag(rotated.diagonal()), rtol=0, atol=1e-12)
    torch.testing.assert_close(result.response, rotated.diagonal().flip(0), rtol=0, atol=1e-12)


def test_plain_laplacian_response_is_diagonal_in_eigenbasis(sbm: Data) -> None:
    filter = Coefficients.of([0.5, -0.2, 0.3], self_loops=True)
    result = spectrum(filter, sbm, laplacian="plain")
    matrix = diffusion(filter, sbm)
    values, vectors = torch.linalg.eigh(normalized_adjacency(sbm, self_loops=False).dense())
    torch.testing.assert_close(result.frequency, (1 - values).flip(0).clamp(0, 2))
    # The trace does not depend on the basis; simple eigenvalues have unique eigenvectors.
    assert float(result.response.sum()) == pytest.approx(float(matrix.trace()))
    simple = torch.ones(200, dtype=torch.bool)
    close = values.diff() < 1e-6
    simple[1:] &= ~close
    simple[:-1] &= ~close
    assert simple.sum() > 100
    diagonal = torch.einsum("ni,nm,mi->i", vectors, matrix, vectors)
    torch.testing.assert_close(result.response.flip(0)[simple], diagonal[simple])


def test_plain_laplacian_does_not_depend_on_eigenvector_choice(cycle: Data) -> None:
    """All but two eigenvalues of a cycle are double; on a regular graph self-loops only shift them."""
    result = spectrum(Coefficients.of([0.0, 1.0], self_loops=True), cycle, laplacian="plain")
    torch.testing.assert_close(result.response, (1 + 2 * (1 - result.frequency)) / 3)
    assert result.self_loops is False


def test_laplacians_agree_without_self_loops(sbm: Data) -> None:
    model, plain = spectrum(LOW, sbm), spectrum(LOW, sbm, laplacian="plain")
    assert torch.equal(model.response, plain.response)
    assert torch.equal(model.frequency, plain.frequency)


def test_spectrum_with_isolated_node() -> None:
    data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
    torch.testing.assert_close(spectrum(LOW, data).frequency, torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64))
    torch.testing.assert_close(spectrum(MLP(1, 2), data).frequency, torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64))


def test_mean_frequency_orders_low_all_and_high_pass(sbm: Data) -> None:
    low, all_pass, high = (
        spectrum(Coefficients.of(gamma, self_loops=False), sbm).mean_frequency
        for gamma in ([1.0, 1.0], [1.0], [1.0, -1.0])
    )
    assert low < all_pass - 0.1
    assert high > all_pass + 0.1
    assert all_pass == pytest.approx(1)  # no node is its own neighbour: the eigenvalues of A sum to 0


def test_estimated_density_is_close_to_exact_eigenvalues() -> None:
    """Wasserstein distance below 0.01 and every bin of the histogram within 0.01, for several seeds."""
    data = ep.datasets.csbm("homophilous", num_nodes=1000, p=0.02, q=0.005, seed=1)
    model = APPNP(21, 2)
    exact = spectrum(model, data)
    for seed in range(3):
        result = spectrum(model, data, max_exact=999, seed=seed)
        assert not result.exact
        assert result.fraction.min() >= -1e-12
        assert float(result.fraction.sum()) == pytest.approx(1)
        assert wasserstein_distance(exact.frequency, result.frequency, None, result.fraction.clamp(min=0)) < 0.01
        assert (result.histogram() - exact.histogram()).abs().max() < 0.01
        torch.testing.assert_close(result.response, coefficients(model).response(result.frequency))
        # The eigenvalue at 0 has the largest response and the most uncertain fraction.
        assert result.mean_frequency == pytest.approx(exact.mean_frequency, abs=0.06)


def test_estimate_depends_only_on_seed(sbm: Data) -> None:
    first, second, different = (
        spectrum(LOW, sbm, max_exact=10, num_vectors=2, seed=seed).fraction for seed in (0, 0, 1)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, different)


def test_chebyshev_moments_are_traces(cycle: Data) -> None:
    """The estimate is exact for diagonal matrices and close for others."""
    matrix = normalized_adjacency(cycle, self_loops=False)
    generator = torch.Generator().manual_seed(0)
    result = chebyshev_moments(matrix, 9, num_vectors=20_000, generator=generator)
    angle = torch.arange(12, dtype=torch.float64) * 2 * math.pi / 12
    expected = torch.stack([torch.cos(k * angle).mean() for k in range(9)])
    torch.testing.assert_close(result, expected, rtol=0, atol=0.02)
    diagonal = normalized_adjacency(Data(x=cycle.x, edge_index=cycle.edge_index[:, :0]), self_loops=True)
    exact = chebyshev_moments(diagonal, 6, num_vectors=1, generator=generator)
    assert torch.equal(exact, torch.ones(6, dtype=torch.float64))
    assert chebyshev_moments(matrix, 1, num_vectors=1, generator=generator).tolist() == [1]


def test_bin_fractions_of_single_eigenvalue() -> None:
    """All eigenvalues at 0.5, so moments cos(k arccos 0.5); the kernel's width is about pi / N."""
    moments = torch.cos(torch.arange(100.0, dtype=torch.float64) * math.acos(0.5))
    fractions = bin_fractions(moments, 40)
    assert fractions.min() > -1e-12
    assert float(fractions.sum()) == pytest.approx(1)
    assert float(fractions[8:12].sum()) > 0.99
    assert float(jackson_kernel(100)[0]) == pytest.approx(1)
    assert bool((jackson_kernel(100).diff() < 0).all())


def test_histogram_counts_every_eigenvalue_once(cycle: Data) -> None:
    counts = 12 * spectrum(LOW, cycle).histogram(4)
    # 0, two at 0.13, two at 0.5 | two at 1 | two at 1.5, two at 1.87, 2; values at a bin edge belong to the bin above.
    np.testing.assert_allclose(counts, [3, 2, 2, 5])


def test_with_filter_matches_new_response(sbm: Data) -> None:
    result = spectrum(LOW, sbm).with_filter(coefficients(ChebNetII(21, 2)))
    assert result.model == "ChebNetII"
    torch.testing.assert_close(result.response, torch.ones(200, dtype=torch.float64))
    with pytest.raises(ValueError, match="expected a filter with self_loops=False, got True"):
        result.with_filter(coefficients(APPNP(21, 2)))


def test_invalid_arguments_raise(cycle: Data) -> None:
    with pytest.raises(ValueError, match="unknown laplacian 'plane': did you mean 'plain'"):
        spectrum(LOW, cycle, laplacian="plane")
    with pytest.raises(ValueError, match=r"expected at most max_exact=5 nodes for laplacian='plain'.* got 12"):
        spectrum(MLP(3, 2), cycle, laplacian="plain", max_exact=5)
    with pytest.raises(ValueError, match="expected points to be an integer >= 1, got 0"):
        spectrum(LOW, cycle, points=0)
    with pytest.raises(TypeError, match="expected a model with a polynomial filter"):
        spectrum(torch.nn.Linear(1, 1), cycle)
