"""Graphs as NumPy archives, without pickled objects.

Keys of our format: ``adj_indptr``, ``adj_indices``, ``adj_shape`` (adjacency matrix in CSR format, both directions of edges);
features as ``attr_matrix`` (dense) or ``attr_data``, ``attr_indices``, ``attr_indptr``, ``attr_shape`` (CSR format);
``labels``; for graphs with splits, ``train_masks``, ``val_masks``, ``test_masks`` of shape ``[splits, nodes]``; and, as text,
``node_names``, ``class_names``, ``attr_names`` and ``sha256``, a digest of all other arrays.

Two other formats can be read. That of gust, which PyG downloads for Amazon, Coauthor and CitationFull, has the same keys and
``adj_data``. That of PyG's ``HeterophilousGraphDataset`` has ``edges`` of shape ``[edges, 2]``, ``node_features``,
``node_labels`` and masks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data

from edgeproof._checks import check_data
from edgeproof._features import csr_tensor, is_sparse
from edgeproof._files import replacing
from edgeproof._memory import check_fits
from edgeproof.datasets.archive import read_arrays

_MASKS = {"train_mask": "train_masks", "val_mask": "val_masks", "test_mask": "test_masks"}
# Attributes of text, one entry per node, class or feature.
_NAMES = {"node_names": "node_names", "class_names": "class_names", "feature_names": "attr_names"}
# Hash of all other arrays, in archives of write_npz.
_DIGEST = "sha256"
_KEYS = {
    *(f"adj_{part}" for part in ("data", "indptr", "indices", "shape")),
    *(f"attr_{part}" for part in ("matrix", "data", "indices", "indptr", "shape")),
    *("labels", "club", "edges", "node_features", "node_labels"),
    *_MASKS.values(),
    _DIGEST,
}
# In gust's archives these are often pickled; they are read only if they are text.
_DESCRIPTIONS = {*_NAMES.values(), "metadata", "idx_to_node", "idx_to_attr", "idx_to_class"}
# Larger features of lower density are read as a sparse tensor.
SPARSE_ABOVE = 1 << 29
_SPARSE_DENSITY = 0.1
# Matrices with more features than both limits allow are mostly empty, and would make the weights of a model huge.
_MAX_EMPTY_FEATURES, _MAX_FEATURES_PER_VALUE = 100_000, 2
# Features with a smaller fraction of non-zero entries are stored in CSR format, which is then smaller.
_SPARSE_BELOW = 0.3

Array = np.ndarray[Any, Any]


def read_npz(path: str | Path) -> Data:
    """Read a graph archive and check the graph.

    Args:
        path: Archive written by :func:`write_npz`.

    Returns:
        Graph with ``x``, ``edge_index`` (sorted), ``y`` if there are labels, and ``train_mask``, ``val_mask`` and
        ``test_mask`` if there are splits: shape ``[nodes]`` for one split, ``[nodes, splits]`` for several.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is damaged, contains pickled objects, or is not a simple undirected graph.
    """
    path = Path(path)
    data = read_unchecked(path)
    try:
        check_data(data, labels=data.y is not None)
    except ValueError as error:
        raise ValueError(f"{path} is not a graph archive: {error}") from error
    return data


def read_unchecked(path: Path) -> Data:
    """Read a graph archive whose edges may be directed, weighted, repeated or self-loops; see :func:`read_npz`."""
    arrays = read_arrays(path, _KEYS, _DESCRIPTIONS)
    digest = arrays.pop(_DIGEST, None)
    if digest is not None and digest.tolist() != _digest(arrays):
        raise ValueError(f"{path} is damaged: its content does not match its digest")
    try:
        return _to_data(arrays)
    except (KeyError, ValueError, TypeError, IndexError, MemoryError, RuntimeError) as error:
        reason = f"missing entry {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path} is not a graph archive: {reason}") from error


def write_npz(data: Data, path: str | Path) -> None:
    """Write a graph to an archive for :func:`read_npz`, atomically.

    Masks of shape ``[nodes, 1]`` are read back as ``[nodes]``.

    Args:
        data: Graph with ``x``, dense or sparse CSR, ``edge_index`` and optionally ``y``, masks, and the lists of text
            ``node_names``, ``class_names`` and ``feature_names``.
        path: File to write.

    Raises:
        ValueError: If the graph is not simple and undirected, or has other attributes.

    >>> data = Data(x=torch.eye(2), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([0, 1]))
    >>> path = getfixture("tmp_path") / "pair.npz"
    >>> write_npz(data, path)
    >>> read_npz(path).edge_index
    tensor([[0, 1],
            [1, 0]])
    """
    check_data(data, labels=data.y is not None)
    num_nodes = data.x.size(0)
    unsupported = sorted(
        set(data.keys()) - {"x", "edge_index", "y", "edge_weight", "edge_attr", "num_nodes", *_MASKS, *_NAMES}
    )
    if unsupported:
        names = ", ".join(unsupported)
        raise ValueError(f"expected x, edge_index, y and masks only, got also {names}, which archives cannot store")
    row, col = data.edge_index.cpu().numpy()
    adjacency = sp.csr_matrix((np.ones(row.size, dtype=np.int8), (row, col)), shape=(num_nodes, num_nodes))
    adjacency.sort_indices()
    arrays: dict[str, Array] = {
        "adj_indptr": adjacency.indptr,
        "adj_indices": adjacency.indices,
        "adj_shape": np.array(adjacency.shape, dtype=np.int64),
        **_feature_arrays(data.x),
    }
    if data.y is not None:
        arrays["labels"] = data.y.cpu().numpy()
    for name, key in _MASKS.items():
        mask = data.get(name)
        if mask is not None:
            if mask.dtype != torch.bool or mask.dim() > 2 or mask.size(0) != num_nodes:
                raise ValueError(
                    f"expected a boolean {name} with one row per node, got {mask.dtype} {list(mask.shape)}"
                )
            arrays[key] = np.atleast_2d(mask.cpu().numpy().T)
    for name, key in _NAMES.items():
        if name in data:
            arrays[key] = np.array(list(data[name]), dtype=np.str_)
    # First, because damage of the archive's directory can hide all later entries.
    arrays = {_DIGEST: np.array(_digest(arrays)), **arrays}
    with replacing(Path(path)) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _digest(arrays: Mapping[str, Array]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {list(array.shape)}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _read_adjacency(arrays: dict[str, Array], prefix: str) -> tuple[int, Tensor, Tensor | None]:
    """Return the number of nodes, the edges, and their weights if the archive has values other than 1."""
    indices = arrays[f"{prefix}_indices"]
    values = arrays.get(f"{prefix}_data")
    adjacency = _to_csr(prefix, arrays, np.ones(indices.shape, dtype=np.int8) if values is None else values)
    num_nodes = adjacency.shape[0]
    if num_nodes != adjacency.shape[1]:
        raise ValueError(f"expected a square adjacency matrix, got {adjacency.shape}")
    row = np.repeat(np.arange(num_nodes), np.diff(adjacency.indptr))
    weights = None if values is None or bool((values == 1).all()) else torch.from_numpy(values.astype(np.float64))
    edges = np.stack([row, adjacency.indices]).astype(np.int64, copy=False)
    return num_nodes, torch.from_numpy(edges), weights


def _read_edge_list(arrays: dict[str, Array]) -> tuple[int, Tensor, None]:
    """Return the number of nodes and the edges of an archive with one row per edge."""
    edges = arrays["edges"]
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise ValueError(f"expected edges of shape [edges, 2], got {list(edges.shape)}")
    return len(arrays["node_features"]), torch.from_numpy(edges.astype(np.int64, casting="safe").T.copy()), None


def _to_data(arrays: dict[str, Array]) -> Data:
    """Return the graph of an archive; its edges are not checked."""
    if "edges" in arrays:
        num_nodes, edge_index, weights = _read_edge_list(arrays)
        x, labels = torch.from_numpy(arrays["node_features"]), arrays.get("node_labels")
    else:
        num_nodes, edge_index, weights = _read_adjacency(arrays, "adj")
        dense = arrays.get("attr_matrix")
        x = _read_sparse_features(arrays) if dense is None else torch.from_numpy(dense)
        labels = arrays.get("labels")
    if not x.dim() or x.size(0) != num_nodes:
        raise ValueError(f"expected features for {num_nodes} nodes, got {x.size(0) if x.dim() else 'a single number'}")
    data = Data(x=x, edge_index=edge_index)
    if weights is not None:
        data.edge_weight = weights
    if labels is not None:
        data.y = torch.from_numpy(labels.astype(np.int64, casting="safe"))
        # A model has one output per class, so a huge label would exhaust the memory.
        if data.y.numel() and int(data.y.max()) >= num_nodes:
            raise ValueError(f"expected labels below the number of nodes, {num_nodes}, got {int(data.y.max())}")
    for name, key in _MASKS.items():
        if key in arrays:
            masks = arrays[key]
            if masks.dtype != np.bool_ or masks.ndim != 2 or masks.shape[1] != num_nodes:
                raise ValueError(f"expected boolean {key} of shape [splits, {num_nodes}], got {masks.shape}")
            data[name] = torch.from_numpy(masks[0] if len(masks) == 1 else masks.T.copy())
    for name, key in _NAMES.items():
        if key in arrays:
            data[name] = [str(value) for value in arrays[key].tolist()]
    return data


def _read_sparse_features(arrays: dict[str, Array]) -> Tensor:
    """Return features in CSR format as a tensor: dense, or sparse if that saves much memory."""
    matrix = _to_csr("attr", arrays, arrays["attr_data"])
    num_features = matrix.shape[1]
    if num_features > max(_MAX_EMPTY_FEATURES, _MAX_FEATURES_PER_VALUE * matrix.nnz):
        raise ValueError(
            f"it declares {num_features:,} features, but stores only {matrix.nnz:,} values: remove features that are 0 "
            "everywhere"
        )
    return sparse_or_dense(matrix)


def sparse_or_dense(matrix: sp.csr_matrix, dense_bytes: int = SPARSE_ABOVE) -> Tensor:
    """Return a matrix as a dense tensor, or as a CSR tensor if it is large and mostly 0.

    Args:
        matrix: The matrix.
        dense_bytes: Size of a dense tensor, in bytes, above which matrices of density below 0.1 stay sparse.
    """
    num_rows, num_columns = matrix.shape
    size, cells = num_rows * num_columns * matrix.dtype.itemsize, num_rows * num_columns
    if size > dense_bytes and matrix.nnz < _SPARSE_DENSITY * cells:
        # Repeated entries are summed, as in the dense form.
        matrix.sum_duplicates()
        crow, col, values = map(torch.from_numpy, (matrix.indptr, matrix.indices, matrix.data))
        return csr_tensor(crow, col, values, matrix.shape)
    check_fits(size, "the features")
    return torch.from_numpy(matrix.toarray())


def _to_csr(prefix: str, arrays: dict[str, Array], values: Array) -> sp.csr_matrix:
    """Build a CSR matrix from its arrays and check their consistency."""
    indptr, indices = arrays[f"{prefix}_indptr"], arrays[f"{prefix}_indices"]
    shape = tuple(int(size) for size in arrays[f"{prefix}_shape"])
    matrix = sp.csr_matrix((values, indices, indptr), shape=shape)
    matrix.check_format(full_check=True)
    return matrix


def _feature_arrays(x: Tensor) -> dict[str, Array]:
    x = x.detach().cpu()
    if is_sparse(x):
        parts = (x.values(), x.col_indices(), x.crow_indices())
        matrix = sp.csr_matrix(tuple(part.numpy() for part in parts), shape=tuple(x.shape))
    else:
        values = x.numpy()
        if np.count_nonzero(values) >= _SPARSE_BELOW * values.size:
            return {"attr_matrix": values}
        matrix = sp.csr_matrix(values)
    return {
        "attr_data": matrix.data,
        "attr_indices": matrix.indices,
        "attr_indptr": matrix.indptr,
        "attr_shape": np.array(matrix.shape, dtype=np.int64),
    }
