"""Operations on node features that are a dense tensor or a sparse CSR tensor.

Products with a dense matrix (``x @ weight``, ``torch.nn.functional.linear``) work on both and are differentiable in the
matrix. Everything else that torch does not define for CSR tensors is here.
"""

from __future__ import annotations

import warnings
from collections.abc import MutableMapping
from copy import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric.data import Data

from edgeproof._memory import check_fits

# Fraction of non-zero features below which a CSR tensor is faster on a CPU.
_MAX_DENSITY = 0.05
# CSR form of dense features, or None if it is not faster, with the version of the features.
_FASTER: MutableMapping[Tensor, tuple[int, Tensor | None]] = WeakTensorKeyDictionary()


def is_sparse(x: Tensor) -> bool:
    """Whether features are a sparse CSR tensor."""
    return x.layout == torch.sparse_csr


def csr_tensor(crow: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return a sparse CSR tensor with int64 indices, which must be valid.

    >>> csr_tensor(torch.tensor([0, 1, 1]), torch.tensor([2]), torch.tensor([5.0]), (2, 3)).to_dense()
    tensor([[0., 0., 5.],
            [0., 0., 0.]])
    """
    with warnings.catch_warnings():
        # Torch warns once that CSR tensors are in beta state.
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support", category=UserWarning)
        return torch.sparse_csr_tensor(crow.long(), col.long(), values, shape, check_invariants=False)


def with_values(x: Tensor, values: Tensor) -> Tensor:
    """Return a CSR tensor with other values at the same positions."""
    return csr_tensor(x.crow_indices(), x.col_indices(), values, (x.size(0), x.size(1)))


def to_dense(x: Tensor, available: float | None = None) -> Tensor:
    """Return dense features.

    Args:
        x: Features.
        available: Available bytes on a CPU. Default: the free main memory.

    Raises:
        ValueError: If they do not fit into main memory.
    """
    if not is_sparse(x):
        return x
    if x.device.type == "cpu":
        check_fits(x.numel() * x.element_size(), f"the dense form of {x.size(0):,} x {x.size(1):,} features", available)
    return x.to_dense()


def take_rows(x: Tensor, present: Tensor) -> Tensor:
    """Return the rows of features where the boolean ``present`` is true.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]).to_sparse_csr()
    >>> take_rows(x, torch.tensor([False, True, True])).to_dense()
    tensor([[0., 2.],
            [3., 0.]])
    """
    if not is_sparse(x):
        return x[present]
    length = x.crow_indices().diff()
    kept = present.repeat_interleave(length)
    crow = F.pad(length[present].cumsum(0), (1, 0))
    return csr_tensor(crow, x.col_indices()[kept], x.values()[kept], (crow.numel() - 1, x.size(1)))


def repeat_rows(x: Tensor, times: int) -> Tensor:
    """Return all rows ``times`` times, one copy after the other."""
    if not is_sparse(x):
        return x.repeat(times, 1)
    crow = F.pad(x.crow_indices().diff().repeat(times).cumsum(0), (1, 0))
    return csr_tensor(crow, x.col_indices().repeat(times), x.values().repeat(times), (times * x.size(0), x.size(1)))


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Apply dropout to features; entries of a sparse tensor that are not stored stay 0."""
    if not is_sparse(x):
        return F.dropout(x, p, training)
    return with_values(x, F.dropout(x.values(), p)) if training and p else x


def divide_columns(x: Tensor, scale: Tensor) -> Tensor:
    """Return the features divided by the scale of each column."""
    return with_values(x, x.values() / scale[x.col_indices()]) if is_sparse(x) else x / scale


def column_means(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean square of each column (float64), and the fraction of its entries that are not 0."""
    if not is_sparse(x):
        return x.square().mean(dim=0, dtype=torch.float64), (x != 0).float().mean(dim=0)
    values, zeros = x.values(), torch.zeros(x.size(1), dtype=torch.float64, device=x.device)
    square = zeros.index_add(0, x.col_indices(), values.double().square())
    stored = zeros.index_add(0, x.col_indices(), (values != 0).double())
    return square / x.size(0), stored / x.size(0)


def takes_sparse(model: nn.Module) -> bool:
    """Whether a model has declared, by an attribute ``takes_sparse = True``, that its features may be a CSR tensor."""
    return bool(getattr(model, "takes_sparse", False))


def for_model(data: Data, *models: nn.Module) -> Data:
    """Return the graph with features that all models take: dense ones unless each model takes sparse ones.

    Raises:
        ValueError: If the dense features do not fit into main memory.
    """
    if data.x is None or not is_sparse(data.x) or all(map(takes_sparse, models)):
        return data
    name = next(type(model).__name__ for model in models if not takes_sparse(model))
    dense = copy(data)
    try:
        dense.x = to_dense(data.x)
    except ValueError as error:
        raise ValueError(
            f"{name} takes dense features only: {error}. Use a model of edgeproof.models, or set {name}.takes_sparse = True "
            "if its forward multiplies a CSR tensor"
        ) from error
    return dense


def sparse_if_faster(x: Tensor) -> Tensor:
    """Return features as a CSR tensor if products with them are then faster: on a CPU, with few non-zero entries.

    The result is cached until the tensor is changed or no longer exists.

    >>> sparse_if_faster(torch.eye(100)).layout, sparse_if_faster(torch.ones(2, 2)).layout
    (torch.sparse_csr, torch.strided)
    """
    if x.layout != torch.strided or x.is_cuda or x.dim() != 2 or x.requires_grad or x.is_inference():
        return x
    version, found = _FASTER.get(x, (None, None))
    if version != x._version:
        found = _to_csr(x) if float((x != 0).double().mean()) < _MAX_DENSITY else None
        _FASTER[x] = x._version, found
    return x if found is None else found


def _to_csr(x: Tensor) -> Tensor:
    row, col = x.nonzero().T
    crow = torch.zeros(x.size(0) + 1, dtype=torch.long)
    crow[1:] = torch.bincount(row, minlength=x.size(0)).cumsum(0)
    return csr_tensor(crow, col, x[row, col], (x.size(0), x.size(1)))


def take_nodes(data: Data, present: Tensor) -> Data:
    """Return the subgraph induced by the nodes where the boolean ``present`` is true, in their original order."""
    if data.x is None or not is_sparse(data.x):
        return data.subgraph(present)
    rest = copy(data)
    del rest.x
    rest.num_nodes = data.x.size(0)
    graph = rest.subgraph(present)
    del graph.num_nodes
    graph.x = take_rows(data.x, present)
    return graph
