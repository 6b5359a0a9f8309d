"""Attributed stochastic block model: random graphs of given homophily, degree and kind of features."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, to_undirected

from edgeproof._checks import check_int, check_non_negative, check_positive, check_seed, is_number
from edgeproof._names import unknown_name

Array = np.ndarray[Any, Any]

FEATURES = ("gaussian", "binary", "counts")
# Expected number of words of a node with binary or count features, as in citation graphs.
_WORDS = 30


def attributed_sbm(
    num_nodes: int = 2000,
    num_classes: int = 5,
    *,
    degree: float = 8.0,
    homophily: float = 0.8,
    num_features: int = 200,
    features: str = "gaussian",
    signal: float = 1.0,
    scale: float = 1.0,
    heavy_tail: bool = True,
    seed: int = 0,
) -> Data:
    r"""Generate a degree-corrected stochastic block model with features that depend on the class.

    Classes have the same expected size. Both ends of an edge are drawn in proportion to node weights :math:`w_u`, which are 1,
    or with ``heavy_tail`` Pareto-distributed with exponent 2.5; with probability ``homophily`` both are of one class, otherwise
    of two different ones. Features are

    - ``"gaussian"``: :math:`x_u \sim \mathcal N(\mu_{y_u}, I)`, where the class means have norm ``2 * signal``;
    - ``"binary"``: each node has about 30 words; word :math:`j` is drawn with probability
      :math:`\propto \exp(\text{signal} \cdot g_{y_u j})`, :math:`g \sim \mathcal N(0, 1)`;
    - ``"counts"``: numbers of occurrences of these words.

    Args:
        num_nodes: Number of nodes.
        num_classes: Number of classes.
        degree: Expected mean degree; duplicates, which are removed, make it slightly smaller.
        homophily: Expected fraction of edges within a class.
        num_features: Number of features.
        features: Kind of features: ``"gaussian"``, ``"binary"`` or ``"counts"``.
        signal: Distance between the feature distributions of the classes; 0 for features that do not depend on the
            class.
        scale: Factor of all features.
        heavy_tail: Whether some nodes have a much larger degree than others.
        seed: Random seed.

    >>> data = attributed_sbm(300, 3, degree=6, homophily=0.2, features="binary", seed=1)
    >>> data.x.unique(), data.y.unique()
    (tensor([0., 1.]), tensor([0, 1, 2]))
    """
    check_int(2, num_classes=num_classes, num_features=num_features)
    check_int(num_classes, num_nodes=num_nodes)
    check_positive(degree=degree, scale=scale)
    check_non_negative(signal=signal)
    check_seed(seed)
    if not is_number(homophily) or not 0 <= homophily <= 1:
        raise ValueError(f"expected homophily from 0 to 1, got {homophily!r}")
    if features not in FEATURES:
        raise unknown_name("kind of features", features, FEATURES)
    random = np.random.default_rng(seed)
    y = random.permutation(np.arange(num_nodes) % num_classes)
    weight = 1 + random.pareto(2.5, num_nodes) if heavy_tail else np.ones(num_nodes)
    pairs = torch.from_numpy(_edges(random, y, weight, homophily, round(degree * num_nodes / 2)))
    x = scale * _features(random, y, num_features, features, signal)
    return Data(
        x=torch.from_numpy(x.astype(np.float32)),
        edge_index=coalesce(to_undirected(pairs[:, pairs[0] != pairs[1]], num_nodes=num_nodes)),
        y=torch.from_numpy(y),
    )


def _edges(random: np.random.Generator, y: Array, weight: Array, homophily: float, count: int) -> Array:
    """Draw both ends of ``count`` edges, shape ``[2, count]``."""
    num_classes = int(y.max()) + 1
    first_class = random.integers(num_classes, size=count)
    other = (first_class + random.integers(1, num_classes, size=count)) % num_classes
    second_class = np.where(random.uniform(size=count) < homophily, first_class, other)
    return np.stack([_draw(random, y, weight, classes) for classes in (first_class, second_class)])


def _draw(random: np.random.Generator, y: Array, weight: Array, classes: Array) -> Array:
    """Draw one node of each class in ``classes``, in proportion to its weight."""
    nodes = np.empty(classes.size, dtype=np.int64)
    for label in np.unique(classes):
        members, chosen = np.flatnonzero(y == label), classes == label
        probability = weight[members] / weight[members].sum()
        nodes[chosen] = random.choice(members, int(chosen.sum()), p=probability)
    return nodes


def _features(random: np.random.Generator, y: Array, num_features: int, kind: str, signal: float) -> Array:
    profile = random.standard_normal((int(y.max()) + 1, num_features))
    if kind == "gaussian":
        means = 2 * signal * profile / np.linalg.norm(profile, axis=1, keepdims=True)
        dense: Array = means[y] + random.standard_normal((y.size, num_features))
        return dense
    popularity = np.exp(signal * profile) / (1 + np.arange(num_features)) ** 0.5
    rate = _WORDS * popularity / popularity.sum(axis=1, keepdims=True)
    words: Array = random.poisson(rate[y])
    return words.clip(max=1) if kind == "binary" else words
