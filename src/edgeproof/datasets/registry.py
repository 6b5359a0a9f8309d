"""Datasets by name: found on disk, or fetched once and kept."""

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
from edgeproof._names import look_up, unknown_name
from edgeproof.datasets import sources
from edgeproof.datasets.csbm import csbm
from edgeproof.datasets.npz import read_npz, write_npz
from edgeproof.graph import num_classes, num_edges


@dataclass(frozen=True)
class Dataset:
    """What is known of a dataset before it is loaded; the counts are those of all its nodes.

    Args:
        name: how it is called here.
        file: its archive's name on disk.
        source: fetches it.
        nodes: number of nodes.
        edges: number of undirected edges.
        classes: number of classes.
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
        Dataset("karate", "karate.npz", sources.karate, 34, 78, 4),
    )
}
_GENERATED = "csbm"
# The second comes with PyG.
_WITHOUT_DOWNLOAD = (_GENERATED, "karate")


def available() -> list[str]:
    """Names of all datasets.

    >>> available()
    ['citeseer', 'cora_ml', 'cora', 'pubmed', 'squirrel', 'wikics', 'ogbn-arxiv', 'karate', 'csbm']
    """
    return [*_DATASETS, _GENERATED]


def load(name: str, root: str | Path | None = None, *, largest_component: bool = True) -> Data:
    """A dataset by name: undirected, without self-loops or duplicate edges, with float32 features.

    Its archive is looked for under ``root``, the folder that the environment variable ``EDGEPROOF_DATA`` names, and
    the user's cache, in this order. If it is in none of them it is downloaded, checked against the known counts, and
    kept under ``root`` or else in the cache. ``csbm`` is generated: the paper's heterophilous graph, seed 0.

    Args:
        name: one of :func:`available`.
        root: a folder to look in first, and to keep downloads in.
        largest_component: keep only the largest connected component, as the paper does.

    Returns:
        ``x``, ``edge_index``, ``y``, and the dataset's own ``train_mask``, ``val_mask``, ``test_mask`` if it has any.

    >>> load("csbm")
    Data(x=[982, 21], edge_index=[2, 3766], y=[982], train_mask=[982], val_mask=[982])
    """
    if name not in available():
        raise unknown_name("dataset", name, available())
    if name == _GENERATED:
        data = csbm()
    else:
        path = find(name, root)
        dataset = _DATASETS[name]
        data = fetch(dataset, _cache() if root is None else Path(root)) if path is None else read_npz(path)
        verify(data, dataset, path)
        data.x = data.x.float()
    return keep_largest_component(data) if largest_component else data


def find(name: str, root: str | Path | None = None) -> Path | None:
    """Where the archive of a dataset lies on disk, if it does (``csbm`` has none: it is generated)."""
    if name == _GENERATED:
        return None
    file = look_up("dataset", name, _DATASETS).file
    return next((folder / file for folder in _folders(root) if (folder / file).is_file()), None)


def at_hand(name: str, root: str | Path | None = None) -> bool:
    """Whether a dataset can be loaded without a download.

    >>> at_hand("csbm")
    True
    """
    return name in _WITHOUT_DOWNLOAD or find(name, root) is not None


def fetch(dataset: Dataset, folder: Path) -> Data:
    """Download a dataset, check it, and keep it under ``folder`` as an archive that is whole or absent."""
    with tempfile.TemporaryDirectory(prefix="edgeproof-") as temporary:
        try:
            data = dataset.source(Path(temporary))
        except (OSError, EOFError, RuntimeError, zipfile.BadZipFile) as error:
            raise ConnectionError(
                f"could not download {dataset.name}: {error}. Put {dataset.file} under the folder that "
                f"EDGEPROOF_DATA names, or under {folder}, to use it without a network"
            ) from error
    verify(data, dataset, None)
    write_npz(data, folder / dataset.file)
    return data


def verify(data: Data, dataset: Dataset, path: Path | None) -> None:
    """Raise unless ``data`` is a sound graph with the node, edge and class counts of ``dataset``."""
    check_data(data)
    expected = (dataset.nodes, dataset.edges, dataset.classes)
    found = (int(data.x.size(0)), num_edges(data), num_classes(data))
    if found != expected:
        raise ValueError(
            f"expected {dataset.name} with {expected} (nodes, edges, classes), got {found} from "
            f"{path or 'its download'}; a graph of your own is read with edgeproof.datasets.read_npz"
        )


def keep_largest_component(data: Data) -> Data:
    """The largest connected component, nodes in their old order; of several the one with the smallest node id."""
    row, col = data.edge_index.cpu().numpy()
    shape = (data.x.size(0), data.x.size(0))
    _, component = connected_components(sp.csr_matrix((np.ones_like(row), (row, col)), shape=shape), directed=False)
    return data.subgraph(torch.from_numpy(component == np.bincount(component).argmax()).to(data.edge_index.device))


def _folders(root: str | Path | None) -> Iterator[Path]:
    for name, folder in (("root", root), ("EDGEPROOF_DATA", os.environ.get("EDGEPROOF_DATA"))):
        if folder:
            if not Path(folder).is_dir():
                raise ValueError(f"expected {name} to name a folder, got {folder}")
            yield Path(folder)
    yield _cache()


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgeproof"
