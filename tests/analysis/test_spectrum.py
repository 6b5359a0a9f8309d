"""Spectra against eigenvalues known in closed form, and estimates against eigenvalues."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import wasserstein_distance
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.analysis import Coefficients, coefficients, diffusion, spectrum
from edgeproof.analysis.density import cell_shares, chebyshev_moments, jackson_kernel
from edgeproof.analysis.polynomial import normalized_adjacency
from edgeproof.models import APPNP, GPRGNN, MLP, ChebNetII

LOW = Coefficients.of([1.0, 1.0], self_loops=False)


def test_a_cycle(cycle: Data) -> None:
    found = spectrum(LOW, cycle)
    expected = (1 - torch.cos(2 * math.pi * torch.arange(12, dtype=torch.float64) / 12)).sort().values
    torch.testing.assert_close(found.frequency, expected)
    torch.testing.assert_close(found.response, 1 - expected / 2)
    assert found.exact
    assert found.share.sum() == pytest.approx(1)


def test_a_cycle_with_self_loops(cycle: Data) -> None:
    found = spectrum(MLP(3, 2), cycle)
    cosine = torch.cos(2 * math.pi * torch.arange(12, dtype=torch.float64) / 12)
    torch.testing.assert_close(found.frequency, (1 - (1 + 2 * cosine) / 3).sort().values)
    assert torch.equal(found.response, torch.ones(12, dtype=torch.float64))


def test_a_path() -> None:
    """The random walk on a path has eigenvalues cos(pi j / (n - 1))."""
    pairs = torch.stack([torch.arange(8), torch.arange(1, 9)])
    path = Data(x=torch.ones(9, 3), edge_index=torch.cat([pairs, pairs.flip(0)], dim=1))
    expected = 1 - torch.cos(math.pi * torch.arange(9, dtype=torch.float64) / 8)
    torch.testing.assert_close(spectrum(LOW, path).frequency, expected)


@pytest.mark.parametrize("kind", [GPRGNN, APPNP, ChebNetII])
def test_the_response_is_the_eigenvalues_of_the_diffusion(kind: type, graph: Data) -> None:
    torch.manual_seed(0)
    model = kind(5, 3, K=6)
    if kind is ChebNetII:
        torch.nn.init.uniform_(model.gamma)
    found = spectrum(model, graph)
    matrix = diffusion(model, graph)
    _, vectors = torch.linalg.eigh(normalized_adjacency(graph, self_loops=found.self_loops).dense())
    rotated = vectors.T @ matrix @ vectors
    torch.testing.assert_close(rotated, torch.diag(rotated.diagonal()), rtol=0, atol=1e-12)
    torch.testing.assert_close(found.response, rotated.diagonal().flip(0), rtol=0, atol=1e-12)


def test_the_papers_laplacian_reads_the_diagonal(sbm: Data) -> None:
    filter = Coefficients.of([0.5, -0.2, 0.3], self_loops=True)
    found = spectrum(filter, sbm, laplacian="plain")
    matrix = diffusion(filter, sbm)
    values, vectors = torch.linalg.eigh(normalized_adjacency(sbm, self_loops=False).dense())
    torch.testing.assert_close(found.frequency, (1 - values).flip(0).clamp(0, 2))
    # The trace is the same in any basis; single eigenvalues have single vectors.
    assert float(found.response.sum()) == pytest.approx(float(matrix.trace()))
    alone = torch.ones(200, dtype=torch.bool)
    close = values.diff() < 1e-6
    alone[1:] &= ~close
    alone[:-1] &= ~close
    assert alone.sum() > 100
    diagonal = torch.einsum("ni,nm,mi->i", vectors, matrix, vectors)
    torch.testing.assert_close(found.response.flip(0)[alone], diagonal[alone])


def test_the_papers_laplacian_does_not_depend_on_the_choice_of_eigenvectors(cycle: Data) -> None:
    """All frequencies of a cycle but two are double; it is regular, so that self-loops only shift them."""
    found = spectrum(Coefficients.of([0.0, 1.0], self_loops=True), cycle, laplacian="plain")
    torch.testing.assert_close(found.response, (1 + 2 * (1 - found.frequency)) / 3)
    assert found.self_loops is False


def test_without_self_loops_both_laplacians_are_one(sbm: Data) -> None:
    one, other = spectrum(LOW, sbm), spectrum(LOW, sbm, laplacian="plain")
    assert torch.equal(one.response, other.response)
    assert torch.equal(one.frequency, other.frequency)


def test_isolated_nodes() -> None:
    alone = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
    torch.testing.assert_close(spectrum(LOW, alone).frequency, torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64))
    torch.testing.assert_close(spectrum(MLP(1, 2), alone).frequency, torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64))


def test_low_pass_below_all_pass_below_high_pass(sbm: Data) -> None:
    low, every, high = (
        spectrum(Coefficients.of(gamma, self_loops=False), sbm).mean_frequency
        for gamma in ([1.0, 1.0], [1.0], [1.0, -1.0])
    )
    assert low < every - 0.1
    assert high > every + 0.1
    assert every == pytest.approx(1)  # no node is its own neighbour: the eigenvalues of A sum to 0


def test_the_estimate_is_close_to_the_eigenvalues() -> None:
    """Wasserstein distance at most 0.01, each of 41 bins to one percent of all eigenvalues, over several seeds."""
    data = ep.datasets.csbm("homophilous", num_nodes=1000, p=0.02, q=0.005, seed=1)
    model = APPNP(21, 2)
    exact = spectrum(model, data)
    for seed in range(3):
        found = spectrum(model, data, max_exact=999, seed=seed)
        assert not found.exact
        assert found.share.min() >= -1e-12
        assert float(found.share.sum()) == pytest.approx(1)
        assert wasserstein_distance(exact.frequency, found.frequency, None, found.share.clamp(min=0)) < 0.01
        assert (found.histogram() - exact.histogram()).abs().max() < 0.01
        torch.testing.assert_close(found.response, coefficients(model).response(found.frequency))
        # The one eigenvalue at 0 passes best, and its share is the most uncertain.
        assert found.mean_frequency == pytest.approx(exact.mean_frequency, abs=0.06)


def test_the_estimate_depends_on_its_seed_alone(sbm: Data) -> None:
    one, again, other = (spectrum(LOW, sbm, max_exact=10, num_vectors=2, seed=seed).share for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_moments_are_traces(cycle: Data) -> None:
    """Random signs give the exact trace of a diagonal matrix, and nearly that of others."""
    matrix = normalized_adjacency(cycle, self_loops=False)
    generator = torch.Generator().manual_seed(0)
    found = chebyshev_moments(matrix, 9, num_vectors=20_000, generator=generator)
    angle = torch.arange(12, dtype=torch.float64) * 2 * math.pi / 12
    expected = torch.stack([torch.cos(k * angle).mean() for k in range(9)])
    torch.testing.assert_close(found, expected, rtol=0, atol=0.02)
    apart = normalized_adjacency(Data(x=cycle.x, edge_index=cycle.edge_index[:, :0]), self_loops=True)
    exact = chebyshev_moments(apart, 6, num_vectors=1, generator=generator)
    assert torch.equal(exact, torch.ones(6, dtype=torch.float64))
    assert chebyshev_moments(matrix, 1, num_vectors=1, generator=generator).tolist() == [1]


def test_cells_of_one_eigenvalue() -> None:
    """All eigenvalues at 0.5, so moments cos(k arccos 0.5); the kernel's width is about pi / N."""
    moments = torch.cos(torch.arange(100.0, dtype=torch.float64) * math.acos(0.5))
    shares = cell_shares(moments, 40)
    assert shares.min() > -1e-12
    assert float(shares.sum()) == pytest.approx(1)
    assert float(shares[8:12].sum()) > 0.99
    assert float(jackson_kernel(100)[0]) == pytest.approx(1)
    assert bool((jackson_kernel(100).diff() < 0).all())


