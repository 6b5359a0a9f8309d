from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from edgeproof.attacks import blocks, resample, sample_block
from edgeproof.propagation.pairs import num_pairs


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), nodes=st.integers(2, 60), size=st.integers(2, 2000))
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
    everything = size >= num_pairs(nodes)
    assert len(after) == (chosen.numel() if everything else min(chosen.numel(), size // 2))
    if everything:
        assert fresh.number.numel() == num_pairs(nodes)
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
    with pytest.raises(ValueError, match="block size >= 2, got 1"):
        sample_block(5, 1, generator=generator(0))
    with pytest.raises(ValueError, match="at least 2 nodes, got -5"):
        sample_block(-5, 3, generator=generator(0))
    with pytest.raises(ValueError, match="block size >= 2, got 1"):
        resample(sample_block(5, 3, generator=generator(0)), 1, generator=generator(0))


def test_resampling_fills_the_block_with_other_pairs() -> None:
    """On average as many pairs as asked for, and nearly all of them new."""
    sizes, again = [], []
    for seed in range(300):
        block = sample_block(100, 400, generator=generator(seed))
        block.flip[:100] = 0.5
        fresh = resample(block, 400, generator=generator(seed + 1000))
        sizes.append(fresh.number.numel())
        again.append(int(torch.isin(fresh.number, block.number[100:]).sum()))
    assert abs(sum(sizes) / 300 - 400) < 5
    assert sum(again) / 300 < 0.15 * 300


def test_moregaps_follow_if_the_first_do_not_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "gaps", lambda size: 7)
    counts = torch.zeros(45)
    for seed in range(2000):
        number = sample_block(10, 15, generator=generator(seed)).number
        assert bool((number.diff() > 0).all())
        counts[number] += 1
    share = 15 / 45
    assert float(((counts - 2000 * share).abs() / (2000 * share * (1 - share)) ** 0.5).max()) < 5


def test_rare_draws_reach_every_number() -> None:
    """Gaps of hundreds of millions of pairs, none of them rounded to a multiple of something."""
    first = [int(sample_block(3_000_000, 100, generator=generator(seed)).number[0]) for seed in range(200)]
    assert 3 <= sum(number % 16 == 0 for number in first) <= 30


@pytest.mark.parametrize("size", [5, 40, 10_000])
def test_blocks_among_some_nodes_only(size: int) -> None:
    nodes = torch.tensor([1, 4, 5, 9, 30, 31, 47])
    block = sample_block(50, size, generator=generator(0), nodes=nodes)
    assert bool(torch.isin(block.pairs.both, nodes).all())
    assert bool((block.pairs.key.diff() > 0).all())
    assert block.num_nodes == 7
    if size >= 21:
        assert len(block.pairs) == 21
    fresh = resample(block.with_flip(torch.ones_like(block.flip)), size, generator=generator(1))
    assert bool(torch.isin(fresh.pairs.both, nodes).all())
    assert bool((fresh.pairs.key.diff() > 0).all())


def test_pairs_with_an_end_among_some_nodes() -> None:
    nodes = torch.tensor([7, 2])
    everything = blocks.sample_touching(nodes, 10, 10**6, generator=generator(0))
    assert {tuple(pair) for pair in everything.T.tolist()} == {
        (u, v) for u in range(10) for v in range(u + 1, 10) if {u, v} & {2, 7}
    }
    assert everything.size(1) == 17
    some = blocks.sample_touching(torch.arange(100), 1000, 500, generator=generator(0))
    assert some.unique(dim=1).size(1) == some.size(1)
    assert 300 < some.size(1) < 1100
    assert bool((some[0] < some[1]).all())
    assert bool((some[0] < 100).all())
