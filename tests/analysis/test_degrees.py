"""Fallen nodes, on a result made by hand."""

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
    found = FixedFlips(flips=flips)(ep.models.build("GCN", 5, 3, seed=0), graph, nodes, ep.Budget(3))
    return replace(
        found,
        clean_margins=torch.tensor([1.0, 1.0, 1.0, 1.0, -1.0]),
        margins=torch.tensor([-1.0, 0.0, 2.0, -3.0, 1.0]),
    )


def test_each_node(result: AttackResult, graph: Data) -> None:
    found = attacked_degrees(result, graph)
    assert found.nodes.tolist() == [3, 0, 2, 6, 4]
    assert found.degree.tolist() == [1, 2, 3, 0, 1]
    assert found.flips.tolist() == [2, 1, 0, 2, 0]
    # Node 0 ends in a tie, which is wrong; node 4 was wrong before, so that it neither fell nor stands.
    assert found.fell.tolist() == [True, True, False, True, False]
    assert found.stands.tolist() == [False, False, True, False, False]


def test_counts(result: AttackResult, graph: Data) -> None:
    found = attacked_degrees(result, graph)
    assert found.counts.tolist() == [[0, 0, 1], [0, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert found.fell_by_degree.tolist() == [1, 1, 1, 0]
    assert found.stands_by_degree.tolist() == [0, 0, 0, 1]
    assert found.fell_by_flips.tolist() == [0, 1, 2]
    assert found.stands_by_flips.tolist() == [1, 0, 0]
    assert found.mean_degree_fell == 1
    assert found.mean_degree_stands == 3
    assert found.beyond_degree == pytest.approx(2 / 3)
    assert repr(found) == ("AttackedDegrees(3 fell, 1 stand, mean degree 1.00 and 3.00, 67% beyond their degree)")


def test_nobody_fell(graph: Data) -> None:
    nodes = torch.arange(3)
    found = AttackedDegrees(nodes, nodes, nodes, torch.zeros(3, dtype=torch.bool), torch.ones(3, dtype=torch.bool))
    assert math.isnan(found.mean_degree_fell)
    assert math.isnan(found.beyond_degree)
    assert found.counts.sum() == 0
    assert found.mean_degree_stands == 1


def test_counts_agree_with_a_real_attack(sbm: Data) -> None:
    model = ep.models.build("GCN", 21, 2, seed=0)
    nodes = torch.arange(0, 200, 3)
    result = ep.attacks.GreedyRBCD(steps=5)(model, sbm, nodes, ep.Budget(40))
    assert torch.equal(result.nodes, nodes)
    found = attacked_degrees(result, sbm)
    before = int(found.fell.sum() + found.stands.sum()) / nodes.numel()
    assert before == pytest.approx(result.clean_accuracy)
    assert int(found.counts.sum()) == int(found.fell.sum()) > 0
    assert torch.equal(found.counts.sum(dim=1), found.fell_by_degree)
    assert torch.equal(found.counts.sum(dim=0), found.fell_by_flips)


def test_the_wrong_graph_is_refused(result: AttackResult, graph: Data, cycle: Data) -> None:
    with pytest.raises(ValueError, match="expected the graph as it was before the attack"):
        attacked_degrees(result, result.data)
    with pytest.raises(ValueError, match="expected the attacked graph of 7 nodes, got one of 12"):
        attacked_degrees(result, cycle)
