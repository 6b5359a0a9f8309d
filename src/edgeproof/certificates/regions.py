r"""How much a class probability under random flips can change when some edges are changed (Bojchevski et al., 2020).

Every pair of nodes is one bit of a graph :math:`x`; smoothing turns a 0 into a 1 with probability :math:`p_+` and a 1 into a 0
with :math:`p_-`. Let an adversary add :math:`r_a` edges and delete :math:`r_d`, which gives :math:`\tilde x`. Only these
:math:`r = r_a + r_d` bits tell the noise around :math:`x` from that around :math:`\tilde x`, and the likelihood ratio depends
on one number alone: in how many of them the sample agrees with :math:`\tilde x`,

.. math::
    q \sim \mathrm{Bin}(r_a, p_+) + \mathrm{Bin}(r_d, p_-) \text{ under } x, \qquad
    q \sim \mathrm{Bin}(r_a, 1 - p_-) + \mathrm{Bin}(r_d, 1 - p_+) \text{ under } \tilde x.

So there are :math:`r + 1` regions of constant ratio. By the lemma of Neyman and Pearson the worst classifier that answers a
class with probability :math:`p` around :math:`x` does so in the regions where :math:`\tilde x` has least mass for it, which
gives the least probability around :math:`\tilde x`; the largest is found from the other end.

Everything is in double precision, and on the safe side: a class may have less probability by :data:`SLACK` than said, and a
bound is worse by :data:`TOLERANCE`. :mod:`edgeproof.certificates.exact` is the same in rational numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import beta, binom

Array = np.ndarray[Any, Any]

# More than the rounding of any sum of probabilities here: what is asked about a probability is asked about one so much worse,
# for where the ratio is large, a small error before it is a large one after it.
SLACK = 1e-12
# More than all other rounding.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Noise:
    """Independent random flips of all pairs.

    Args:
        p_add: probability that a pair that is no edge becomes one, :math:`p_+`.
        p_del: probability that an edge is deleted, :math:`p_-`.
    """

    p_add: float
    p_del: float

    def __post_init__(self) -> None:
        for name, value in (("p_add", self.p_add), ("p_del", self.p_del)):
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1:
                raise ValueError(f"expected 0 <= {name} < 1, got {value!r}")
        if self.p_add == self.p_del == 0:
            raise ValueError("expected p_add or p_del above 0, got 0 for both: without noise nothing can be certified")


def masses(noise: Noise, r_add: int, r_del: int) -> tuple[Array, Array]:
    """Probability of each region around the graph and around the changed one; the ratio of the second to the first ascends."""
    here = np.convolve(_binomial(r_add, noise.p_add), _binomial(r_del, noise.p_del))
    there = np.convolve(_binomial(r_add, 1 - noise.p_del), _binomial(r_del, 1 - noise.p_add))
    return (here, there) if noise.p_add + noise.p_del <= 1 else (here[::-1], there[::-1])


def least(p: Array, here: Array, there: Array) -> Array:
    """The least probability around the changed graph of a class with probability at least ``p`` around the graph."""
    p = np.maximum(p - SLACK, 0.0)
    before, after = _cumulative(here), _cumulative(there)
    # The last region that is needed; one without mass here never is.
    last = np.clip(np.searchsorted(before, p, side="left") - 1, 0, len(here) - 1)
    bound = after[last] + (p - before[last]) * _ratio(here, there)[last]
    worst: Array = np.clip(np.minimum(bound, after[last + 1]) - TOLERANCE, 0.0, 1.0)
    return worst


def most(p: Array, here: Array, there: Array) -> Array:
    """The largest probability around the changed graph of a class with probability at most ``p`` around the graph."""
    p = np.minimum(p + SLACK, 1.0)
    here, there = here[::-1], there[::-1]
    before, after = _cumulative(here), _cumulative(there)
    # A region without mass here costs nothing and counts whole.
    last = np.clip(np.searchsorted(before, p, side="right") - 1, 0, len(here) - 1)
    bound = after[last] + (p - before[last]) * _ratio(here, there)[last]
    worst: Array = np.clip(np.minimum(bound, after[last + 1]) + TOLERANCE, 0.0, 1.0)
    return worst


def certified_grid(noise: Noise, p_lower: Array, p_upper: Array, most_radius: int = 256) -> Array:
    """For every node and every pair of radii, whether the first class stays ahead of all others.

    Args:
        noise: the smoothing.
        p_lower: at least so probable is each node's class, shape ``[nodes]``.
        p_upper: at most so probable is any other class, shape ``[nodes]``.
        most_radius: where to stop looking.

    Returns:
        Booleans, shape ``[nodes, largest r_add + 1, largest r_del + 1]``, as far as anything is certified.
    """
    # Nodes with equal counts share all work.
    bounds, which = np.unique(np.stack([p_lower, p_upper], axis=1), axis=0, return_inverse=True)
    rows: list[list[Array]] = []
    for r_add in range(most_radius + 1):
        row: list[Array] = []
        # What is not certified with fewer edges added is not with more.
        candidates = np.ones(len(bounds), dtype=bool) if not rows else rows[-1][0]
        for r_del in range(len(rows[-1]) if rows else most_radius + 1):
            here, there = masses(noise, r_add, r_del)
            ahead = least(bounds[:, 0], here, there) > most(bounds[:, 1], here, there)
            ahead &= candidates if not r_del else row[-1]
            if rows:
                ahead &= rows[-1][r_del]
            if not ahead.any():
                break
            row.append(ahead)
        if not row:
            break
        rows.append(row)
    size = (len(rows), max((len(row) for row in rows), default=0))
    grid = np.zeros((len(bounds), *(max(1, length) for length in size)), dtype=bool)
    for r_add, row in enumerate(rows):
        for r_del, ahead in enumerate(row):
            grid[:, r_add, r_del] = ahead
    return grid[which.reshape(-1)]


def clopper_pearson(count: Array, samples: int, alpha: float) -> tuple[Array, Array]:
    """Exact confidence bounds of a probability from counts; each of the two fails with probability at most ``alpha``."""
    count = np.asarray(count, dtype=float)
    with np.errstate(invalid="ignore"):
        lower = np.where(count > 0, beta.ppf(alpha, count, samples - count + 1), 0.0)
        upper = np.where(count < samples, beta.ppf(1 - alpha, count + 1, samples - count), 1.0)
    return lower, upper


def _binomial(n: int, p: float) -> Array:
    pmf: Array = binom.pmf(np.arange(n + 1), n, p)
    return pmf


def _cumulative(mass: Array) -> Array:
    return np.concatenate([[0.0], mass.cumsum()])


def _ratio(here: Array, there: Array) -> Array:
    return np.divide(there, here, out=np.zeros_like(there), where=here > 0)
