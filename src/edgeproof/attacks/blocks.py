"""Random blocks of pairs: the part of the search space that an attack looks at in one step."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from edgeproof.kernels import dispatch
from edgeproof.propagation.pairs import Pairs, num_pairs

# Smaller weights are taken for zero, as in the paper's released scripts: they change nothing, and may be very many.
LEAST_WEIGHT = 1e-7


@dataclass(frozen=True, eq=False)
class Block:
    """Pairs and how far each of them is flipped.

    Args:
        number: the pairs' numbers, ascending, shape ``[b]``; among ``nodes`` where these are given.
        pairs: the pairs themselves.
        flip: between 0 and 1, shape ``[b]``.
        nodes: the nodes that pairs are drawn from, ascending; all of the graph's by default.
    """

    number: Tensor
    pairs: Pairs
    flip: Tensor
    nodes: Tensor | None = None

    @property
    def flipped(self) -> tuple[Pairs, Tensor]:
        """The pairs of non-zero weight, and these weights; the least ones are as good as zero."""
        chosen = (self.flip > LEAST_WEIGHT).nonzero().squeeze(1)
        return self.pairs[chosen], self.flip[chosen]

    @property
    def num_nodes(self) -> int:
        """How many nodes pairs are drawn from."""
        return self.pairs.num_nodes if self.nodes is None else self.nodes.numel()

    def with_flip(self, flip: Tensor) -> Block:
        """The same pairs with other weights."""
        return replace(self, flip=flip)


def sample_block(
    num_nodes: int,
    size: int,
    *,
    generator: torch.Generator,
    nodes: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> Block:
    """A block of about ``size`` pairs, all of weight 0; every pair is in it with the same probability, independently.

    The numbers come out sorted and distinct: the gaps between them are drawn, not the numbers.

    Args:
        num_nodes: nodes of the graph.
        size: expected number of pairs; all pairs if there are no more.
        generator: its device is the block's.
        nodes: draw pairs of these only, ascending; of all by default.
        dtype: of the weights.
    """
    among = num_nodes if nodes is None else nodes.numel()
    if among < 2:
        raise ValueError(f"expected at least 2 nodes, got {among}")
    if size < 2:
        raise ValueError(f"expected a block size >= 2, got {size}")
    number = _sample(num_pairs(among), size, generator)
    flip = torch.zeros(number.numel(), dtype=dtype, device=number.device)
    return Block(number, pairs_among(number, num_nodes, nodes), flip, nodes)


def resample(block: Block, size: int, *, generator: torch.Generator) -> Block:
    """Keep the flipped pairs, at most half of ``size``, largest first, and draw the others anew; all pairs if no more exist."""
    if size < 2:
        raise ValueError(f"expected a block size >= 2, got {size}")
    total = num_pairs(block.num_nodes)
    if size >= total and block.number.numel() == total:
        # Every pair is there already.
        return block
    kept = (block.flip > LEAST_WEIGHT).nonzero().squeeze(1)
    if kept.numel() > size // 2 and size < total:
        kept = kept[block.flip[kept].topk(size // 2).indices.sort().values]
    number, flip = block.number[kept], block.flip[kept]
    # Some of those drawn will be among the kept ones, so a few more are drawn.
    wanted = size if size >= total else round((size - number.numel()) * total / (total - number.numel()))
    fresh = _sample(total, wanted, generator)
    merged, place = dispatch.merge(number, fresh)
    weights = torch.zeros_like(merged, dtype=flip.dtype).index_copy_(0, place, flip)
    return Block(merged, pairs_among(merged, block.pairs.num_nodes, block.nodes), weights, block.nodes)


def sample_touching(
    nodes: Tensor, num_nodes: int, size: int, *, generator: torch.Generator, others: Tensor | None = None
) -> Tensor:
    """About ``size`` distinct pairs with at least one end among ``nodes``, each with the same probability.

    Args:
        nodes: distinct node ids.
        num_nodes: nodes of the graph.
        size: expected number of pairs; all of them if there are no more.
        generator: its device is the pairs'.
        others: distinct node ids that the other end must belong to, ``nodes`` among them; by default all.

    Returns:
        The pairs, shape ``[2, pairs]``, the smaller end first, in no order.
    """
    chosen = torch.zeros(num_nodes, dtype=torch.bool, device=nodes.device).index_fill_(0, nodes, True)
    # A number for every end among the nodes and every other node; where both ends are among them, one of the two counts.
    many = num_nodes if others is None else others.numel()
    number = _sample(nodes.numel() * many, 2 * size, generator)
    one, other = nodes[number // many], number % many
    other = other if others is None else others[other]
    good = (one != other) & ~(chosen[other] & (other < one))
    pairs = torch.stack([torch.minimum(one, other), torch.maximum(one, other)])[:, good]
    return pairs[:, torch.randperm(pairs.size(1), generator=generator, device=pairs.device)]


def pairs_among(number: Tensor, num_nodes: int, nodes: Tensor | None) -> Pairs:
    """The pairs of these numbers among some nodes of the graph, ascending; among all of them by default."""
    if nodes is None:
        return Pairs.from_number(number, num_nodes)
    among = Pairs.from_number(number, nodes.numel())
    return Pairs(nodes[among.u], nodes[among.v], num_nodes)


def _sample(total: int, size: int, generator: torch.Generator) -> Tensor:
    """About ``size`` of the numbers below ``total``, ascending, each with the same probability, independently."""
    device = generator.device
    if size >= total:
        return torch.arange(total, device=device)
    if size < 1:
        return torch.empty(0, dtype=torch.long, device=device)
    # If the first gaps do not reach the end, more follow.
    count = gaps(size)
    found: list[Tensor] = []
    last = -1
    while True:
        numbers = draw_numbers(count, math.log1p(-size / total), generator, coarse=is_coarse(size, total)).add_(last)
        inside = int((numbers < total).sum())
        found.append(numbers[:inside])
        if inside < count:
            return torch.cat(found) if len(found) > 1 else found[0]
        last = int(numbers[-1])


def draw_numbers(count: int, log_left_out: float | Tensor, generator: torch.Generator, *, coarse: bool) -> Tensor:
    """Where successes lie, counted from 1, of which each number is one with the same probability, independently.

    Args:
        count: how many successes.
        log_left_out: the logarithm of the probability that a number is none.
        generator: its device is theirs.
        coarse: whether single precision suffices.
    """
    # A gap between successes is geometric: one more than an exponential time, rounded down.
    dtype = torch.float32 if coarse else torch.float64
    time = torch.rand(count, device=generator.device, generator=generator, dtype=dtype).neg_().log1p_()
    return time.div_(log_left_out).long().add_(1).cumsum(0)


def is_coarse(size: int, total: int) -> bool:
    """Whether gaps between so many numbers of all are short: single precision has 24 bits, too few for very long ones."""
    return size / total > 1e-4


def gaps(size: int) -> int:
    """How many gaps between numbers reach the end, if so many numbers are expected, but for one chance in many billions."""
    return size + 8 * math.isqrt(size) + 64
