"""Download functions, one per dataset. Each returns all nodes as published.

Every function downloads into the folder it is given. The graphs are checked in :mod:`~edgeproof.datasets.registry`.
"""

from __future__ import annotations

import pickletools
import shutil
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.datasets import KarateClub, Planetoid, WikiCS
from torch_geometric.utils import remove_self_loops, to_undirected

Source = Callable[[Path], Data]

ROBUSTNESS_URL = "https://github.com/sigeisler/robustness_of_gnns_at_scale/raw/main/data"
BENCHMARK_URL = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz"
SQUIRREL_URL = "https://github.com/yandex-research/heterophilous-graphs/raw/main/data/squirrel_filtered.npz"
ARXIV_URL = "http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"

# Globals that Planetoid's pickles may refer to: arrays, sparse matrices, and dictionaries of lists.
_PLANETOID_GLOBALS = {
    "numpy.core.multiarray _reconstruct",
    "numpy._core.multiarray _reconstruct",
    "numpy ndarray",
    "numpy dtype",
    "scipy.sparse.csr csr_matrix",
    "scipy.sparse._csr csr_matrix",
    "collections defaultdict",
    "__builtin__ bytes",
    "__builtin__ list",
    "__builtin__ object",
    "builtins list",
    "copy_reg _reconstructor",
    "_codecs encode",
}


def karate(folder: Path) -> Data:
    """Zachary's karate club: 34 nodes, 78 edges, 4 classes; part of PyG."""
    data = KarateClub()[0]
    return Data(x=data.x, edge_index=data.edge_index, y=data.y, train_mask=data.train_mask)


def cora_ml(folder: Path, url: str = f"{ROBUSTNESS_URL}/cora_ml.npz") -> Data:
    """Cora-ML (Bojchevski and Günnemann 2018): 2,995 nodes, 8,158 edges, 7 classes.

    Features are as published and as in the paper's code; PyG's ``CitationFull`` sets all non-zero ones to one.
    """
    return _robustness_archive(folder, url)


def citeseer(folder: Path, url: str = f"{ROBUSTNESS_URL}/citeseer.npz") -> Data:
    """CiteSeer of the robustness literature (Geisler et al. 2021): 3,312 nodes, 4,536 edges, 6 classes.

    PyG's ``CitationFull`` and ``Planetoid`` have different graphs of that name (4,230 and 3,327 nodes).
    """
    return _robustness_archive(folder, url)


def amazon_photo(folder: Path, url: str = f"{BENCHMARK_URL}/amazon_electronics_photo.npz") -> Data:
    """Amazon Photo (Shchur et al. 2018): 7,650 nodes, 119,081 edges, 8 classes."""
    return _robustness_archive(folder, url)


def coauthor_cs(folder: Path, url: str = f"{BENCHMARK_URL}/ms_academic_cs.npz") -> Data:
    """Coauthor CS (Shchur et al. 2018): 18,333 nodes, 81,894 edges, 15 classes."""
    return _robustness_archive(folder, url)


def _robustness_archive(folder: Path, url: str) -> Data:
    """Download a graph stored as compressed sparse rows in the format of Bojchevski and Günnemann."""
    with np.load(_download(url, folder / url.rsplit("/", 1)[-1]), allow_pickle=False) as archive:
        num_nodes, num_features = archive["attr_shape"]
        row = np.repeat(np.arange(num_nodes), np.diff(archive["adj_indptr"]))
        x = torch.zeros(num_nodes, num_features)
        feature_row = np.repeat(np.arange(num_nodes), np.diff(archive["attr_indptr"]))
        x[feature_row, archive["attr_indices"]] = torch.from_numpy(archive["attr_data"]).float()
        edges = torch.from_numpy(np.stack([row, archive["adj_indices"]]).astype(np.int64))
        return _make_simple(Data(x=x, edge_index=edges, y=torch.from_numpy(archive["labels"]).long()))


def cora(folder: Path) -> Data:
    """Cora with the public split (Yang et al. 2016): 2,708 nodes, 5,278 edges, 7 classes."""
    return _make_simple(_CheckedPlanetoid(str(folder), "Cora")[0])


def pubmed(folder: Path) -> Data:
    """PubMed with the public split (Yang et al. 2016): 19,717 nodes, 44,324 edges, 3 classes."""
    return _make_simple(_CheckedPlanetoid(str(folder), "PubMed")[0])


