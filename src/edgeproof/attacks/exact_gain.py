"""ExactGain: greedy flips by their exact effect on the accuracy."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgeproof._checks import check_int
from edgeproof.attacks.base import Attack, AttackTrace, Target
from edgeproof.attacks.exact_state import ExactState
from edgeproof.budget import Budget


@dataclass(frozen=True, kw_only=True)
class ExactGain(Attack):
    r"""Repeatedly make the flip that misclassifies most target nodes; the rise of the log margin decides between equals.

    Gains are exact, not predicted by gradients: a flip changes the logits of few nodes, or all logits by few numbers, and
    :func:`~edgeproof.propagation.incremental.incremental_evaluator` computes just these. Gradients only choose the candidates:
    those of largest gradient at each target node, and of all pairs, chosen anew after every ``refresh`` flips. In between,
    the gains at nodes that a flip has affected are computed again at once, and the others before they are used.

    The log margin as a criterion for spending a budget where nodes are easy to misclassify has forerunners in PGA
    (`arXiv:2308.07834 <https://arxiv.org/abs/2308.07834>`_) and CA-attack
    (`arXiv:2312.07158 <https://arxiv.org/abs/2312.07158>`_).

    Args:
        candidates: Number of candidates, roughly.
        refresh: Number of flips after which candidates are chosen anew.
        batch: Number of candidates whose gains are computed again at once.

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> result = ExactGain(candidates=500)(models.build("GCN", 21, 2, seed=0), data, nodes, Budget(5))
    >>> result.flips.size(1) <= 5, result.accuracy < result.clean_accuracy, result.queries > 500
    (True, True, True)
    """

    candidates: int = 20_000
    refresh: int = 10
    batch: int = 256

    def __post_init__(self) -> None:
        check_int(1, candidates=self.candidates, refresh=self.refresh, batch=self.batch)

    def num_steps(self, budget: Budget) -> int:
        return budget.total

    def run(self, target: Target, budget: Budget, *, generator: torch.Generator, trace: AttackTrace) -> Tensor:
        state = ExactState(target, budget, generator=generator, trace=trace, num_candidates=self.candidates)
        self.extend(state)
        return state.flips

    def extend(self, state: ExactState) -> None:
        """Add flips until the budget is spent or no candidate has a positive gain."""
        since_refresh = self.refresh
        while state.left.allows_flips:
            if since_refresh == self.refresh:
                state.refresh(state.left)
                since_refresh = 0
            found = state.best(self.batch)
            if found is None or found[1] <= 0:
                # Other candidates may still gain; none if these were chosen for the current flips.
                if since_refresh == 0:
                    return
                since_refresh = self.refresh
                continue
            state.apply(found[0])
            state.trace.step(torch.tensor(state.num_correct / state.target.nodes.numel()))
            since_refresh += 1
