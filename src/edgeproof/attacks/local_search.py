"""Local search: replace flips by better ones while the attack improves."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from edgeproof import losses
from edgeproof._checks import check_int
from edgeproof.attacks.base import Attack, AttackTrace, FlipScore, Needs, Refining, Target
from edgeproof.attacks.candidates import top_candidates
from edgeproof.attacks.dice import random_pairs
from edgeproof.attacks.fgsm import FGSM
from edgeproof.budget import Budget
from edgeproof.propagation.pairs import Pairs, contained

# Number of flips of smallest gradient that are also removed two at a time.
_REMOVED_IN_PAIRS = 3
# Beam width when two flips are added together.
_BEAM_WIDTH = 4

_STRONGEST = FGSM(loss="log_margin")


@dataclass(frozen=True, kw_only=True)
class LocalSearch(Refining):
    """Improve the flips of another attack: remove the flip of smallest gradient and try the most promising replacements.

    On a model without edge gradients, flips and replacements are tried in random order.

    A swap is made only if it lowers the accuracy of the discrete graph, or keeps the accuracy and raises the loss. If
    replacing none of ``patience`` flips helps, two are replaced together. The search ends if that does not help either, or
    after ``swaps`` swaps.

    Args:
        start: Attack that provides the initial flips.
        candidates: Number of replacements tried per removed flip.
        patience: Number of flips whose replacement is tried before two are replaced together.
        swaps: Maximum number of swaps.
        loss: Name of the loss to maximize; see :mod:`edgeproof.losses`.

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> model, budget = models.build("GCN", 21, 2, seed=0), Budget(5)
    >>> LocalSearch(patience=2)(model, data, nodes, budget).accuracy <= _STRONGEST(model, data, nodes, budget).accuracy
    True
    """

    start: Attack = _STRONGEST
    candidates: int = 32
    patience: int = 12
    swaps: int = 100
    loss: str = "log_margin"

    def __post_init__(self) -> None:
        if not isinstance(self.start, Attack):
            raise TypeError(f"expected start to be an attack, got {self.start!r}")
        check_int(1, candidates=self.candidates, patience=self.patience, swaps=self.swaps)
        losses.get(self.loss)

    @property
    def own_steps(self) -> int:
        return self.swaps

    @property
    def needs(self) -> Needs:
        return self.start.needs

    def run(self, target: Target, budget: Budget, *, generator: torch.Generator, trace: AttackTrace) -> Tensor:
        flips = self.start.run(target, budget, generator=generator, trace=trace)
        (score,) = target.score([flips], self.loss)
        for _ in range(self.swaps):
            improved = self._improve(target, budget, flips, score, trace, generator)
            trace.phase("swap")
            if improved is None:
                break
            flips, score = improved
        return flips

    def _improve(
        self,
        target: Target,
        budget: Budget,
        flips: Tensor,
        score: FlipScore,
        trace: AttackTrace,
        generator: torch.Generator,
    ) -> tuple[Tensor, FlipScore] | None:
        """Return flips with a lower score that differ in one or two pairs; None if the search finds no such flips."""
        if target.tier == "black_box":
            trace.step(torch.tensor(-score[1]))
            order = torch.randperm(flips.size(1), generator=generator, device=target.device).tolist()
        else:
            gradient = target.engine(self.loss)(flips, target.ones(flips.size(1)))
            trace.step(gradient.loss)
            order = gradient.at(flips).argsort().tolist()
        removals: list[tuple[int, ...]] = [(position,) for position in order[: self.patience]]
        if budget.after(flips).total > 0:
            # As long as budget is left, a flip can be added without removing another.
            removals.insert(0, ())
        removals += combinations(order[:_REMOVED_IN_PAIRS], 2)
        for removed in removals:
            kept = [position for position in range(flips.size(1)) if position not in removed]
            candidate, candidate_score = self._refill(target, budget, flips[:, kept], max(1, len(removed)), generator)
            if candidate_score < score:
                return candidate, candidate_score
        return None

    def _refill(
        self, target: Target, budget: Budget, kept: Tensor, num_added: int, generator: torch.Generator
    ) -> tuple[Tensor, FlipScore]:
        """Return the best of the kept flips alone and with up to ``num_added`` more, by beam search."""
        beam, candidates = [kept], [kept]
        scores = target.score(candidates, self.loss)
        for _ in range(num_added):
            extended = [candidate for flips in beam for candidate in self._additions(target, budget, flips, generator)]
            extended_scores = target.score(extended, self.loss)
            order = sorted(range(len(extended)), key=extended_scores.__getitem__)
            beam = [extended[i] for i in order[:_BEAM_WIDTH]]
            candidates, scores = candidates + extended, scores + extended_scores
        best = min(scores)
        return candidates[scores.index(best)], best

    def _additions(self, target: Target, budget: Budget, flips: Tensor, generator: torch.Generator) -> list[Tensor]:
        """Return the flips extended by each of the pairs of largest gradient; without gradients, by random pairs."""
        left = budget.after(flips)
        if not left.allows_flips:
            return []
        if target.tier == "black_box":
            pairs = random_pairs(target, left, generator)
            known = contained(Pairs(pairs[0], pairs[1], target.num_nodes).key, Pairs.of(flips, target.num_nodes).key)
            pairs = pairs[:, left.permits(pairs) & ~known][:, : self.candidates]
        else:
            gradient = target.engine(self.loss)(flips, target.ones(flips.size(1)))
            pairs = top_candidates(gradient, self.candidates, left, exclude=flips).pairs
        return [torch.cat([flips, pair[:, None]], dim=1) for pair in pairs.T]
