"""Random blocks of pairs: the part of the search space that an attack looks at in one step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from edgeproof.propagation.kernels import dispatch
from edgeproof.propagation.pairs import Pairs, num_pairs


@dataclass(frozen=True, eq=False)
class Block:
    """Pairs and how far each of them is flipped.

    Args:
        number: the pairs' numbers, ascending, shape ``[b]``.
        pairs: the pairs themselves.
        flip: between 0 and 1, shape ``[b]``.
    """

    number: Tensor
    pairs: Pairs
    flip: Tensor

    @property
    def flipped(self) -> tuple[Pairs, Tensor]:
        """The pairs of non-zero weight, and these weights."""
        chosen = self.flip.nonzero().squeeze(1)
        return self.pairs[chosen], self.flip[chosen]


def sample_block(num_nodes: int, size: int, *, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Block:
    """A block of about ``size`` pairs, all of weight 0; every pair is in it with the same probability, independently.

    The numbers come out sorted and distinct: the gaps between them are drawn, not the numbers.

    Args:
        num_nodes: nodes of the graph.
        size: expected number of pairs; all pairs if there are no more.
        generator: its device is the block's.
        dtype: of the weights.
    """
    if num_nodes < 2:
        raise ValueError(f"expected at least 2 nodes, got {num_nodes}")
    if size < 2:
        raise ValueError(f"expected a block size >= 2, got {size}")
    number = _sample(num_pairs(num_nodes), size, generator)
    flip = torch.zeros(number.numel(), dtype=dtype, device=number.device)
    return Block(number, Pairs.from_number(number, num_nodes), flip)


def resample(block: Block, size: int, *, generator: torch.Generator) -> Block:
    """Keep the flipped pairs, at most half of ``size``, largest first, and draw the others anew; all pairs if no more exist."""
    if size < 2:
        raise ValueError(f"expected a block size >= 2, got {size}")
    kept = block.flip.nonzero().squeeze(1)
    total = num_pairs(block.pairs.num_nodes)
    if kept.numel() > size // 2 and size < total:
        kept = kept[block.flip[kept].topk(size // 2).indices.sort().values]
    number, flip = block.number[kept], block.flip[kept]
    num_nodes = block.pairs.num_nodes
    # Some of those drawn will be among the kept ones, so a few more are drawn.
    wanted = size if size >= total else round((size - number.numel()) * total / (total - number.numel()))
    fresh = _sample(total, wanted, generator)
    merged, place = dispatch.merge(number, fresh)
    weights = torch.zeros_like(merged, dtype=flip.dtype).index_copy_(0, place, flip)
    return Block(merged, Pairs.from_number(merged, num_nodes), weights)


def _sample(total: int, size: int, generator: torch.Generator) -> Tensor:
    """About ``size`` of the numbers below ``total``, ascending, each with the same probability, independently."""
    device = generator.device
    if size >= total:
        return torch.arange(total, device=device)
    if size < 1:
        return torch.empty(0, dtype=torch.long, device=device)
    share = size / total
    # Single precision has 24 bits, too few for gaps of very many pairs.
    dtype = torch.float32 if share > 1e-4 else torch.float64
    # Enough gaps to pass the end but for one chance in many billions; if not, more follow.
    count = _gaps(size)
    found: list[Tensor] = []
    last = -1
    while True:
        # A gap between successes is geometric: one more than an exponential time, rounded down.
        time = torch.rand(count, device=device, generator=generator, dtype=dtype).neg_().log1p_()
        numbers = time.div_(math.log1p(-share)).long().add_(1).cumsum(0).add_(last)
        inside = int((numbers < total).sum())
        found.append(numbers[:inside])
        if inside < count:
            return torch.cat(found) if len(found) > 1 else found[0]
        last = int(numbers[-1])


def _gaps(size: int) -> int:
    return size + 8 * math.isqrt(size) + 64
