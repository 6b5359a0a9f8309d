"""Basic graph operations: counts, degrees and edge flips.

A graph is a :class:`torch_geometric.data.Data` with node features ``x``, both directions of every undirected edge in
``edge_index``, and class labels ``y``. :func:`edgeproof.check_data` validates it; nothing is repaired silently.
"""

from __future__ import annotations

from copy import copy

import torch
from torch import Tensor
from torch_geometric.data import Data

# Label of unlabelled nodes.
UNKNOWN = -1


def num_classes(data: Data) -> int:
    """Return the number of classes: the largest label plus one. The label -1 marks unlabelled nodes.

    >>> num_classes(Data(y=torch.tensor([0, 2, 1])))
    3
    """
    if data.y is None:
        raise ValueError("expected a class label per node in y, got None")
    return int(data.y.max()) + 1


def num_edges(data: Data) -> int:
    """Return the number of undirected edges."""
    return int(data.edge_index.size(1)) // 2


def degree(data: Data) -> Tensor:
    """Return the degree of each node, shape ``[nodes]``.

    >>> degree(Data(x=torch.zeros(3, 1), edge_index=torch.tensor([[0, 1], [1, 0]])))
    tensor([1, 1, 0])
    """
    return torch.bincount(data.edge_index[0], minlength=data.x.size(0))


def flip_pairs(data: Data, flips: Tensor) -> Data:
    """Return the graph with the given pairs flipped: existing edges are removed, missing edges are added.

    Node attributes are kept; ``edge_weight`` and ``edge_attr`` are dropped.

    Args:
        data: Undirected graph.
        flips: Distinct pairs, each in one direction, shape ``[2, flips]``.

    >>> data = Data(x=torch.zeros(3, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
    >>> flip_pairs(data, torch.tensor([[0, 1], [1, 2]])).edge_index
    tensor([[1, 2],
            [2, 1]])
    """
    num_nodes = data.x.size(0)
    both = torch.cat([flips, flips.flip(0)], dim=1)
    key = torch.cat([data.edge_index, both], dim=1)
    # A key that occurs twice is an existing edge that is flipped, hence removed.
    key, count = (key[0] * num_nodes + key[1]).unique(return_counts=True)
    key = key[count == 1]
    flipped = copy(data)
    flipped.edge_index = torch.stack([key // num_nodes, key % num_nodes])
    for weight in ("edge_weight", "edge_attr"):
        # check_data allows only ones, and the number of edges has changed.
        if weight in flipped:
            del flipped[weight]
    return flipped
