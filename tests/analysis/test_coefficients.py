"""Coefficients: one basis for all models, one sign, one size."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.polynomial import chebyshev

from edgeproof.analysis import Coefficients, coefficients
from edgeproof.models import APPNP, GAT, GCN, GPRGNN, GRAND, MLP, ChebNetII


@pytest.mark.parametrize(
    ("gamma", "expected", "scale"),
    [
        ([2.0, -1.0, 1.0], [0.5, -0.25, 0.25], 4.0),
        ([-2.0, -1.0, 1.0], [0.5, 0.25, -0.25], -4.0),
        ([0.0, -1.0, 3.0], [0.0, 0.25, -0.75], -4.0),
        ([-5.0], [1.0], -5.0),
    ],
)
def test_sizes_sum_to_one_and_the_first_is_positive(gamma: list[float], expected: list[float], scale: float) -> None:
    found = Coefficients.of(gamma, self_loops=True)
    assert found.gamma.tolist() == expected
    assert found.scale == scale
    assert not torch.signbit(found.gamma[found.gamma == 0]).any()


def test_gprgnn_with_the_coefficients_of_pagerank_is_appnp() -> None:
    one, other = coefficients(GPRGNN(5, 3, K=7, init="ppr", alpha=0.3)), coefficients(APPNP(5, 3, K=7, alpha=0.3))
    torch.testing.assert_close(one.gamma, other.gamma, rtol=0, atol=1e-7)
    assert one.self_loops
    assert other.self_loops
    assert float(other.gamma[3]) == pytest.approx(0.3 * 0.7**3)
    assert float(other.gamma[7]) == pytest.approx(0.7**7)
    assert other.scale == pytest.approx(1)


@pytest.mark.parametrize("init", ["random", "sgc"])
def test_gprgnn_keeps_its_own(init: str) -> None:
    torch.manual_seed(0)
    model = GPRGNN(5, 3, K=4, init=init)
    found = coefficients(model)
    torch.testing.assert_close(found.scale * found.gamma, model.gamma.detach().double())
    assert not found.gamma.requires_grad


@pytest.mark.parametrize("K", [1, 2, 5, 10])
def test_chebnet2_in_powers_is_its_chebyshev_series(K: int) -> None:
    model = ChebNetII(5, 3, K=K).double()
    torch.nn.init.normal_(model.gamma, generator=torch.Generator().manual_seed(K))
    model.gamma.data[0] = 1.0
    found = coefficients(model)
    frequency = torch.linspace(0, 2, 101, dtype=torch.float64)
    # The model's series is one in the shifted Laplacian, whose eigenvalues are the frequencies less 1.
    expected = chebyshev.chebval(frequency.numpy() - 1, model.coefficients().detach().numpy())
    np.testing.assert_allclose(found.scale * found.response(frequency).numpy(), expected, atol=1e-11)
    assert found.self_loops is False
    assert found.gamma.numel() == K + 1


def test_a_flat_chebyshev_filter_is_the_identity() -> None:
    found = coefficients(ChebNetII(5, 3, K=6).double())
    torch.testing.assert_close(found.gamma, torch.eye(7, dtype=torch.float64)[0], rtol=0, atol=1e-12)


def test_models_with_fixed_filters() -> None:
    assert coefficients(MLP(5, 3)).gamma.tolist() == [1]
    assert coefficients(GCN(5, 3)).gamma.tolist() == [0, 0, 1]
    assert coefficients(GCN(5, 3, num_layers=3)).gamma.tolist() == [0, 0, 0, 1]


def test_what_is_known_is_returned() -> None:
    found = Coefficients.of([1.0, 2.0], self_loops=False)
    assert coefficients(found) is found
    assert found.basis == "powers of the normalised A"


@pytest.mark.parametrize("model", [GAT(5, 3), GRAND(5, 3), torch.nn.Linear(5, 3)])
def test_models_without_a_polynomial_are_refused(model: torch.nn.Module) -> None:
    with pytest.raises(TypeError, match=f"one of APPNP, ChebNetII, GCN, GPRGNN, MLP, .* got {type(model).__name__}"):
        coefficients(model)


def test_filters_without_meaning_are_refused() -> None:
    model = ChebNetII(5, 3)
    torch.nn.init.constant_(model.gamma, -1.0)
    with pytest.raises(ValueError, match="lets something pass, got gamma = 0 throughout from ChebNetII"):
        coefficients(model)
    for gamma in ([], [float("nan")], [1.0, float("inf")]):
        with pytest.raises(ValueError, match="expected gamma as a list of finite numbers"):
            Coefficients.of(gamma, self_loops=True)
