"""Certified radii of random classifiers, against all graphs of a few pairs with their exact probabilities."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np

from edgeproof.certificates.regions import Noise, certified_grid
from fuzz.trial import Violation

_CLASSES = 3


def enumerated_certificate(random: np.random.Generator, folder: Path) -> str:
    """Certify a random classifier of graphs with exact probabilities, and compare its votes on all graphs.

    Returns:
        Whether some radius above 0 was certified.

    Raises:
        Violation: If a certified prediction changes within its radius.
    """
    num_pairs = int(random.integers(1, 9))
    graphs = np.array(list(product([0, 1], repeat=num_pairs)))
    # Class scores that are linear in the pairs, with noise of a random size: from smooth to arbitrary classifiers.
    weights = random.normal(size=(num_pairs, _CLASSES)) * random.choice([0.2, 1.0])
    scores = (
        graphs @ weights + random.normal(size=_CLASSES) + random.normal(size=(len(graphs), _CLASSES)) * random.random()
    )
    votes = np.eye(_CLASSES)[scores.argmax(axis=1)]
    p_add, p_del = (
        float(random.choice([0.0, random.uniform(0.001, 0.5), random.uniform(0.5, 0.95)])) for _ in range(2)
    )
    if not p_add and not p_del:
        p_del = 0.5
    transition = np.array([[1 - p_add, p_add], [p_del, 1 - p_del]])
    probability = np.prod(transition[graphs[:, None], graphs[None]], axis=2)
    smoothed = probability @ votes
    ordered, best = np.sort(smoothed, axis=1), smoothed.argmax(axis=1)
    grid = certified_grid(Noise(p_add, p_del), ordered[:, -1], ordered[:, -2], max_radius=num_pairs + 1)
    added = (graphs[None] > graphs[:, None]).sum(axis=2)
    deleted = (graphs[None] < graphs[:, None]).sum(axis=2)
    changed = best[None] != best[:, None]
    for r_add, r_del in product(range(grid.shape[1]), range(grid.shape[2])):
        wrong = grid[:, r_add, r_del] & (changed & (added <= r_add) & (deleted <= r_del)).any(axis=1)
        if wrong.any():
            raise Violation(
                f"noise {p_add}, {p_del}: the certificate of graph {int(wrong.argmax())} at the radii {r_add}, {r_del} is wrong"
            )
    return "radius above 0, holds" if grid.shape[1] * grid.shape[2] > 1 else "radius 0"
