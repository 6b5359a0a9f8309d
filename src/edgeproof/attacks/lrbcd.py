"""LR-BCD: locally constrained randomized block coordinate descent, the paper's attack (section 4, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from edgeproof.attacks.ascent import ascend, choose, first_block
from edgeproof.attacks.base import WarmStarting, check_settings
from edgeproof.attacks.prbcd import check_block_size
from edgeproof.attacks.steps import Steps
from edgeproof.attacks.target import Target
from edgeproof.attacks.trace import AttackTrace
from edgeproof.budget import Budget


@dataclass(frozen=True, kw_only=True)
class LRBCD(WarmStarting):
    r"""Gradient ascent on a random block of pairs, with the greedy projection of Algorithm 1 onto local and global budgets.

    The projection is :func:`~edgeproof.attacks.project_local`. Without local budgets only the total bounds it.

    Args:
        steps: with resampling after each.
        block_size: pairs looked at in a step.
        lr: learning rate, not scaled. The paper's, 100, is for local budgets; without them an attack with 3 is far stronger
            (``edgeproof reproduce fig14``).
        samples: sets of whole flips tried at the end: the largest ones, and random draws.
        loss: the loss to raise, by name; see :mod:`edgeproof.losses`.

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> budget = Budget.from_epsilon(data, nodes, 0.25, local=0.5)
    >>> result = LRBCD(steps=10, block_size=10_000)(models.build("GCN", 21, 2, seed=0), data, nodes, budget)
    >>> result.flips.size(1) <= budget.total, result.accuracy <= result.clean_accuracy
    (True, True)
    """

    steps: int = 400
    block_size: int = 500_000
    lr: float = 100.0
    samples: int = 20
    loss: str = "tanh_margin"

    def __post_init__(self) -> None:
        check_settings(
            whole={
                "steps": (self.steps, 1),
                "block_size": (self.block_size, 2),
                "samples": (self.samples, 1),
            },
            numbers={"lr": self.lr},
            loss=self.loss,
        )

    def for_training(self) -> LRBCD:
        """20 larger steps on blocks of a million pairs."""
        return replace(self, steps=20, block_size=1_000_000, lr=2000.0)

    def check(self, target: Target, budget: Budget) -> None:
        check_block_size(self.block_size, target, budget)

    def num_steps(self, budget: Budget) -> int:
        return self.steps

    def run(
        self,
        target: Target,
        budget: Budget,
        *,
        generator: torch.Generator,
        trace: AttackTrace,
        start: Tensor | None = None,
    ) -> Tensor:
        block = first_block(target, budget, self.block_size, start, generator=generator)
        steps = Steps(self.steps, self.loss, lambda step: self.lr, greedy=True, size=self.block_size)
        block = ascend(target, block, budget, steps, generator=generator, trace=trace)
        flips = choose(target, block, budget, loss=self.loss, samples=self.samples, generator=generator)
        trace.phase("choice")
        return flips
