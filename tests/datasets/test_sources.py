"""Tests of the download functions, on small local files in the published formats."""

from __future__ import annotations

import gzip
import json
import pickle
import zipfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid, WikiCS

import edgeproof as ep
from edgeproof.datasets import sources
from edgeproof.datasets.registry import Dataset, download


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


FEATURES = torch.eye(6, 4) / 4


def robustness_archive(path: Path) -> None:
    """Six nodes on a directed path with a self-loop, in the format of Bojchevski and Günnemann."""
    adjacency = sp.csr_matrix(np.diag(np.ones(5), k=1) + np.diag([0, 0, 1, 0, 0, 0]))
    features = sp.csr_matrix(FEATURES.numpy())
    parts = {}
    for name, matrix in (("adj", adjacency), ("attr", features)):
        parts |= {f"{name}_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr", "shape")}
    names = np.array(["a", None], dtype=object)
    np.savez(path, labels=np.array([0, 0, 1, 1, 2, 2]), idx_to_class=names, allow_pickle=True, **parts)


def check_path_graph(data: Data) -> None:
    ep.check_data(data)
    expected = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])
    upper = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    assert torch.equal(upper, expected)
    assert data.y.tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(("source", "name"), [(sources.cora_ml, "cora_ml"), (sources.citeseer, "citeseer")])
def test_robustness_archives_keep_features(
    source: Callable[[Path, str], Data], name: str, site: Path, tmp_path: Path
) -> None:
    robustness_archive(site / f"{name}.npz")
    data = source(tmp_path / "work", f"file://{site}/{name}.npz")
    check_path_graph(data)
    assert torch.equal(data.x, FEATURES)


def test_download_other_than_archive_raises(site: Path, tmp_path: Path) -> None:
    (site / "citeseer.npz").write_text("<html>moved</html>")
    with pytest.raises(ValueError, match=r"expected a NumPy archive \(\.npz\) from file://"):
        sources.citeseer(tmp_path / "work", f"file://{site}/citeseer.npz")


def planetoid_files(folder: Path, name: str) -> None:
    """520 nodes on a path: 2 training nodes, 510 outside the test set, 10 test nodes in shuffled order."""
    n, test_nodes = 520, [513, 511, 510, 512, 519, 514, 518, 516, 515, 517]
    x, onehot = sp.eye(n, 3, format="csr", dtype=np.float32), np.eye(2, dtype=np.int32)[np.arange(n) % 2]
    graph = defaultdict(list, {node: sorted({max(node - 1, 0), min(node + 1, n - 1)} - {node}) for node in range(n)})
    parts = {
        "x": x[:2],
        "allx": x[:510],
        "tx": x[test_nodes],
        "y": onehot[:2],
        "ally": onehot[:510],
        "ty": onehot[test_nodes],
        "graph": graph,
    }
    for part, value in parts.items():
        (folder / f"ind.{name}.{part}").write_bytes(pickle.dumps(value, protocol=2))
    (folder / f"ind.{name}.test.index").write_text("".join(f"{node}\n" for node in test_nodes))


@pytest.mark.parametrize(("source", "name"), [(sources.cora, "cora"), (sources.pubmed, "pubmed")])
def test_planetoid_sources(
    source: sources.Source, name: str, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planetoid_files(site, name)
    monkeypatch.setattr(Planetoid, "url", str(site))
    data = source(tmp_path / "work")
    ep.check_data(data)
    assert data.edge_index.size(1) == 2 * 519
    assert torch.equal(data.y, torch.arange(520) % 2)
    assert data.train_mask.sum() == 2
    assert data.test_mask.nonzero().flatten().tolist() == list(range(510, 520))


class Malicious:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('unpickled')",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_planetoid_file_with_code_is_rejected(
    protocol: int, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planetoid_files(site, "cora")
    (site / "ind.cora.graph").write_bytes(pickle.dumps(Malicious(), protocol=protocol))
    monkeypatch.setattr(Planetoid, "url", str(site))
    with pytest.raises(ValueError, match="is rejected"):
        sources.cora(tmp_path / "work")


def test_wikics_source(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    half = [True, False] * 3
    content = {
        "features": np.eye(6, 3).tolist(),
        "labels": [0, 0, 1, 1, 2, 2],
        "links": [[1], [2], [3, 2], [4], [5], []],
        "train_masks": [half] * 2,
        "stopping_masks": [[not value for value in half]] * 2,
        "val_masks": [half] * 2,
        "test_mask": half,
    }
    (site / "data.json").write_text(json.dumps(content))
    monkeypatch.setattr(WikiCS, "url", f"file://{site}")
    data = sources.wikics(tmp_path / "work")
    check_path_graph(data)
    assert data.train_mask.shape == data.val_mask.shape == data.test_mask.shape == (6, 2)
    assert torch.equal(data.val_mask, ~data.train_mask)


def test_squirrel_source(site: Path, tmp_path: Path) -> None:
    masks = np.arange(12).reshape(2, 6) % 3
    np.savez(
        site / "squirrel_filtered.npz",
        node_features=np.eye(6, 3),
        node_labels=np.array([0, 0, 1, 1, 2, 2]),
        edges=np.array([[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]]),
        train_masks=masks == 0,
        val_masks=masks == 1,
        test_masks=masks == 2,
    )
    data = sources.squirrel(tmp_path / "work", f"file://{site}/squirrel_filtered.npz")
    check_path_graph(data)
    assert data.train_mask.shape == (6, 2)


def ogb_archive(path: Path) -> None:
    tables = {
        "raw/edge.csv.gz": "0,1\n1,2\n2,3\n3,4\n4,5\n",
        "raw/node-feat.csv.gz": "".join(f"{node}.5,{-node}.25\n" for node in range(6)),
        "raw/node-label.csv.gz": "0\n0\n1\n1\n2\n2\n",
        "split/time/train.csv.gz": "0\n2\n",
        "split/time/valid.csv.gz": "1\n3\n",
        "split/time/test.csv.gz": "4\n5\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, table in tables.items():
            archive.writestr(f"arxiv/{name}", gzip.compress(table.encode()))


def test_arxiv_source(site: Path, tmp_path: Path) -> None:
    pytest.importorskip("ogb", reason="OGB is an optional extra: pip install 'edgeproof[ogb]'")
    ogb_archive(site / "arxiv.zip")
    data = sources.arxiv(tmp_path / "work", f"file://{site}/arxiv.zip")
    check_path_graph(data)
    assert data.x[3].tolist() == [3.5, -3.25]
    assert data.train_mask.nonzero().flatten().tolist() == [0, 2]
    assert data.test_mask.nonzero().flatten().tolist() == [4, 5]


def test_arxiv_without_ogb_raises_with_install_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ogb.utils.url", None)
    with pytest.raises(ImportError, match=r"pip install 'edgeproof\[ogb\]'"):
        sources.arxiv(tmp_path)


def test_karate_source_needs_no_download(tmp_path: Path) -> None:
    data = download(Dataset("karate", "karate.npz", sources.karate, 34, 78, 4), tmp_path)
    ep.check_data(data)
    assert (tmp_path / "karate.npz").is_file()
