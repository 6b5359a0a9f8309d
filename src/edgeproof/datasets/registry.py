"""Datasets by name, read from disk or downloaded once."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from torch_geometric.data import Data

from edgeproof._checks import check_data
from edgeproof._features import take_nodes
from edgeproof._files import is_graph_file
from edgeproof._names import look_up, unknown_name
from edgeproof.datasets import sources
from edgeproof.datasets.csbm import csbm
from edgeproof.datasets.files import files_of, read_file
from edgeproof.datasets.npz import read_npz, write_npz
from edgeproof.datasets.simplify import Fixes, finish
from edgeproof.graph import num_classes, num_edges


@dataclass(frozen=True)
class Dataset:
    """Name, source and expected size of a dataset, before its largest component is taken.

    Args:
        name: Name to load it by.
        file: File name of its archive.
        source: Function that downloads it.
        nodes: Number of nodes.
        edges: Number of undirected edges.
        classes: Number of classes.
    """

    name: str
    file: str
    source: sources.Source
    nodes: int
    edges: int
    classes: int


_DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset("citeseer", "citeseer.npz", sources.citeseer, 3_312, 4_536, 6),
        Dataset("cora_ml", "cora_ml.npz", sources.cora_ml, 2_995, 8_158, 7),
        Dataset("cora", "cora.npz", sources.cora, 2_708, 5_278, 7),
        Dataset("pubmed", "pubmed.npz", sources.pubmed, 19_717, 44_324, 3),
        Dataset("squirrel", "squirrel_filtered.npz", sources.squirrel, 2_223, 46_998, 5),
        Dataset("wikics", "wikics.npz", sources.wikics, 11_701, 215_603, 10),
        Dataset("ogbn-arxiv", "ogbn-arxiv.npz", sources.arxiv, 169_343, 1_157_799, 40),
        Dataset("amazon_photo", "amazon_photo.npz", sources.amazon_photo, 7_650, 119_081, 8),
        Dataset("coauthor_cs", "coauthor_cs.npz", sources.coauthor_cs, 18_333, 81_894, 15),
        Dataset("karate", "karate.npz", sources.karate, 34, 78, 4),
    )
}
_GENERATED = "csbm"
# Karate is part of PyG.
_WITHOUT_DOWNLOAD = (_GENERATED, "karate")


def available() -> list[str]:
    """Return the names of all datasets.

    >>> available()  # doctest: +NORMALIZE_WHITESPACE
    ['citeseer', 'cora_ml', 'cora', 'pubmed', 'squirrel', 'wikics', 'ogbn-arxiv', 'amazon_photo', 'coauthor_cs', 'karate',
     'csbm']
    """
    return [*_DATASETS, _GENERATED]


def load(
    name: str | Path,
    root: str | Path | None = None,
    *,
    largest_component: bool = True,
    to_undirected: bool = False,
    remove_self_loops: bool = False,
    merge_duplicates: bool = False,
    drop_weights: bool = False,
) -> Data:
    """Load a dataset by name, or a graph from a file: undirected, without self-loops or duplicate edges, float32 features.

    The archive is looked up in ``root``, the folder in the environment variable ``EDGEPROOF_DATA``, and the user's cache, in
    this order. If none of them has it, it is downloaded, checked against the expected numbers of nodes, edges and classes,
    and stored in ``root`` if given, otherwise in the cache. ``csbm`` is generated: the paper's heterophilous graph, seed 0.

    Files are ``.npz`` archives of :func:`write_npz`, gust and PyG, tables (``.csv``, ``.parquet``), GraphML and Matrix Market;
    see "Bring your own graph" in the documentation. Edges must be simple and undirected, or made so by the options, which warn
    about the number of changed edges.

    Args:
        name: One of :func:`available`, or the path of a file or a folder of tables.
        root: Folder that is searched first and that downloads are stored in.
        largest_component: Whether to keep only the largest connected component, as the paper does.
        to_undirected: For files: add the reverse of each edge without one.
        remove_self_loops: For files: remove edges from a node to itself.
        merge_duplicates: For files: keep one of several equal edges.
        drop_weights: For files: give all edges the weight 1; edges of weight 0 are removed.

    Returns:
        Graph with ``x``, ``edge_index``, ``y``, and ``train_mask``, ``val_mask``, ``test_mask`` if the dataset has them. From
        files also ``node_names``, ``class_names`` and ``feature_names`` where these are not numbers from 0. Large features
        that are mostly 0 stay a sparse CSR tensor.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the name is unknown, a folder does not exist, an archive is damaged or of another graph, or edges need a
            change that was not requested.
        ConnectionError: If the download fails.

    >>> load("csbm")
    Data(x=[982, 21], edge_index=[2, 3766], y=[982], train_mask=[982], val_mask=[982])
    """
    fixes = Fixes(to_undirected, remove_self_loops, merge_duplicates, drop_weights)
    if isinstance(name, Path) or is_graph_file(name):
        data = finish(read_file(Path(name)), fixes, str(name))
        return keep_largest_component(data) if largest_component else data
    if name not in available():
        raise unknown_name("dataset", name, available())
    if fixes.names:
        raise ValueError(
            f"expected {', '.join(fixes.names)} with a file only, got the dataset {name}, which needs no changes"
        )
    data = csbm() if name == _GENERATED else load_dataset(_DATASETS[name], root)
    return keep_largest_component(data) if largest_component else data


def find(name: str, root: str | Path | None = None) -> Path | None:
    """Return the path of a graph file, or of a dataset's archive; None if there is none on disk (``csbm`` is generated).

    >>> find("csbm"), find("gone.npz")
    (None, None)
    """
    if is_graph_file(name):
        return Path(name) if Path(name).exists() else None
    return None if name == _GENERATED else find_archive(look_up("dataset", name, _DATASETS), root)


def source_files(name: str, root: str | Path | None = None) -> list[Path]:
    """Return all files on this machine that :func:`load` reads for a name or path; none if there are no such files.

    >>> source_files("csbm")
    []
    """
    if not is_graph_file(name):
        path = find(name, root)
        return [] if path is None else [path]
    return files_of(Path(name)) if Path(name).exists() else []


def is_local(name: str, root: str | Path | None = None) -> bool:
    """Whether a dataset can be loaded without a download.

    >>> is_local("csbm")
    True
    """
    return name in _WITHOUT_DOWNLOAD or find(name, root) is not None


def load_dataset(dataset: Dataset, root: str | Path | None = None) -> Data:
    """Read a dataset's archive, or download it if there is none; all nodes, with float32 features."""
    path = find_archive(dataset, root)
    data = download(dataset, _cache() if root is None else Path(root)) if path is None else read_npz(path)
    check_counts(data, dataset, path)
    data.x = data.x.float()
    return data


