"""The bounds of :mod:`edgeproof.certificates.regions` in rational numbers: slow, without rounding errors."""

from __future__ import annotations

from fractions import Fraction
from math import comb


def region_probabilities(p_add: Fraction, p_del: Fraction, r_add: int, r_del: int) -> list[tuple[Fraction, Fraction]]:
    """Return the probability of each region under the clean and under the perturbed graph, by ascending ratio."""
    clean = _convolve(_binomial(r_add, p_add), _binomial(r_del, p_del))
    perturbed = _convolve(_binomial(r_add, 1 - p_del), _binomial(r_del, 1 - p_add))
    regions = list(zip(clean, perturbed, strict=True))
    return regions if p_add + p_del <= 1 else regions[::-1]


def lower_bound(p: Fraction, regions: list[tuple[Fraction, Fraction]]) -> Fraction:
    """Return the least probability under the perturbed graph of a class with probability ``p`` under the clean graph."""
    total = Fraction(0)
    for clean, perturbed in regions:
        if p <= 0:
            break
        if clean > 0:
            total += perturbed * min(Fraction(1), p / clean)
            p -= clean
    return total


def upper_bound(p: Fraction, regions: list[tuple[Fraction, Fraction]]) -> Fraction:
    """Return the largest probability under the perturbed graph of a class with probability ``p`` under the clean graph."""
    total = Fraction(0)
    for clean, perturbed in reversed(regions):
        if clean == 0:
            total += perturbed
        elif p > 0:
            total += perturbed * min(Fraction(1), p / clean)
            p -= clean
    return total


def _binomial(n: int, p: Fraction) -> list[Fraction]:
    return [comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]


def _convolve(a: list[Fraction], b: list[Fraction]) -> list[Fraction]:
    total = [Fraction(0)] * (len(a) + len(b) - 1)
    for i, a_i in enumerate(a):
        for j, b_j in enumerate(b):
            total[i + j] += a_i * b_j
    return total
