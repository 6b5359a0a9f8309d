"""Graphs as NumPy archives, without pickled objects.

Keys: ``adj_indptr``, ``adj_indices``, ``adj_shape`` (adjacency matrix in CSR format, both directions of every edge);
features as ``attr_matrix`` (dense) or ``attr_data``, ``attr_indices``, ``attr_indptr``, ``attr_shape`` (CSR format);
``labels``; and, for graphs with splits, ``train_masks``, ``val_masks``, ``test_masks`` of shape ``[splits, nodes]``.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from edgeproof._checks import check_data
from edgeproof._files import replacing

_MASKS = {"train_mask": "train_masks", "val_mask": "val_masks", "test_mask": "test_masks"}
_KEYS = {
    *(f"adj_{part}" for part in ("indptr", "indices", "shape")),
    *(f"attr_{part}" for part in ("matrix", "data", "indices", "indptr", "shape")),
    *("labels", "club"),
    *_MASKS.values(),
}
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
    arrays = _read_arrays(path)
    try:
        data = _to_data(arrays)
        check_data(data, labels=data.y is not None)
    except (KeyError, ValueError, TypeError, IndexError, MemoryError) as error:
        reason = f"missing entry {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path} is not a graph archive: {reason}") from error
    return data


def write_npz(data: Data, path: str | Path) -> None:
    """Write a graph to an archive for :func:`read_npz`, atomically.

    Masks of shape ``[nodes, 1]`` are read back as ``[nodes]``.

    Args:
        data: Graph with ``x``, ``edge_index`` and optionally ``y`` and masks.
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
    unsupported = sorted(set(data.keys()) - {"x", "edge_index", "y", "edge_weight", "edge_attr", "num_nodes", *_MASKS})
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
        **_feature_arrays(data.x.detach().cpu().numpy()),
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
    with replacing(Path(path)) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _read_arrays(path: Path) -> dict[str, Array]:
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        archive = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError, NotImplementedError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a NumPy archive, or is damaged: {error}") from error
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise ValueError(f"expected a NumPy archive (.npz), got a single array in {path}")
    arrays = {}
    with archive:
        for key in archive.files:
            # An unknown entry can be a valid one with a corrupted name, so ignoring it could lose labels.
            if key not in _KEYS:
                raise ValueError(f"{path} is not a graph archive, or is damaged: unknown entry {key!r}")
            try:
                arrays[key] = archive[key]
            except ValueError as error:
                raise ValueError(
                    f"{path} is rejected: {key} contains pickled objects or is damaged ({error})"
                ) from error
            except (OSError, EOFError, MemoryError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
                raise ValueError(f"{path} is damaged: could not read {key} ({error})") from error
    return arrays


def _to_data(arrays: dict[str, Array]) -> Data:
    adjacency = _to_csr("adj", arrays, np.ones_like(arrays["adj_indices"], dtype=np.int8))
    if adjacency.shape[0] != adjacency.shape[1]:
        raise ValueError(f"expected a square adjacency matrix, got {adjacency.shape}")
    row = np.repeat(np.arange(adjacency.shape[0]), np.diff(adjacency.indptr))
    edge_index = torch.from_numpy(np.stack([row, adjacency.indices]).astype(np.int64))
    dense = arrays.get("attr_matrix")
    features = _to_csr("attr", arrays, arrays["attr_data"]).toarray() if dense is None else dense
    if features.shape[0] != adjacency.shape[0]:
        raise ValueError(f"expected features for {adjacency.shape[0]} nodes, got {features.shape[0]}")
    data = Data(x=torch.from_numpy(features), edge_index=edge_index)
    if "labels" in arrays:
        data.y = torch.from_numpy(arrays["labels"].astype(np.int64, casting="safe"))
    for name, key in _MASKS.items():
        if key in arrays:
            masks = arrays[key]
            if masks.dtype != np.bool_ or masks.ndim != 2 or masks.shape[1] != adjacency.shape[0]:
                raise ValueError(f"expected boolean {key} of shape [splits, {adjacency.shape[0]}], got {masks.shape}")
            data[name] = torch.from_numpy(masks[0] if len(masks) == 1 else masks.T.copy())
    return data


def _to_csr(prefix: str, arrays: dict[str, Array], values: Array) -> sp.csr_matrix:
    """Build a CSR matrix from its arrays and check their consistency."""
    indptr, indices = arrays[f"{prefix}_indptr"], arrays[f"{prefix}_indices"]
    shape = tuple(int(size) for size in arrays[f"{prefix}_shape"])
    matrix = sp.csr_matrix((values, indices, indptr), shape=shape)
    matrix.check_format(full_check=True)
    return matrix


def _feature_arrays(x: Array) -> dict[str, Array]:
    if np.count_nonzero(x) >= _SPARSE_BELOW * x.size:
        return {"attr_matrix": x}
    matrix = sp.csr_matrix(x)
    return {
        "attr_data": matrix.data,
        "attr_indices": matrix.indices,
        "attr_indptr": matrix.indptr,
        "attr_shape": np.array(matrix.shape, dtype=np.int64),
    }
