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

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from typing import Any

import numpy as np

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
            if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= value < 1:
                raise ValueError(f"expected 0 <= {name} < 1, got {value!r}")
            # Numbers of less precision would be computed with in theirs.
            object.__setattr__(self, name, float(value))
            if 0 < value < SLACK:
                raise ValueError(f"expected {name} to be 0 or at least {SLACK}, got {value!r}")
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

    What is certified for some radii is certified for all smaller ones, so a block of radii is certified if its far corner is,
    and is not if its near corner is not; only blocks in between are looked into.

    Args:
        noise: the smoothing.
        p_lower: at least so probable is each node's class, shape ``[nodes]``.
        p_upper: at most so probable is any other class, shape ``[nodes]``.
        most_radius: where to stop looking.

    Returns:
        Booleans, shape ``[nodes, largest r_add + 1, largest r_del + 1]``, as far as anything is certified, or looked for.
    """
    # Nodes with equal counts share all work.
    bounds, which = np.unique(np.stack([p_lower, p_upper], axis=1), axis=0, return_inverse=True)

    def ahead(r_add: int, r_del: int, among: Array) -> Array:
        here, there = masses(noise, r_add, r_del)
        found: Array = least(bounds[among, 0], here, there) > most(bounds[among, 1], here, there)
        return found

    everyone = np.arange(len(bounds))
    size = (
        _largest(lambda radius: bool(ahead(radius, 0, everyone).any()), most_radius) + 1,
        _largest(lambda radius: bool(ahead(0, radius, everyone).any()), most_radius) + 1,
    )
    grid = np.zeros((len(bounds), *size), dtype=bool)
    blocks = [(everyone, (0, size[0]), (0, size[1]))]
    while blocks:
        among, (first_add, end_add), (first_del, end_del) = blocks.pop()
        whole = ahead(end_add - 1, end_del - 1, among)
        grid[among[whole], first_add:end_add, first_del:end_del] = True
        rest = among[~whole]
        if not len(rest) or (end_add - first_add) * (end_del - first_del) == 1:
            continue
        rest = rest[ahead(first_add, first_del, rest)]
        if len(rest):
            blocks += [
                (rest, add, delete) for add in _halves(first_add, end_add) for delete in _halves(first_del, end_del)
            ]
    return grid[which.reshape(-1)]


def _largest(holds: Callable[[int], bool], most: int) -> int:
    """The largest number up to ``most`` for which something holds that holds for all smaller ones; 0 if for none."""
    low, high = 0, 1
    while high <= most and holds(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _halves(first: int, end: int) -> list[tuple[int, int]]:
    middle = (first + end + 1) // 2
    return [(first, middle), (middle, end)] if middle < end else [(first, end)]


def clopper_pearson(count: Array, samples: int, alpha: float) -> tuple[Array, Array]:
    """Exact confidence bounds of a probability from counts; each of the two fails with probability at most ``alpha``."""
    # Half a second, which only who certifies should wait for.
    from scipy.stats import beta

    count = np.asarray(count, dtype=float)
    with np.errstate(invalid="ignore"):
        lower = np.where(count > 0, beta.ppf(alpha, count, samples - count + 1), 0.0)
        upper = np.where(count < samples, beta.isf(alpha, count + 1, samples - count), 1.0)
    return lower, upper


@lru_cache(maxsize=4096)
def _binomial(n: int, p: float) -> Array:
    from scipy.stats import binom

    pmf: Array = binom.pmf(np.arange(n + 1), n, p)
    return pmf


def _cumulative(mass: Array) -> Array:
    return np.concatenate([[0.0], mass.cumsum()])


def _ratio(here: Array, there: Array) -> Array:
    return np.divide(there, here, out=np.zeros_like(there), where=here > 0)
