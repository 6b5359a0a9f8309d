"""Projected gradient ascent over a block of pairs: the loop that PGD, PR-BCD and LR-BCD share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgeproof.attacks.blocks import Block, resample, sample_block
from edgeproof.attacks.projections import discretize_all, project_global, project_local
from edgeproof.attacks.recordings import recording_of
from edgeproof.attacks.steps import Steps
from edgeproof.attacks.target import Target
from edgeproof.attacks.trace import AttackTrace
from edgeproof.budget import Budget
from edgeproof.propagation.pairs import Pairs


@dataclass
class Best:
    """The block of lowest accuracy so far.

    Args:
        block: the block; none before anything was seen.
        accuracy: of its relaxed flips.
    """

    block: Block | None = None
    accuracy: float = float("inf")

    def keep(self, block: Block, accuracy: Tensor | float) -> None:
        """Remember this block if it is better than the one remembered."""
        found = float(accuracy)
        if found < self.accuracy:
            self.block, self.accuracy = block, found


def ascend(
    target: Target,
    block: Block,
    budget: Budget,
    steps: Steps,
    *,
    generator: torch.Generator,
    trace: AttackTrace,
    best: Best | None = None,
) -> Block:
    """Raise the loss by changing the weights of a block's pairs.

    On a GPU, steps on a small graph are recorded once and replayed (:mod:`~edgeproof.attacks.recordings`).

    Args:
        target: what is under attack.
        block: where to begin.
        budget: what the weights must keep to.
        steps: what to do.
        generator: to draw pairs with.
        trace: takes note.
        best: is told every block with the accuracy of its relaxed flips.

    Returns:
        The last block; perhaps only those of its pairs that are flipped, if steps do not keep it.
    """
    found: Block | None = None
    before, random = trace.num_steps, generator.get_state()
    recording = recording_of(target, block, steps, keep_best=best is not None)
    while recording is not None and found is None:
        # Whatever was tried before, the outcome is that of the seed.
        trace.go_back(before)
        generator.set_state(random)
        outcome = recording.run(target, block, budget, steps, generator=generator, trace=trace)
        found = outcome.block
        if best is not None and outcome.best is not None:
            best.keep(*outcome.best)
        if not outcome.again:
            break
    if found is None:
        trace.go_back(before)
        generator.set_state(random)
        found = _one_by_one(target, block, budget, steps, generator, trace, best)
    if best is not None and steps.count:
        best.keep(found, target.accuracy(target.engine(steps.loss).logits(*found.flipped)))
    return found


def _one_by_one(
    target: Target,
    block: Block,
    budget: Budget,
    steps: Steps,
    generator: torch.Generator,
    trace: AttackTrace,
    best: Best | None,
) -> Block:
    engine = target.engine(steps.loss)
    for step in range(1, steps.count + 1):
        gradient = engine(*block.flipped)
        if best is not None:
            best.keep(block, target.accuracy(gradient.logits))
        trace.step(gradient.loss)
        trace.phase("forward and backward")
        moved = torch.add(block.flip, gradient.at(block.pairs), alpha=steps.learning_rate(step))
        # Its memory is needed for the next one.
        del gradient
        trace.phase("scores")
        flip = project_local(moved, block.pairs, budget) if steps.greedy else project_global(moved, budget.total)
        block = block.with_flip(flip)
        trace.phase("projection")
        if steps.size is not None and step < steps.count:
            block = resample(block, steps.size, generator=generator)
            trace.phase("resampling")
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


def choose(
    target: Target, block: Block, budget: Budget, *, loss: str, samples: int, generator: torch.Generator
) -> Tensor:
    """Whole flips from a block's relaxed ones: the best of the largest ones and of random draws, all within the budget.

    A draw takes each pair with its weight as probability; what does not fit is left out, smallest first.
    """
    pairs, p = block.flipped
    draws = p * (torch.rand(samples - 1, p.numel(), generator=generator, device=p.device) < p)
    chosen = discretize_all(torch.cat([p[None], draws]), pairs, budget)
    flips = pairs.both[:, torch.cat(chosen)].split([positions.numel() for positions in chosen], dim=1)
    return target.worst(flips, loss)
