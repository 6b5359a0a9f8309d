"""Random blocks of node pairs: the part of the search space that an attack considers in one step."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from edgeproof.attacks.candidates import Candidates
from edgeproof.kernels import dispatch
from edgeproof.propagation.pairs import Pairs, num_pairs, pairs_among

# Smaller weights count as zero, as in the paper's released code: they change no result, and there may be very many of them.
MIN_WEIGHT = 1e-7


@dataclass(frozen=True, eq=False)
class Block:
    """Pairs of nodes and the weight of each flip.

    Args:
        number: Linear indices of the pairs (see :mod:`edgeproof.propagation.pairs`), ascending, shape ``[b]``; among ``nodes``
            if given.
        pairs: The pairs.
        flip: Flip weights between 0 and 1, shape ``[b]``.
        nodes: Ids of the nodes that pairs are drawn from, ascending. Default: all nodes of the graph.
        candidates: Pairs among ``nodes`` that may be drawn. Default: all of them.
    """

    number: Tensor
    pairs: Pairs
    flip: Tensor
    nodes: Tensor | None = None
    candidates: Candidates | None = None

    @property
    def flipped(self) -> tuple[Pairs, Tensor]:
        """Pairs of non-zero weight (greater than :data:`MIN_WEIGHT`), and their weights."""
        positions = (self.flip > MIN_WEIGHT).nonzero().squeeze(1)
        return self.pairs[positions], self.flip[positions]

    @property
    def num_nodes(self) -> int:
        """Number of nodes that pairs are drawn from."""
        return self.pairs.num_nodes if self.nodes is None else self.nodes.numel()

    def with_flip(self, flip: Tensor) -> Block:
        """Return the same pairs with other weights."""
        return replace(self, flip=flip)


def sample_block(
    num_nodes: int,
    size: int,
    *,
    generator: torch.Generator,
    nodes: Tensor | None = None,
    candidates: Candidates | None = None,
    dtype: torch.dtype = torch.float32,
) -> Block:
    """Sample a block in which every pair occurs independently with the same probability; all weights are 0.

    Args:
        num_nodes: Number of nodes of the graph.
        size: Expected number of pairs. If there are no more pairs than this, the block contains all of them.
        generator: Random generator on the block's device.
        nodes: Ids of the nodes to draw pairs from, ascending. Default: all nodes of the graph.
        candidates: Pairs that may be drawn; sets ``nodes``. Default: all pairs of ``nodes``.
        dtype: Dtype of the weights.
    """
    nodes = nodes if candidates is None else candidates.nodes
    num_candidates = num_nodes if nodes is None else nodes.numel()
    if num_candidates < 2:
        raise ValueError(f"expected at least 2 nodes, got {num_candidates}")
    _check_size(size)
    number = _sample(num_pairs(num_candidates), size, generator, candidates)
    flip = torch.zeros(number.numel(), dtype=dtype, device=number.device)
    return Block(number, pairs_among(number, num_nodes, nodes), flip, nodes, candidates)


def resample(block: Block, size: int, *, generator: torch.Generator) -> Block:
    """Replace the pairs of weight zero, and at least half of the block, by new random pairs.

    At most ``size // 2`` flipped pairs are kept, those of largest weight. A block of all pairs is returned as it is.

    Args:
        block: The block.
        size: Expected number of pairs of the new block.
        generator: Random generator on the block's device.
    """
    _check_size(size)
    total = num_pairs(block.num_nodes) if block.candidates is None else max(block.candidates.count, 1)
    if size >= total and block.number.numel() == total:
        return block
    kept = (block.flip > MIN_WEIGHT).nonzero().squeeze(1)
    if kept.numel() > size // 2 and size < total:
        kept = kept[block.flip[kept].topk(size // 2).indices.sort().values]
    number, flip = block.number[kept], block.flip[kept]
    # Some new pairs coincide with kept ones, so slightly more are drawn.
    num_new = size if size >= total else round((size - number.numel()) * total / (total - number.numel()))
    new = _sample(num_pairs(block.num_nodes), num_new, generator, block.candidates)
    merged, place = dispatch.merge(number, new)
    weights = torch.zeros_like(merged, dtype=flip.dtype).index_copy_(0, place, flip)
    return replace(block, number=merged, pairs=pairs_among(merged, block.pairs.num_nodes, block.nodes), flip=weights)


def sample_incident_pairs(
    nodes: Tensor, num_nodes: int, size: int, *, generator: torch.Generator, partners: Tensor | None = None
) -> Tensor:
    """Sample distinct pairs with at least one end in ``nodes``, each with the same probability.

    Args:
        nodes: Distinct node ids.
        num_nodes: Number of nodes of the graph.
        size: Expected number of pairs. If there are no more pairs than this, all of them are returned.
        generator: Random generator on the device of the pairs.
        partners: Distinct node ids that the other end must belong to, a superset of ``nodes``. Default: all nodes.

    Returns:
        The pairs in random order, smaller node id first, shape ``[2, pairs]``.
    """
    is_chosen = torch.zeros(num_nodes, dtype=torch.bool, device=nodes.device).index_fill_(0, nodes, True)
    num_partners = num_nodes if partners is None else partners.numel()
    number = sample_numbers(nodes.numel() * num_partners, 2 * size, generator)
    u, v = nodes[number // num_partners], number % num_partners
    v = v if partners is None else partners[v]
    # A pair with both ends in nodes has two numbers; only one of them counts.
    valid = (u != v) & ~(is_chosen[v] & (v < u))
    pairs = torch.stack([torch.minimum(u, v), torch.maximum(u, v)])[:, valid]
    return pairs[:, torch.randperm(pairs.size(1), generator=generator, device=pairs.device)]


def sample_numbers(total: int, size: int, generator: torch.Generator, *, batch: int | None = None) -> Tensor:
    """Sample from ``0, ..., total - 1``, each number independently with probability ``size / total``.

    The gaps between the sampled numbers are geometrically distributed, so the numbers come out sorted and distinct.

    Args:
        total: Number of candidates.
        size: Expected number of samples.
        generator: Random generator on the device of the samples.
        batch: Number of gaps drawn at once. Default: :func:`num_gaps`.

    Returns:
        The sampled numbers, ascending.
    """
    device = generator.device
    if size >= total:
        return torch.arange(total, device=device)
    if size < 1:
        return torch.empty(0, dtype=torch.long, device=device)
    count = num_gaps(size) if batch is None else batch
    batches: list[Tensor] = []
    last = -1
    # One batch suffices except with negligible probability.
    while True:
        numbers = sample_successes(
            count, math.log1p(-size / total), generator, single_precision=gaps_fit_float32(size, total)
        ).add_(last)
        num_inside = int((numbers < total).sum())
        batches.append(numbers[:num_inside])
        if num_inside < count:
            return torch.cat(batches) if len(batches) > 1 else batches[0]
        last = int(numbers[-1])


def sample_successes(
    count: int, log_failure: float | Tensor, generator: torch.Generator, *, single_precision: bool
) -> Tensor:
    """Sample the positions, counted from 1, of the first successes in a sequence of Bernoulli trials.

    Args:
        count: Number of successes.
        log_failure: Logarithm of the failure probability of a trial.
        generator: Random generator on the device of the positions.
        single_precision: Whether to draw in float32; see :func:`gaps_fit_float32`.
    """
    # A geometric variable is one plus an exponential one, rounded down.
    dtype = torch.float32 if single_precision else torch.float64
    uniform = torch.rand(count, device=generator.device, generator=generator, dtype=dtype)
    return uniform.neg_().log1p_().div_(log_failure).long().add_(1).cumsum(0)


def gaps_fit_float32(size: int, total: int) -> bool:
    """Whether gaps between ``size`` of ``total`` numbers are short enough for the 24 significant bits of float32."""
    return size / total > 1e-4


def num_gaps(size: int) -> int:
    """Return a number of gaps that covers all candidates, if ``size`` are sampled, except with probability below 1e-9."""
    return size + 8 * math.isqrt(size) + 64


def _sample(total: int, size: int, generator: torch.Generator, candidates: Candidates | None) -> Tensor:
    """Sample linear indices; only of candidates if given."""
    if candidates is None:
        return sample_numbers(total, size, generator)
    if candidates.numbers is not None:
        return candidates.numbers[sample_numbers(candidates.numbers.numel(), size, generator)]
    return candidates.filter(sample_numbers(total, round(size * candidates.oversampling), generator))


def _check_size(size: int) -> None:
    if size < 2:
        raise ValueError(f"expected a block size >= 2, got {size}")
