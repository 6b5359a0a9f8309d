"""What the library expects of a graph, asked in one place.

A graph is a :class:`torch_geometric.data.Data` with node features ``x``, both directions of every undirected
edge in ``edge_index``, and class labels ``y``. Nothing is repaired here: what does not fit raises.
"""

from __future__ import annotations

from copy import copy

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import is_sparse

# The label of a node whose class is not known.
UNKNOWN = -1


def check_data(data: Data, *, labels: bool = True) -> None:
    """Raise unless ``data`` is a simple undirected graph with sound features (and labels).

    Every entry point of the library calls this first, so that a bad graph costs seconds, not hours.

    Args:
        data: the graph.
        labels: whether ``y`` is needed: a class from 0 for each node, or -1 where it is not known.

    Raises:
        TypeError: if ``data`` is not a PyG ``Data``.
        ValueError: for directed edges, self-loops, duplicates, node ids out of range, edge weights other
            than 1, NaN or infinite features, wrong dtypes or lengths, missing labels, fewer than two classes.

    >>> x, y = torch.zeros(3, 1), torch.tensor([0, 1, 1])
    >>> check_data(Data(x=x, edge_index=torch.tensor([[0, 1], [1, 0]]), y=y))
    >>> check_data(Data(x=x, edge_index=torch.tensor([[0], [1]]), y=y))
    Traceback (most recent call last):
    ...
    ValueError: expected undirected edges, got 1 without their reverse, such as 0 -> 1; torch_geometric.utils.to_undirected adds them
    """  # noqa: E501
    if not isinstance(data, Data):
        raise TypeError(f"expected a torch_geometric.data.Data, got {type(data).__name__}")
    num_nodes = _check_features(data.x)
    _check_edges(data, num_nodes)
    if labels:
        _check_labels(data.y, num_nodes)
    devices = {str(value.device) for value in (data.x, data.edge_index, data.y) if isinstance(value, Tensor)}
    if len(devices) > 1:
        raise ValueError(f"expected x, edge_index and y on one device, got {', '.join(sorted(devices))}")


def check_nodes(nodes: Tensor, data: Data, *, what: str = "nodes", labelled: bool = False) -> None:
    """Raise unless ``nodes`` are distinct node ids of ``data``, at least one of them.

    Args:
        nodes: the ids.
        data: the graph, which has been checked.
        what: what to call them in a message.
        labelled: whether the class of each must be known.

    >>> check_nodes(torch.tensor([0, 7]), Data(x=torch.zeros(3, 1)))
    Traceback (most recent call last):
    ...
    ValueError: expected nodes between 0 and 2, got 7
    """
    if not isinstance(nodes, Tensor) or nodes.dtype != torch.long or nodes.dim() != 1:
        raise ValueError(f"expected {what} as a 1-D int64 tensor of node ids, got {_describe(nodes)}")
    if nodes.numel() == 0:
        raise ValueError(f"expected at least one node in {what}, got none")
    _check_range(nodes, data.x.size(0), what)
    if nodes.unique().numel() != nodes.numel():
        raise ValueError(f"expected distinct {what}, got {nodes.numel() - nodes.unique().numel()} repeated")
    if labelled:
        unknown = nodes[data.y[nodes] == UNKNOWN]
        if unknown.numel():
            raise ValueError(
                f"expected {what} whose class is known, got {unknown.numel()} with label {UNKNOWN}, such as node "
                f"{int(unknown[0])}"
            )


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


def _check_features(x: object) -> int:
    if not isinstance(x, Tensor) or x.dim() != 2:
        raise ValueError(f"expected features x of shape [nodes, features], got {_describe(x)}")
    if x.layout != torch.strided or x.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"expected dense float32 or float64 features x, got {x.layout} {x.dtype}")
    if x.numel() == 0:
        raise ValueError(f"expected at least one node and one feature, got features x of shape {list(x.shape)}")
    finite = x.isfinite().all(dim=1)
    if not finite.all():
        node = int((~finite).nonzero()[0])
        raise ValueError(
            f"expected finite features, got NaN or Inf at {int((~finite).sum())} nodes, such as node {node}"
        )
    return x.size(0)


def _check_edges(data: Data, num_nodes: int) -> None:
    edge_index = data.edge_index
    name = "adj_t" if edge_index is None else "edge_index"
    if is_sparse(data.get(name)):
        raise ValueError(
            f"expected an edge list edge_index of shape [2, edges], got a sparse matrix {name}; "
            f"torch_geometric.utils.to_edge_index(data.{name})[0] makes one"
        )
    if not isinstance(edge_index, Tensor) or edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise ValueError(f"expected edge_index of shape [2, edges], got {_describe(edge_index)}")
    if edge_index.dtype != torch.long:
        raise ValueError(f"expected int64 edge_index, got {edge_index.dtype}")
    _check_range(edge_index, num_nodes, "node ids in edge_index")
    row, col = edge_index
    loops = int((row == col).sum())
    if loops:
        raise ValueError(f"expected no self-loops, got {loops}; torch_geometric.utils.remove_self_loops drops them")
    forward = (row * num_nodes + col).sort().values
    duplicates = int((forward[1:] == forward[:-1]).sum())
    if duplicates:
        raise ValueError(f"expected each edge once, got {duplicates} repeated; Data.coalesce merges them")
    one_way = forward[~torch.isin(forward, col * num_nodes + row)]
    if one_way.numel():
        source, target = divmod(int(one_way[0]), num_nodes)
        raise ValueError(
            f"expected undirected edges, got {one_way.numel()} without their reverse, such as "
            f"{source} -> {target}; torch_geometric.utils.to_undirected adds them"
        )
    for name in ("edge_weight", "edge_attr"):
        weight = data.get(name)
        if weight is None:
            continue
        if not isinstance(weight, Tensor) or weight.size(0) != edge_index.size(1):
            raise ValueError(f"expected {name} with one row per edge, or none, got {_describe(weight)}")
        if not bool((weight == 1).all()):
            raise ValueError(f"expected unweighted edges, got {name} with values other than 1; remove it first")


def _check_labels(y: object, num_nodes: int) -> None:
    if y is None:
        raise ValueError("expected a class label per node in y, got none")
    if not isinstance(y, Tensor) or y.dtype != torch.long or tuple(y.shape) != (num_nodes,):
        raise ValueError(f"expected int64 labels y of shape [{num_nodes}], got {_describe(y)}")
    if int(y.min()) < UNKNOWN:
        raise ValueError(f"expected labels from 0, or {UNKNOWN} where the class is not known, got {int(y.min())}")
    classes = y[y != UNKNOWN].unique().numel()
    if classes < 2:
        raise ValueError(f"expected at least two classes in y, got {classes}")


def _check_range(ids: Tensor, num_nodes: int, what: str) -> None:
    outside = ids[(ids < 0) | (ids >= num_nodes)]
    if outside.numel():
        raise ValueError(f"expected {what} between 0 and {num_nodes - 1}, got {int(outside[0])}")


def _describe(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {list(value.shape)}"
    return "none" if value is None else type(value).__name__
