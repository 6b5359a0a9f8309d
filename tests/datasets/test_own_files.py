"""Users' own files: every format gives the same graph, and every fault one helpful error."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from graph_files import (
    PARTS,
    WRITERS,
    small_graph,
    write_csv,
    write_graphml,
    write_gust,
    write_matrix_market,
    write_own,
)

import edgeproof as ep
from edgeproof._features import is_sparse
from edgeproof.datasets.archive import read_arrays
from edgeproof.datasets.files import files_of, read_file
from edgeproof.datasets.npz import sparse_or_dense


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_graph(name: str, tmp_path: Path) -> None:
    if name == "parquet":
        pytest.importorskip("pyarrow")
    expected = small_graph()
    path = WRITERS[name](expected, tmp_path)
    data = ep.datasets.load(path, largest_component=False)
    assert torch.equal(data.x, expected.x)
    assert torch.equal(data.edge_index, expected.edge_index)
    assert torch.equal(data.y, expected.y)
    if name in ("csv", "folder", "parquet", "graphml"):
        assert data.node_names == [f"n{number}" for number in range(6)]
        assert data.feature_names == ["a", "b", "c"]
        for part in ("train", "val", "test"):
            assert data[f"{part}_mask"].tolist() == [PARTS[number % 4] == part for number in range(6)]
    if name in ("csv", "folder", "parquet", "graphml", "matrix market"):
        assert data.class_names == ["cat", "dog"]
    if name == "heterophilous":
        assert data.train_mask.shape == (6, 6)
    assert all(file.is_file() for file in files_of(path))


def test_names_survive_the_archive_and_the_largest_component(tmp_path: Path) -> None:
    path = write_csv(small_graph(), tmp_path)
    with (tmp_path / "nodes.csv").open("a") as file:
        file.write("alone,dog,,1,2,3\n")
    data = ep.datasets.load(path)
    assert data.node_names == [f"n{number}" for number in range(6)]
    ep.datasets.write_npz(data, tmp_path / "graph.npz")
    restored = ep.datasets.load(tmp_path / "graph.npz")
    for name in ("node_names", "class_names", "feature_names"):
        assert restored[name] == data[name]


def test_ids_and_labels_that_count_from_zero_have_no_names(tmp_path: Path) -> None:
    (tmp_path / "my-edges.csv").write_text("source,target,weight\n0,1,1\n1,0,1.0\n")
    (tmp_path / "my-nodes.csv").write_text("\ufeffid,x,label\n0,0.5,1\n1,0.25,0\n", encoding="utf-8")
    data = ep.datasets.load(str(tmp_path / "my-edges.csv"))
    assert sorted(data.keys()) == ["edge_index", "feature_names", "x", "y"]
    assert data.y.tolist() == [1, 0]


def test_numbers_in_labels_are_sorted_by_value(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n1,0\n")
    (tmp_path / "nodes.csv").write_text("id,x,label\n0,1,10\n1,2,9\n2,3,-1\n")
    data = ep.datasets.load(tmp_path, largest_component=False)
    assert (data.y.tolist(), data.class_names) == ([1, 0, -1], ["9", "10"])


CSV = {"edges.csv": "source,target\na,b\nb,a\n", "nodes.csv": "id,label,x\na,0,1\nb,1,2\n"}
BAD_TABLES = {
    "wrong column": (
        {"edges.csv": "source,traget\na,b\n"},
        r"edges\.csv: unknown column 'traget': did you mean 'target'",
    ),
    "no target": ({"edges.csv": "source\na\n"}, r"edges\.csv: expected a column 'target', got source"),
    "semicolons": ({"nodes.csv": "id;label;x\na;0;1\n"}, "columns are separated by commas"),
    "no id": ({"nodes.csv": "name,x\na,1\n"}, "expected a column 'id', got name, x"),
    "unknown node": ({"edges.csv": "source,target\na,z\n"}, r"unknown node 'z'; its id is not in nodes\.csv"),
    "negative id": ({"edges.csv": "source,target\na,-1\n"}, "unknown node '-1'"),
    "repeated id": ({"nodes.csv": "id,x\na,1\nb,1\na,2\n"}, "expected distinct ids, got 'a' more than once"),
    "no number": ({"nodes.csv": "id,x\na,1\nb,red\n"}, r"line 3: expected a number in column 'x', got 'red'"),
    "empty number": ({"nodes.csv": "id,x\na,1\nb,\n"}, r"line 3: expected a number in column 'x', got ''"),
    "NaN": ({"nodes.csv": "id,label,x\na,0,nan\nb,1,1\n"}, "NaN or Inf at 1 nodes, such as node 0"),
    "short line": ({"nodes.csv": "id,x\na\n"}, r"line 2: expected 2 columns, got 1"),
    "no features": ({"nodes.csv": "id,label\na,0\nb,1\n"}, "expected at least one column of features"),
    "wrong split": ({"nodes.csv": "id,split,x\na,trian,1\nb,,1\n"}, "unknown split 'trian': did you mean 'train'"),
    "negative label": ({"nodes.csv": "id,label,x\na,-3,1\nb,0,1\n"}, "expected labels from 0, or -1"),
    "one class": ({"nodes.csv": "id,label,x\na,0,1\nb,0,1\n"}, "expected at least two classes"),
    "empty file": ({"nodes.csv": ""}, "expected a column 'id'"),
    "not text": ({"nodes.csv": b"\xff\xfe\x00"}, "not a CSV file in UTF-8"),
    "missing nodes": ({"nodes.csv": None}, r"expected the table of nodes .*nodes\.csv beside edges\.csv"),
    "missing edges": ({"edges.csv": None}, r"expected edges\.csv and nodes\.csv"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_faults_of_tables_raise(case: str, tmp_path: Path) -> None:
    changes, message = BAD_TABLES[case]
    for name, content in {**CSV, **changes}.items():
        if content is not None:
            (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        ep.datasets.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_table_of_edges_needs_its_name(tmp_path: Path) -> None:
    (tmp_path / "graph.csv").write_text(CSV["edges.csv"])
    with pytest.raises(ValueError, match=r"expected the table of edges with a name such as edges\.csv"):
        ep.datasets.load(tmp_path / "graph.csv")


def test_missing_and_unknown_files_raise(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no such file or folder: .*gone\.npz"):
        ep.datasets.load(tmp_path / "gone.npz")
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        ep.datasets.load("gone/cora")
    (tmp_path / "graph.pt").write_bytes(b"")
    with pytest.raises(ValueError, match=r"ends in \.npz, .*a pickle, which is never read"):
        ep.datasets.load(tmp_path / "graph.pt")
    (tmp_path / "graph.npz").write_text("source,target\n")
    with pytest.raises(ValueError, match="not a NumPy archive, or is damaged"):
        ep.datasets.load(tmp_path / "graph.npz")
    with pytest.raises(ValueError, match="unknown dataset 'citeser': did you mean 'citeseer'"):
        ep.datasets.load("citeser")


def test_parquet_without_its_library_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "edges.parquet").write_bytes(b"")
    (tmp_path / "nodes.parquet").write_bytes(b"")
    program = "import sys; sys.modules['pyarrow'] = None; import edgeproof as ep; ep.datasets.load(sys.argv[1])"
    process = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert "ImportError: pyarrow is needed to read" in process.stderr
    assert "pip install 'edgeproof[parquet]'" in process.stderr


def test_damaged_parquet_raises(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for name in ("edges", "nodes"):
        (tmp_path / f"{name}.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(ValueError, match=r"nodes\.parquet is not a Parquet file"):
        ep.datasets.load(tmp_path)


def test_damaged_graphml_raises(tmp_path: Path) -> None:
    path = write_graphml(small_graph(), tmp_path)
    path.write_text(path.read_text()[:200])
    with pytest.raises(ValueError, match="is not a GraphML file, or is damaged"):
        ep.datasets.load(path)


def test_faults_of_matrix_market_files_raise(tmp_path: Path) -> None:
    path = write_matrix_market(small_graph(), tmp_path)
    features = tmp_path / "graph.features.mtx"
    content = features.read_text()
    features.write_text(content.replace("6 3 17", "6 3 900000000"))
    with pytest.raises(ValueError, match="declares 900,000,000 entries, but has only"):
        ep.datasets.load(path)
    features.write_text(content.replace("6 3 17", "6 300000000 17"))
    with pytest.raises(ValueError, match="declares 6 x 300,000,000 entries"):
        ep.datasets.load(path)
    features.write_text("nonsense")
    with pytest.raises(ValueError, match="is not a Matrix Market file"):
        ep.datasets.load(path)
    features.unlink()
    with pytest.raises(FileNotFoundError, match=r"expected the features in .*graph\.features\.mtx"):
        ep.datasets.load(path)


# Archives


def test_objects_in_gust_archives_are_not_read(tmp_path: Path) -> None:
    path = write_gust(small_graph(), tmp_path)
    assert "class_names" not in read_file(path)
    arrays = dict(np.load(path, allow_pickle=True))
    arrays["labels"] = arrays["labels"].astype(object)
    np.savez(path, allow_pickle=True, **arrays)
    with pytest.raises(ValueError, match="labels contains pickled objects or is damaged"):
        ep.datasets.load(path)


def test_weights_in_gust_archives_are_read(tmp_path: Path) -> None:
    path = write_gust(small_graph(), tmp_path)
    arrays = dict(np.load(path, allow_pickle=True))
    arrays["adj_data"][:2] = 2.5
    np.savez(path, allow_pickle=True, **arrays)
    with pytest.raises(ValueError, match=r"2 edges of a weight other than 1 in .*drop_weights=True"):
        ep.datasets.load(path)
    with pytest.warns(ep.datasets.DatasetWarning, match="dropped 2 weights other than 1"):
        data = ep.datasets.load(path, drop_weights=True)
    assert torch.equal(data.edge_index, small_graph().edge_index)


def archive(path: Path, **arrays: object) -> Path:
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return path


SMALL = {"adj_indptr": [0, 1, 2], "adj_indices": [1, 0], "adj_shape": [2, 2], "labels": [0, 1]}


def test_archive_that_declares_many_features_is_rejected(tmp_path: Path) -> None:
    path = archive(
        tmp_path / "graph.npz",
        **SMALL,
        attr_data=np.ones(2, dtype=np.float32),
        attr_indices=[0, 1],
        attr_indptr=[0, 1, 2],
        attr_shape=[2, 300_000_000],
    )
    assert path.stat().st_size < 5000
    with pytest.raises(ValueError, match="declares 300,000,000 features, but stores only 2 values"):
        ep.datasets.load(path)


def test_archive_with_a_huge_label_is_rejected(tmp_path: Path) -> None:
    path = archive(tmp_path / "graph.npz", **{**SMALL, "labels": [0, 10**12]}, attr_matrix=np.eye(2))
    with pytest.raises(ValueError, match="expected labels below the number of nodes, 2, got 1000000000000"):
        ep.datasets.load(path)


def test_archive_larger_than_memory_is_rejected_before_it_is_read(tmp_path: Path) -> None:
    path = archive(tmp_path / "graph.npz", **SMALL, attr_matrix=np.zeros((2, 10_000_000), dtype=np.float32))
    assert path.stat().st_size < 200_000
    known = [*SMALL, "attr_matrix"]
    with pytest.raises(ValueError, match=r"is rejected: expected its content to fit into 0\.0 GB .* got 0\.1 GB"):
        read_arrays(path, known, available=1e6)
    assert read_arrays(path, known, available=1e9)["attr_matrix"].shape == (2, 10_000_000)


def test_header_that_declares_more_than_the_content_is_rejected(tmp_path: Path) -> None:
    path = archive(tmp_path / "graph.npz", **SMALL)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (2, 10**12)})
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("attr_matrix.npy", header.getvalue() + bytes(8))
    with pytest.raises(ValueError, match=r"attr_matrix .* .it declares 8,000,000,000,000 bytes, but holds 8"):
        ep.datasets.load(path)


# Sparse features


def test_large_sparse_matrices_stay_sparse() -> None:
    matrix = sp.random(200, 100, 0.02, format="csr", dtype=np.float32, random_state=0)
    assert not is_sparse(sparse_or_dense(matrix))
    kept = sparse_or_dense(matrix, dense_bytes=10_000)
    assert is_sparse(kept)
    assert torch.equal(kept.to_dense(), torch.from_numpy(matrix.toarray()))
    dense = sp.random(200, 100, 0.5, format="csr", dtype=np.float32, random_state=0)
    assert not is_sparse(sparse_or_dense(dense, dense_bytes=10_000))


def test_sparse_features_survive_the_archive(tmp_path: Path) -> None:
    data = small_graph()
    data.x = data.x.to_sparse_csr()
    restored = ep.datasets.read_npz(write_own(data, tmp_path))
    # Small matrices are read as dense tensors.
    assert torch.equal(restored.x, small_graph().x)


def test_table_of_nodes_names_the_table_of_edges(tmp_path: Path) -> None:
    edges = write_csv(small_graph(), tmp_path)
    with pytest.raises(ValueError, match=f"got {tmp_path}/nodes.csv; pass {edges}"):
        ep.datasets.load(tmp_path / "nodes.csv")


def test_find_and_is_local_take_files(tmp_path: Path) -> None:
    path = str(write_own(small_graph(), tmp_path))
    assert str(ep.datasets.find(path)) == path
    assert ep.datasets.is_local(path)
    assert not ep.datasets.is_local(path + ".npz")


def test_edges_in_any_order_give_the_same_graph() -> None:
    """Edges that are simple keep their order only if it is sorted; all others are sorted."""
    data = small_graph()
    shuffled = data.edge_index[:, torch.randperm(data.edge_index.size(1))]
    for edges in (data.edge_index, shuffled):
        assert torch.equal(ep.datasets.from_edges(edges.T, data.x).edge_index, data.edge_index)


MEMORY = """
import resource, sys
import edgeproof as ep
ep.datasets.available
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
data = ep.datasets.load(sys.argv[1])
print(tuple(data.x.shape), data.x.layout, peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in other units")
def test_memory_to_load_sparse_features(tmp_path: Path) -> None:
    """A third of the nodes and 2.4 times the features of Coauthor Physics: 0.93 GB as a dense tensor."""
    random, n, features = np.random.default_rng(0), 11_500, 20_200
    ring = np.arange(n)
    pairs = np.concatenate([np.stack([ring, (ring + 1) % n]), random.integers(0, n, (2, 80_000))], axis=1)
    pairs = pairs[:, pairs[0] != pairs[1]]
    adjacency = sp.csr_matrix((np.ones(2 * pairs.shape[1]), np.concatenate([pairs, pairs[::-1]], axis=1)), shape=(n, n))
    adjacency.sum_duplicates()
    entries = np.arange(n).repeat(101), random.integers(0, features, 101 * n)
    x = sp.csr_matrix((np.ones(101 * n, dtype=np.float32), entries), shape=(n, features))
    path = archive(
        tmp_path / "graph.npz",
        adj_indptr=adjacency.indptr,
        adj_indices=adjacency.indices,
        adj_shape=adjacency.shape,
        attr_data=x.data,
        attr_indices=x.indices,
        attr_indptr=x.indptr,
        attr_shape=x.shape,
        labels=random.integers(0, 5, n),
    )
    process = subprocess.run(
        [sys.executable, "-c", MEMORY, str(path)], capture_output=True, text=True, timeout=300, check=True
    )
    shape_and_layout, _, kilobytes = process.stdout.strip().rpartition(" ")
    assert shape_and_layout == f"({n}, {features}) torch.sparse_csr"
    assert int(kilobytes) < 200_000
