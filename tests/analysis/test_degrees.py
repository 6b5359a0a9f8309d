"""Tests of degrees of misclassified nodes, on an attack result with given margins."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.analysis import AttackedDegrees, attacked_degrees
from edgeproof.attacks import AttackResult, FixedFlips


@pytest.fixture
def result(graph: Data) -> AttackResult:
    """Flips at nodes 3 (twice), 6 (twice), 0 and 1; degrees of the graph are 2, 2, 3, 1, 1, 1, 0."""
    flips = torch.tensor([[0, 3, 1], [3, 6, 6]])
    nodes = torch.tensor([3, 0, 2, 6, 4])
    attacked = FixedFlips(flips=flips)(ep.models.build("GCN", 5, 3, seed=0), graph, nodes, ep.Budget(3))
    return replace(
        attacked,
        clean_margins=torch.tensor([1.0, 1.0, 1.0, 1.0, -1.0]),
        margins=torch.tensor([-1.0, 0.0, 2.0, -3.0, 1.0]),
    )


def test_degree_flips_and_outcome_of_each_node(result: AttackResult, graph: Data) -> None:
    degrees = attacked_degrees(result, graph)
    assert degrees.nodes.tolist() == [3, 0, 2, 6, 4]
    assert degrees.degree.tolist() == [1, 2, 3, 0, 1]
    assert degrees.flips.tolist() == [2, 1, 0, 2, 0]
    # Node 0 ends in a tie, which is misclassified; node 4 was misclassified before, so it is neither.
    assert degrees.misclassified.tolist() == [True, True, False, True, False]
    assert degrees.robust.tolist() == [False, False, True, False, False]


def test_counts_and_means(result: AttackResult, graph: Data) -> None:
    degrees = attacked_degrees(result, graph)
    assert degrees.counts.tolist() == [[0, 0, 1], [0, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert degrees.misclassified_by_degree.tolist() == [1, 1, 1, 0]
    assert degrees.robust_by_degree.tolist() == [0, 0, 0, 1]
    assert degrees.misclassified_by_flips.tolist() == [0, 1, 2]
    assert degrees.robust_by_flips.tolist() == [1, 0, 0]
    assert degrees.mean_degree_misclassified == 1
    assert degrees.mean_degree_robust == 3
    assert degrees.beyond_degree == pytest.approx(2 / 3)
    assert repr(degrees) == (
        "AttackedDegrees(3 misclassified, 1 robust, mean degree 1.00 and 3.00, 67% beyond their degree)"
    )


def test_means_are_nan_without_misclassified_nodes(graph: Data) -> None:
    nodes = torch.arange(3)
    degrees = AttackedDegrees(nodes, nodes, nodes, torch.zeros(3, dtype=torch.bool), torch.ones(3, dtype=torch.bool))
    assert math.isnan(degrees.mean_degree_misclassified)
    assert math.isnan(degrees.beyond_degree)
    assert degrees.counts.sum() == 0
    assert degrees.mean_degree_robust == 1


def test_counts_match_attack_result(sbm: Data) -> None:
    model = ep.models.build("GCN", 21, 2, seed=0)
    nodes = torch.arange(0, 200, 3)
    result = ep.attacks.GreedyRBCD(steps=5)(model, sbm, nodes, ep.Budget(40))
    assert torch.equal(result.nodes, nodes)
    degrees = attacked_degrees(result, sbm)
    clean_accuracy = int(degrees.misclassified.sum() + degrees.robust.sum()) / nodes.numel()
    assert clean_accuracy == pytest.approx(result.clean_accuracy)
    assert int(degrees.counts.sum()) == int(degrees.misclassified.sum()) > 0
    assert torch.equal(degrees.counts.sum(dim=1), degrees.misclassified_by_degree)
    assert torch.equal(degrees.counts.sum(dim=0), degrees.misclassified_by_flips)


def test_wrong_graph_raises(result: AttackResult, graph: Data, cycle: Data) -> None:
    with pytest.raises(ValueError, match="expected the graph before the attack"):
        attacked_degrees(result, result.data)
    with pytest.raises(ValueError, match="expected the attacked graph of 7 nodes, got one of 12"):
        attacked_degrees(result, cycle)
