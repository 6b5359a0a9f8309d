"""Projected gradient ascent over a block of pairs: the loop that PGD, PR-BCD and LR-BCD share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from edgeproof.attacks.blocks import Block, resample, sample_block
from edgeproof.attacks.projections import discretize_all, project_global, project_local
from edgeproof.attacks.target import Target
from edgeproof.attacks.watch import Watch
from edgeproof.budget import Budget
from edgeproof.propagation.pairs import Pairs

Project = Callable[[Tensor, Pairs], Tensor]


@dataclass
class Best:
    """The block of lowest accuracy so far.

    Args:
        block: the block; none before anything was seen.
        accuracy: of its relaxed flips.
    """

    block: Block | None = None
    accuracy: float = float("inf")

    def keep(self, block: Block, accuracy: Tensor) -> None:
        """Remember this block if it is better than the one remembered."""
        found = float(accuracy)
        if found < self.accuracy:
            self.block, self.accuracy = block, found


def ascend(
    target: Target,
    block: Block,
    *,
    loss: str,
    steps: int,
    learning_rate: Callable[[int], float],
    project: Project,
    resample: Callable[[Block], Block] | None,
    watch: Watch,
    best: Best | None = None,
) -> Block:
    r"""Raise the loss by changing the weights of a block's pairs, :math:`p \leftarrow \Pi(p + \alpha_t \nabla_p L)`.

    Args:
        target: what is under attack.
        block: where to begin.
        loss: the loss to raise, by name.
        steps: how many steps to make.
        learning_rate: :math:`\alpha_t` of step :math:`t = 1, 2, \dots`
        project: :math:`\Pi`.
        resample: gives a block with other pairs, after every step but the last; none to keep the pairs.
        watch: takes note.
        best: is told every block with the accuracy of its relaxed flips.

    Returns:
        The last block.
    """
    engine = target.engine(loss)
    for step in range(1, steps + 1):
        gradient = engine(*block.flipped)
        if best is not None:
            best.keep(block, target.accuracy(gradient.logits))
        watch.step(gradient.loss)
        watch.lap("forward and backward")
        scores = gradient.at(block.pairs)
        watch.lap("scores")
        block = block.with_flip(project(torch.add(block.flip, scores, alpha=learning_rate(step)), block.pairs))
        watch.lap("projection")
        if resample is not None and step < steps:
            block = resample(block)
            watch.lap("resampling")
    if best is not None and steps:
        best.keep(block, target.accuracy(engine.logits(*block.flipped)))
    return block


def first_block(
    target: Target, budget: Budget, size: int, start: Tensor | None, *, generator: torch.Generator
) -> Block:
    """A random block to begin with; flips to start at are in it, with weight 1."""
    n, nodes, dtype = target.num_nodes, budget.usable, target.data.x.dtype
    if start is None or not start.numel():
        return sample_block(n, size, generator=generator, nodes=nodes, dtype=dtype)
    # Pairs are numbered among the nodes that may take part.
    among = start if nodes is None else torch.searchsorted(nodes, start)
    number = Pairs(among[0], among[1], n if nodes is None else nodes.numel()).number
    flipped = Block(number, Pairs(start[0], start[1], n), torch.ones_like(start[0], dtype=dtype), nodes)
    return resample(flipped, size, generator=generator)


def projection(budget: Budget) -> Project:
    """The projection that fits a budget: exact where only the total counts, greedy where nodes have budgets of their own."""
    if budget.local is None:
        return lambda p, _: project_global(p, budget.total)
    return lambda p, pairs: project_local(p, pairs, budget)


def choose(
    target: Target, block: Block, budget: Budget, *, loss: str, samples: int, generator: torch.Generator
) -> Tensor:
    """Whole flips from a block's relaxed ones: the best of the largest ones and of random draws, all within the budget.

    A draw takes each pair with its weight as probability; what does not fit is left out, smallest first.
    """
    pairs, p = block.flipped
    draws = p * (torch.rand(samples - 1, p.numel(), generator=generator, device=p.device) < p)
    chosen = discretize_all(torch.cat([p[None], draws]), pairs, budget)
    return target.worst([pairs[positions].both for positions in chosen], loss)
