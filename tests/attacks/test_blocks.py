"""Sampling and resampling of random blocks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from edgeproof.attacks import resample, sample_block
from edgeproof.attacks.blocks import sample_incident_pairs, sample_numbers
from edgeproof.propagation.pairs import num_pairs


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), nodes=st.integers(2, 60), size=st.integers(2, 2000))
def test_sample_block_returns_sorted_distinct_pairs(seed: int, nodes: int, size: int) -> None:
    block = sample_block(nodes, size, generator=generator(seed))
    assert bool((block.number.diff() > 0).all())
    assert torch.equal(block.pairs.number, block.number)
    assert block.number.numel() <= num_pairs(nodes)
    assert int(block.flip.count_nonzero()) == 0
    if size >= num_pairs(nodes):
        assert block.number.numel() == num_pairs(nodes)


def test_sample_block_draws_pairs_uniformly_and_independently() -> None:
    """Chi-square tests over the 45 pairs of ten nodes and over the 4 outcomes of consecutive pairs."""
    draws, size = 4000, 15
    member = torch.zeros(draws, 45, dtype=torch.bool)
    for seed in range(draws):
        member[seed, sample_block(10, size, generator=generator(seed)).number] = True
    q = size / 45
    counts = member.sum(dim=0).double()
    chi_square = ((counts - draws * q) ** 2 / (draws * q * (1 - q))).sum()
    assert stats.chi2.sf(float(chi_square), 45) > 1e-4
    left, right = member[:, :-1].flatten(), member[:, 1:].flatten()
    observed = torch.bincount(2 * left.long() + right.long(), minlength=4).double()
    expected = torch.tensor([(1 - q) ** 2, q * (1 - q), q * (1 - q), q**2]) * left.numel()
    assert float(((observed - expected) ** 2 / expected).sum()) < 40


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), nodes=st.integers(3, 60), size=st.integers(2, 800), kept=st.integers(0, 500))
def test_resample_keeps_flipped_pairs(seed: int, nodes: int, size: int, kept: int) -> None:
    block = sample_block(nodes, size, generator=generator(seed))
    chosen = torch.randperm(block.number.numel(), generator=generator(seed))[:kept]
    block.flip[chosen] = torch.rand(chosen.numel(), generator=generator(seed + 1)) + 0.1
    resampled = resample(block, size, generator=generator(seed + 2))
    assert bool((resampled.number.diff() > 0).all())
    assert torch.equal(resampled.pairs.number, resampled.number)
    before = dict(zip(block.number.tolist(), block.flip.tolist(), strict=True))
    after = {
        number: flip for number, flip in zip(resampled.number.tolist(), resampled.flip.tolist(), strict=True) if flip
    }
    assert all(before[number] == flip for number, flip in after.items())
    all_pairs = size >= num_pairs(nodes)
    assert len(after) == (chosen.numel() if all_pairs else min(chosen.numel(), size // 2))
    if all_pairs:
        assert resampled.number.numel() == num_pairs(nodes)
    if after and len(after) < chosen.numel():
        assert min(after.values()) >= sorted(block.flip.tolist(), reverse=True)[len(after) - 1]


def test_sample_block_is_deterministic_given_the_seed() -> None:
    first, repeated, other = (sample_block(50, 100, generator=generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(first.number, repeated.number)
    assert not torch.equal(first.number, other.number)


def test_flipped_returns_pairs_of_non_zero_weight() -> None:
    block = sample_block(50, 100, generator=generator(0))
    block.flip[3] = 0.5
    pairs, flip = block.flipped
    assert flip.tolist() == [0.5]
    assert pairs.number.tolist() == [int(block.number[3])]


def test_invalid_block_sizes_raise() -> None:
    with pytest.raises(ValueError, match="block size >= 2, got 1"):
        sample_block(5, 1, generator=generator(0))
    with pytest.raises(ValueError, match="at least 2 nodes, got -5"):
        sample_block(-5, 3, generator=generator(0))
    with pytest.raises(ValueError, match="block size >= 2, got 1"):
        resample(sample_block(5, 3, generator=generator(0)), 1, generator=generator(0))


def test_resample_draws_new_pairs_up_to_expected_size() -> None:
    sizes, repeated = [], []
    for seed in range(300):
        block = sample_block(100, 400, generator=generator(seed))
        block.flip[:100] = 0.5
        resampled = resample(block, 400, generator=generator(seed + 1000))
        sizes.append(resampled.number.numel())
        repeated.append(int(torch.isin(resampled.number, block.number[100:]).sum()))
    assert abs(sum(sizes) / 300 - 400) < 5
    assert sum(repeated) / 300 < 0.15 * 300


def test_sample_numbers_draws_more_gaps_until_all_candidates_are_covered() -> None:
    counts = torch.zeros(45)
    for seed in range(2000):
        number = sample_numbers(45, 15, generator(seed), batch=7)
        assert bool((number.diff() > 0).all())
        counts[number] += 1
    q = 15 / 45
    assert float(((counts - 2000 * q).abs() / (2000 * q * (1 - q)) ** 0.5).max()) < 5


def test_long_gaps_are_not_rounded() -> None:
    """Gaps of 1e8 pairs exceed the precision of float32; rounded ones would be multiples of a power of two."""
    first = [int(sample_block(3_000_000, 100, generator=generator(seed)).number[0]) for seed in range(200)]
    assert 3 <= sum(number % 16 == 0 for number in first) <= 30


@pytest.mark.parametrize("size", [5, 40, 10_000])
def test_sample_block_restricted_to_nodes(size: int) -> None:
    nodes = torch.tensor([1, 4, 5, 9, 30, 31, 47])
    block = sample_block(50, size, generator=generator(0), nodes=nodes)
    assert bool(torch.isin(block.pairs.both, nodes).all())
    assert bool((block.pairs.key.diff() > 0).all())
    assert block.num_nodes == 7
    if size >= 21:
        assert len(block.pairs) == 21
    resampled = resample(block.with_flip(torch.ones_like(block.flip)), size, generator=generator(1))
    assert bool(torch.isin(resampled.pairs.both, nodes).all())
    assert bool((resampled.pairs.key.diff() > 0).all())


def test_sample_incident_pairs_returns_pairs_with_an_end_in_nodes() -> None:
    nodes = torch.tensor([7, 2])
    all_pairs = sample_incident_pairs(nodes, 10, 10**6, generator=generator(0))
    assert {tuple(pair) for pair in all_pairs.T.tolist()} == {
        (u, v) for u in range(10) for v in range(u + 1, 10) if {u, v} & {2, 7}
    }
    assert all_pairs.size(1) == 17
    sampled = sample_incident_pairs(torch.arange(100), 1000, 500, generator=generator(0))
    assert sampled.unique(dim=1).size(1) == sampled.size(1)
    assert 300 < sampled.size(1) < 1100
    assert bool((sampled[0] < sampled[1]).all())
    assert bool((sampled[0] < 100).all())
