"""The generated graph of ogbn-arxiv's size, made small."""

from __future__ import annotations

import pytest
import torch

from edgeproof.datasets import arxiv_stand_in
from edgeproof.graph import check_data, num_edges


def test_it_is_a_sound_graph_with_a_split_in_time() -> None:
    data = arxiv_stand_in(num_nodes=5000, num_edges=30_000, num_classes=8, num_features=16)
    check_data(data)
    assert 28_000 < num_edges(data) <= 30_000
    row, col = data.edge_index
    # Two thirds stay within a class, and of the others some do by chance.
    assert 0.65 < float((data.y[row] == data.y[col]).float().mean()) < 0.8
    assert bool((data.train_mask.int() + data.val_mask.int() + data.test_mask.int() == 1).all())
    assert data.train_mask.nonzero().max() < data.val_mask.nonzero().min() < data.test_mask.nonzero().min()
    assert data.y.bincount()[0] > 2 * data.y.bincount()[-1]


def test_the_same_seed_gives_the_same_graph() -> None:
    sizes = {"num_nodes": 500, "num_edges": 2000, "num_classes": 4}
    one, two, other = arxiv_stand_in(**sizes), arxiv_stand_in(**sizes), arxiv_stand_in(**sizes, seed=1)
    assert torch.equal(one.edge_index, two.edge_index)
    assert torch.equal(one.x, two.x)
    assert not torch.equal(one.x, other.x)


def test_wrong_sizes_are_told() -> None:
    with pytest.raises(ValueError, match="expected ten nodes of each class, edges and features, got num_nodes=100"):
        arxiv_stand_in(num_nodes=100)
