"""Comparison with the paper's numbers at full scale; slow, run by ``make test-slow``."""

from __future__ import annotations

from pathlib import Path

import pytest

import edgeproof as ep


@pytest.mark.slow
@pytest.mark.parametrize(("model", "published", "error"), [("GCN", 72.0, 2.5), ("APPNP", 72.2, 1.1)])
def test_clean_accuracy_on_citeseer_matches_paper(model: str, published: float, error: float, real_data: Path) -> None:
    """The mean over three splits is within two standard errors or 2.5 points of the paper's."""
    data = ep.datasets.load("citeseer", real_data)
    accuracies = []
    for seed in (0, 1, 5):
        split = ep.splits.inductive(data, seed)
        network = ep.models.build(model, data.num_features, ep.num_classes(data), seed=seed)
        ep.train(network, split, seed=seed, progress=False)
        accuracies.append(100 * ep.evaluation.clean_accuracy(network, split.test.data, split.test.nodes))
    assert abs(sum(accuracies) / 3 - published) <= max(2 * error, 2.5)
