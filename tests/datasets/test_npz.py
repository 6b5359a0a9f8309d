from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from edgeproof.datasets import read_npz, write_npz


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), nodes=st.integers(2, 12), density=st.floats(0, 1), splits=st.integers(0, 3))
def test_write_and_read_round_trip(tmp_path: Path, seed: int, nodes: int, density: float, splits: int) -> None:
    random = torch.Generator().manual_seed(seed)
    upper = torch.triu(torch.rand(nodes, nodes, generator=random) < density, diagonal=1)
    x = torch.randn(nodes, 4, generator=random) * (torch.rand(nodes, 4, generator=random) < density)
    data = Data(
        x=x.double() if seed % 2 else x,
        edge_index=to_undirected(upper.nonzero().T.contiguous(), num_nodes=nodes),
        y=torch.arange(nodes) % 2,
    )
    if splits:
        masks = torch.rand(nodes, splits, generator=random) < 0.5
        data.train_mask = masks.squeeze(1) if splits == 1 else masks
    write_npz(data, tmp_path / "graph.npz")
    restored = read_npz(tmp_path / "graph.npz")
    assert sorted(restored.keys()) == sorted(data.keys())
    for key in data.keys():  # noqa: SIM118
        assert restored[key].dtype == data[key].dtype
        assert torch.equal(restored[key], data[key])


def test_edges_are_stored_sorted(graph: Data, tmp_path: Path) -> None:
    shuffled = graph.clone()
    shuffled.edge_index = graph.edge_index[:, torch.randperm(10)]
    write_npz(shuffled, tmp_path / "graph.npz")
    assert torch.equal(read_npz(tmp_path / "graph.npz").edge_index, graph.edge_index)


def test_graph_without_labels_round_trips(graph: Data, tmp_path: Path) -> None:
    graph.y = None
    write_npz(graph, tmp_path / "graph.npz")
    assert read_npz(tmp_path / "graph.npz").y is None


def test_invalid_graph_is_not_written(graph: Data, tmp_path: Path) -> None:
    graph.edge_index = graph.edge_index[:, :1]
    with pytest.raises(ValueError, match="undirected"):
        write_npz(graph, tmp_path / "graph.npz")
    assert list(tmp_path.iterdir()) == []


def test_unsupported_attributes_raise(graph: Data, tmp_path: Path) -> None:
    graph.position = torch.zeros(7, 2)
    with pytest.raises(ValueError, match="got also position, which archives cannot store"):
        write_npz(graph, tmp_path / "graph.npz")
    del graph.position
    graph.train_mask = torch.ones(3, dtype=torch.bool)
    with pytest.raises(ValueError, match="boolean train_mask with one row per node"):
        write_npz(graph, tmp_path / "graph.npz")


def test_features_requiring_grad_are_written(graph: Data, tmp_path: Path) -> None:
    graph.x = graph.x.requires_grad_()
    write_npz(graph, tmp_path / "graph.npz")
    assert torch.equal(read_npz(tmp_path / "graph.npz").x, graph.x)


class Malicious:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('unpickled')",)


def archive_arrays(**changes: object) -> dict[str, object]:
    arrays: dict[str, object] = {
        "adj_indptr": np.array([0, 1, 2]),
        "adj_indices": np.array([1, 0]),
        "adj_shape": np.array([2, 2]),
        "attr_matrix": np.zeros((2, 3), dtype=np.float32),
        "labels": np.array([0, 1]),
        **changes,
    }
    return {key: value for key, value in arrays.items() if value is not None}


BAD = {
    "pickled labels": (
        archive_arrays(labels=np.array([Malicious(), 1], dtype=object)),
        "labels contains pickled objects",
    ),
    "missing adjacency": (archive_arrays(adj_indices=None), "missing entry 'adj_indices'"),
    "missing features": (archive_arrays(attr_matrix=None), "missing entry 'attr_data'"),
    "index out of range": (archive_arrays(adj_indices=np.array([1, 7])), "is not a graph archive"),
    "negative index": (archive_arrays(adj_indices=np.array([1, -1])), "is not a graph archive"),
    "wrong pointer": (archive_arrays(adj_indptr=np.array([0, 5, 2])), "is not a graph archive"),
    "not square": (archive_arrays(adj_shape=np.array([2, 3])), "square adjacency"),
    "directed": (archive_arrays(adj_indptr=np.array([0, 1, 1]), adj_indices=np.array([1])), "undirected"),
    "too few features": (archive_arrays(attr_matrix=np.zeros((1, 3), dtype=np.float32)), "features for 2 nodes, got 1"),
    "NaN": (archive_arrays(attr_matrix=np.full((2, 3), np.nan, dtype=np.float32)), "NaN or Inf"),
    "text labels": (archive_arrays(labels=np.array(["a", "b"])), "is not a graph archive"),
    "float labels": (archive_arrays(labels=np.array([0.0, 1.0])), "is not a graph archive"),
    "pickled club": (archive_arrays(club=np.array([Malicious()], dtype=object)), "club contains pickled objects"),
    "unknown entry": (archive_arrays(lables=np.array([0, 1])), "unknown entry 'lables'"),
    "features without a shape": (archive_arrays(attr_matrix=np.float32(0)), "is not a graph archive"),
    "feature index out of range": (
        archive_arrays(
            attr_matrix=None,
            attr_data=np.ones(1, dtype=np.float32),
            attr_indices=np.array([9]),
            attr_indptr=np.array([0, 1, 1]),
            attr_shape=np.array([2, 3]),
        ),
        "is not a graph archive",
    ),
    "masks of the wrong length": (archive_arrays(train_masks=np.ones((1, 3), dtype=bool)), "train_masks of shape"),
}


