"""Graphs as two tables, CSV or Parquet: one of edges and one of nodes.

The table of edges has the columns ``source`` and ``target``, and optionally ``weight``. The table of nodes has ``id``, and
optionally ``label`` (empty or -1 for unlabelled nodes) and ``split`` (``train``, ``val``, ``test`` or empty); all its other
columns are features, which are numbers. Ids and labels may be text. The two files are in one folder, and their names differ
by ``edges`` and ``nodes``, such as ``edges.csv`` and ``nodes.csv``.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch_geometric.data import Data

from edgeproof._memory import check_fits
from edgeproof._names import unknown_name
from edgeproof.datasets.convert import add_masks, add_node_names, make_graph

Array = np.ndarray[Any, Any]

SUFFIXES = (".csv", ".parquet")
_EDGE_COLUMNS = ("source", "target", "weight")
# Columns of the table of nodes other than features.
_NODE_COLUMNS = ("id", "label", "split")


class Table(NamedTuple):
    """Columns of a file.

    Args:
        text: Values of the columns that were requested as text.
        numbers: Values of all other columns, shape ``[rows, columns]``.
        names: Names of the other columns.
    """

    text: dict[str, list[str]]
    numbers: Array
    names: list[str]


def read_tables(path: Path) -> Data:
    """Read a graph from its two tables; its edges are not checked.

    Args:
        path: The table of edges, or the folder of ``edges.csv`` and ``nodes.csv`` (or ``.parquet``).
    """
    edge_file, node_file = table_files(path)
    nodes = _read_nodes(node_file)
    edges = _read_edges(edge_file)
    ids, index = nodes.text["id"], {name: number for number, name in enumerate(nodes.text["id"])}
    if len(index) < len(ids):
        repeated = next(name for number, name in enumerate(ids) if index[name] != number)
        raise ValueError(f"{node_file}: expected distinct ids, got {repeated!r} more than once")
    try:
        pairs = [[index[name] for name in edges.text[column]] for column in _EDGE_COLUMNS[:2]]
    except KeyError as error:
        raise ValueError(f"{edge_file}: unknown node {error}; its id is not in {node_file.name}") from error
    weight = torch.from_numpy(edges.numbers[:, 0].astype(np.float64)) if edges.names else None
    try:
        data = make_graph(torch.tensor(pairs, dtype=torch.long), nodes.numbers, nodes.text.get("label"), weight)
        if "split" in nodes.text:
            add_masks(data, nodes.text["split"])
    except ValueError as error:
        raise ValueError(f"{node_file}: {error}") from error
    data.feature_names = nodes.names
    add_node_names(data, ids)
    return data


def table_files(path: Path) -> tuple[Path, Path]:
    """Return the paths of the tables of edges and nodes; raise unless both files exist."""
    if path.is_dir():
        found = [path / f"edges{suffix}" for suffix in SUFFIXES if (path / f"edges{suffix}").is_file()]
        if not found:
            raise ValueError(
                f"expected edges.csv and nodes.csv (or .parquet) in the folder {path}, got no file of edges"
            )
        path = found[0]
    if "edges" not in path.name:
        raise ValueError(
            f"expected the table of edges with a name such as edges{path.suffix}, beside nodes{path.suffix}, got {path}"
        )
    node_file = path.with_name(path.name.replace("edges", "nodes"))
    if not node_file.is_file():
        raise FileNotFoundError(f"expected the table of nodes {node_file} beside {path.name}, got no such file")
    return path, node_file


def _read_edges(path: Path) -> Table:
    return _read_table(path, _EDGE_COLUMNS[:2], _check_edge_columns)


def _check_edge_columns(names: list[str]) -> None:
    for name in names:
        # A file with another separator has one column.
        if name not in _EDGE_COLUMNS and len(names) > 1:
            raise unknown_name("column", name, _EDGE_COLUMNS)
    _require(names, _EDGE_COLUMNS[:2])


def _read_nodes(path: Path) -> Table:
    return _read_table(path, _NODE_COLUMNS, _check_node_columns)


def _check_node_columns(names: list[str]) -> None:
    _require(names, ("id",))
    if not set(names) - set(_NODE_COLUMNS):
        raise ValueError(f"expected at least one column of features besides {', '.join(_NODE_COLUMNS)}, got none")


def _require(names: list[str], required: tuple[str, ...]) -> None:
    for name in required:
        if name not in names:
            raise ValueError(
                f"expected a column {name!r}, got {', '.join(names[:8]) or 'none'}; columns are separated by commas and named "
                "in the first line"
            )


def _read_table(path: Path, text: tuple[str, ...], check: Callable[[list[str]], None]) -> Table:
    """Read a table.

    Args:
        path: File.
        text: Names of columns of text.
        check: Raises for wrong names of columns, before any row is read.
    """
    return _read_parquet(path, text, check) if path.suffix == ".parquet" else _read_csv(path, text, check)


def _check_header(path: Path, names: list[str], check: Callable[[list[str]], None]) -> None:
    if len(set(names)) < len(names):
        raise ValueError(f"{path}: expected distinct columns, got {', '.join(names[:8])}")
    try:
        check(names)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _read_csv(path: Path, text: tuple[str, ...], check: Callable[[list[str]], None]) -> Table:
    """Read a CSV file; its rows are converted one by one, because text takes much more memory than numbers."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file)
            header = [name.strip() for name in next(rows, [])]
            _check_header(path, header, check)
            is_text = [name in text for name in header]
            names = [name for name, kept in zip(header, is_text, strict=True) if not kept]
            values: dict[str, list[str]] = {name: [] for name in header if name in text}
            # Without numeric columns, no row is converted.
            numbers = [row for row in _convert(path, rows, header, is_text, values) if names]
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a CSV file in UTF-8: {error}") from error
    return Table(values, np.stack(numbers) if numbers else np.empty((0, len(names)), dtype=np.float32), names)


