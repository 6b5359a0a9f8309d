from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.datasets.registry import Dataset, download, find_archive, keep_largest_component, load_dataset


class CountingSource:
    """Source of a dataset that counts its downloads."""

    def __init__(self, graph: Data) -> None:
        self.graph, self.downloads = graph, 0

    def __call__(self, folder: Path) -> Data:
        self.downloads += 1
        return self.graph


@pytest.fixture
def source(graph: Data) -> CountingSource:
    return CountingSource(graph)


@pytest.fixture
def tiny(source: CountingSource) -> Dataset:
    """Dataset of seven nodes."""
    return Dataset("tiny", "tiny.npz", source, 7, 5, 3)


def test_largest_component_keeps_node_order(graph: Data) -> None:
    component = keep_largest_component(graph)
    assert torch.equal(component.x, graph.x[:4])
    assert component.edge_index.size(1) == 8
    ep.check_data(component)


def test_dataset_is_downloaded_once(tiny: Dataset, source: CountingSource, tmp_path: Path) -> None:
    first = load_dataset(tiny, tmp_path)
    assert (tmp_path / "tiny.npz").is_file()
    second = load_dataset(tiny, tmp_path)
    assert source.downloads == 1
    for key in ("x", "edge_index", "y"):
        assert torch.equal(first[key], second[key])


def test_load_keeps_largest_component(tmp_path: Path) -> None:
    whole = ep.datasets.load("karate", tmp_path, largest_component=False)
    assert whole.num_nodes == ep.datasets.load("karate", tmp_path).num_nodes == 34
    generated = ep.datasets.load("csbm", largest_component=False)
    assert torch.equal(ep.datasets.load("csbm").x, keep_largest_component(generated).x)
    assert ep.datasets.load("csbm").num_nodes < generated.num_nodes


def test_downloads_without_root_are_stored_in_cache(tiny: Dataset) -> None:
    assert find_archive(tiny) is None
    load_dataset(tiny)
    path = find_archive(tiny)
    assert path is not None
    assert path.parent.name == "edgeproof"


def test_folders_are_searched_in_order(
    tiny: Dataset, graph: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("root", "environment"):
        ep.datasets.write_npz(graph, tmp_path / name / "tiny.npz")
    monkeypatch.setenv("EDGEPROOF_DATA", str(tmp_path / "environment"))
    assert find_archive(tiny) == tmp_path / "environment" / "tiny.npz"
    assert find_archive(tiny, tmp_path / "root") == tmp_path / "root" / "tiny.npz"
    (tmp_path / "empty").mkdir()
    assert find_archive(tiny, tmp_path / "empty") == tmp_path / "environment" / "tiny.npz"
    with pytest.raises(ValueError, match=r"expected root to be an existing folder, got .*elsewhere"):
        find_archive(tiny, tmp_path / "elsewhere")
    monkeypatch.setenv("EDGEPROOF_DATA", str(tmp_path / "typo"))
    with pytest.raises(ValueError, match="expected EDGEPROOF_DATA to be an existing folder"):
        find_archive(tiny)


def test_features_are_converted_to_float32(tiny: Dataset, graph: Data, tmp_path: Path) -> None:
    graph.x = graph.x.double()
    ep.datasets.write_npz(graph, tmp_path / "tiny.npz")
    assert load_dataset(tiny, tmp_path).x.dtype == torch.float32


def test_download_with_wrong_counts_raises_and_is_not_stored(tiny: Dataset, tmp_path: Path) -> None:
    wrong = Dataset("tiny", "tiny.npz", tiny.source, 8, 5, 3)
    with pytest.raises(ValueError, match=r"expected tiny with \(8, 5, 3\).*got \(7, 5, 3\) from its download"):
        download(wrong, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_archive_of_other_graph_raises(tmp_path: Path, graph: Data) -> None:
    ep.datasets.write_npz(graph, tmp_path / "citeseer.npz")
    with pytest.raises(ValueError, match=r"expected citeseer with \(3312, 4536, 6\).*read_npz"):
        ep.datasets.load("citeseer", tmp_path)


def test_missing_network_raises_with_instructions(tmp_path: Path) -> None:
    def offline(folder: Path) -> Data:
        raise OSError("Name or service not known")

    with pytest.raises(ConnectionError, match=r"could not download tiny: Name.*EDGEPROOF_DATA"):
        download(Dataset("tiny", "tiny.npz", offline, 7, 5, 3), tmp_path)


def test_unknown_name_suggests_nearest() -> None:
    with pytest.raises(ValueError, match="unknown dataset 'core_ml': did you mean 'cora_ml'"):
        ep.datasets.load("core_ml")
    with pytest.raises(ValueError, match="unknown dataset"):
        ep.datasets.find("core_ml")


STATISTICS = {
    "citeseer": (2_110, 3_668, 3_703, 6, 0.736),
    "cora_ml": (2_810, 7_981, 2_879, 7, 0.784),
    "cora": (2_485, 5_069, 1_433, 7, 0.804),
    "pubmed": (19_717, 44_324, 500, 3, 0.802),
    "squirrel": (2_223, 46_998, 2_089, 5, 0.207),
    "karate": (34, 78, 34, 4, 0.756),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_real_graphs_have_known_statistics(name: str, real_data: Path) -> None:
    data = ep.datasets.load(name, real_data)
    ep.check_data(data)
    row, col = data.edge_index
    homophily = float((data.y[row] == data.y[col]).double().mean())
    statistics = (data.num_nodes, row.numel() // 2, data.num_features, ep.num_classes(data), round(homophily, 3))
    assert statistics == STATISTICS[name]
    assert data.x.dtype == torch.float32
