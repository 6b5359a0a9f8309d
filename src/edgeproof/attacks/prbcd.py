"""PR-BCD: projected randomized block coordinate descent (Geisler et al., 2021)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from edgeproof.attacks.ascent import Best, ascend, choose, first_block
from edgeproof.attacks.base import WarmStarting, check_settings
from edgeproof.attacks.steps import Steps
from edgeproof.attacks.target import Target, num_usable_pairs
from edgeproof.attacks.trace import AttackTrace
from edgeproof.budget import Budget
from edgeproof.propagation.pairs import num_pairs


@dataclass(frozen=True, kw_only=True)
class PRBCD(WarmStarting):
    r"""Projected gradient ascent on a random block of pairs that is partly drawn anew after every step.

    The learning rate is scaled to the problem,
    :math:`\alpha = \mathrm{lr} \cdot \max(\log_2(\#\mathrm{pairs} / b), 1) \cdot \Delta / 2n`. After ``steps`` steps the best
    block seen is taken up again and improved for ``fine_tune_steps`` steps with :math:`\alpha / \sqrt t` and a fixed block.
    With local budgets, LR-BCD's projection takes the place of the Euclidean one.

    Args:
        steps: with resampling.
        fine_tune_steps: without.
        block_size: pairs looked at in a step.
        lr: base of the learning rate.
        samples: sets of whole flips tried at the end: the largest ones, and random draws.
        keep_best: go back to the best block seen; otherwise go on from the last one.
        loss: the loss to raise, by name; see :mod:`edgeproof.losses`.

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> attack = PRBCD(steps=10, fine_tune_steps=5, block_size=10_000)
    >>> result = attack(models.build("GCN", 21, 2, seed=0), data, nodes, Budget(20))
    >>> result.flips.size(1) <= 20, result.accuracy <= result.clean_accuracy
    (True, True)
    """

    steps: int = 400
    fine_tune_steps: int = 100
    block_size: int = 500_000
    lr: float = 100.0
    samples: int = 20
    keep_best: bool = True
    loss: str = "tanh_margin"

    def __post_init__(self) -> None:
        check_settings(
            whole={
                "steps": (self.steps, 1),
                "fine_tune_steps": (self.fine_tune_steps, 0),
                "block_size": (self.block_size, 2),
                "samples": (self.samples, 1),
            },
            numbers={"lr": self.lr},
            loss=self.loss,
        )

    def for_training(self) -> PRBCD:
        """20 steps on blocks of a million pairs, and no going back."""
        return replace(self, steps=20, fine_tune_steps=0, block_size=1_000_000, keep_best=False)

    def check(self, target: Target, budget: Budget) -> None:
        check_block_size(self.block_size, target, budget)

    def num_steps(self, budget: Budget) -> int:
        return self.steps + self.fine_tune_steps

    def run(
        self,
        target: Target,
        budget: Budget,
        *,
        generator: torch.Generator,
        trace: AttackTrace,
        start: Tensor | None = None,
    ) -> Tensor:
        n, pairs = target.num_nodes, num_pairs(target.num_nodes)
        lr = self.lr * max(math.log2(pairs / self.block_size), 1.0) * budget.total / (2 * n)
        block = first_block(target, budget, self.block_size, start, generator=generator)
        best = Best() if self.keep_best else None

        steps = Steps(
            self.steps,
            self.loss,
            lambda step: lr,
            greedy=budget.local is not None,
            size=self.block_size,
            keep_block=self.fine_tune_steps > 0,
        )
        block = ascend(target, block, budget, steps, generator=generator, trace=trace, best=best)
        if best is not None and best.block is not None:
            block = best.block
        if self.fine_tune_steps:
            steps = replace(
                steps, count=self.fine_tune_steps, learning_rate=lambda step: lr / math.sqrt(step), size=None
            )
            block = ascend(target, block, budget, steps, generator=generator, trace=trace, best=best)
        if best is not None and best.block is not None:
            block = best.block
        flips = choose(target, block, budget, loss=self.loss, samples=self.samples, generator=generator)
        trace.phase("choice")
        return flips


def check_block_size(block_size: int, target: Target, budget: Budget) -> None:
    """Raise unless a block has room for what the budget allows, twice: half of it is drawn anew."""
    most = min(budget.total, num_usable_pairs(target.num_nodes, budget))
    if block_size < num_usable_pairs(target.num_nodes, budget) and block_size < 2 * most:
        raise ValueError(f"expected block_size >= twice the budget of {budget.total} flips, got {block_size}")
