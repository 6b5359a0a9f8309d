"""FGSM: exact greedy flips, one at a time, by the gradient over all pairs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgeproof import losses
from edgeproof.attacks.base import Attack, AttackTrace, Target
from edgeproof.attacks.candidates import top_candidates
from edgeproof.attacks.greedy import GreedyState
from edgeproof.budget import Budget


@dataclass(frozen=True, kw_only=True)
class FGSM(Attack):
    """Repeatedly flip the pair of largest gradient (per cost) until the budget is spent or no gradient is positive.

    The search over all pairs is exact (:meth:`EdgeGradient.top <edgeproof.propagation.EdgeGradient.top>`) and deterministic.
    The result is the sequence of flips up to the point of lowest accuracy.

    Args:
        loss: Name of the loss to maximize; see :mod:`edgeproof.losses`.

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> result = FGSM()(models.build("GCN", 21, 2, seed=0), data, nodes, Budget(5))
    >>> result.flips.size(1) <= 5, result.accuracy <= result.clean_accuracy
    (True, True)
    """

    loss: str = "tanh_margin"

    def __post_init__(self) -> None:
        losses.get(self.loss)

    def num_steps(self, budget: Budget) -> int:
        return budget.total

    def run(self, target: Target, budget: Budget, *, generator: torch.Generator, trace: AttackTrace) -> Tensor:
        state = GreedyState(target, self.loss, trace)
        while state.can_flip(budget):
            gradient = state.gradient()
            best = top_candidates(gradient, 1, budget.after(state.flips), exclude=state.flips)
            trace.phase("search")
            if not bool((best.scores > 0).any()):
                break
            state.add(best.pairs)
        return state.best_flips()
