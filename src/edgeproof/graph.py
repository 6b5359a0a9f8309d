"""What the library expects of a graph, asked in one place.

A graph is a :class:`torch_geometric.data.Data` with node features ``x``, both directions of every undirected
edge in ``edge_index``, and class labels ``y``. Nothing is repaired here: what does not fit raises.
"""

from __future__ import annotations

from copy import copy

import torch
from torch import Tensor
from torch_geometric.data import Data

# The label of a node whose class is not known.
UNKNOWN = -1


def num_classes(data: Data) -> int:
    """Number of classes of a graph: one more than its largest label. Labels of -1 stand for classes that are not known.

    >>> num_classes(Data(y=torch.tensor([0, 2, 1])))
    3
    """
    if data.y is None:
        raise ValueError("expected a class label per node in y, got none")
    return int(data.y.max()) + 1


def num_edges(data: Data) -> int:
    """Number of undirected edges: every pair counts once."""
    return int(data.edge_index.size(1)) // 2


def degree(data: Data) -> Tensor:
    """Number of edges at each node, shape ``[nodes]``.

    >>> degree(Data(x=torch.zeros(3, 1), edge_index=torch.tensor([[0, 1], [1, 0]])))
    tensor([1, 1, 0])
    """
    return torch.bincount(data.edge_index[0], minlength=data.x.size(0))


def flip_pairs(data: Data, flips: Tensor) -> Data:
    """The graph with pairs flipped: those that are edges removed, the others added. Everything about nodes is kept.

    Args:
        data: an undirected graph.
        flips: distinct pairs, shape ``[2, flips]``, each in one direction.

    >>> data = Data(x=torch.zeros(3, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
    >>> flip_pairs(data, torch.tensor([[0, 1], [1, 2]])).edge_index
    tensor([[1, 2],
            [2, 1]])
    """
    num_nodes = data.x.size(0)
    both = torch.cat([flips, flips.flip(0)], dim=1)
    key = torch.cat([data.edge_index, both], dim=1)
    # What appears twice was an edge and is flipped.
    key, count = (key[0] * num_nodes + key[1]).unique(return_counts=True)
    key = key[count == 1]
    flipped = copy(data)
    flipped.edge_index = torch.stack([key // num_nodes, key % num_nodes])
    for weight in ("edge_weight", "edge_attr"):
        # All ones, as every graph here; left out, for there are other edges now.
        if weight in flipped:
            del flipped[weight]
    return flipped
