"""Sampled graphs: the same in every backend, and uniform draws."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch import Tensor
from torch_geometric.data import Data

from edgeproof.kernels import numba_cpu, reference, triton_gpu
from edgeproof.kernels.dispatch import Backend
from edgeproof.kernels.reference_sampling import expected_gaps, uniform
from edgeproof.propagation import Pairs

NOISES = [(0.01, 0.6), (0.3, 0.0), (0.0, 0.4), (0.5, 0.9), (0.05, 0.5)]
SEED = 2**40 + 7


def edges_of(data: Data) -> tuple[Tensor, Tensor, Tensor, int]:
    n = data.x.size(0)
    row, col = data.edge_index
    edges = Pairs.of(data.edge_index[:, row < col], n)
    return edges.number, edges.u, edges.v, n


def check_same_samples(
    backend: Backend, data: Data, noise: tuple[float, float], first: int, count: int, num_gaps: int | None = None
) -> None:
    *edges, n = edges_of(data)
    expected = reference.sample_graphs(*edges, n, *noise, SEED, first, count)
    device = torch.device("cuda" if backend is triton_gpu and torch.cuda.is_available() else "cpu")
    sampled = backend.sample_graphs(*(e.to(device) for e in edges), n, *noise, SEED, first, count, num_gaps=num_gaps)
    for tensor, expected_tensor in zip(sampled[:3], expected[:3], strict=True):
        assert torch.equal(tensor.cpu(), expected_tensor)
    if sampled[3] is not None:
        assert sampled[3] == int(expected[0].diff().amax())


@pytest.mark.parametrize("num_gaps", [None, 1])
@pytest.mark.parametrize("noise", NOISES)
def test_numba_samples_equal_the_reference(noise: tuple[float, float], num_gaps: int | None, sbm: Data) -> None:
    for first, count in ((0, 5), (3, 1), (10**6, 2)):
        check_same_samples(numba_cpu, sbm, noise, first, count, num_gaps)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("case", ["graph", "sbm", "no edges"])
def test_triton_samples_equal_the_reference(case: str, noise: tuple[float, float], graph: Data, sbm: Data) -> None:
    """Triton's interpreter is used without a GPU."""
    pytest.importorskip("triton", reason="triton is not installed")
    empty = Data(x=torch.zeros(9, 1), edge_index=torch.empty(2, 0, dtype=torch.long))
    data = {"graph": graph, "sbm": sbm, "no edges": empty}[case]
    # The larger graph starts with too few gaps, so that more are drawn.
    num_gaps = 64 if case == "sbm" else None
    for first, count in ((0, 2), (10**6, 1)):
        check_same_samples(triton_gpu, data, noise, first, count, num_gaps)


@pytest.mark.parametrize("noise", NOISES)
def test_number_of_gaps_does_not_change_the_samples(noise: tuple[float, float], sbm: Data) -> None:
    check_same_samples(reference, sbm, noise, 0, 2, num_gaps=1)


def test_expected_gaps_pass_the_last_pair() -> None:
    draws = uniform(0, torch.arange(1000)[:, None], torch.arange(expected_gaps(19_900, 0.01)))
    reached = (draws.neg().log1p() / np.log1p(-0.01)).long().add(1).sum(dim=1) - 1
    assert bool((reached >= 19_900).all())


def test_draws_are_uniform_and_uncorrelated() -> None:
    drawn = uniform(3, torch.arange(200)[:, None], torch.arange(500)).numpy()
    assert ((drawn >= 0) & (drawn < 1)).all()
    counts = np.histogram(drawn, bins=100, range=(0, 1))[0]
    assert 1e-3 < chi2.sf(((counts - 1000) ** 2 / 1000).sum(), 99) < 1 - 1e-3
    # Consecutive draws and consecutive samples.
    for earlier, later in ((drawn[:, :-1], drawn[:, 1:]), (drawn[:-1], drawn[1:])):
        assert abs(np.corrcoef(earlier.ravel(), later.ravel())[0, 1]) < 0.01
