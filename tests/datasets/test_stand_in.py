"""Tests of the ogbn-arxiv stand-in, at a smaller size."""

from __future__ import annotations

import pytest
import torch

from edgeproof._checks import check_data
from edgeproof.datasets import arxiv_stand_in
from edgeproof.graph import num_edges


def test_stand_in_is_valid_graph_with_temporal_split() -> None:
    data = arxiv_stand_in(num_nodes=5000, num_edges=30_000, num_classes=8, num_features=16)
    check_data(data)
    assert 28_000 < num_edges(data) <= 30_000
    row, col = data.edge_index
    # Two thirds of the edges are within a class by construction, some of the others by chance.
    same_class = (data.y[row] == data.y[col]).double()
    assert 0.65 < float(same_class.mean()) < 0.8
    # Homophily differs between nodes: if it did not, fractions over at least 30 edges would deviate by at most 0.08.
    degree, within = row.bincount(minlength=5000), torch.zeros(5000, dtype=torch.double).index_add_(0, row, same_class)
    assert float((within / degree)[degree >= 30].std()) > 0.2
    assert bool((data.train_mask.int() + data.val_mask.int() + data.test_mask.int() == 1).all())
    assert data.train_mask.nonzero().max() < data.val_mask.nonzero().min() < data.test_mask.nonzero().min()
    assert data.y.bincount()[0] > 2 * data.y.bincount()[-1]


def test_features_indicate_class_of_two_thirds_of_nodes() -> None:
    data = arxiv_stand_in(num_nodes=20_000, num_edges=1000, num_classes=8, num_features=64)
    means = torch.stack([data.x[data.y == label].mean(dim=0) for label in range(8)])
    correct = torch.cdist(data.x, means).argmin(dim=1) == data.y
    # Some of the 36 % random feature classes are correct by chance.
    assert 0.64 < float(correct.double().mean()) < 0.74


def test_stand_in_is_deterministic_given_seed() -> None:
    sizes = {"num_nodes": 500, "num_edges": 2000, "num_classes": 4}
    first, second, different = arxiv_stand_in(**sizes), arxiv_stand_in(**sizes), arxiv_stand_in(**sizes, seed=1)
    assert torch.equal(first.edge_index, second.edge_index)
    assert torch.equal(first.x, second.x)
    assert not torch.equal(first.x, different.x)


def test_invalid_sizes_raise() -> None:
    with pytest.raises(
        ValueError, match="expected at least ten nodes per class, one edge and one feature, got num_nodes=100"
    ):
        arxiv_stand_in(num_nodes=100)
