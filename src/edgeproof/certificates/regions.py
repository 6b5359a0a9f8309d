r"""Certified radii of sparse smoothing from regions of constant likelihood ratio (Bojchevski et al., ICML 2020).

Every pair of nodes is one bit of a graph :math:`x`; the noise turns a 0 into a 1 with probability :math:`p_+` and a 1 into a 0
with probability :math:`p_-`. Let an adversary add :math:`r_a` edges and delete :math:`r_d`, which gives :math:`\tilde x`. Only
these :math:`r = r_a + r_d` bits distinguish the noise around :math:`x` from that around :math:`\tilde x`, and the likelihood
ratio depends only on the number :math:`q` of them in which the sample agrees with :math:`\tilde x`,

.. math::
    q \sim \mathrm{Bin}(r_a, p_+) + \mathrm{Bin}(r_d, p_-) \text{ under } x, \qquad
    q \sim \mathrm{Bin}(r_a, 1 - p_-) + \mathrm{Bin}(r_d, 1 - p_+) \text{ under } \tilde x.

So there are :math:`r + 1` regions of constant ratio. By the Neyman-Pearson lemma the worst classifier with probability
:math:`p` of a class under :math:`x` predicts that class in the regions of smallest ratio, which gives the lower bound of the
probability under :math:`\tilde x`. The regions of largest ratio give the upper bound.

Computed in double precision and conservatively: probabilities are shifted by :data:`SLACK` before the computation and bounds
by :data:`TOLERANCE` after it. :mod:`edgeproof.certificates.exact` computes the same bounds in rational numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from edgeproof._checks import check_fraction

Array = np.ndarray[Any, Any]

# Exceeds the rounding error of the probabilities: where the ratio is large, it amplifies a small error of the input.
SLACK = 1e-12
# Exceeds all other rounding errors.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Noise:
    """Independent random flips of all pairs of nodes.

    Args:
        p_add: Probability of adding a pair that is not an edge, :math:`p_+`.
        p_del: Probability of deleting an edge, :math:`p_-`.
    """

    p_add: float
    p_del: float

    def __post_init__(self) -> None:
        for name, value in (("p_add", self.p_add), ("p_del", self.p_del)):
            check_fraction(**{name: value})
            # Float32 values would make NumPy compute in single precision.
            object.__setattr__(self, name, float(value))
            if 0 < value < SLACK:
                raise ValueError(f"expected {name} to be 0 or at least {SLACK}, got {value!r}")
        if self.p_add == self.p_del == 0:
            raise ValueError("expected p_add > 0 or p_del > 0, got 0 for both: without noise nothing can be certified")


def region_probabilities(noise: Noise, r_add: int, r_del: int) -> tuple[Array, Array]:
    """Return the probability of each region under the clean and under the perturbed graph, by ascending ratio."""
    clean = np.convolve(_binomial(r_add, noise.p_add), _binomial(r_del, noise.p_del))
    perturbed = np.convolve(_binomial(r_add, 1 - noise.p_del), _binomial(r_del, 1 - noise.p_add))
    return (clean, perturbed) if noise.p_add + noise.p_del <= 1 else (clean[::-1], perturbed[::-1])


def lower_bound(p: Array, clean: Array, perturbed: Array) -> Array:
    """Return the least probability under the perturbed graph of classes with probability at least ``p`` under the clean one.

    Args:
        p: Lower bounds of class probabilities under the clean graph.
        clean: Probability of each region under the clean graph, see :func:`region_probabilities`.
        perturbed: Probability of each region under the perturbed graph.
    """
    p = np.maximum(p - SLACK, 0.0)
    clean_sum, perturbed_sum = _cumulative(clean), _cumulative(perturbed)
    # The last region needed. Regions of probability 0 under the clean graph are never needed.
    last = np.clip(np.searchsorted(clean_sum, p, side="left") - 1, 0, len(clean) - 1)
    bound = perturbed_sum[last] + (p - clean_sum[last]) * _ratio(clean, perturbed)[last]
    result: Array = np.clip(np.minimum(bound, perturbed_sum[last + 1]) - TOLERANCE, 0.0, 1.0)
    return result


def upper_bound(p: Array, clean: Array, perturbed: Array) -> Array:
    """Return the largest probability under the perturbed graph of classes with probability at most ``p`` under the clean one.

    Args:
        p: Upper bounds of class probabilities under the clean graph.
        clean: Probability of each region under the clean graph, see :func:`region_probabilities`.
        perturbed: Probability of each region under the perturbed graph.
    """
    p = np.minimum(p + SLACK, 1.0)
    clean, perturbed = clean[::-1], perturbed[::-1]
    clean_sum, perturbed_sum = _cumulative(clean), _cumulative(perturbed)
    # Regions of probability 0 under the clean graph are always included.
    last = np.clip(np.searchsorted(clean_sum, p, side="right") - 1, 0, len(clean) - 1)
    bound = perturbed_sum[last] + (p - clean_sum[last]) * _ratio(clean, perturbed)[last]
    result: Array = np.clip(np.minimum(bound, perturbed_sum[last + 1]) + TOLERANCE, 0.0, 1.0)
    return result


def certified_grid(noise: Noise, p_A_lower: Array, p_B_upper: Array, max_radius: int = 256) -> Array:
    """Return for every node and every pair of radii whether the top class is certified to stay the most probable one.

    A certificate for some radii implies those for all smaller ones. So a block of radii is certified if its largest corner is,
    and not certified if its smallest corner is not; other blocks are divided.

    Args:
        noise: Smoothing noise.
        p_A_lower: Lower bound of the probability of each node's top class, shape ``[nodes]``.
        p_B_upper: Upper bound of the probability of any other class, shape ``[nodes]``.
        max_radius: Largest number of added or of deleted edges to consider.

    Returns:
        Booleans, shape ``[nodes, max certified r_add + 1, max certified r_del + 1]``.
    """
    # Nodes with equal bounds share all computations.
    bounds, index = np.unique(np.stack([p_A_lower, p_B_upper], axis=1), axis=0, return_inverse=True)

    def certified(r_add: int, r_del: int, rows: Array) -> Array:
        regions = region_probabilities(noise, r_add, r_del)
        result: Array = lower_bound(bounds[rows, 0], *regions) > upper_bound(bounds[rows, 1], *regions)
        return result

    every_row = np.arange(len(bounds))
    size = (
        _largest(lambda radius: bool(certified(radius, 0, every_row).any()), max_radius) + 1,
        _largest(lambda radius: bool(certified(0, radius, every_row).any()), max_radius) + 1,
    )
    grid = np.zeros((len(bounds), *size), dtype=bool)
    blocks = [(every_row, (0, size[0]), (0, size[1]))]
    while blocks:
        rows, (first_add, end_add), (first_del, end_del) = blocks.pop()
        complete = certified(end_add - 1, end_del - 1, rows)
        grid[rows[complete], first_add:end_add, first_del:end_del] = True
        rows = rows[~complete]
        if not len(rows) or (end_add - first_add) * (end_del - first_del) == 1:
            continue
        rows = rows[certified(first_add, first_del, rows)]
        if len(rows):
            blocks += [
                (rows, add, delete) for add in _halves(first_add, end_add) for delete in _halves(first_del, end_del)
            ]
    return grid[index.reshape(-1)]


def _largest(condition: Callable[[int], bool], maximum: int) -> int:
    """Return the largest integer up to ``maximum`` that satisfies a monotone condition; 0 if none does."""
    low, high = 0, 1
    while high <= maximum and condition(high):
        low, high = high, 2 * high
    high = min(high, maximum + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if condition(middle) else (low, middle)
    return low


def _halves(first: int, end: int) -> list[tuple[int, int]]:
    middle = (first + end + 1) // 2
    return [(first, middle), (middle, end)] if middle < end else [(first, end)]


@lru_cache(maxsize=4096)
def _binomial(n: int, p: float) -> Array:
    # Importing scipy.stats takes half a second.
    from scipy.stats import binom

    pmf: Array = binom.pmf(np.arange(n + 1), n, p)
    return pmf


def _cumulative(probabilities: Array) -> Array:
    return np.concatenate([[0.0], probabilities.cumsum()])


def _ratio(clean: Array, perturbed: Array) -> Array:
    return np.divide(perturbed, clean, out=np.zeros_like(perturbed), where=clean > 0)
