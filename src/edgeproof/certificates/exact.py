"""The regions of :mod:`edgeproof.certificates.regions` in rational numbers: slow, and without any rounding."""

from __future__ import annotations

from fractions import Fraction
from math import comb


def masses(p_add: Fraction, p_del: Fraction, r_add: int, r_del: int) -> list[tuple[Fraction, Fraction]]:
    """Probability of each region around the graph and around the changed one; the ratio of the second to the first ascends."""
    here = _convolve(_binomial(r_add, p_add), _binomial(r_del, p_del))
    there = _convolve(_binomial(r_add, 1 - p_del), _binomial(r_del, 1 - p_add))
    regions = list(zip(here, there, strict=True))
    return regions if p_add + p_del <= 1 else regions[::-1]


def least(p: Fraction, regions: list[tuple[Fraction, Fraction]]) -> Fraction:
    """The least probability around the changed graph of a class with probability ``p`` around the graph."""
    total = Fraction(0)
    for here, there in regions:
        if p <= 0:
            break
        if here > 0:
            total += there * min(Fraction(1), p / here)
            p -= here
    return total


def most(p: Fraction, regions: list[tuple[Fraction, Fraction]]) -> Fraction:
    """The largest probability around the changed graph of a class with probability ``p`` around the graph."""
    total = Fraction(0)
    for here, there in reversed(regions):
        if here == 0:
            total += there
        elif p > 0:
            total += there * min(Fraction(1), p / here)
            p -= here
    return total


def _binomial(n: int, p: Fraction) -> list[Fraction]:
    return [comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]


def _convolve(one: list[Fraction], two: list[Fraction]) -> list[Fraction]:
    total = [Fraction(0)] * (len(one) + len(two) - 1)
    for i, a in enumerate(one):
        for j, b in enumerate(two):
            total[i + j] += a * b
    return total