def find_archive(dataset: Dataset, root: str | Path | None = None) -> Path | None:
    """Return the path of the first archive of a dataset in the searched folders, or None."""
    return next((folder / dataset.file for folder in _folders(root) if (folder / dataset.file).is_file()), None)


def download(dataset: Dataset, folder: Path) -> Data:
    """Download a dataset, check it, and store its archive in ``folder`` atomically."""
    with tempfile.TemporaryDirectory(prefix="edgeproof-") as temporary:
        try:
            data = dataset.source(Path(temporary))
        except (OSError, EOFError, RuntimeError, zipfile.BadZipFile) as error:
            raise ConnectionError(
                f"could not download {dataset.name}: {error}. To use it without a network, put {dataset.file} into the folder "
                f"in EDGEPROOF_DATA or into {folder}"
            ) from error
    check_counts(data, dataset, None)
    write_npz(data, folder / dataset.file)
    return data


def check_counts(data: Data, dataset: Dataset, path: Path | None) -> None:
    """Raise unless ``data`` is a valid graph with the numbers of nodes, edges and classes of ``dataset``."""
    check_data(data)
    expected = (dataset.nodes, dataset.edges, dataset.classes)
    counts = (int(data.x.size(0)), num_edges(data), num_classes(data))
    if counts != expected:
        raise ValueError(
            f"expected {dataset.name} with {expected} (nodes, edges, classes), got {counts} from "
            f"{path or 'its download'}; to read another graph, use edgeproof.datasets.read_npz"
        )


def keep_largest_component(data: Data) -> Data:
    """Return the largest connected component with nodes in the same order; ties go to the one with the smallest node
    id."""
    row, col = data.edge_index.cpu().numpy()
    shape = (data.x.size(0), data.x.size(0))
    adjacency = sp.csr_matrix((np.ones(row.size, dtype=np.int8), (row, col)), shape=shape)
    _, component = connected_components(adjacency, directed=False)
    present = torch.from_numpy(component == np.bincount(component).argmax())
    return data if bool(present.all()) else take_nodes(data, present.to(data.edge_index.device))


def _folders(root: str | Path | None) -> Iterator[Path]:
    for name, folder in (("root", root), ("EDGEPROOF_DATA", os.environ.get("EDGEPROOF_DATA"))):
        if folder:
            if not Path(folder).is_dir():
                raise ValueError(f"expected {name} to be an existing folder, got {folder}")
            yield Path(folder)
    yield _cache()


def _cache() -> Path:
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        # A user without a home, as in some containers.
        folder = Path(tempfile.gettempdir())
    return folder / "edgeproof"
