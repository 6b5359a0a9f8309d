"""Argument checks shared by the whole library.

Every check raises before any long work starts. The message states what was expected and what was passed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.data import Data
from torch_geometric.utils import is_sparse

from edgeproof._tensors import sort_keys
from edgeproof.graph import UNKNOWN

# Nodes of a graph: ids, or a boolean mask with one entry per node.
Nodes: TypeAlias = Tensor | np.ndarray[Any, Any] | Sequence[int]

# Largest seed: attacks and training derive one 64-bit seed per epoch from it.
MAX_SEED = (1 << 32) - 1


def is_int(value: object) -> bool:
    """Whether ``value`` is an integer; booleans are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether ``value`` is a finite real number; booleans are not."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def check_int(minimum: int = 1, maximum: int | None = None, /, **values: object) -> None:
    """Raise unless every value is an integer within the limits.

    >>> check_int(1, steps=400, samples=20)
    >>> check_int(1, steps=0)
    Traceback (most recent call last):
    ...
    ValueError: expected steps to be an integer >= 1, got 0
    """
    for name, value in values.items():
        if not is_int(value) or not minimum <= value or (maximum is not None and value > maximum):  # type: ignore[operator]
            limits = f">= {minimum}" if maximum is None else f"from {minimum} to {maximum}"
            raise ValueError(f"expected {name} to be an integer {limits}, got {value!r}")


def check_seed(seed: object, name: str = "seed") -> int:
    """Return ``seed`` as an ``int``; raise unless it is an integer, of Python or NumPy, from 0 to ``MAX_SEED``."""
    check_int(0, MAX_SEED, **{name: seed})
    return int(seed)  # type: ignore[call-overload, no-any-return]


def check_positive(**values: object) -> None:
    """Raise unless every value is a finite number > 0."""
    for name, value in values.items():
        if not is_number(value) or not value > 0:  # type: ignore[operator]
            raise ValueError(f"expected {name} to be a finite number > 0, got {value!r}")


def check_non_negative(**values: object) -> None:
    """Raise unless every value is a finite number >= 0."""
    for name, value in values.items():
        if not is_number(value) or not value >= 0:  # type: ignore[operator]
            raise ValueError(f"expected {name} to be a finite number >= 0, got {value!r}")


def check_fraction(**values: object) -> None:
    """Raise unless every value lies in [0, 1)."""
    for name, value in values.items():
        if not is_number(value) or not 0 <= value < 1:  # type: ignore[operator]
            raise ValueError(f"expected 0 <= {name} < 1, got {value!r}")


def check_bool(**values: object) -> None:
    """Raise unless every value is a boolean."""
    for name, value in values.items():
        if not isinstance(value, bool):
            raise ValueError(f"expected {name} to be True or False, got {value!r}")


def check_module(model: object) -> None:
    """Raise unless ``model`` is a ``torch.nn.Module`` without uninitialized (lazy) parameters.

    Raises:
        TypeError: If it is not a module.
        ValueError: If it has lazy parameters.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected a torch.nn.Module, got {type(model).__name__}")
    if any(is_lazy(tensor) for tensor in [*model.parameters(), *model.buffers()]):
        raise ValueError(
            f"expected initialized parameters, got lazy ones in {type(model).__name__}: call the model once first"
        )


def caching_layer(model: nn.Module) -> str | None:
    """Class name of the first layer with ``cached=True``, an option of some PyG layers; None if there is none."""
    return next((type(module).__name__ for module in model.modules() if getattr(module, "cached", False) is True), None)


def check_not_caching(model: object) -> None:
    """Raise if a layer of ``model`` caches the first graph, or if :func:`check_module` raises.

    Every function that runs a model on more than one graph calls this first: a cached graph makes all later results wrong
    without an error.
    """
    check_module(model)
    assert isinstance(model, nn.Module)
    layer = caching_layer(model)
    if layer is not None:
        raise ValueError(
            f"{type(model).__name__} contains {layer} with cached=True, which reuses the first graph for every later call: "
            "construct it with cached=False"
        )


def check_data(data: Data, *, labels: bool = True) -> None:
    """Raise unless ``data`` is a simple undirected graph with finite features and valid labels.

    Args:
        data: Graph.
        labels: Whether ``y`` is required: the class of each node, counted from 0, or -1 for unlabelled nodes.

    Raises:
        TypeError: If ``data`` is not a PyG ``Data``.
        ValueError: For directed edges, self-loops, duplicate edges, node ids out of range, edge weights other than 1,
            non-finite features, wrong dtypes or shapes, missing labels, or fewer than two classes.

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


