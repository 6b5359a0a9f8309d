"""GR-BCD: discrete flips, a few per random block (Geisler et al., 2021)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from edgeproof import losses
from edgeproof._checks import check_int
from edgeproof.attacks.base import Attack, AttackTrace, Target
from edgeproof.attacks.blocks import sample_block
from edgeproof.attacks.candidates import Candidates
from edgeproof.attacks.greedy import GreedyState
from edgeproof.attacks.projections import discretize
from edgeproof.budget import Budget
from edgeproof.propagation.pairs import Pairs, contained


@dataclass(frozen=True, kw_only=True)
class GreedyRBCD(Attack):
    """Spend an equal part of the budget per step, on the pairs of largest gradient in a new random block.

    The result is the sequence of flips up to the point of lowest accuracy.

    Args:
        steps: Maximum number of steps; at most one per flip of the budget.
        block_size: Number of pairs per block.
        loss: Name of the loss to maximize; see :mod:`edgeproof.losses`.

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> attack = GreedyRBCD(steps=5, block_size=10_000)
    >>> result = attack(models.build("GCN", 21, 2, seed=0), data, nodes, Budget(20))
    >>> result.flips.size(1) <= 20, result.accuracy <= result.clean_accuracy
    (True, True)
    """

    steps: int = 400
    block_size: int = 500_000
    loss: str = "tanh_margin"

    def __post_init__(self) -> None:
        check_int(1, steps=self.steps)
        check_int(2, block_size=self.block_size)
        losses.get(self.loss)

    def for_training(self) -> GreedyRBCD:
        """Return the attack with 20 steps on blocks of a million pairs."""
        return replace(self, steps=20, block_size=1_000_000)

    def num_steps(self, budget: Budget) -> int:
        return min(self.steps, budget.total)

    def run(self, target: Target, budget: Budget, *, generator: torch.Generator, trace: AttackTrace) -> Tensor:
        state = GreedyState(target, self.loss, trace)
        num_steps = self.num_steps(budget)
        for step in range(num_steps):
            if not state.can_flip(budget):
                break
            left = budget.after(state.flips)
            gradient = state.gradient()
            pairs = sample_block(
                target.num_nodes,
                self.block_size,
                generator=generator,
                nodes=left.usable,
                candidates=None if left.permitted is None else Candidates(left, target.num_nodes),
            ).pairs
            if state.flips.numel():
                pairs = pairs[~contained(pairs.key, Pairs.of(state.flips, target.num_nodes).key)]
            part = replace(left, total=_share(left, num_steps - step, pairs))
            state.add(pairs[discretize(gradient.at(pairs), pairs, part)].both)
            trace.phase("scores and choice")
        return state.best_flips()


def _share(left: Budget, num_steps: int, pairs: Pairs) -> int:
    """Return an equal share of the remaining budget, but enough for the cheapest pair."""
    share = math.ceil(left.total / num_steps)
    if left.permitted is None or not len(pairs):
        return share
    return max(share, min(left.total, int(left.cost(pairs.both).min())))
