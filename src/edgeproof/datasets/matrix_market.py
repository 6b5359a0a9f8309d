"""Graphs in Matrix Market files.

``NAME.mtx`` is the adjacency matrix, ``NAME.features.mtx`` the matrix of features, sparse or dense, one row per node, and
``NAME.labels.txt`` has one label per line (empty or -1 for unlabelled nodes) and may be missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.io import mminfo, mmread
from torch_geometric.data import Data

from edgeproof._memory import check_fits
from edgeproof.datasets.convert import of_matrix

# Shortest text of an entry of a sparse matrix ("1 1") and of a dense one ("0"), with the end of its line.
_ENTRY_BYTES = {"coordinate": 4, "array": 2}


def read_matrix_market(path: Path) -> Data:
    """Read a graph from Matrix Market files; its edges are not checked."""
    feature_file, label_file = companions(path)
    if not feature_file.is_file():
        raise FileNotFoundError(f"expected the features in {feature_file}, one row per node, got no such file")
    features, adjacency = _read_matrix(feature_file), _read_matrix(path)
    labels = label_file.read_text(encoding="utf-8").splitlines() if label_file.is_file() else None
    try:
        return of_matrix(sp.coo_array(adjacency), features, labels)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def companions(path: Path) -> tuple[Path, Path]:
    """Return the files of features and of labels beside an adjacency matrix."""
    return path.with_suffix(".features.mtx"), path.with_suffix(".labels.txt")


def _read_matrix(path: Path) -> Any:
    """Read one matrix; declared sizes are compared with the size of the file first."""
    try:
        rows, columns, entries, layout, *_ = mminfo(path)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{path} is not a Matrix Market file: {error}") from error
    size = path.stat().st_size
    if entries * _ENTRY_BYTES[layout] > 2 * size:
        raise ValueError(f"{path} is damaged: it declares {entries:,} entries, but has only {size:,} bytes")
    if max(rows, columns) > max(100_000, size):
        raise ValueError(f"{path} is rejected: it declares {rows:,} x {columns:,} entries, but has only {size:,} bytes")
    check_fits(entries * 16, f"the matrix in {path.name}")
    try:
        matrix = mmread(path)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if np.iscomplexobj(matrix):
        raise ValueError(f"{path}: expected real numbers, got complex ones")
    return matrix
