"""Synthetic graph of the size of ogbn-arxiv, for machines without a copy of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, to_undirected

from edgeproof._checks import check_seed

IntArray = np.ndarray[Any, np.dtype[np.int64]]
FloatArray = np.ndarray[Any, np.dtype[np.float64]]

# Chosen so that, as on ogbn-arxiv, two thirds of the edges are within a class, and an MLP reaches about 55 %, APPNP 71 %.
_WITHIN_CLASS_BETA = (0.3, 0.16)
_INFORMATIVE = 0.64
_SEPARATION = 4.0


def arxiv_stand_in(
    *,
    num_nodes: int = 169_343,
    num_edges: int = 1_157_799,
    num_classes: int = 40,
    num_features: int = 128,
    seed: int = 0,
) -> Data:
    r"""Generate a graph similar to ogbn-arxiv in size and structure. Results on it are not results on ogbn-arxiv.

    Class :math:`c` has a fraction :math:`s_c \propto 1 / (c + 3)` of the nodes. Node :math:`u` has a weight :math:`w_u` with
    :math:`P(w > t) = t^{-2.5}` (Pareto) and a homophily :math:`h_u \sim \mathrm{Beta}(0.3, 0.16)`, mostly close to 0 or 1. The
    first end :math:`u` of an edge is drawn from all nodes in proportion to :math:`w`; the second, with probability :math:`h_u`,
    from the class of :math:`u` in proportion to :math:`w h`, otherwise from all nodes in proportion to :math:`w (1 - h)`.
    Features are :math:`x_u \sim \mathcal N(\mu_c, I)` with random class means of norm 4, where :math:`c` is the class of
    :math:`u` with probability 0.64 and otherwise drawn from :math:`s`. As in ogbn-arxiv's temporal split, the first 54 % of the
    nodes are for training, the next 18 % for validation, and the others for testing.

    Args:
        num_nodes: Number of nodes.
        num_edges: Number of edges drawn; self-loops and duplicates among them, a few percent, are removed.
        num_classes: Number of classes.
        num_features: Number of features.
        seed: Random seed.

    >>> arxiv_stand_in(num_nodes=1000, num_edges=5000, num_classes=5).y.unique()
    tensor([0, 1, 2, 3, 4])
    """
    if num_nodes < 10 * num_classes or num_edges < 1 or num_features < 1:
        raise ValueError(
            f"expected at least ten nodes per class, one edge and one feature, got num_nodes={num_nodes}, "
            f"num_classes={num_classes}, num_edges={num_edges}, num_features={num_features}"
        )
    check_seed(seed)
    random = np.random.default_rng(seed)
    fraction = 1 / (np.arange(num_classes) + 3)
    fraction /= fraction.sum()
    y, random_class = random.choice(num_classes, (2, num_nodes), p=fraction)
    means = random.standard_normal((num_classes, num_features))
    means *= _SEPARATION / np.linalg.norm(means, axis=1, keepdims=True)
    feature_class = np.where(random.uniform(size=num_nodes) < _INFORMATIVE, y, random_class)
    x = means[feature_class] + random.standard_normal((num_nodes, num_features))
    weight, homophily = 1 + random.pareto(2.5, num_nodes), random.beta(*_WITHIN_CLASS_BETA, num_nodes)
    pairs = torch.from_numpy(_sample_edges(random, y, weight, homophily, num_edges))
    edge_index = coalesce(to_undirected(pairs[:, pairs[0] != pairs[1]]))
    time = torch.arange(num_nodes) / num_nodes
    return Data(
        x=torch.from_numpy(x.astype(np.float32)),
        edge_index=edge_index,
        y=torch.from_numpy(y),
        train_mask=time < 0.54,
        val_mask=(time >= 0.54) & (time < 0.72),
        test_mask=time >= 0.72,
    )


def _sample_edges(
    random: np.random.Generator, y: IntArray, weight: FloatArray, homophily: FloatArray, count: int
) -> IntArray:
    """Sample both ends of edges, shape ``[2, count]``."""
    first = random.choice(y.size, count, p=weight / weight.sum())
    any_class = weight * (1 - homophily)
    second = random.choice(y.size, count, p=any_class / any_class.sum())
    within = random.uniform(size=count) < homophily[first]
    second[within] = _sample_from_classes(random, y, weight * homophily, y[first[within]])
    return np.stack([first, second])


def _sample_from_classes(random: np.random.Generator, y: IntArray, weight: FloatArray, classes: IntArray) -> IntArray:
    """Sample one node of each of ``classes`` in proportion to ``weight``."""
    # In an order sorted by class, each class is a range of the cumulative weights.
    order = np.argsort(y, kind="stable")
    ends = np.searchsorted(y[order], np.arange(y.max() + 2))
    low, high = ends[classes], ends[classes + 1]
    cumulative = np.concatenate([[0.0], np.cumsum(weight[order])])
    position = np.searchsorted(cumulative, random.uniform(cumulative[low], cumulative[high]), side="right") - 1
    # Rounding can move a draw to the end of its range.
    return order[np.clip(position, low, high - 1)]