def wikics(folder: Path) -> Data:
    """WikiCS with its 20 splits (Mernyei and Cangea 2020): 11,701 nodes, 215,603 edges, 10 classes.

    ``val_mask`` is the authors' early-stopping set.
    """
    data = WikiCS(str(folder), is_undirected=True)[0]
    data.val_mask = data.stopping_mask
    if data.test_mask.dim() == 1:
        data.test_mask = data.test_mask[:, None].expand_as(data.train_mask).clone()
    return _make_simple(data)


def squirrel(folder: Path, url: str = SQUIRREL_URL) -> Data:
    """Squirrel without duplicate nodes (Platonov et al. 2023), 10 splits: 2,223 nodes, 46,998 edges, 5 classes."""
    with np.load(_download(url, folder / "squirrel_filtered.npz"), allow_pickle=False) as archive:
        return _make_simple(
            Data(
                x=torch.from_numpy(archive["node_features"]).float(),
                edge_index=torch.from_numpy(archive["edges"].astype(np.int64).T.copy()),
                y=torch.from_numpy(archive["node_labels"]).long(),
                train_mask=torch.from_numpy(archive["train_masks"].T.copy()),
                val_mask=torch.from_numpy(archive["val_masks"].T.copy()),
                test_mask=torch.from_numpy(archive["test_masks"].T.copy()),
            )
        )


def arxiv(folder: Path, url: str = ARXIV_URL) -> Data:
    """ogbn-arxiv with its temporal split (Hu et al. 2020): 169,343 nodes, 1,157,799 edges, 40 classes.

    OGB downloads and extracts the archive; its tables are read directly, because OGB's own cache is a pickle.
    """
    try:
        from ogb.utils.url import download_url, extract_zip
    except ImportError as error:
        raise ImportError("ogb is needed to download ogbn-arxiv: pip install 'edgeproof[ogb]'") from error
    extract_zip(download_url(url, str(folder)), str(folder))
    return _make_simple(read_ogb_tables(folder / "arxiv"))


def read_ogb_tables(folder: Path) -> Data:
    """Read the CSV tables of an extracted OGB node dataset with a temporal split."""

    def table(name: str, dtype: type[np.generic]) -> torch.Tensor:
        return torch.from_numpy(np.loadtxt(folder / name, delimiter=",", dtype=dtype, ndmin=2))

    x = table("raw/node-feat.csv.gz", np.float32)
    masks = {}
    for part, file in {"train_mask": "train", "val_mask": "valid", "test_mask": "test"}.items():
        masks[part] = torch.zeros(x.size(0), dtype=torch.bool)
        masks[part][table(f"split/time/{file}.csv.gz", np.int64).flatten()] = True
    edge_index = table("raw/edge.csv.gz", np.int64).T.contiguous()
    return Data(x=x, edge_index=edge_index, y=table("raw/node-label.csv.gz", np.int64).flatten(), **masks)


class _CheckedPlanetoid(Planetoid):  # type: ignore[misc]
    """Planetoid that checks its pickled files before PyG loads them."""

    def process(self) -> None:
        for path in self.raw_paths:
            if not path.endswith("test.index"):
                check_planetoid_pickle(Path(path))
        super().process()


def check_planetoid_pickle(path: Path) -> None:
    """Raise unless the pickle at ``path`` contains only arrays and plain containers; nothing is unpickled."""
    for opcode, argument, _ in pickletools.genops(path.read_bytes()):
        if opcode.name in ("STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID"):
            raise ValueError(f"{path} is rejected: unexpected pickle opcode {opcode.name} in a Planetoid file")
        if opcode.name == "GLOBAL" and argument not in _PLANETOID_GLOBALS:
            raise ValueError(f"{path} is rejected: its pickle would import {str(argument).replace(' ', '.')}")


def _download(url: str, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with urllib.request.urlopen(url, timeout=60) as response, path.open("wb") as file:
        shutil.copyfileobj(response, file)
    if not zipfile.is_zipfile(path):
        raise ValueError(f"expected a NumPy archive (.npz) from {url}, got another file")
    return path


def _make_simple(data: Data) -> Data:
    """Return the graph with both directions of every edge, each once, and without self-loops."""
    edge_index, _ = remove_self_loops(data.edge_index)
    masks = {name: data[name] for name in ("train_mask", "val_mask", "test_mask") if name in data}
    return Data(x=data.x, edge_index=to_undirected(edge_index, num_nodes=data.x.size(0)), y=data.y.flatten(), **masks)
