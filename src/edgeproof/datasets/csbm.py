"""Contextual stochastic block model (Deshpande et al. 2018)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from edgeproof._checks import check_seed
from edgeproof._names import look_up

Array = np.ndarray[Any, Any]

# (p, q): the maximum-likelihood fit to Cora, and the same with p and q exchanged.
_PRESETS = {"homophilous": (0.0063, 0.0015), "heterophilous": (0.0015, 0.0063)}


def csbm(
    preset: str = "heterophilous",
    *,
    num_nodes: int = 1000,
    num_features: int = 21,
    p: float | None = None,
    q: float | None = None,
    K: float = 1.5,
    sigma: float = 1.0,
    train_fraction: float = 0.8,
    seed: int = 0,
) -> Data:
    r"""Generate a graph from the two-class contextual stochastic block model.

    Labels are uniform in :math:`\{0, 1\}`; features are
    :math:`x_i \sim \mathcal N((2 y_i - 1) \mu \mathbf 1, \sigma^2 I)` with
    :math:`\mu = K \sigma / (2 \sqrt d)`, so :math:`K` is the distance between the class means in units of
    :math:`\sigma`; each pair is an edge with probability :math:`p` within a class and :math:`q` between classes,
    independently. Time and memory are linear in the number of edges, not of pairs.

    Args:
        preset: ``"heterophilous"`` (p = 0.15 %, q = 0.63 %) or ``"homophilous"`` (the reverse).
        num_nodes: Number of nodes :math:`n`.
        num_features: Number of features :math:`d`.
        p: Probability of an edge within a class. Default: that of the preset.
        q: Probability of an edge between classes. Default: that of the preset.
        K: Distance between the class means in units of :math:`\sigma`.
        sigma: Standard deviation of each feature.
        train_fraction: Fraction of nodes in ``train_mask``; the others are in ``val_mask``.
        seed: Random seed.

    Returns:
        Graph with all nodes, including isolated ones, and with ``train_mask`` and ``val_mask``.

    >>> csbm(seed=0).num_nodes
    1000
    """
    preset_p, preset_q = look_up("cSBM preset", preset, _PRESETS)
    p, q = preset_p if p is None else p, preset_q if q is None else q
    if num_nodes < 2 or num_features < 1:
        raise ValueError(f"expected at least 2 nodes and 1 feature, got {num_nodes} and {num_features}")
    for name, value in {"p": p, "q": q, "train_fraction": train_fraction}.items():
        if not 0 <= value <= 1:
            raise ValueError(f"expected 0 <= {name} <= 1, got {value}")
    if not (sigma > 0 and math.isfinite(sigma) and math.isfinite(K)):
        raise ValueError(f"expected a finite sigma > 0 and a finite K, got sigma={sigma}, K={K}")

    check_seed(seed)
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, num_nodes)
    mean = K * sigma / (2 * math.sqrt(num_features))
    x = (2 * y[:, None] - 1) * mean + sigma * random.standard_normal((num_nodes, num_features))
    members = [np.flatnonzero(y == label) for label in (0, 1)]
    within = [nodes[_pairs_within(random, nodes.size, p)] for nodes in members]
    pairs = np.concatenate([*within, _pairs_between(random, members, q)], axis=1)
    edge_index = torch.from_numpy(np.concatenate([pairs, pairs[::-1]], axis=1))
    train_mask = torch.zeros(num_nodes, dtype=torch.bool)
    train_mask[torch.from_numpy(random.permutation(num_nodes)[: round(train_fraction * num_nodes)])] = True
    return Data(
        x=torch.from_numpy(x.astype(np.float32)),
        edge_index=edge_index,
        y=torch.from_numpy(y),
        train_mask=train_mask,
        val_mask=~train_mask,
    ).coalesce()


def _sample_trials(random: np.random.Generator, total: int, probability: float) -> Array:
    """Sample which of ``total`` independent trials succeed, in time linear in their number."""
    return random.choice(total, size=random.binomial(total, probability), replace=False)


def _pairs_within(random: np.random.Generator, size: int, probability: float) -> Array:
    """Sample each pair i > j of ``size`` members with the given probability, shape ``[2, pairs]``."""
    sampled = _sample_trials(random, size * (size - 1) // 2, probability)
    # Pair number c is (i, j) with c = i (i - 1) / 2 + j; the floating-point root can be off by one.
    i = ((1 + np.sqrt(1 + 8 * sampled.astype(np.float64))) / 2).astype(np.int64)
    i -= i * (i - 1) // 2 > sampled
    i += i * (i + 1) // 2 <= sampled
    return np.stack([i, sampled - i * (i - 1) // 2])


def _pairs_between(random: np.random.Generator, members: list[Array], probability: float) -> Array:
    """Sample each pair of members of different classes with the given probability, shape ``[2, pairs]``."""
    first, second = members
    i, j = np.divmod(_sample_trials(random, first.size * second.size, probability), max(second.size, 1))
    return np.stack([first[i], second[j]])
