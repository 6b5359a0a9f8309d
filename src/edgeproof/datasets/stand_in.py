"""A generated graph of ogbn-arxiv's size, for machines that have no copy of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, to_undirected

Whole = np.ndarray[Any, np.dtype[np.int64]]
Real = np.ndarray[Any, np.dtype[np.float64]]

# Chosen for resemblance: two thirds of arXiv's citations stay within a class, an MLP is right about 55 % of it, APPNP about 71.
_OWN_CLASS = (0.3, 0.16)
_TOLD = 0.64
_SEPARATION = 4.0


def arxiv_stand_in(
    *,
    num_nodes: int = 169_343,
    num_edges: int = 1_157_799,
    num_classes: int = 40,
    num_features: int = 128,
    seed: int = 0,
) -> Data:
    r"""Draw a graph that is as large as ogbn-arxiv and like it in kind; its numbers are not those of ogbn-arxiv.

    Class :math:`c` has a share :math:`s_c \propto 1 / (c + 3)`. Node :math:`u` has a weight :math:`w_u` from a Pareto law,
    :math:`P(w > t) = t^{-2.5}`, and keeps to its class with a chance :math:`h_u \sim \mathrm{Beta}(0.3, 0.16)`: many keep to it
    nearly always, others hardly ever. One end of an edge is drawn from all nodes by :math:`w`; with the chance :math:`h` of
    that node the other is drawn from its class by :math:`w h`, otherwise from all nodes by :math:`w (1 - h)`. Features are
    :math:`x_u \sim \mathcal N(\mu_c, I)` with class means of length 4 in random directions, where :math:`c` is the class of the
    node with a chance of 0.64 and otherwise drawn by :math:`s`. Nodes are in the order of time, as it were: the first 54 % are
    trained on, the next 18 % validate, and the others are tested, as in ogbn-arxiv.

    Args:
        num_nodes: nodes.
        num_edges: edges that are drawn; loops and repetitions among them, a few in a hundred, are left out.
        num_classes: classes.
        num_features: features.
        seed: same seed, same graph.

    >>> arxiv_stand_in(num_nodes=1000, num_edges=5000, num_classes=5).y.unique()
    tensor([0, 1, 2, 3, 4])
    """
    if num_nodes < 10 * num_classes or num_edges < 1 or num_features < 1:
        raise ValueError(
            f"expected ten nodes of each class, edges and features, got num_nodes={num_nodes}, num_classes={num_classes}, "
            f"num_edges={num_edges}, num_features={num_features}"
        )
    random = np.random.default_rng(seed)
    share = 1 / (np.arange(num_classes) + 3)
    share /= share.sum()
    y, other = random.choice(num_classes, (2, num_nodes), p=share)
    means = random.standard_normal((num_classes, num_features))
    means *= _SEPARATION / np.linalg.norm(means, axis=1, keepdims=True)
    spoken_of = np.where(random.uniform(size=num_nodes) < _TOLD, y, other)
    x = means[spoken_of] + random.standard_normal((num_nodes, num_features))
    weight, own = 1 + random.pareto(2.5, num_nodes), random.beta(*_OWN_CLASS, num_nodes)
    pairs = torch.from_numpy(_pairs(random, y, weight, own, num_edges))
    edge_index = coalesce(to_undirected(pairs[:, pairs[0] != pairs[1]]))
    when = torch.arange(num_nodes) / num_nodes
    return Data(
        x=torch.from_numpy(x.astype(np.float32)),
        edge_index=edge_index,
        y=torch.from_numpy(y),
        train_mask=when < 0.54,
        val_mask=(when >= 0.54) & (when < 0.72),
        test_mask=when >= 0.72,
    )


def _pairs(random: np.random.Generator, y: Whole, weight: Real, own: Real, count: int) -> Whole:
    """Both ends of edges, shape ``[2, count]``."""
    first = random.choice(y.size, count, p=weight / weight.sum())
    abroad = weight * (1 - own)
    second = random.choice(y.size, count, p=abroad / abroad.sum())
    within = random.uniform(size=count) < own[first]
    second[within] = _of_class(random, y, weight * own, y[first[within]])
    return np.stack([first, second])


def _of_class(random: np.random.Generator, y: Whole, weight: Real, wanted: Whole) -> Whole:
    """A node of each wanted class, drawn by weight."""
    # Nodes sorted by class: drawing within a class is drawing from a range.
    order = np.argsort(y, kind="stable")
    ends = np.searchsorted(y[order], np.arange(y.max() + 2))
    low, high = ends[wanted], ends[wanted + 1]
    until = np.concatenate([[0.0], np.cumsum(weight[order])])
    found = np.searchsorted(until, random.uniform(until[low], until[high]), side="right") - 1
    # Rounding may carry a draw to the very end of its range.
    return order[np.clip(found, low, high - 1)]