def node_ids(nodes: Nodes, data: Data, *, what: str = "nodes", labelled: bool = False) -> Tensor:
    """Return nodes as an int64 tensor of ids on the device of the graph; every public function calls this first.

    Args:
        nodes: Ids as a tensor, NumPy array or list of integers, whose order is kept; or a boolean mask as a tensor, NumPy array
            or list with one entry per node, which gives ascending ids.
        data: Graph, already checked.
        what: Name of the nodes in error messages.
        labelled: Whether every node must be labelled.

    Raises:
        ValueError: For other types or shapes, a mask of the wrong length, no nodes, repeated ids, or ids out of range.

    >>> data = Data(x=torch.zeros(3, 1))
    >>> node_ids([2, 0], data), node_ids(torch.tensor([True, False, True]), data)
    (tensor([2, 0]), tensor([0, 2]))
    >>> node_ids([True, False], data)
    Traceback (most recent call last):
    ...
    ValueError: expected nodes as a mask with one entry for each of 3 nodes, got 2 entries
    """
    ids = as_ids(nodes, data.x.size(0), what=what).to(data.x.device)
    check_nodes(ids, data, what=what, labelled=labelled)
    return ids


def as_ids(nodes: Nodes, num_nodes: int, *, what: str = "nodes") -> Tensor:
    """Convert nodes to a 1-D int64 tensor of ids without checking their range; see :func:`node_ids`."""
    expected = f"expected {what} as a 1-D tensor, array or list of integer node ids, or a boolean mask"
    if not isinstance(nodes, Tensor):
        try:
            array = np.asarray(nodes)
        except ValueError as error:  # lists of different lengths
            raise ValueError(f"{expected}, got {describe(nodes)}: {error}") from error
        # An empty list has no dtype of its own.
        if array.dtype.kind not in "biu" and array.size:
            raise ValueError(f"{expected}, got {describe(nodes)} of {array.dtype}")
        # PyTorch has no unsigned integers of more than 8 bits, and no negative strides.
        dtype = array.dtype if array.dtype in (np.bool_, np.uint8) else np.int64
        nodes = torch.from_numpy(np.array(array, dtype=dtype, order="C"))
    if nodes.dtype == torch.uint8:
        raise ValueError(f"{expected}, got uint8, which may mean either: convert it with nodes.bool() or nodes.long()")
    if nodes.dim() != 1 or nodes.is_floating_point() or nodes.is_complex():
        raise ValueError(f"{expected}, got {describe(nodes)}")
    if nodes.dtype != torch.bool:
        return nodes.long()
    if nodes.numel() != num_nodes:
        raise ValueError(
            f"expected {what} as a mask with one entry for each of {num_nodes} nodes, got {nodes.numel()} entries"
        )
    return nodes.nonzero().squeeze(1)


def check_nodes(nodes: Tensor, data: Data, *, what: str = "nodes", labelled: bool = False) -> None:
    """Raise unless ``nodes`` are at least one and distinct node ids of ``data``.

    Args:
        nodes: Node ids.
        data: Graph, already checked.
        what: Name of the nodes in error messages.
        labelled: Whether every node must be labelled.

    >>> check_nodes(torch.tensor([0, 7]), Data(x=torch.zeros(3, 1)))
    Traceback (most recent call last):
    ...
    ValueError: expected nodes between 0 and 2, got 7
    """
    if not isinstance(nodes, Tensor) or nodes.dtype != torch.long or nodes.dim() != 1:
        raise ValueError(f"expected {what} as a 1-D int64 tensor of node ids, got {describe(nodes)}")
    if nodes.numel() == 0:
        raise ValueError(f"expected at least one node in {what}, got none")
    _check_range(nodes, data.x.size(0), what)
    if nodes.unique().numel() != nodes.numel():
        raise ValueError(f"expected distinct {what}, got {nodes.numel() - nodes.unique().numel()} repeated")
    if labelled:
        unknown = nodes[data.y[nodes] == UNKNOWN]
        if unknown.numel():
            raise ValueError(
                f"expected labelled {what}, got {unknown.numel()} with label {UNKNOWN}, such as node {int(unknown[0])}"
            )


