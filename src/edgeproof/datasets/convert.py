"""Graphs from edge lists, NetworkX and SciPy."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data

from edgeproof._checks import describe
from edgeproof._features import is_sparse
from edgeproof._names import unknown_name
from edgeproof.datasets.npz import sparse_or_dense
from edgeproof.datasets.simplify import Fixes, finish
from edgeproof.graph import UNKNOWN

if TYPE_CHECKING:
    import networkx as nx

Array = np.ndarray[Any, Any]

_PARTS = {"train": "train_mask", "val": "val_mask", "test": "test_mask"}


def from_edges(
    edges: Tensor | Array | Sequence[tuple[int, int]],
    x: object,
    y: object = None,
    *,
    weights: object = None,
    to_undirected: bool = False,
    remove_self_loops: bool = False,
    merge_duplicates: bool = False,
    drop_weights: bool = False,
) -> Data:
    """Make a graph from a list of edges.

    Args:
        edges: Pairs of node ids, shape ``[edges, 2]``.
        x: Features, shape ``[nodes, features]``: an array, a tensor or a SciPy matrix. A matrix stays sparse if that saves
            much memory.
        y: Label of each node, numbers or text; None, ``""`` or -1 for unlabelled nodes. Default: no labels.
        weights: Weight of each edge. Default: 1.
        to_undirected: Add the reverse of each edge without one.
        remove_self_loops: Remove edges from a node to itself.
        merge_duplicates: Keep one of several equal edges.
        drop_weights: Give all edges the weight 1; edges of weight 0 are removed.

    Returns:
        Graph with float32 features ``x``, both directions of every edge in ``edge_index``, and ``y``. If the labels are not
        the numbers from 0, ``class_names`` lists them in the order of the classes.

    Raises:
        ValueError: If the edges need a change that was not requested, or features or labels are invalid.

    >>> data = from_edges([(0, 1), (1, 2)], np.eye(3), ["cat", "dog", "cat"], to_undirected=True)
    >>> data.edge_index.tolist(), data.y.tolist(), data.class_names
    ([[0, 1, 1, 2], [1, 0, 2, 1]], [0, 1, 0], ['cat', 'dog'])
    """
    fixes = Fixes(to_undirected, remove_self_loops, merge_duplicates, drop_weights)
    pairs = torch.as_tensor(np.asarray(edges) if not isinstance(edges, Tensor) else edges)
    if not pairs.numel():
        pairs = pairs.reshape(0, 2).long()
    if pairs.dim() != 2 or pairs.size(1) != 2 or pairs.is_floating_point():
        raise ValueError(f"expected edges as pairs of integers, shape [edges, 2], got {describe(pairs)}")
    weight = None if weights is None else torch.as_tensor(np.asarray(weights), dtype=torch.float64)
    if weight is not None and weight.shape != pairs.shape[:1]:
        raise ValueError(f"expected one weight per edge, shape [{pairs.size(0)}], got {describe(weight)}")
    return finish(make_graph(pairs.long().T.contiguous(), x, y, weight), fixes)


def from_scipy(
    adjacency: Any,
    x: object,
    y: object = None,
    *,
    to_undirected: bool = False,
    remove_self_loops: bool = False,
    merge_duplicates: bool = False,
    drop_weights: bool = False,
) -> Data:
    """Make a graph from a SciPy sparse adjacency matrix.

    Args:
        adjacency: Matrix or array, shape ``[nodes, nodes]``; each stored entry is an edge.
        x: Features; see :func:`from_edges`.
        y: Labels; see :func:`from_edges`.
        to_undirected: Add the reverse of each edge without one.
        remove_self_loops: Remove edges from a node to itself.
        merge_duplicates: Keep one of several equal edges.
        drop_weights: Give all edges the weight 1; stored entries 0 are removed.

    >>> from_scipy(sp.csr_matrix([[0, 1], [1, 0]]), np.eye(2), [0, 1])
    Data(x=[2, 2], edge_index=[2, 2], y=[2])
    """
    fixes = Fixes(to_undirected, remove_self_loops, merge_duplicates, drop_weights)
    return finish(of_matrix(adjacency, x, y), fixes)


def from_networkx(
    graph: nx.Graph,
    *,
    features: Sequence[str] | None = None,
    label: str = "label",
    split: str = "split",
    weight: str = "weight",
    to_undirected: bool = False,
    remove_self_loops: bool = False,
    merge_duplicates: bool = False,
    drop_weights: bool = False,
) -> Data:
    """Make a graph from a NetworkX graph, its nodes in the same order.

    Args:
        graph: Graph, directed or not.
        features: Node attributes that are features: numbers or vectors. Default: all except ``label`` and ``split``.
        label: Node attribute with the label; see :func:`from_edges`. Nodes without it are unlabelled.
        split: Node attribute ``"train"``, ``"val"`` or ``"test"``; other nodes are in no mask.
        weight: Edge attribute with the weight. Edges without it have the weight 1.
        to_undirected: Add the reverse of each edge without one.
        remove_self_loops: Remove edges from a node to itself.
        merge_duplicates: Keep one of several equal edges.
        drop_weights: Give all edges the weight 1; edges of weight 0 are removed.

    Returns:
        Graph; see :func:`from_edges`. ``node_names`` lists the nodes unless they are the numbers from 0, ``feature_names`` the
        features.

    >>> import networkx as nx
    >>> graph = nx.path_graph(3)
    >>> nx.set_node_attributes(graph, {0: {"age": 3.0}, 1: {"age": 4.0}, 2: {"age": 5.0}})
    >>> from_networkx(graph).x.flatten()
    tensor([3., 4., 5.])
    """
    fixes = Fixes(to_undirected, remove_self_loops, merge_duplicates, drop_weights)
    return finish(of_networkx(graph, features, label, split, weight), fixes)


def make_graph(edge_index: Tensor, x: object, y: object, weight: Tensor | None) -> Data:
    """Return a graph whose edges are not checked; weights of 1 are left out."""
    data = Data(x=_as_features(x), edge_index=edge_index)
    if weight is not None and bool((weight != 1).any()):
        data.edge_weight = weight
    if y is not None:
        values = y.tolist() if isinstance(y, (Tensor, np.ndarray)) else list(y)  # type: ignore[call-overload]
        data.y, names = encode_labels(values)
        if len(values) != data.x.size(0):
            raise ValueError(f"expected one label per node, {data.x.size(0)}, got {len(values)}")
        if names is not None:
            data.class_names = names
    return data


def of_matrix(adjacency: Any, x: object, y: object) -> Data:
    """Return the graph of a SciPy matrix; its edges are not checked."""
    if not sp.issparse(adjacency) or adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1]:
        found = getattr(adjacency, "shape", type(adjacency).__name__)
        raise ValueError(f"expected a square SciPy sparse matrix, got {found}")
    matrix = adjacency.tocoo()
    pairs = torch.from_numpy(np.stack([matrix.row, matrix.col]).astype(np.int64))
    data = make_graph(pairs, x, y, torch.from_numpy(matrix.data.astype(np.float64)))
    if data.x.size(0) != matrix.shape[0]:
        raise ValueError(f"expected features for {matrix.shape[0]} nodes, got {data.x.size(0)}")
    return data


def of_networkx(graph: nx.Graph, features: Sequence[str] | None, label: str, split: str, weight: str) -> Data:
    """Return the graph of a NetworkX graph; its edges are not checked."""
    nodes = list(graph)
    if not nodes:
        raise ValueError("expected at least one node, got none")
    attributes = [graph.nodes[node] for node in nodes]
    known = list(dict.fromkeys(name for values in attributes for name in values))
    names = [name for name in known if name not in (label, split)] if features is None else list(features)
    if not names:
        raise ValueError(f"expected node attributes that are features, got {known or 'none'}")
    index = {node: number for number, node in enumerate(nodes)}
    edges = [(index[u], index[v], float(values.get(weight, 1))) for u, v, values in graph.edges(data=True)]
    if not graph.is_directed():
        edges += [(v, u, value) for u, v, value in edges if u != v]
    sources, targets, weights = zip(*edges, strict=True) if edges else ((), (), ())
    data = make_graph(
        torch.tensor([sources, targets], dtype=torch.long),
        np.array([_feature_row(node, values, names) for node, values in zip(nodes, attributes, strict=True)]),
        [values.get(label) for values in attributes] if label in known else None,
        torch.tensor(weights, dtype=torch.float64),
    )
    if data.x.size(1) == len(names):
        data.feature_names = names
    add_node_names(data, nodes)
    if split in known:
        add_masks(data, [values.get(split) or "" for values in attributes])
    return data


def _feature_row(node: Hashable, values: dict[str, Any], names: list[str]) -> Array:
    missing = [name for name in names if name not in values]
    if missing:
        raise ValueError(f"expected the attribute {missing[0]!r} at every node, got none at {node!r}")
    try:
        return np.concatenate([np.atleast_1d(np.asarray(values[name], dtype=np.float32)) for name in names])
    except (TypeError, ValueError) as error:
        raise ValueError(f"expected features as numbers, got {values} at {node!r}") from error


def encode_labels(values: Sequence[object]) -> tuple[Tensor, list[str] | None]:
    """Return the class of each label, and the names of the classes unless they are the numbers from 0.

    Classes are sorted: by value if all labels are integers, else as text. None, ``""`` and -1 are unlabelled.

    >>> encode_labels(["b", "a", None, "b"])
    (tensor([ 1,  0, -1,  1]), ['a', 'b'])
    >>> encode_labels(["2", "0", "1"])
    (tensor([2, 0, 1]), None)
    """
    text = ["" if value is None else str(value).strip() for value in values]
    text = ["" if value in (str(UNKNOWN), "nan") else value for value in text]
    names: list[str] = sorted(set(text) - {""})
    if all(value.removeprefix("-").isdecimal() for value in names):
        names.sort(key=int)
        if names and int(names[0]) < 0:
            raise ValueError(f"expected labels from 0, or {UNKNOWN} for unlabelled nodes, got {names[0]}")
    index = {"": UNKNOWN, **{name: number for number, name in enumerate(names)}}
    counted = names == [str(number) for number in range(len(names))]
    return torch.tensor([index[value] for value in text], dtype=torch.long), None if counted else names


def add_node_names(data: Data, names: Iterable[Hashable]) -> None:
    """Store the names of nodes unless they are the numbers from 0."""
    text = [str(name) for name in names]
    if text != [str(number) for number in range(len(text))]:
        data.node_names = text


def add_masks(data: Data, parts: Sequence[str]) -> None:
    """Store the masks of nodes whose part is ``"train"``, ``"val"`` or ``"test"``; others have an empty part."""
    for part in sorted(set(parts) - {""} - set(_PARTS)):
        raise unknown_name("split", part, _PARTS)
    for part, name in _PARTS.items():
        if part in parts:
            data[name] = torch.tensor([value == part for value in parts])


def _as_features(x: object) -> Tensor:
    if isinstance(x, Tensor):
        return x.float() if x.layout == torch.strided or is_sparse(x) else x.to_sparse_csr().float()
    if sp.issparse(x):
        return sparse_or_dense(sp.csr_matrix(x, dtype=np.float32))
    try:
        array = np.asarray(x, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"expected features as numbers, shape [nodes, features], got {type(x).__name__}") from error
    if array.ndim != 2:
        raise ValueError(f"expected features of shape [nodes, features], got {list(array.shape)}")
    return torch.from_numpy(np.array(array))
