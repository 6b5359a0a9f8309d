"""Greedy R-BCD: whole flips, a few per random block (Geisler et al., 2021)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from edgeproof.attacks.base import Attack, check_settings
from edgeproof.attacks.blocks import sample_block
from edgeproof.attacks.greedy import GreedyState
from edgeproof.attacks.projections import discretize
from edgeproof.attacks.target import Target
from edgeproof.attacks.trace import AttackTrace
from edgeproof.budget import Budget
from edgeproof.propagation.pairs import Pairs, contained


@dataclass(frozen=True, kw_only=True)
class GreedyRBCD(Attack):
    """Spend the budget in equal parts, each on the pairs of largest gradient in a new random block.

    The flips of lowest accuracy on the way are the result.

    Args:
        steps: parts of the budget; fewer where the budget is smaller.
        block_size: pairs looked at in a step.
        loss: the loss to raise, by name; see :mod:`edgeproof.losses`.

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
        check_settings(whole={"steps": (self.steps, 1), "block_size": (self.block_size, 2)}, numbers={}, loss=self.loss)

    def for_training(self) -> GreedyRBCD:
        """20 steps on blocks of a million pairs."""
        return replace(self, steps=20, block_size=1_000_000)

    def num_steps(self, budget: Budget) -> int:
        return min(self.steps, budget.total)

    def run(self, target: Target, budget: Budget, *, generator: torch.Generator, trace: AttackTrace) -> Tensor:
        path = GreedyState(target, self.loss, trace)
        steps = self.num_steps(budget)
        for step in range(steps):
            left = budget.after(path.flips)
            nodes = left.usable
            if not left.total or (nodes is not None and nodes.numel() < 2):
                break
            gradient = path.gradient()
            block = sample_block(target.num_nodes, self.block_size, generator=generator, nodes=nodes)
            pairs = block.pairs
            if path.flips.numel():
                pairs = pairs[~contained(pairs.key, Pairs.of(path.flips, target.num_nodes).key)]
            part = Budget(math.ceil(left.total / (steps - step)), left.local)
            path.add(pairs[discretize(gradient.at(pairs), pairs, part)].both)
            trace.phase("scores and choice")
        return path.end()
