from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.datasets import registry
from edgeproof.datasets.registry import Dataset, fetch, keep_largest_component


@pytest.fixture
def tiny(graph: Data, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """A dataset of seven nodes whose source counts how often it is asked."""
    calls = []

    def source(folder: Path) -> Data:
        calls.append(folder)
        return graph

    dataset = Dataset("tiny", "tiny.npz", source, 7, 5, 3)
    monkeypatch.setitem(registry._DATASETS, "tiny", dataset)
    monkeypatch.setattr(registry, "calls", calls, raising=False)
    return dataset


def test_the_largest_component_keeps_the_order_of_nodes(graph: Data) -> None:
    kept = keep_largest_component(graph)
    assert torch.equal(kept.x, graph.x[:4])
    assert kept.edge_index.size(1) == 8
    ep.check_data(kept)


def test_a_download_happens_once(tiny: Dataset, tmp_path: Path) -> None:
    first = ep.datasets.load("tiny", tmp_path, largest_component=False)
    assert (tmp_path / "tiny.npz").is_file()
    second = ep.datasets.load("tiny", tmp_path, largest_component=False)
    assert len(registry.calls) == 1  # type: ignore[attr-defined]
    for key in ("x", "edge_index", "y"):
        assert torch.equal(first[key], second[key])
    assert ep.datasets.load("tiny", tmp_path).num_nodes == 4


def test_without_a_root_downloads_are_kept_in_the_cache(tiny: Dataset) -> None:
    assert ep.datasets.find("tiny") is None
    ep.datasets.load("tiny")
    found = ep.datasets.find("tiny")
    assert found is not None
    assert found.parent.name == "edgeproof"


def test_folders_are_searched_in_order(
    tiny: Dataset, graph: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("root", "environment"):
        ep.datasets.write_npz(graph, tmp_path / name / "tiny.npz")
    monkeypatch.setenv("EDGEPROOF_DATA", str(tmp_path / "environment"))
    assert ep.datasets.find("tiny") == tmp_path / "environment" / "tiny.npz"
    assert ep.datasets.find("tiny", tmp_path / "root") == tmp_path / "root" / "tiny.npz"
    (tmp_path / "empty").mkdir()
    assert ep.datasets.find("tiny", tmp_path / "empty") == tmp_path / "environment" / "tiny.npz"
    with pytest.raises(ValueError, match=r"expected root to name a folder, got .*elsewhere"):
        ep.datasets.find("tiny", tmp_path / "elsewhere")
    monkeypatch.setenv("EDGEPROOF_DATA", str(tmp_path / "typo"))
    with pytest.raises(ValueError, match="expected EDGEPROOF_DATA to name a folder"):
        ep.datasets.find("tiny")


def test_double_features_become_single(tiny: Dataset, graph: Data, tmp_path: Path) -> None:
    graph.x = graph.x.double()
    ep.datasets.write_npz(graph, tmp_path / "tiny.npz")
    assert ep.datasets.load("tiny", tmp_path).x.dtype == torch.float32


def test_a_download_with_wrong_counts_is_refused_and_not_kept(tiny: Dataset, tmp_path: Path) -> None:
    wrong = Dataset("tiny", "tiny.npz", tiny.source, 8, 5, 3)
    with pytest.raises(ValueError, match=r"expected tiny with \(8, 5, 3\).*got \(7, 5, 3\) from its download"):
        fetch(wrong, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_another_graph_by_the_same_name_is_refused(tmp_path: Path, graph: Data) -> None:
    ep.datasets.write_npz(graph, tmp_path / "citeseer.npz")
    with pytest.raises(ValueError, match=r"expected citeseer with \(3312, 4536, 6\).*read_npz"):
        ep.datasets.load("citeseer", tmp_path)


def test_no_network_is_said_plainly(tmp_path: Path) -> None:
    def offline(folder: Path) -> Data:
        raise OSError("Name or service not known")

    with pytest.raises(ConnectionError, match=r"could not download tiny: Name.*EDGEPROOF_DATA"):
        fetch(Dataset("tiny", "tiny.npz", offline, 7, 5, 3), tmp_path)


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(ValueError, match="unknown dataset 'core_ml': did you mean 'cora_ml'"):
        ep.datasets.load("core_ml")
    with pytest.raises(ValueError, match="unknown dataset"):
        ep.datasets.find("core_ml")


KNOWN = {
    "citeseer": (2_110, 3_668, 3_703, 6, 0.736),
    "cora_ml": (2_810, 7_981, 2_879, 7, 0.784),
    "cora": (2_485, 5_069, 1_433, 7, 0.804),
    "pubmed": (19_717, 44_324, 500, 3, 0.802),
    "squirrel": (2_223, 46_998, 2_089, 5, 0.207),
    "karate": (34, 78, 34, 4, 0.756),
}


@pytest.mark.parametrize("name", KNOWN)
def test_real_graphs_are_the_known_ones(name: str, real_data: Path) -> None:
    data = ep.datasets.load(name, real_data)
    ep.check_data(data)
    row, col = data.edge_index
    homophily = float((data.y[row] == data.y[col]).double().mean())
    found = (data.num_nodes, row.numel() // 2, data.num_features, ep.num_classes(data), round(homophily, 3))
    assert found == KNOWN[name]
    assert data.x.dtype == torch.float32
