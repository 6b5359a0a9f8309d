"""Graphs from edge lists, NetworkX and SciPy, and fixes of their edges."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from graph_files import adjacency_of, as_networkx, small_graph
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.datasets import DatasetWarning, Fixes, from_edges, from_networkx, from_scipy
from edgeproof.datasets.simplify import EdgeCounts, count_problems, simplify

MESSY = [(0, 1), (0, 1), (1, 0), (1, 2), (2, 2), (2, 2)]
ALL = {"to_undirected": True, "remove_self_loops": True, "merge_duplicates": True, "drop_weights": True}


def test_all_problems_are_in_one_error() -> None:
    with pytest.raises(ValueError, match="expected a simple undirected graph") as caught:
        from_edges(MESSY, np.eye(3), weights=[1, 2, 1, 1, 1, 1])
    assert str(caught.value) == (
        "expected a simple undirected graph, got 1 edges without their reverse, 2 self-loops, 1 repeated edges and 1 edges of "
        "a weight other than 1 in the graph; pass to_undirected=True (--to-undirected), remove_self_loops=True "
        "(--remove-self-loops), merge_duplicates=True (--merge-duplicates), drop_weights=True (--drop-weights)"
    )


@pytest.mark.parametrize(
    ("fix", "edges", "message"),
    [
        ("to_undirected", [(0, 1), (1, 0), (1, 2)], "added the reverse of 1 edges"),
        ("remove_self_loops", [(0, 1), (1, 0), (2, 2)], "removed 1 self-loops"),
        ("merge_duplicates", [(0, 1), (1, 0), (1, 0)], "merged 1 repeated edges"),
    ],
)
def test_each_fix_reports_the_number_of_changed_edges(fix: str, edges: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(ValueError, match=f"pass {fix}=True .--{fix.replace('_', '-')}.$"):
        from_edges(edges, np.eye(3), **{name: True for name in ALL if name != fix})
    with pytest.warns(DatasetWarning, match=f"EP301: the graph: {message} "):
        data = from_edges(edges, np.eye(3), **{fix: True})
    ep.check_data(data, labels=False)


def test_edges_of_weight_zero_are_removed() -> None:
    with pytest.warns(DatasetWarning, match="dropped 2 weights"):
        data = from_edges([(0, 1), (1, 0), (1, 2), (2, 1)], np.eye(3), weights=[1, 1, 0, 0], drop_weights=True)
    assert data.edge_index.tolist() == [[0, 1], [1, 0]]
    with pytest.raises(ValueError, match="finite edge weights, got NaN or Inf"):
        from_edges([(0, 1), (1, 0)], np.eye(2), weights=[1, np.nan], drop_weights=True)


@settings(max_examples=60, deadline=None)
@given(edges=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20))
def test_simple_graph_has_each_pair_once_in_both_directions(edges: list[tuple[int, int]]) -> None:
    index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T
    data = Data(x=torch.ones(6, 1), edge_index=index)
    simple, counts = simplify(data, Fixes(**ALL))
    expected = sorted({pair for u, v in edges if u != v for pair in ((u, v), (v, u))})
    assert [tuple(pair) for pair in simple.edge_index.T.tolist()] == expected
    distinct = {(u, v) for u, v in edges if u != v}
    assert counts.self_loops == sum(u == v for u, v in edges)
    assert counts.duplicates == len(edges) - counts.self_loops - len(distinct)
    assert counts.one_way == sum((v, u) not in distinct for u, v in distinct)
    assert count_problems(simple) == EdgeCounts()
    assert torch.equal(data.edge_index, index)


def test_ids_out_of_range_raise() -> None:
    for node in (-1, 3):
        with pytest.raises(ValueError, match=f"expected node ids between 0 and 2, got {node} in an edge"):
            from_edges([(0, node)], np.eye(3), **ALL)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], np.eye(2)), r"pairs of integers, shape \[edges, 2\]"),
        (([(0.5, 1.0)], np.eye(2)), "pairs of integers"),
        (([(0, 1), (1, 0)], [1, 2]), r"features of shape \[nodes, features\], got \[2\]"),
        (([(0, 1), (1, 0)], [["a"], ["b"]]), "expected features as numbers"),
        (([(0, 1), (1, 0)], np.eye(2), [0]), "expected one label per node, 2, got 1"),
        (([(0, 1), (1, 0)], [[np.nan], [1]]), "NaN or Inf"),
    ],
)
def test_invalid_arguments_raise(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_edges(*arguments)  # type: ignore[arg-type]


def test_weights_of_another_length_raise() -> None:
    with pytest.raises(ValueError, match=r"expected one weight per edge, shape \[2\]"):
        from_edges([(0, 1), (1, 0)], np.eye(2), weights=[1])


def test_networkx_graph_is_converted() -> None:
    expected = small_graph()
    data = from_networkx(as_networkx(expected))
    for key in ("x", "edge_index", "y"):
        assert torch.equal(data[key], expected[key])
    directed = nx.DiGraph(as_networkx(expected))
    directed.remove_edge("n0", "n1")
    with pytest.raises(ValueError, match="1 edges without their reverse"):
        from_networkx(directed)
    with pytest.warns(DatasetWarning, match="added the reverse of 1 edges"):
        assert torch.equal(from_networkx(directed, to_undirected=True).edge_index, expected.edge_index)


def test_networkx_attributes_can_be_chosen() -> None:
    graph = nx.Graph([(0, 1, {"strength": 2.0})])
    nx.set_node_attributes(graph, {0: {"v": [1.0, 2.0], "kind": "a"}, 1: {"v": [3.0, 4.0], "kind": "b"}})
    with pytest.raises(ValueError, match="2 edges of a weight other than 1"):
        from_networkx(graph, features=["v"], label="kind", weight="strength")
    data = from_networkx(graph, features=["v"], label="kind")
    assert (data.x.tolist(), data.y.tolist()) == ([[1.0, 2.0], [3.0, 4.0]], [0, 1])
    with pytest.raises(ValueError, match="expected features as numbers"):
        from_networkx(graph)
    with pytest.raises(ValueError, match="expected the attribute 'w' at every node, got none at 0"):
        from_networkx(graph, features=["w"])
    with pytest.raises(ValueError, match="expected node attributes that are features, got none"):
        from_networkx(nx.path_graph(2))
    with pytest.raises(ValueError, match="expected at least one node"):
        from_networkx(nx.Graph())


def test_networkx_multigraph_has_repeated_edges() -> None:
    graph = nx.MultiGraph([(0, 1), (0, 1)])
    nx.set_node_attributes(graph, {0: 1.0, 1: 2.0}, "x")
    with pytest.raises(ValueError, match="2 repeated edges"):
        from_networkx(graph)


def test_scipy_matrix_is_converted() -> None:
    expected = small_graph()
    data = from_scipy(adjacency_of(expected), sp.csr_matrix(expected.x.numpy()), expected.y)
    for key in ("x", "edge_index", "y"):
        assert torch.equal(data[key], expected[key])
    with pytest.raises(ValueError, match=r"expected a square SciPy sparse matrix, got \(2, 3\)"):
        from_scipy(sp.csr_matrix((2, 3)), np.eye(2))
    with pytest.raises(ValueError, match="expected features for 6 nodes, got 2"):
        from_scipy(adjacency_of(expected), np.eye(2))


def test_sparse_tensors_stay_sparse() -> None:
    for x in (torch.eye(3).to_sparse_csr(), torch.eye(3).to_sparse_coo()):
        data = from_edges([(0, 1), (1, 0)], x, [0, 1, None])
        assert data.x.layout == torch.sparse_csr
        assert data.y.tolist() == [0, 1, -1]


def test_fixes_need_a_file() -> None:
    with pytest.raises(ValueError, match="expected to_undirected with a file only, got the dataset csbm"):
        ep.datasets.load("csbm", to_undirected=True)
    with pytest.raises(ValueError, match="expected to_undirected to be True or False"):
        ep.datasets.load("csbm", to_undirected="yes")  # type: ignore[arg-type]
