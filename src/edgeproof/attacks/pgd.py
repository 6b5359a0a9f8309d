"""PGD over all pairs of nodes (Xu et al., 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from edgeproof.attacks.ascent import ascend, choose, first_block
from edgeproof.attacks.base import WarmStarting, check_settings
from edgeproof.attacks.steps import Steps
from edgeproof.attacks.target import Target, num_usable_pairs
from edgeproof.attacks.trace import AttackTrace
from edgeproof.budget import Budget

# A weight, a score and two ends of each: a few gigabytes.
_MOST_PAIRS = 1 << 27


@dataclass(frozen=True, kw_only=True)
class PGD(WarmStarting):
    r"""Projected gradient ascent on the weights of all pairs at once.

    The learning rate of step :math:`t` is :math:`\alpha_t = \mathrm{lr} \cdot \Delta / \sqrt t`. Memory
    grows with the number of pairs; on graphs of many thousand nodes :class:`~edgeproof.attacks.PRBCD` looks at a block of them
    at a time.

    Args:
        steps: how many.
        lr: base of the learning rate.
        samples: sets of whole flips tried at the end: the largest ones, and random draws.
        loss: the loss to raise, by name; see :mod:`edgeproof.losses`.

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.csbm("homophilous", num_nodes=100, p=0.1, q=0.05), torch.arange(50)
    >>> result = PGD(steps=10)(models.build("GCN", 21, 2, seed=0), data, nodes, Budget(20))
    >>> result.flips.size(1) <= 20, result.accuracy <= result.clean_accuracy
    (True, True)
    """

    steps: int = 400
    lr: float = 0.1
    samples: int = 20
    loss: str = "tanh_margin"

    def __post_init__(self) -> None:
        whole = {"steps": (self.steps, 1), "samples": (self.samples, 1)}
        check_settings(whole=whole, numbers={"lr": self.lr}, loss=self.loss)

    def for_training(self) -> PGD:
        """10 steps."""
        return replace(self, steps=10)

    def check(self, target: Target, budget: Budget) -> None:
        pairs = num_usable_pairs(target.num_nodes, budget)
        if pairs > _MOST_PAIRS:
            raise ValueError(
                f"expected a graph with at most {_MOST_PAIRS:,} pairs of nodes, for PGD holds a weight for each, got "
                f"{pairs:,}: use PRBCD or LRBCD"
            )

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
        pairs = num_usable_pairs(target.num_nodes, budget)
        block = first_block(target, budget, max(pairs, 2), start, generator=generator)
        rate = self.lr * budget.total
        steps = Steps(self.steps, self.loss, lambda step: rate / math.sqrt(step), greedy=budget.local is not None)
        block = ascend(target, block, budget, steps, generator=generator, trace=trace)
        flips = choose(target, block, budget, loss=self.loss, samples=self.samples, generator=generator)
        trace.phase("choice")
        return flips