def _convert(
    path: Path, rows: Iterator[list[str]], header: list[str], is_text: list[bool], values: dict[str, list[str]]
) -> Iterator[Array]:
    """Yield the numbers of each row; append its text to ``values``."""
    for line, row in enumerate(rows, start=2):
        if not row:
            continue
        if len(row) != len(header):
            raise ValueError(f"{path}, line {line}: expected {len(header)} columns, got {len(row)}")
        for name, value, kept in zip(header, row, is_text, strict=True):
            if kept:
                values[name].append(value.strip())
        numbers = [value for value, kept in zip(row, is_text, strict=True) if not kept]
        try:
            yield np.array(numbers, dtype=np.float32)
        except ValueError:
            name, value = next(
                (name, value)
                for name, value, kept in zip(header, row, is_text, strict=True)
                if not kept and not _is_number(value)
            )
            raise ValueError(f"{path}, line {line}: expected a number in column {name!r}, got {value!r}") from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_parquet(path: Path, text: tuple[str, ...], check: Callable[[list[str]], None]) -> Table:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"pyarrow is needed to read {path}: pip install 'edgeproof[parquet]'") from error
    try:
        size = pyarrow.parquet.read_metadata(path)
        check_fits(8.0 * size.num_rows * size.num_columns, f"the table in {path}")
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} is not a Parquet file, or is damaged: {str(error).splitlines()[0]}") from error
    _check_header(path, table.column_names, check)
    values = {
        name: ["" if value is None else str(value).strip() for value in table.column(name).to_pylist()]
        for name in table.column_names
        if name in text
    }
    names = [name for name in table.column_names if name not in text]
    numbers = np.empty((table.num_rows, len(names)), dtype=np.float32)
    for number, name in enumerate(names):
        try:
            numbers[:, number] = table.column(name).to_numpy()
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: expected numbers in column {name!r}, got {table.column(name).type}") from error
    return Table(values, numbers, names)
