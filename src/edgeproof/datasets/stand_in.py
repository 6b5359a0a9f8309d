"""A generated graph of ogbn-arxiv's size, for machines that have no copy of it."""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, to_undirected

# Chosen by nothing but resemblance: two thirds of arXiv's citations stay within a class, and an MLP is right about half of it.
_HOMOPHILY = 0.65
_SEPARATION = 2.1


def arxiv_stand_in(
    *,
    num_nodes: int = 169_343,
    num_edges: int = 1_157_799,
    num_classes: int = 40,
    num_features: int = 128,
    seed: int = 0,
) -> Data:
    r"""Draw a graph that is as large as ogbn-arxiv and like it in kind; its numbers are not those of ogbn-arxiv.

    Class :math:`c` has a share proportional to :math:`1 / (c + 3)`, and node :math:`u` a weight :math:`w_u` from a Pareto law,
    :math:`P(w > t) = t^{-2.5}`. One end of an edge is drawn by weight from all nodes; the other likewise, but with a chance of
    0.65 from the first one's class only. Features are :math:`x_u \sim \mathcal N(\mu_{y_u}, I)` with class means of length 2.1
    in random directions. Nodes are in the order of time, as it were: the first 54 % are trained on, the next 18 % validate, and
    the others are tested, as in ogbn-arxiv.

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
    size = 1 / (np.arange(num_classes) + 3)
    y = random.choice(num_classes, num_nodes, p=size / size.sum())
    means = random.standard_normal((num_classes, num_features))
    means *= _SEPARATION / np.linalg.norm(means, axis=1, keepdims=True)
    x = means[y] + random.standard_normal((num_nodes, num_features))
    pairs = torch.from_numpy(_pairs(random, y, 1 + random.pareto(2.5, num_nodes), num_edges))
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


def _pairs(
    random: np.random.Generator,
    y: np.ndarray[tuple[int], np.dtype[np.int64]],
    weight: np.ndarray[tuple[int], np.dtype[np.float64]],
    count: int,
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Both ends of edges, drawn by weight, shape ``[2, count]``."""
    # Nodes sorted by class: drawing within a class is drawing from a range of the cumulated weights.
    order = np.argsort(y, kind="stable")
    until = np.cumsum(weight[order])
    first = order[np.searchsorted(until, random.uniform(0, until[-1], count))]
    ends = np.searchsorted(y[order], np.arange(y.max() + 2))
    bounds = np.concatenate([[0.0], until])[ends]
    within = random.uniform(size=count) < _HOMOPHILY
    low, high = np.where(within, bounds[y[first]], 0.0), np.where(within, bounds[y[first] + 1], until[-1])
    second = order[np.minimum(np.searchsorted(until, random.uniform(low, high)), y.size - 1)]
    return np.stack([first, second])
