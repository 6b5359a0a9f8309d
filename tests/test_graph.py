from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof._checks import check_nodes
from edgeproof.graph import num_edges
from edgeproof.propagation import EdgeGradientEngine


def test_check_data_accepts_a_valid_graph(graph: Data) -> None:
    ep.check_data(graph)
    assert num_edges(graph) == 5
    assert ep.num_classes(graph) == 3


def test_check_data_accepts_graphs_without_edges(graph: Data) -> None:
    graph.edge_index = torch.empty(2, 0, dtype=torch.long)
    ep.check_data(graph)


def test_target_nodes_must_be_labelled(graph: Data) -> None:
    graph.y = torch.tensor([0, 1, -1, 0, 0, 0, -1])
    ep.check_data(graph)
    model, nodes = ep.models.build("GCN", graph.num_features, 2, seed=0), torch.tensor([0, 2, 6])
    calls = (
        lambda: ep.evaluation.clean_accuracy(model, graph, nodes),
        lambda: ep.attacks.PRBCD()(model, graph, nodes, ep.Budget(1)),
        lambda: EdgeGradientEngine(model, graph, nodes),
    )
    for call in calls:
        with pytest.raises(ValueError, match="expected labelled nodes, got 2 with label -1, such as node 2"):
            call()
    # Attacks accept explicit labels instead.
    result = ep.attacks.PRBCD(steps=2, fine_tune_steps=1)(
        model, graph, nodes, ep.Budget(1), labels=torch.tensor([0, 1, 0]), progress=False
    )
    assert result.flips.size(1) <= 1


def test_check_data_without_labels(graph: Data) -> None:
    graph.y = None
    ep.check_data(graph, labels=False)


def set_x(value: object) -> Callable[[Data], None]:
    return lambda data: setattr(data, "x", value)


def set_edges(value: object) -> Callable[[Data], None]:
    return lambda data: setattr(data, "edge_index", value)


def set_y(value: object) -> Callable[[Data], None]:
    return lambda data: setattr(data, "y", value)


def features_with(value: float) -> torch.Tensor:
    x = torch.zeros(7, 5)
    x[3, 1] = value
    return x


BAD = {
    "no features": (set_x(None), "expected features x of shape"),
    "1-D features": (set_x(torch.zeros(7)), r"got torch.float32 of shape \[7\]"),
    "integer features": (set_x(torch.zeros(7, 2, dtype=torch.long)), "float32 or float64"),
    "half features": (set_x(torch.zeros(7, 2).half()), "got torch.strided torch.float16"),
    "sparse COO features": (set_x(torch.eye(7).to_sparse()), "dense or sparse CSR features"),
    "no nodes": (set_x(torch.zeros(0, 2)), "at least one node"),
    "no features at all": (set_x(torch.zeros(7, 0)), "one feature, got features x of shape"),
    "too few weights": (lambda data: setattr(data, "edge_weight", torch.ones(3)), "edge_weight with one row per edge"),
    "attributes that are not a tensor": (
        lambda data: setattr(data, "edge_attr", "x"),
        "edge_attr with one row per edge",
    ),
    "NaN": (set_x(features_with(float("nan"))), "NaN or Inf at 1 nodes, such as node 3"),
    "Inf": (set_x(features_with(float("-inf"))), "NaN or Inf"),
    "no edges tensor": (set_edges(None), r"edge_index of shape \[2, edges\], got None"),
    "one row of edges": (set_edges(torch.zeros(1, 4, dtype=torch.long)), r"of shape \[1, 4\]"),
    "int32 edges": (set_edges(torch.tensor([[0, 1], [1, 0]], dtype=torch.int32)), "int64 edge_index"),
    "id too large": (set_edges(torch.tensor([[0, 9], [9, 0]])), "between 0 and 6, got 9"),
    "negative id": (set_edges(torch.tensor([[0, -1], [-1, 0]])), "between 0 and 6, got -1"),
    "self-loop": (set_edges(torch.tensor([[0, 1, 2], [1, 0, 2]])), "expected no self-loops, got 1"),
    "duplicate": (set_edges(torch.tensor([[0, 1, 0, 1], [1, 0, 1, 0]])), "each edge once, got 2 repeated"),
    "directed": (set_edges(torch.tensor([[0, 1, 2], [1, 0, 5]])), "1 without their reverse, such as 2 -> 5"),
    "weights": (lambda data: setattr(data, "edge_weight", torch.full((10,), 0.5)), "unweighted edges, got edge_weight"),
    "attributes": (lambda data: setattr(data, "edge_attr", torch.zeros(10, 2)), "unweighted edges, got edge_attr"),
    "no labels": (set_y(None), "expected a class label per node"),
    "float labels": (set_y(torch.zeros(7)), r"int64 labels y of shape \[7\]"),
    "too few labels": (set_y(torch.tensor([0, 1])), r"int64 labels y of shape \[7\], got torch.int64 of shape \[2\]"),
    "negative label": (
        set_y(torch.tensor([0, 1, -2, 0, 0, 0, 0])),
        "labels from 0, or -1 for unlabelled nodes, got -2",
    ),
    "one known class": (set_y(torch.tensor([0, -1, -1, 0, 0, 0, 0])), "at least two classes in y, got 1"),
    "one class": (set_y(torch.zeros(7, dtype=torch.long)), "at least two classes in y, got 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_check_data_rejects_invalid_graphs(graph: Data, case: str) -> None:
    damage, message = BAD[case]
    damage(graph)
    with pytest.raises(ValueError, match=message):
        ep.check_data(graph)


def test_check_data_accepts_edge_weights_of_one(graph: Data) -> None:
    graph.edge_weight = torch.ones(10)
    ep.check_data(graph)


def test_check_data_rejects_other_types() -> None:
    with pytest.raises(TypeError, match=r"expected a torch_geometric\.data\.Data, got dict"):
        ep.check_data({})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (torch.tensor([], dtype=torch.long), "at least one node in nodes, got none"),
        (torch.tensor([1, 1]), "distinct nodes, got 1 repeated"),
        (torch.tensor([True, False]), "1-D int64 tensor"),
        (torch.tensor([7]), "between 0 and 6, got 7"),
        ([1, 2], "got list"),
    ],
)
def test_check_nodes_rejects_invalid_nodes(graph: Data, nodes: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_nodes(nodes, graph)  # type: ignore[arg-type]


def test_flip_pairs_is_an_involution(graph: Data) -> None:
    flips = torch.tensor([[0, 5, 2], [1, 6, 1]])
    flipped = ep.graph.flip_pairs(graph, flips)
    ep.check_data(flipped)
    edges = {tuple(pair) for pair in flipped.edge_index.T.tolist()}
    assert (0, 1) not in edges
    assert (1, 2) not in edges
    assert {(5, 6), (6, 5), (0, 2)} <= edges
    assert torch.equal(ep.graph.flip_pairs(flipped, flips).edge_index, graph.edge_index)
    weighted = graph.clone()
    weighted.edge_weight = torch.ones(graph.edge_index.size(1))
    assert "edge_weight" not in ep.graph.flip_pairs(weighted, flips)
    assert "edge_weight" in weighted
