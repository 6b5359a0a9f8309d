"""Tests of confidence bounds and of the binomial test."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom, binomtest

from edgeproof.certificates.confidence import binomial_test, class_probability_bounds, clopper_pearson


def test_clopper_pearson_error_rate_is_at_most_alpha() -> None:
    """The error rate is computed exactly from the distribution of the counts."""
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


@pytest.mark.parametrize("truth", [[0.7, 0.1, 0.1, 0.1], [0.4, 0.35, 0.2, 0.05], [0.98, 0.01, 0.005, 0.005]])
def test_class_probability_bounds_hold_jointly(truth: list[float]) -> None:
    """For a thousand draws of the counts, some bound is wrong at most at a fraction alpha of them."""
    samples, alpha = 200, 0.05
    counts = np.random.default_rng(0).multinomial(samples, truth, size=1000)
    c_A = np.zeros(1000, dtype=np.int64)
    p_A_lower, p_B_upper = class_probability_bounds(counts, c_A, alpha)
    assert ((p_A_lower > truth[0]) | (p_B_upper < max(truth[1:]))).mean() <= alpha
    # By definition, bounds are solutions of equations in binomial tails.
    for row in (0, 500, 999):
        n_A, *others = counts[row]
        assert binom.sf(n_A - 1, samples, p_A_lower[row]) == pytest.approx(alpha / 4, rel=1e-6)
        tails = [brentq(lambda p, k=k: binom.cdf(k, samples, p) - alpha / 4, 1e-9, 1 - 1e-9) for k in others]
        assert p_B_upper[row] == pytest.approx(min(max(tails), 1 - p_A_lower[row]), rel=1e-6)


def test_bounds_use_the_given_class() -> None:
    counts = np.array([[10, 80, 10], [10, 80, 10]])
    p_A_lower, p_B_upper = class_probability_bounds(counts, np.array([1, 0]), 0.05)
    lower, upper = clopper_pearson(counts, 100, 0.05 / 3)
    assert p_A_lower.tolist() == [lower[0, 1], lower[1, 0]]
    assert p_B_upper.tolist() == [min(upper[0, 0], 1 - lower[0, 1]), upper[1, 1]]


def test_binomial_test_matches_scipy() -> None:
    pairs = [(n_A, n_B) for n_A in range(12) for n_B in range(n_A + 1) if n_A + n_B]
    p_values = binomial_test(*np.array(pairs).T)
    assert p_values == pytest.approx([binomtest(n_A, n_A + n_B, 0.5).pvalue for n_A, n_B in pairs])
    assert binomial_test(np.array([0]), np.array([0])).tolist() == [1.0]
