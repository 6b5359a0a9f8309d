"""Figures of the paper, at paper scale: left out by default, run by ``make test-slow``."""

from __future__ import annotations

from pathlib import Path

import pytest

import edgeproof as ep


@pytest.mark.slow
@pytest.mark.parametrize(("model", "printed", "error"), [("GCN", 72.0, 2.5), ("APPNP", 72.2, 1.1)])
def test_clean_accuracy_on_citeseer(model: str, printed: float, error: float, real_data: Path) -> None:
    """Mean over the paper's three splits within two printed standard errors or 2.5 points."""
    data = ep.datasets.load("citeseer", real_data)
    accuracies = []
    for seed in (0, 1, 5):
        split = ep.splits.inductive(data, seed)
        network = ep.models.build(model, data.num_features, ep.num_classes(data), seed=seed)
        ep.train(network, split, seed=seed, progress=False)
        accuracies.append(100 * ep.evaluation.clean_accuracy(network, split.test.data, split.test.nodes))
    assert abs(sum(accuracies) / 3 - printed) <= max(2 * error, 2.5)
