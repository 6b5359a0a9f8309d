"""The Euclidean projection onto a global budget."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from edgeproof.attacks import project_global
from edgeproof.attacks.projections import project_global_nosync, project_global_reference
from edgeproof.kernels import threshold_search

values = st.lists(st.floats(-3, 3, width=32), min_size=1, max_size=40)


@settings(max_examples=300, deadline=None)
@given(values=values, budget=st.floats(0, 12), spread=st.sampled_from([1e-6, 1.0, 1e4]))
def test_project_global_satisfies_optimality_conditions(values: list[float], budget: float, spread: float) -> None:
    """The result is feasible and a clipped shift of the input; the shift is zero or the budget is spent."""
    p = torch.tensor(values, dtype=torch.float64) * spread
    x = project_global(p, budget)
    scale = max(1.0, float(p.abs().max()))
    assert bool(((x >= 0) & (x <= 1)).all())
    assert float(x.sum()) <= budget + 1e-9 * scale
    inside = (x > 0) & (x < 1)
    shifts = (p - x)[inside]
    shift = float(shifts.mean()) if shifts.numel() else None
    if float(p.clamp(0, 1).sum()) <= budget:
        assert torch.equal(x, p.clamp(0, 1))
    else:
        assert float(x.sum()) == pytest.approx(budget, abs=1e-7 * scale)
        if shift is not None:
            assert shift >= -1e-9 * scale
            torch.testing.assert_close(x, (p - shift).clamp(0, 1), rtol=0, atol=1e-7 * scale)


@pytest.mark.parametrize("seed", range(10))
def test_project_global_matches_convex_solver(seed: int) -> None:
    random = np.random.default_rng(seed)
    p = random.normal(0.5, 1.0, 8)
    budget = float(random.uniform(0.5, 4))
    x = project_global(torch.from_numpy(p), budget).numpy()
    solved = minimize(
        lambda x: ((x - p) ** 2).sum(),
        np.full(8, budget / 16),
        jac=lambda x: 2 * (x - p),
        bounds=[(0, 1)] * 8,
        constraints={"type": "ineq", "fun": lambda x: budget - x.sum(), "jac": lambda x: -np.ones(8)},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert ((x - p) ** 2).sum() <= solved.fun + 1e-7
    np.testing.assert_allclose(x, solved.x, atol=1e-5)


@settings(max_examples=50, deadline=None)
@given(values=values, budget=st.floats(0, 12))
def test_project_global_is_idempotent(values: list[float], budget: float) -> None:
    once = project_global(torch.tensor(values, dtype=torch.float64), budget)
    torch.testing.assert_close(project_global(once, budget), once, rtol=0, atol=1e-9)


def test_project_global_matches_reference_on_large_blocks() -> None:
    p = torch.randn(200_000, generator=torch.Generator().manual_seed(0)) * 0.3
    for budget in (0.0, 1.0, 333.0, 20_000.0, 10**9):
        expected = project_global_reference(p, budget).float()
        torch.testing.assert_close(project_global(p, budget), expected, rtol=0, atol=1e-6)


@settings(max_examples=200, deadline=None)
@given(values=values, budget=st.floats(0, 12), scale=st.sampled_from([1e-6, 1.0, 1e4]))
def test_project_global_matches_reference(values: list[float], budget: float, scale: float) -> None:
    p = torch.tensor(values, dtype=torch.float64) * scale
    expected = project_global_reference(p, budget)
    atol = 1e-9 * max(1.0, float(p.abs().max()))
    torch.testing.assert_close(project_global(p, budget), expected, rtol=0, atol=atol)


def test_threshold_search_of_gpu_matches_exact_search() -> None:
    """Five passes without sorting, on the CPU, agree with the exact solution up to rounding."""
    for seed in range(20):
        p = torch.randn(5_000, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 3
        for budget in (0.0, 10.0 * (seed + 1), 1e9):
            limit = torch.full((1,), budget, dtype=torch.float64)
            ends = threshold_search.bracket(p, limit, p.amax(), passes=5, sort_kinks=False)
            projected = threshold_search.subtract_threshold(p, ends, limit, p.amax())
            torch.testing.assert_close(projected, project_global(p, budget), rtol=0, atol=1e-7)


@pytest.mark.parametrize("values", [torch.full((500_000,), 0.3), torch.rand(100_000), torch.full((4,), 1e6)])
def test_float32_projection_keeps_budget(values: torch.Tensor) -> None:
    for budget in (1.0, 200.0):
        assert float(project_global(values, budget).double().sum()) <= budget * (1 + 1e-6)


@pytest.mark.parametrize("largest", [1e3, 1e6, 1e9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_projection_of_large_values_keeps_budget(dtype: torch.dtype, largest: float) -> None:
    generator = torch.Generator().manual_seed(0)
    for values in (torch.rand(300, generator=generator, dtype=dtype), torch.ones(7, dtype=dtype)):
        for budget in (0.0, 0.5, 3.0, 100.0):
            assert float(project_global(values * largest, budget).double().sum()) <= budget * (1 + 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 900.0, 1e6])
@pytest.mark.parametrize("budget", [0.0, 0.3, 7.0, 1e9])
def test_nosync_projection_equals_project_global(budget: float, scale: float, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    for shift in (0.0, -0.5, 0.9):
        p = (torch.rand(500, generator=generator, dtype=dtype) + shift) * scale
        projected, valid = project_global_nosync(p, torch.tensor([budget], dtype=torch.float64))
        assert bool(valid)
        assert projected.dtype == dtype
        assert torch.equal(projected, project_global(p, budget))


def test_nosync_projection_reports_invalid_values() -> None:
    for bad in (float("nan"), float("inf"), 1e17):
        _, valid = project_global_nosync(torch.tensor([0.5, bad]), torch.ones(1, dtype=torch.float64))
        assert not bool(valid)


def test_invalid_values_raise() -> None:
    for bad in (torch.nan, torch.inf):
        with pytest.raises(ValueError, match="expected finite values"):
            project_global(torch.tensor([0.5, bad]), 1)
    with pytest.raises(ValueError, match=r"expected values of at most 1.07374e\+09 to project, got 1e\+17"):
        project_global(torch.tensor([1e17, 1e17, 1.0], dtype=torch.float64), 0)
    with pytest.raises(ValueError, match=r"floating-point values, got torch\.int64"):
        project_global(torch.tensor([1, 2]), 1)


def test_project_global_edge_cases() -> None:
    assert torch.equal(project_global(torch.tensor([0.5, 2.0]), 0), torch.zeros(2))
    assert project_global(torch.empty(0), 3).shape == (0,)
    assert torch.equal(project_global(torch.full((4,), 0.5), 1), torch.full((4,), 0.25))
    assert torch.equal(project_global(torch.tensor([-1.0, -2.0]), 1), torch.zeros(2))
    with pytest.raises(ValueError, match="budget >= 0, got -1"):
        project_global(torch.ones(2), -1)
    with pytest.raises(ValueError, match="budget >= 0, got nan"):
        project_global(torch.ones(2), float("nan"))
