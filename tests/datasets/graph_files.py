"""A small graph, and functions that write it in every format."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np
import scipy.sparse as sp
import torch
from scipy.io import mmwrite
from torch_geometric.data import Data
from torch_geometric.utils import coalesce

import edgeproof as ep

PARTS = ["train", "val", "test", ""]


def small_graph() -> Data:
    """Return a path of six nodes with a triangle at its end; features of few digits, one unlabelled node."""
    pairs = torch.tensor([[0, 1, 2, 3, 4, 3], [1, 2, 3, 4, 5, 5]])
    return Data(
        x=torch.arange(18.0).view(6, 3) / 4,
        edge_index=coalesce(torch.cat([pairs, pairs.flip(0)], dim=1)),
        y=torch.tensor([0, 1, 0, 1, -1, 0]),
    )


def write_csv(data: Data, folder: Path, suffix: str = ".csv") -> Path:
    names, labels = [f"n{number}" for number in range(data.num_nodes)], ["cat", "dog"]
    edges = [("source", "target"), *((names[u], names[v]) for u, v in data.edge_index.T.tolist())]
    nodes = [("id", "label", "split", "a", "b", "c")]
    for number, (row, label) in enumerate(zip(data.x.tolist(), data.y.tolist(), strict=True)):
        nodes.append((names[number], labels[label] if label >= 0 else "", PARTS[number % 4], *row))
    if suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        for name, rows in (("edges", edges), ("nodes", nodes)):
            columns = {title: list(column) for title, column in zip(rows[0], zip(*rows[1:], strict=True), strict=True)}
            pyarrow.parquet.write_table(pyarrow.table(columns), folder / f"{name}.parquet")
        return folder / "edges.parquet"
    for name, table in (("edges", edges), ("nodes", nodes)):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(table)
    return folder / "edges.csv"


def write_parquet(data: Data, folder: Path) -> Path:
    return write_csv(data, folder, ".parquet")


def write_folder(data: Data, folder: Path) -> Path:
    return write_csv(data, folder).parent


def as_networkx(data: Data) -> nx.Graph:
    graph = nx.Graph()
    for number, (row, label) in enumerate(zip(data.x.tolist(), data.y.tolist(), strict=True)):
        given = {"label": ["cat", "dog"][label]} if label >= 0 else {}
        graph.add_node(f"n{number}", **dict(zip("abc", row, strict=True)), split=PARTS[number % 4], **given)
    graph.add_edges_from((f"n{u}", f"n{v}") for u, v in data.edge_index.T.tolist())
    return graph


def write_graphml(data: Data, folder: Path) -> Path:
    nx.write_graphml(as_networkx(data), folder / "graph.graphml")
    return folder / "graph.graphml"


def adjacency_of(data: Data) -> sp.coo_matrix:
    n = data.num_nodes
    return sp.coo_matrix((np.ones(data.edge_index.size(1)), data.edge_index.numpy()), shape=(n, n))


def write_matrix_market(data: Data, folder: Path) -> Path:
    mmwrite(folder / "graph.mtx", adjacency_of(data), field="pattern", symmetry="symmetric")
    mmwrite(folder / "graph.features.mtx", sp.coo_matrix(data.x.numpy()))
    lines = [["cat", "dog"][label] if label >= 0 else "" for label in data.y.tolist()]
    (folder / "graph.labels.txt").write_text("\n".join(lines) + "\n")
    return folder / "graph.mtx"


def write_own(data: Data, folder: Path) -> Path:
    ep.datasets.write_npz(data, folder / "graph.npz")
    return folder / "graph.npz"


def write_gust(data: Data, folder: Path) -> Path:
    adjacency, x = adjacency_of(data).tocsr(), sp.csr_matrix(data.x.numpy())
    arrays: dict[str, np.ndarray] = {"labels": data.y.numpy(), "class_names": np.array(["cat", "dog"], dtype=object)}
    for prefix, matrix in (("adj", adjacency), ("attr", x)):
        arrays |= {f"{prefix}_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr")}
        arrays[f"{prefix}_shape"] = np.array(matrix.shape)
    np.savez(folder / "graph.npz", allow_pickle=True, **arrays)  # type: ignore[arg-type]
    return folder / "graph.npz"


def write_heterophilous(data: Data, folder: Path) -> Path:
    masks = np.eye(6, dtype=bool)
    np.savez_compressed(
        folder / "graph.npz",
        node_features=data.x.numpy(),
        node_labels=data.y.numpy(),
        edges=data.edge_index.T.numpy(),
        train_masks=masks,
        val_masks=masks[::-1],
        test_masks=masks,
    )
    return folder / "graph.npz"


WRITERS: dict[str, Callable[[Data, Path], Path]] = {
    "own": write_own,
    "gust": write_gust,
    "heterophilous": write_heterophilous,
    "csv": write_csv,
    "folder": write_folder,
    "parquet": write_parquet,
    "graphml": write_graphml,
    "matrix market": write_matrix_market,
}
