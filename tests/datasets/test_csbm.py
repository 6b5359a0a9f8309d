from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.datasets import csbm, read_npz
from edgeproof.datasets.csbm import _pairs_within


def test_csbm_is_deterministic_given_seed() -> None:
    first, second, different = csbm(seed=1), csbm(seed=1), csbm(seed=2)
    assert torch.equal(first.edge_index, second.edge_index)
    assert torch.equal(first.x, second.x)
    assert not torch.equal(first.x, different.x)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("preset", ["homophilous", "heterophilous"])
def test_csbm_graphs_are_valid(preset: str, seed: int) -> None:
    data = csbm(preset, seed=seed)
    ep.check_data(data)
    assert data.train_mask.sum() == 800
    assert torch.equal(data.val_mask, ~data.train_mask)


def test_edge_probabilities_match_p_and_q() -> None:
    """Counts over 40 graphs are sums of Bernoulli trials: within five standard deviations of their mean."""
    within = between = trials_within = trials_between = 0
    for seed in range(40):
        data = csbm(num_nodes=300, p=0.02, q=0.05, seed=seed)
        row, col = data.edge_index
        same = int((data.y[row] == data.y[col]).sum()) // 2
        within, between = within + same, between + row.numel() // 2 - same
        ones = int(data.y.sum())
        trials_between += ones * (300 - ones)
        trials_within += 300 * 299 // 2 - ones * (300 - ones)
    for count, trials, probability in ((within, trials_within, 0.02), (between, trials_between, 0.05)):
        deviation = (trials * probability * (1 - probability)) ** 0.5
        assert abs(count - trials * probability) < 5 * deviation


def test_feature_mean_and_deviation() -> None:
    data = csbm(num_nodes=4000, num_features=30, K=3.0, sigma=2.0, seed=0)
    sign = 2.0 * data.y[:, None] - 1
    centred = data.x - sign * 3.0 * 2.0 / (2 * 30**0.5)
    assert abs(float(centred.mean())) < 5 * 2.0 / (4000 * 30) ** 0.5
    assert abs(float(centred.std()) - 2.0) < 0.03


def test_edge_probabilities_zero_and_one() -> None:
    data = csbm(num_nodes=30, p=1.0, q=1.0)
    assert data.edge_index.size(1) == 30 * 29
    assert csbm(num_nodes=30, p=0.0, q=0.0).edge_index.size(1) == 0


def test_pair_numbers_are_unranked_exactly() -> None:
    pairs = _pairs_within(np.random.default_rng(0), 500, 1.0)
    assert set(map(tuple, pairs.T.tolist())) == {(i, j) for i in range(500) for j in range(i)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p": 1.5}, "0 <= p <= 1, got 1.5"),
        ({"q": -0.1}, "0 <= q <= 1"),
        ({"num_nodes": 1}, "at least 2 nodes"),
        ({"num_features": 0}, "at least 2 nodes and 1 feature"),
        ({"sigma": 0.0}, "sigma > 0"),
        ({"K": float("nan")}, "finite K"),
        ({"train_fraction": 2.0}, "train_fraction"),
        ({"preset": "heterophil"}, "did you mean 'heterophilous'"),
    ],
)
def test_invalid_parameters_raise(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        csbm(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("preset", "file"), [("heterophilous", "hetero"), ("homophilous", "homo")])
def test_statistics_match_published_samples(preset: str, file: str, real_data: Path) -> None:
    """Edge count, homophily, feature deviation and class balance of the paper's samples lie within our spread."""
    published = read_npz(real_data / f"csbm_{file}_seed0.npz")
    generated = [csbm(preset, seed=seed) for seed in range(30)]

    def statistics(data: Data) -> list[float]:
        row, col = data.edge_index
        homophily = float((data.y[row] == data.y[col]).double().mean())
        return [row.numel() / 2, homophily, float(data.x.double().std()), float(data.y.double().mean())]

    spread = np.array([statistics(data) for data in generated])
    distance = np.abs(np.array(statistics(published)) - spread.mean(axis=0)) / spread.std(axis=0)
    assert (distance < 4).all(), distance
