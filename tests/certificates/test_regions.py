"""Tests of the certified radii against rational arithmetic and against all classifiers of a few bits."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from edgeproof.certificates import exact
from edgeproof.certificates.regions import (
    SLACK,
    TOLERANCE,
    Noise,
    certified_grid,
    lower_bound,
    region_probabilities,
    upper_bound,
)

NOISES = [(0.01, 0.6), (0.2, 0.3), (0.4, 0.9), (0.0, 0.5), (0.3, 0.0), (0.4, 0.6)]


@settings(max_examples=200, deadline=None)
@given(
    noise=st.sampled_from(NOISES),
    r_add=st.integers(0, 8),
    r_del=st.integers(0, 12),
    p=st.fractions(0, 1, max_denominator=10_000),
)
def test_bounds_match_rational_arithmetic_conservatively(
    noise: tuple[float, float], r_add: int, r_del: int, p: Fraction
) -> None:
    # Fraction(float) is exact.
    p_add, p_del = (Fraction(value) for value in noise)
    regions = exact.region_probabilities(p_add, p_del, r_add, r_del)
    clean, perturbed = region_probabilities(Noise(*noise), r_add, r_del)
    assert clean == pytest.approx([float(region[0]) for region in regions], abs=1e-13)
    assert perturbed == pytest.approx([float(region[1]) for region in regions], abs=1e-13)
    value = np.array([float(p)])
    lower, upper = float(lower_bound(value, clean, perturbed)[0]), float(upper_bound(value, clean, perturbed)[0])
    slack = 2 * Fraction(SLACK)
    assert lower <= float(exact.lower_bound(p, regions))
    assert lower >= float(exact.lower_bound(max(p - slack, Fraction(0)), regions)) - 2 * TOLERANCE
    assert upper >= float(exact.upper_bound(p, regions))
    assert upper <= float(exact.upper_bound(min(p + slack, Fraction(1)), regions)) + 2 * TOLERANCE


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("r_add", "r_del"), [(1, 0), (0, 1), (2, 1), (1, 2), (2, 2)])
def test_bounds_are_attained_by_worst_classifier(noise: tuple[float, float], r_add: int, r_del: int) -> None:
    """The bounds are the optima of a linear program over all randomized classifiers of the bits that differ."""
    p_add, p_del = noise
    graph = [0] * r_add + [1] * r_del
    outcomes = list(product([0, 1], repeat=r_add + r_del))

    def probability(outcome: tuple[int, ...], bits: list[int]) -> float:
        p_flip = {0: p_add, 1: p_del}
        factors = [p_flip[bit] if drawn != bit else 1 - p_flip[bit] for drawn, bit in zip(outcome, bits, strict=True)]
        return float(np.prod(factors))

    clean = np.array([probability(outcome, graph) for outcome in outcomes])
    perturbed = np.array([probability(outcome, [1 - bit for bit in graph]) for outcome in outcomes])
    for p in (0.05, 0.5, 0.8, 0.99):
        minimum = linprog(perturbed, A_eq=clean[None], b_eq=[p], bounds=(0, 1)).fun
        maximum = -linprog(-perturbed, A_eq=clean[None], b_eq=[p], bounds=(0, 1)).fun
        regions = region_probabilities(Noise(*noise), r_add, r_del)
        assert float(lower_bound(np.array([p]), *regions)[0]) == pytest.approx(minimum, abs=1e-7)
        assert float(upper_bound(np.array([p]), *regions)[0]) == pytest.approx(maximum, abs=1e-7)


def test_grid_matches_bounds_and_is_monotone() -> None:
    noise = Noise(0.01, 0.6)
    random = np.random.default_rng(0)
    lower = random.uniform(0.4, 0.9999, 30)
    upper = np.minimum(1 - lower, random.uniform(0, 0.5, 30))
    lower[:5], upper[:5] = lower[0], upper[0]
    grid = certified_grid(noise, lower, upper)
    assert grid.shape[0] == 30
    assert grid.shape[1] > 2
    assert grid.shape[2] > 5
    for r_add, r_del in product(range(grid.shape[1] + 1), range(grid.shape[2] + 1)):
        regions = region_probabilities(noise, r_add, r_del)
        expected = lower_bound(lower, *regions) > upper_bound(upper, *regions)
        inside = r_add < grid.shape[1] and r_del < grid.shape[2]
        actual = grid[:, r_add, r_del] if inside else np.zeros(30, dtype=bool)
        assert np.array_equal(actual, expected)
    assert not (grid[:, 1:] & ~grid[:, :-1]).any()
    assert not (grid[:, :, 1:] & ~grid[:, :, :-1]).any()


def test_grid_without_certified_radii_has_one_cell() -> None:
    grid = certified_grid(Noise(0.01, 0.6), np.array([0.4, 0.3]), np.array([0.5, 0.3]))
    assert grid.tolist() == [[[False]], [[False]]]


@pytest.mark.parametrize("noise", [*NOISES, (0.5, 0.5)])
def test_grid_matches_each_cell_up_to_max_radius(noise: tuple[float, float]) -> None:
    random = np.random.default_rng(0)
    p_A_lower = np.concatenate([random.uniform(0.3, 1, 30), [0.999999, 0.5, 1.0]])
    p_B_upper = np.minimum(1 - p_A_lower, random.uniform(0, 0.5, len(p_A_lower)))
    grid = certified_grid(Noise(*noise), p_A_lower, p_B_upper, max_radius=12)
    for r_add, r_del in product(range(14), repeat=2):
        expected = np.zeros(len(p_A_lower), dtype=bool)
        if max(r_add, r_del) <= 12:
            regions = region_probabilities(Noise(*noise), r_add, r_del)
            expected = lower_bound(p_A_lower, *regions) > upper_bound(p_B_upper, *regions)
        inside = r_add < grid.shape[1] and r_del < grid.shape[2]
        assert np.array_equal(grid[:, r_add, r_del] if inside else np.zeros_like(expected), expected)


@pytest.mark.parametrize(("p_add", "p_del"), [(-0.1, 0.5), (0.5, 1.0), (float("nan"), 0.1), ("a", 0.1), (True, 0.1)])
def test_invalid_probabilities_raise(p_add: float, p_del: float) -> None:
    with pytest.raises(ValueError, match="expected 0 <= p_"):
        Noise(p_add, p_del)
    with pytest.raises(ValueError, match="without noise"):
        Noise(0, 0)


def test_tiny_probabilities_raise() -> None:
    with pytest.raises(ValueError, match="expected p_add to be 0 or at least 1e-12, got 1e-18"):
        Noise(1e-18, 0.5)