def check_pairs(pairs: Tensor, num_nodes: int) -> None:
    """Raise unless ``pairs`` are pairs of different nodes, shape ``[2, pairs]``."""
    if not isinstance(pairs, Tensor) or pairs.dtype != torch.long or pairs.dim() != 2 or pairs.size(0) != 2:
        raise ValueError(f"expected pairs as an int64 tensor of shape [2, pairs], got {describe(pairs)}")
    if not pairs.numel():
        return
    if int(pairs.min()) < 0 or int(pairs.max()) >= num_nodes:
        raise ValueError(
            f"expected node ids between 0 and {num_nodes - 1}, got {int(pairs.min())} to {int(pairs.max())}"
        )
    if bool((pairs[0] == pairs[1]).any()):
        raise ValueError(f"expected pairs of different nodes, got {int((pairs[0] == pairs[1]).sum())} self-loops")


def _check_features(x: object) -> int:
    if not isinstance(x, Tensor) or x.dim() != 2:
        raise ValueError(f"expected features x of shape [nodes, features], got {describe(x)}")
    if x.layout not in (torch.strided, torch.sparse_csr) or x.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"expected dense or sparse CSR features x of dtype float32 or float64, got {x.layout} {x.dtype}; "
            "x.to_sparse_csr() converts other sparse layouts"
        )
    if x.numel() == 0:
        raise ValueError(f"expected at least one node and one feature, got features x of shape {list(x.shape)}")
    invalid = _non_finite_rows(x)
    if invalid.numel():
        raise ValueError(
            f"expected finite features, got NaN or Inf at {invalid.numel()} nodes, such as node {int(invalid[0])}"
        )
    return x.size(0)


def _non_finite_rows(x: Tensor) -> Tensor:
    if x.layout == torch.strided:
        return (~x.isfinite().all(dim=1)).nonzero().flatten()
    entries = (~x.values().isfinite()).nonzero().flatten()
    rows: Tensor = (torch.searchsorted(x.crow_indices(), entries, right=True) - 1).unique()
    return rows


def _check_edges(data: Data, num_nodes: int) -> None:
    edge_index = data.edge_index
    name = "adj_t" if edge_index is None else "edge_index"
    if is_sparse(data.get(name)):
        raise ValueError(
            f"expected an edge list edge_index of shape [2, edges], got a sparse matrix {name}; "
            f"torch_geometric.utils.to_edge_index(data.{name})[0] makes one"
        )
    if not isinstance(edge_index, Tensor) or edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise ValueError(f"expected edge_index of shape [2, edges], got {describe(edge_index)}")
    if edge_index.dtype != torch.long:
        raise ValueError(f"expected int64 edge_index, got {edge_index.dtype}")
    _check_range(edge_index, num_nodes, "node ids in edge_index")
    row, col = edge_index
    loops = int((row == col).sum())
    if loops:
        raise ValueError(f"expected no self-loops, got {loops}; torch_geometric.utils.remove_self_loops drops them")
    forward, backward = sort_keys(row * num_nodes + col), sort_keys(col * num_nodes + row)
    duplicates = int((forward[1:] == forward[:-1]).sum())
    if duplicates:
        raise ValueError(f"expected each edge once, got {duplicates} repeated; Data.coalesce merges them")
    # Without duplicates, the sorted lists are equal if and only if every edge has its reverse.
    if not torch.equal(forward, backward):
        one_way = forward[~torch.isin(forward, backward)]
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
            raise ValueError(f"expected {name} with one row per edge, or None, got {describe(weight)}")
        if not bool((weight == 1).all()):
            raise ValueError(f"expected unweighted edges, got {name} with values other than 1; remove it first")


def _check_labels(y: object, num_nodes: int) -> None:
    if y is None:
        raise ValueError("expected a class label per node in y, got None")
    if not isinstance(y, Tensor) or y.dtype != torch.long or tuple(y.shape) != (num_nodes,):
        raise ValueError(f"expected int64 labels y of shape [{num_nodes}], got {describe(y)}")
    if int(y.min()) < UNKNOWN:
        raise ValueError(f"expected labels from 0, or {UNKNOWN} for unlabelled nodes, got {int(y.min())}")
    classes = y[y != UNKNOWN].unique().numel()
    if classes < 2:
        raise ValueError(f"expected at least two classes in y, got {classes}")


def _check_range(ids: Tensor, num_nodes: int, what: str) -> None:
    outside = ids[(ids < 0) | (ids >= num_nodes)]
    if outside.numel():
        raise ValueError(f"expected {what} between 0 and {num_nodes - 1}, got {int(outside[0])}")


def describe(value: object) -> str:
    """Return the dtype and shape of a tensor, or the type of another value, for error messages."""
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {list(value.shape)}"
    return "None" if value is None else type(value).__name__
