"""Graphs in users' own files: one reader per ending."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from edgeproof._catalog import GRAPH_FILES
from edgeproof._memory import check_fits
from edgeproof.datasets.convert import of_networkx
from edgeproof.datasets.matrix_market import companions, read_matrix_market
from edgeproof.datasets.npz import read_unchecked
from edgeproof.datasets.tabular import SUFFIXES, read_tables, table_files

if TYPE_CHECKING:
    from torch_geometric.data import Data


# Memory of a parsed GraphML file, as a multiple of its size.
_GRAPHML_MEMORY = 10.0


def read_file(path: Path) -> Data:
    """Read a graph with float32 features; its edges may be directed, weighted, repeated or self-loops.

    Args:
        path: File that ends in one of ``GRAPH_FILES``, or a folder of tables; see :mod:`edgeproof.datasets.tabular`.

    Raises:
        FileNotFoundError: If the file, or one that belongs to it, does not exist.
        ValueError: If it cannot be read.
        ImportError: If the library that reads it is not installed.
    """
    if not path.exists():
        raise FileNotFoundError(f"no such file or folder: {path}")
    if path.is_dir():
        return read_tables(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        hint = "; it may be a pickle, which is never read: write the graph with edgeproof.datasets.write_npz"
        raise ValueError(
            f"expected a graph file that ends in {', '.join(READERS)}, or a folder of tables, got {path}"
            + (hint if path.suffix in (".pt", ".pth", ".pkl", ".pickle") else "")
        )
    data = reader(path)
    data.x = data.x.float()
    return data


def files_of(path: Path) -> list[Path]:
    """Return all files that :func:`read_file` reads."""
    if path.is_dir() or path.suffix.lower() in SUFFIXES:
        return [*table_files(path)]
    return [path, *(file for file in companions(path) if file.is_file())] if path.suffix == ".mtx" else [path]


def read_graphml(path: Path) -> Data:
    """Read a GraphML file; see :func:`edgeproof.datasets.from_networkx` for the attributes of its nodes."""
    from xml.etree.ElementTree import ParseError

    import networkx as nx

    check_fits(_GRAPHML_MEMORY * path.stat().st_size, f"the graph in {path}")
    try:
        graph = nx.read_graphml(path)
    except (ParseError, nx.NetworkXException, ValueError, KeyError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a GraphML file, or is damaged: {error}") from error
    try:
        return of_networkx(graph, None, "label", "split", "weight")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


READERS: dict[str, Callable[[Path], Data]] = dict(
    zip(GRAPH_FILES, (read_unchecked, read_tables, read_tables, read_graphml, read_matrix_market), strict=True)
)
