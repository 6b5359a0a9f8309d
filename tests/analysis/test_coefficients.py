"""Tests of the filter coefficients of models."""

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
def test_gamma_is_normalized_with_positive_first_coefficient(
    gamma: list[float], expected: list[float], scale: float
) -> None:
    result = Coefficients.of(gamma, self_loops=True)
    assert result.gamma.tolist() == expected
    assert result.scale == scale
    assert not torch.signbit(result.gamma[result.gamma == 0]).any()


def test_gprgnn_with_pagerank_init_equals_appnp() -> None:
    gprgnn = coefficients(GPRGNN(5, 3, K=7, init="ppr", alpha=0.3))
    appnp = coefficients(APPNP(5, 3, K=7, alpha=0.3))
    torch.testing.assert_close(gprgnn.gamma, appnp.gamma, rtol=0, atol=1e-7)
    assert gprgnn.self_loops
    assert appnp.self_loops
    assert float(appnp.gamma[3]) == pytest.approx(0.3 * 0.7**3)
    assert float(appnp.gamma[7]) == pytest.approx(0.7**7)
    assert appnp.scale == pytest.approx(1)


@pytest.mark.parametrize("init", ["random", "sgc"])
def test_gprgnn_returns_learned_coefficients(init: str) -> None:
    torch.manual_seed(0)
    model = GPRGNN(5, 3, K=4, init=init)
    result = coefficients(model)
    torch.testing.assert_close(result.scale * result.gamma, model.gamma.detach().double())
    assert not result.gamma.requires_grad


@pytest.mark.parametrize("K", [1, 2, 5, 10])
def test_chebnet2_power_basis_matches_chebyshev_series(K: int) -> None:
    model = ChebNetII(5, 3, K=K).double()
    torch.nn.init.normal_(model.gamma, generator=torch.Generator().manual_seed(K))
    model.gamma.data[0] = 1.0
    result = coefficients(model)
    frequency = torch.linspace(0, 2, 101, dtype=torch.float64)
    # The model's series is in the shifted Laplacian, whose eigenvalues are the frequencies minus 1.
    expected = chebyshev.chebval(frequency.numpy() - 1, model.coefficients().detach().numpy())
    np.testing.assert_allclose(result.scale * result.response(frequency).numpy(), expected, atol=1e-11)
    assert result.self_loops is False
    assert result.gamma.numel() == K + 1


def test_constant_chebyshev_filter_is_identity() -> None:
    result = coefficients(ChebNetII(5, 3, K=6).double())
    torch.testing.assert_close(result.gamma, torch.eye(7, dtype=torch.float64)[0], rtol=0, atol=1e-12)


def test_coefficients_of_fixed_filters() -> None:
    assert coefficients(MLP(5, 3)).gamma.tolist() == [1]
    assert coefficients(GCN(5, 3)).gamma.tolist() == [0, 0, 1]
    assert coefficients(GCN(5, 3, num_layers=3)).gamma.tolist() == [0, 0, 0, 1]


def test_coefficients_are_returned_unchanged() -> None:
    result = Coefficients.of([1.0, 2.0], self_loops=False)
    assert coefficients(result) is result
    assert result.basis == "powers of the normalized A"


@pytest.mark.parametrize("model", [GAT(5, 3), GRAND(5, 3), torch.nn.Linear(5, 3)])
def test_models_without_polynomial_filter_raise(model: torch.nn.Module) -> None:
    with pytest.raises(TypeError, match=f"one of APPNP, ChebNetII, GCN, GPRGNN, MLP, .* got {type(model).__name__}"):
        coefficients(model)


def test_zero_and_non_finite_filters_raise() -> None:
    model = ChebNetII(5, 3)
    torch.nn.init.constant_(model.gamma, -1.0)
    with pytest.raises(ValueError, match="non-zero coefficient, got gamma = 0 from ChebNetII"):
        coefficients(model)
    for gamma in ([], [float("nan")], [1.0, float("inf")]):
        with pytest.raises(ValueError, match="expected gamma as a non-empty list of finite numbers"):
            Coefficients.of(gamma, self_loops=True)
