"""FGSM: one flip at a time, each the best of all pairs by the gradient on the graph as it then is."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgeproof.attacks.base import Attack, check_settings
from edgeproof.attacks.greedy import GreedyState
from edgeproof.attacks.target import Target
from edgeproof.attacks.trace import AttackTrace
from edgeproof.budget import Budget


@dataclass(frozen=True, kw_only=True)
class FGSM(Attack):
    """Flip the pair of largest gradient, over all pairs, until the budget is used up or no gradient is positive.

    The search over all pairs is exact (:meth:`EdgeGradient.top <edgeproof.propagation.EdgeGradient.top>`); nothing is random.
    The flips of lowest accuracy on the way are the result.

    Args:
        loss: the loss to raise, by name; see :mod:`edgeproof.losses`.

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> result = FGSM()(models.build("GCN", 21, 2, seed=0), data, nodes, Budget(5))
    >>> result.flips.size(1) <= 5, result.accuracy <= result.clean_accuracy
    (True, True)
    """

    loss: str = "tanh_margin"

    def __post_init__(self) -> None:
        check_settings(whole={}, numbers={}, loss=self.loss)

    def num_steps(self, budget: Budget) -> int:
        return budget.total

    def run(self, target: Target, budget: Budget, *, generator: torch.Generator, trace: AttackTrace) -> Tensor:
        path = GreedyState(target, self.loss, trace)
        while True:
            left = budget.after(path.flips)
            nodes = left.usable
            if not left.total or (nodes is not None and nodes.numel() < 2):
                return path.end()
            gradient = path.gradient()
            best = gradient.top(1, among=nodes, exclude=path.flips)
            trace.phase("search")
            if not bool((best.scores > 0).any()):
                return path.end()
            path.add(best.pairs)
