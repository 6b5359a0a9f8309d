"""Descriptions of graphs: counts, and signs of trouble."""

from __future__ import annotations

import json
import re
from copy import copy

import pytest
import torch
from graph_files import small_graph
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.datasets import describe


def test_counts_of_a_small_graph() -> None:
    description = describe(small_graph())
    assert (description.nodes, description.edges, description.features) == (6, 6, 3)
    assert description.classes == {"0": 3, "1": 2}
    assert (description.unlabelled, description.components, description.isolated) == (1, 1, 0)
    assert description.homophily == 0
    assert (description.mean_degree, description.max_degree) == (2, 3)
    assert description.feature_range == (0, 4.25)
    assert "homophily of 0.00" in " ".join(description.trouble)
    assert "2 classes have fewer than 41 nodes" in " ".join(description.trouble)
    assert json.loads(json.dumps(description.to_dict()))["changed"]["self_loops"] == 0
    assert "trouble: homophily" in str(description)


@pytest.fixture(scope="module")
def graph() -> Data:
    return ep.datasets.attributed_sbm(400, 3, num_features=60, features="counts", heavy_tail=False, seed=0)


def changed(graph: Data, x: torch.Tensor) -> Data:
    result = copy(graph)
    result.x = x
    return result


def test_sound_graph_has_no_trouble() -> None:
    sound = ep.datasets.attributed_sbm(400, 3, num_features=20, features="gaussian", heavy_tail=False, seed=0)
    assert describe(sound).trouble == ()


def test_sparse_and_dense_features_have_the_same_description(graph: Data) -> None:
    dense, sparse = describe(graph), describe(changed(graph, graph.x.to_sparse_csr()))
    assert sparse.is_sparse
    assert not dense.is_sparse
    for name in ("density", "homophily", "feature_range", "classes", "edges"):
        assert getattr(sparse, name) == pytest.approx(getattr(dense, name))
    assert sparse.trouble == dense.trouble


TROUBLE = {
    "constant": (
        lambda x, y: torch.cat([x, torch.full((400, 2), 3.0)], dim=1),
        "2 features have one value at all nodes",
    ),
    "empty": (lambda x, y: torch.cat([x, torch.zeros(400, 1)], dim=1), "features are 0 at all nodes"),
    "scale": (
        lambda x, y: torch.cat([x + 1, 1e6 * torch.arange(1.0, 401)[:, None]], dim=1),
        "scales of features from",
    ),
    "repeated": (lambda x, y: x[torch.arange(400) // 2], r"200 nodes \(50%\) have the features of another"),
    "leak": (lambda x, y: torch.cat([x, y[:, None].float()], dim=1), "feature 60 alone gives the label"),
    "NaN": (lambda x, y: x.index_fill(0, torch.tensor([3]), torch.nan), "60 features are NaN or infinite"),
}


@pytest.mark.parametrize("case", TROUBLE)
def test_trouble_of_features_is_found(case: str, graph: Data) -> None:
    change, message = TROUBLE[case]
    found, before = (" ".join(describe(data).trouble) for data in (changed(graph, change(graph.x, graph.y)), graph))
    assert re.search(message, found)
    assert not re.search(message, before)


def test_trouble_of_edges_names_the_fix() -> None:
    data = small_graph()
    data.edge_index = torch.cat([data.edge_index[:, 1:], torch.tensor([[2], [2]])], dim=1)
    description = describe(data)
    assert description.edges == 6
    assert description.trouble[:2] == (
        "1 edges without their reverse; pass --to-undirected",
        "1 self-loops; pass --remove-self-loops",
    )


def test_isolated_nodes_and_missing_labels_are_trouble() -> None:
    data = Data(x=torch.rand(10, 2), edge_index=torch.tensor([[0, 1], [1, 0]]))
    trouble = " ".join(describe(data).trouble)
    assert "8 nodes (80%) have no neighbors" in trouble
    assert "outside the largest component" in trouble
    assert "no labels" in trouble
