"""Tests of random graphs: probabilities, independence, and reproducibility of samples."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.stats import binomtest, chi2, chi2_contingency
from torch_geometric.data import Data

from edgeproof.certificates.regions import Noise
from edgeproof.certificates.sampling import Sampler, split_batch
from edgeproof.kernels.reference_sampling import STEP

NOISES = [(0.01, 0.6), (0.3, 0.0), (0.0, 0.4), (0.5, 0.9)]


def dense(sampler: Sampler, first: int, count: int) -> torch.Tensor:
    """Return samples as dense matrices, shape ``[count, nodes, nodes]``."""
    n = sampler.num_nodes
    matrix = sampler.draw(first, count, torch.float64).dense()
    return torch.stack([matrix[s * n : (s + 1) * n, s * n : (s + 1) * n] for s in range(count)])


@pytest.mark.parametrize("noise", NOISES)
def test_samples_are_simple_undirected_graphs(noise: tuple[float, float], sbm: Data) -> None:
    sampler = Sampler.of(sbm, Noise(*noise), seed=0)
    adjacency = sampler.draw(0, 3)
    n = sampler.num_nodes
    pattern = adjacency.pattern
    assert torch.equal(pattern.col[pattern.diagonal], torch.arange(3 * n))
    # Columns are sorted and unique within rows; no edge joins two samples.
    assert bool((pattern.key.diff() > 0).all())
    assert torch.equal(pattern.row // n, pattern.col // n)
    matrices = dense(sampler, 0, 3)
    assert torch.equal(matrices, matrices.transpose(1, 2))
    assert bool((matrices.diagonal(dim1=1, dim2=2) == 0).all())
    assert set(matrices.unique().tolist()) <= {0.0, 1.0}


def test_seeds_have_no_samples_in_common(sbm: Data) -> None:
    """This includes seeds whose difference is the increment of the generator."""
    step = STEP % 2**63
    graphs = [dense(Sampler.of(sbm, Noise(0.02, 0.5), seed), 0, 3) for seed in (0, 1, step)]
    every = torch.cat(graphs).flatten(1)
    assert every.unique(dim=0).size(0) == 9


def test_split_batch_returns_single_samples(sbm: Data) -> None:
    sampler = Sampler.of(sbm, Noise(0.05, 0.4), seed=3)
    for index, graph in enumerate(split_batch(sampler.draw(5, 4), 4)):
        expected = sampler.draw(5 + index, 1)
        torch.testing.assert_close(graph.dense(), expected.dense(), rtol=0, atol=0)
        assert torch.equal(graph.pattern.diagonal, expected.pattern.diagonal)


def test_samples_do_not_depend_on_batch(sbm: Data) -> None:
    sampler = Sampler.of(sbm, Noise(0.02, 0.5), seed=1)
    batch = dense(sampler, 4, 6)
    separate = torch.cat([dense(sampler, index, 1) for index in range(4, 10)])
    assert torch.equal(batch, separate)
    assert not torch.equal(batch[0], batch[1])
    other_seed = Sampler.of(sbm, Noise(0.02, 0.5), seed=2)
    assert not torch.equal(dense(other_seed, 4, 1)[0], batch[0])


@pytest.mark.parametrize("noise", [(0.2, 0.6), (0.05, 0.3)])
def test_pairs_are_flipped_independently_with_their_probabilities(noise: tuple[float, float], graph: Data) -> None:
    """Binomial and chi-square tests of all pairs, and of all pairs of pairs; deterministic by the seed."""
    samples, n = 4000, 7
    sampler = Sampler.of(graph, Noise(*noise), seed=0)
    matrices = torch.cat([dense(sampler, first, 100) for first in range(0, samples, 100)]).numpy()
    clean = torch.zeros(n, n).index_put_(tuple(graph.edge_index), torch.tensor(1.0)).numpy()
    pairs = list(combinations(range(n), 2))
    present = np.array([[matrices[:, u, v] for u, v in pairs]])[0]
    statistic = 0.0
    for (u, v), drawn in zip(pairs, present, strict=True):
        p = 1 - noise[1] if clean[u, v] else noise[0]
        assert binomtest(int(drawn.sum()), samples, p).pvalue > 1e-4
        statistic += (drawn.sum() - samples * p) ** 2 / (samples * p * (1 - p))
    assert 1e-4 < chi2.sf(statistic, len(pairs)) < 1 - 1e-4
    tests = [
        chi2_contingency(np.histogram2d(a, b, bins=2)[0] + 1e-9, correction=False).pvalue
        for a, b in combinations(present, 2)
    ]
    # 210 p-values, uniform if the pairs are independent.
    assert min(tests) > 1e-5
    assert 0.4 < float(np.mean(tests)) < 0.6


def test_samples_of_graphs_without_edges_or_pairs() -> None:
    empty = Data(x=torch.zeros(4, 1), edge_index=torch.empty(2, 0, dtype=torch.long))
    matrices = dense(Sampler.of(empty, Noise(0.5, 0.5), seed=0), 0, 50)
    assert 0.4 < float(matrices.sum() / (50 * 12)) < 0.6
    assert not dense(Sampler.of(empty, Noise(0.0, 0.5), seed=0), 0, 2).any()
    single = Data(x=torch.zeros(1, 1), edge_index=torch.empty(2, 0, dtype=torch.long))
    assert dense(Sampler.of(single, Noise(0.5, 0.5), seed=0), 0, 2).shape == (2, 1, 1)
