from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from edgeproof.attacks import resample, sample_block
from edgeproof.propagation.pairs import num_pairs


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), nodes=st.integers(2, 60), size=st.integers(1, 2000))
def test_blocks_are_sorted_distinct_pairs(seed: int, nodes: int, size: int) -> None:
    block = sample_block(nodes, size, generator=generator(seed))
    assert bool((block.number.diff() > 0).all())
    assert torch.equal(block.pairs.number, block.number)
    assert block.number.numel() <= num_pairs(nodes)
    assert int(block.flip.count_nonzero()) == 0
    if size >= num_pairs(nodes):
        assert block.number.numel() == num_pairs(nodes)


def test_every_pair_is_equally_likely_and_independent() -> None:
    """Chi-square over the 45 pairs of ten nodes, and over the 4 outcomes of neighbouring pairs."""
    draws, size = 4000, 15
    member = torch.zeros(draws, 45, dtype=torch.bool)
    for seed in range(draws):
        member[seed, sample_block(10, size, generator=generator(seed)).number] = True
    share = size / 45
    counts = member.sum(dim=0).double()
    chi_square = ((counts - draws * share) ** 2 / (draws * share * (1 - share))).sum()
    assert stats.chi2.sf(float(chi_square), 45) > 1e-4
    one, two = member[:, :-1].flatten(), member[:, 1:].flatten()
    observed = torch.bincount(2 * one.long() + two.long(), minlength=4).double()
    expected = torch.tensor([(1 - share) ** 2, share * (1 - share), share * (1 - share), share**2]) * one.numel()
    assert float(((observed - expected) ** 2 / expected).sum()) < 40


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), nodes=st.integers(3, 60), size=st.integers(2, 800), kept=st.integers(0, 500))
def test_resampling_keeps_what_is_flipped(seed: int, nodes: int, size: int, kept: int) -> None:
    block = sample_block(nodes, size, generator=generator(seed))
    chosen = torch.randperm(block.number.numel(), generator=generator(seed))[:kept]
    block.flip[chosen] = torch.rand(chosen.numel(), generator=generator(seed + 1)) + 0.1
    fresh = resample(block, size, generator=generator(seed + 2))
    assert bool((fresh.number.diff() > 0).all())
    assert torch.equal(fresh.pairs.number, fresh.number)
    before = dict(zip(block.number.tolist(), block.flip.tolist(), strict=True))
    after = {number: flip for number, flip in zip(fresh.number.tolist(), fresh.flip.tolist(), strict=True) if flip}
    assert all(before[number] == flip for number, flip in after.items())
    assert len(after) == min(chosen.numel(), size // 2)
    if after and len(after) < chosen.numel():
        assert min(after.values()) >= sorted(block.flip.tolist(), reverse=True)[len(after) - 1]


def test_the_same_seed_gives_the_same_block() -> None:
    one, two, other = (sample_block(50, 100, generator=generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(one.number, two.number)
    assert not torch.equal(one.number, other.number)


def test_flipped_pairs_are_those_of_non_zero_weight() -> None:
    block = sample_block(50, 100, generator=generator(0))
    block.flip[3] = 0.5
    pairs, flip = block.flipped
    assert flip.tolist() == [0.5]
    assert pairs.number.tolist() == [int(block.number[3])]


def test_empty_blocks_raise() -> None:
    with pytest.raises(ValueError, match="block size >= 1, got 0"):
        sample_block(5, 0, generator=generator(0))
