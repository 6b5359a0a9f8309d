"""Confidence bounds and tests for class probabilities, from class counts."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def clopper_pearson(count: Array, samples: int | Array, alpha: float) -> tuple[Array, Array]:
    """Return exact lower and upper confidence bounds of probabilities (Clopper and Pearson, 1934).

    Args:
        count: Number of successes.
        samples: Number of trials.
        alpha: Significance level of each of the two bounds.
    """
    # Importing scipy.stats takes half a second.
    from scipy.stats import beta

    count = np.asarray(count, dtype=float)
    with np.errstate(invalid="ignore"):
        lower = np.where(count > 0, beta.ppf(alpha, count, samples - count + 1), 0.0)
        upper = np.where(count < samples, beta.isf(alpha, count + 1, samples - count), 1.0)
    return lower, upper


def class_probability_bounds(counts: Array, c_A: Array, alpha: float) -> tuple[Array, Array]:
    r"""Bound the probability of a class from below and that of every other class from above.

    Each bound holds with confidence :math:`1 - \alpha / C` for :math:`C` classes (Bonferroni), so all bounds of a node hold
    together with confidence :math:`1 - \alpha`. The upper bound is also at most one minus the lower bound.

    Args:
        counts: Class counts, independent of the choice of ``c_A``, shape ``[nodes, classes]``.
        c_A: Class of each node, shape ``[nodes]``.
        alpha: Significance level of all bounds of a node together.

    Returns:
        ``p_A_lower`` and ``p_B_upper``, shape ``[nodes]`` each.
    """
    num_classes = counts.shape[1]
    lower, upper = clopper_pearson(counts, counts.sum(axis=1, keepdims=True), alpha / num_classes)
    p_A_lower = np.take_along_axis(lower, c_A[:, None], axis=1)[:, 0]
    # Exclude c_A from the maximum over the other classes.
    np.put_along_axis(upper, c_A[:, None], -1.0, axis=1)
    p_B_upper = np.minimum(upper.max(axis=1), 1 - p_A_lower)
    return p_A_lower, p_B_upper


def binomial_test(n_A: Array, n_B: Array) -> Array:
    """Return two-sided p-values of the hypothesis that two classes are equally probable.

    Args:
        n_A: Counts of the more frequent class.
        n_B: Counts of the other class.
    """
    from scipy.stats import binom

    p_value: Array = np.minimum(2 * binom.sf(n_A - 1, n_A + n_B, 0.5), 1.0)
    return p_value
