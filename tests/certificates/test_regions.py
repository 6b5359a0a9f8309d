"""The bounds against rational arithmetic, against all classifiers of a few bits, and against themselves."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.stats import binom

from edgeproof.certificates import exact
from edgeproof.certificates.regions import SLACK, TOLERANCE, Noise, certified_grid, clopper_pearson, least, masses, most

NOISES = [(0.01, 0.6), (0.2, 0.3), (0.4, 0.9), (0.0, 0.5), (0.3, 0.0), (0.4, 0.6)]


@settings(max_examples=200, deadline=None)
@given(
    noise=st.sampled_from(NOISES),
    r_add=st.integers(0, 8),
    r_del=st.integers(0, 12),
    p=st.fractions(0, 1, max_denominator=10_000),
)
def test_bounds_are_those_of_rational_arithmetic_on_the_safe_side(
    noise: tuple[float, float], r_add: int, r_del: int, p: Fraction
) -> None:
    # The very numbers that the floats are.
    p_add, p_del = (Fraction(value) for value in noise)
    regions = exact.masses(p_add, p_del, r_add, r_del)
    here, there = masses(Noise(*noise), r_add, r_del)
    assert here == pytest.approx([float(one) for one, _ in regions], abs=1e-13)
    assert there == pytest.approx([float(two) for _, two in regions], abs=1e-13)
    value = np.array([float(p)])
    lower, upper = float(least(value, here, there)[0]), float(most(value, here, there)[0])
    slack = 2 * Fraction(SLACK)
    assert lower <= float(exact.least(p, regions))
    assert lower >= float(exact.least(max(p - slack, Fraction(0)), regions)) - 2 * TOLERANCE
    assert upper >= float(exact.most(p, regions))
    assert upper <= float(exact.most(min(p + slack, Fraction(1)), regions)) + 2 * TOLERANCE


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("r_add", "r_del"), [(1, 0), (0, 1), (2, 1), (1, 2), (2, 2)])
def test_no_classifier_does_worse_and_one_does_as_badly(noise: tuple[float, float], r_add: int, r_del: int) -> None:
    """A linear program over all (randomised) classifiers of the bits that differ: the bounds are its optima."""
    p_add, p_del = noise
    clean = [0] * r_add + [1] * r_del
    outcomes = list(product([0, 1], repeat=r_add + r_del))

    def probability(outcome: tuple[int, ...], graph: list[int]) -> float:
        flipped = {0: p_add, 1: p_del}
        factors = [flipped[bit] if seen != bit else 1 - flipped[bit] for seen, bit in zip(outcome, graph, strict=True)]
        return float(np.prod(factors))

    here = np.array([probability(outcome, clean) for outcome in outcomes])
    there = np.array([probability(outcome, [1 - bit for bit in clean]) for outcome in outcomes])
    for p in (0.05, 0.5, 0.8, 0.99):
        low = linprog(there, A_eq=here[None], b_eq=[p], bounds=(0, 1)).fun
        high = -linprog(-there, A_eq=here[None], b_eq=[p], bounds=(0, 1)).fun
        regions = masses(Noise(*noise), r_add, r_del)
        assert float(least(np.array([p]), *regions)[0]) == pytest.approx(low, abs=1e-7)
        assert float(most(np.array([p]), *regions)[0]) == pytest.approx(high, abs=1e-7)


def test_the_grid_is_what_the_bounds_say_and_monotone() -> None:
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
        regions = masses(noise, r_add, r_del)
        expected = least(lower, *regions) > most(upper, *regions)
        inside = r_add < grid.shape[1] and r_del < grid.shape[2]
        found = grid[:, r_add, r_del] if inside else np.zeros(30, dtype=bool)
        assert np.array_equal(found, expected)
    assert not (grid[:, 1:] & ~grid[:, :-1]).any()
    assert not (grid[:, :, 1:] & ~grid[:, :, :-1]).any()


def test_nothing_certified_is_a_grid_of_one() -> None:
    grid = certified_grid(Noise(0.01, 0.6), np.array([0.4, 0.3]), np.array([0.5, 0.3]))
    assert grid.tolist() == [[[False]], [[False]]]


def test_confidence_bounds_fail_as_rarely_as_they_say() -> None:
    """Exactly, from the distribution of the counts, for probabilities all over."""
    samples, alpha = 40, 0.05
    counts = np.arange(samples + 1)
    lower, upper = clopper_pearson(counts, samples, alpha)
    assert lower[0] == 0
    assert upper[-1] == 1
    assert (np.diff(lower) > 0).all()
    for p in np.linspace(0.001, 0.999, 97):
        weight = binom.pmf(counts, samples, p)
        assert weight[lower > p].sum() <= alpha
        assert weight[upper < p].sum() <= alpha


@pytest.mark.parametrize(("p_add", "p_del"), [(-0.1, 0.5), (0.5, 1.0), (float("nan"), 0.1), ("a", 0.1), (True, 0.1)])
def test_bad_probabilities_are_refused(p_add: float, p_del: float) -> None:
    with pytest.raises(ValueError, match="expected 0 <= p_"):
        Noise(p_add, p_del)
    with pytest.raises(ValueError, match="without noise"):
        Noise(0, 0)


@pytest.mark.parametrize("noise", [*NOISES, (0.5, 0.5)])
def test_a_grid_is_every_cell_by_itself(noise: tuple[float, float]) -> None:
    random = np.random.default_rng(0)
    p_lower = np.concatenate([random.uniform(0.3, 1, 30), [0.999999, 0.5, 1.0]])
    p_upper = np.minimum(1 - p_lower, random.uniform(0, 0.5, len(p_lower)))
    grid = certified_grid(Noise(*noise), p_lower, p_upper, most_radius=12)
    for r_add, r_del in product(range(14), repeat=2):
        expected = np.zeros(len(p_lower), dtype=bool)
        if max(r_add, r_del) <= 12:
            regions = masses(Noise(*noise), r_add, r_del)
            expected = least(p_lower, *regions) > most(p_upper, *regions)
        inside = r_add < grid.shape[1] and r_del < grid.shape[2]
        assert np.array_equal(grid[:, r_add, r_del] if inside else np.zeros_like(expected), expected)


def test_noise_that_could_not_be_told_from_none_is_refused() -> None:
    with pytest.raises(ValueError, match="expected p_add to be 0 or at least 1e-12, got 1e-18"):
        Noise(1e-18, 0.5)
