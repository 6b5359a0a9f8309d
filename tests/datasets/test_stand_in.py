"""The generated graph of ogbn-arxiv's size, made small."""

from __future__ import annotations

import pytest
import torch

from edgeproof._checks import check_data
from edgeproof.datasets import arxiv_stand_in
from edgeproof.graph import num_edges


def test_it_is_a_sound_graph_with_a_split_in_time() -> None:
    data = arxiv_stand_in(num_nodes=5000, num_edges=30_000, num_classes=8, num_features=16)
    check_data(data)
    assert 28_000 < num_edges(data) <= 30_000
    row, col = data.edge_index
    # About two thirds stay within a class, and of the others some do by chance.
    alike = (data.y[row] == data.y[col]).double()
    assert 0.65 < float(alike.mean()) < 0.8
    # Some nodes keep to their class, others do not: were all alike, shares of 30 edges or more would scatter by 0.08 at most.
    degree, kept = row.bincount(minlength=5000), torch.zeros(5000, dtype=torch.double).index_add_(0, row, alike)
    assert float((kept / degree)[degree >= 30].std()) > 0.2
    assert bool((data.train_mask.int() + data.val_mask.int() + data.test_mask.int() == 1).all())
    assert data.train_mask.nonzero().max() < data.val_mask.nonzero().min() < data.test_mask.nonzero().min()
    assert data.y.bincount()[0] > 2 * data.y.bincount()[-1]


def test_features_speak_of_the_class_of_two_nodes_in_three() -> None:
    data = arxiv_stand_in(num_nodes=20_000, num_edges=1000, num_classes=8, num_features=64)
    means = torch.stack([data.x[data.y == one].mean(dim=0) for one in range(8)])
    right = torch.cdist(data.x, means).argmin(dim=1) == data.y
    # Of the 36 in a hundred that are drawn anew some are drawn right.
    assert 0.64 < float(right.double().mean()) < 0.74


def test_the_same_seed_gives_the_same_graph() -> None:
    sizes = {"num_nodes": 500, "num_edges": 2000, "num_classes": 4}
    one, two, other = arxiv_stand_in(**sizes), arxiv_stand_in(**sizes), arxiv_stand_in(**sizes, seed=1)
    assert torch.equal(one.edge_index, two.edge_index)
    assert torch.equal(one.x, two.x)
    assert not torch.equal(one.x, other.x)


def test_wrong_sizes_are_told() -> None:
    with pytest.raises(ValueError, match="expected ten nodes of each class, edges and features, got num_nodes=100"):
        arxiv_stand_in(num_nodes=100)