@pytest.mark.parametrize("case", BAD)
def test_invalid_archives_raise(case: str, tmp_path: Path) -> None:
    arrays, message = BAD[case]
    np.savez(tmp_path / "graph.npz", allow_pickle=True, **arrays)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        read_npz(tmp_path / "graph.npz")


def test_files_other_than_archives_raise(graph: Data, tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    with pytest.raises(FileNotFoundError, match=r"no such file: .*graph\.npz"):
        read_npz(path)
    path.write_bytes(pickle.dumps(Malicious()))
    with pytest.raises(ValueError, match="not a NumPy archive"):
        read_npz(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="not a NumPy archive, or is damaged"):
        read_npz(path)
    np.save(path.with_suffix(".npy"), np.zeros(3))
    with pytest.raises(ValueError, match="single array"):
        read_npz(path.with_suffix(".npy"))


def test_corrupted_bytes_raise_or_are_harmless(graph: Data, tmp_path: Path) -> None:
    """With any single byte changed, the graph is read unchanged or a ValueError is raised."""
    path = tmp_path / "graph.npz"
    write_npz(graph, path)
    content = path.read_bytes()
    for position in range(0, len(content), 7):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0x21]) + content[position + 1 :])
        try:
            restored = read_npz(path)
        except ValueError:
            continue
        assert all(torch.equal(restored[key], graph[key]) for key in ("x", "edge_index", "y")), position


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.95])
def test_truncated_archives_raise(kept: float, graph: Data, tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    write_npz(graph, path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(ValueError, match="damaged"):
        read_npz(path)


def test_flipped_bit_raises(graph: Data, tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    write_npz(graph, path)
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        features = archive.getinfo("attr_matrix.npy")
    content[features.header_offset + 60 + features.compress_size // 2] ^= 0x10
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="damaged"):
        read_npz(path)


def test_edited_archive_does_not_match_its_digest(graph: Data, tmp_path: Path) -> None:
    """The checksums of a zip archive are those of single arrays; the digest is that of all."""
    path = tmp_path / "graph.npz"
    write_npz(graph, path)
    arrays = dict(np.load(path))
    for change in ({"labels": arrays["labels"][::-1]}, {"train_masks": np.ones((1, 7), dtype=bool)}):
        np.savez(path, **{**arrays, **change})  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="is damaged: its content does not match its digest"):
            read_npz(path)
    del arrays["sha256"]
    np.savez(path, **{**arrays, **change})  # type: ignore[arg-type]
    assert bool(read_npz(path).train_mask.all())


def test_archive_whose_directory_lost_its_last_entries_is_rejected(graph: Data, tmp_path: Path) -> None:
    """A wrong length of a comment hides all later entries: without the digest, labels and masks would be missing silently."""
    path = tmp_path / "graph.npz"
    graph.train_mask = torch.ones(7, dtype=torch.bool)
    write_npz(graph, path)
    content = path.read_bytes()
    entry = content.rindex(b"PK\x01\x02", 0, content.rindex(b"PK\x01\x02"))
    path.write_bytes(content[: entry + 32] + bytes([200]) + content[entry + 33 :])
    with pytest.raises(ValueError, match="is damaged"):
        read_npz(path)


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_are_rejected(compression: int, graph: Data, tmp_path: Path) -> None:
    """Their decoders allocate dictionaries of a declared size."""
    path, other = tmp_path / "graph.npz", tmp_path / "other.npz"
    write_npz(graph, path)
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(other, "w", compression) as copied:
        for name in archive.namelist():
            copied.writestr(name, archive.read(name))
    with pytest.raises(ValueError, match=r"other.npz is rejected: expected sha256 stored or deflated"):
        read_npz(other)


def test_encrypted_entries_are_rejected(graph: Data, tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    write_npz(graph, path)
    content = bytearray(path.read_bytes())
    # Bit 0 of the flags in each entry's local and central header.
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = content.find(signature)
        while start >= 0:
            content[start + offset] |= 1
            start = content.find(signature, start + 4)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"graph.npz is damaged: could not read .* is encrypted"):
        read_npz(path)