def test_histograms_count_every_eigenvalue_once(cycle: Data) -> None:
    counts = 12 * spectrum(LOW, cycle).histogram(4)
    # 0, two at 0.13, two at 0.5 | two at 1 | two at 1.5, two at 1.87, 2; those on an edge belong above it.
    np.testing.assert_allclose(counts, [3, 2, 2, 5])


def test_another_filter_at_the_same_frequencies(sbm: Data) -> None:
    found = spectrum(LOW, sbm).filtered_by(coefficients(ChebNetII(21, 2)))
    assert found.model == "ChebNetII"
    torch.testing.assert_close(found.response, torch.ones(200, dtype=torch.float64))
    with pytest.raises(ValueError, match="expected a filter with self_loops=False, got True"):
        found.filtered_by(coefficients(APPNP(21, 2)))


def test_mistakes(cycle: Data) -> None:
    with pytest.raises(ValueError, match="unknown laplacian 'plane': did you mean 'plain'"):
        spectrum(LOW, cycle, laplacian="plane")
    with pytest.raises(ValueError, match=r"expected at most max_exact=5 nodes for laplacian='plain'.* got 12"):
        spectrum(MLP(3, 2), cycle, laplacian="plain", max_exact=5)
    with pytest.raises(ValueError, match="expected points to be a whole number >= 1, got 0"):
        spectrum(LOW, cycle, points=0)
    with pytest.raises(TypeError, match="expected a model with a polynomial filter"):
        spectrum(torch.nn.Linear(1, 1), cycle)
