"""Local search: swap one flip for another while the model errs more for it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from edgeproof.attacks.base import Attack, check_settings
from edgeproof.attacks.fgsm import FGSM
from edgeproof.attacks.target import Badness, Target
from edgeproof.attacks.trace import AttackTrace
from edgeproof.budget import Budget

# Of so many flips that matter least, two at a time are given up where giving up one did not help.
_IN_PAIRS = 3
# Ways followed when two flips are sought together.
_BEAM = 4

_STRONGEST = FGSM(loss="log_margin")


@dataclass(frozen=True, kw_only=True)
class LocalSearch(Attack):
    """Begin with what another attack found; give up the flip that matters least, and try the most promising others instead.

    Gradients say which flips these are; a swap is made only if it lowers the accuracy, or leaves it and raises the loss, on the
    graph itself. Where none of ``patience`` flips can be given up with profit, two are given up together. The search ends when
    that finds nothing, or after ``swaps`` swaps.

    Args:
        start: the attack to begin with.
        candidates: pairs tried in place of a flip.
        patience: flips given up in vain before that.
        swaps: most swaps made.
        loss: by name; see :mod:`edgeproof.losses`.

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
            raise TypeError(f"expected an attack to start with, got {self.start!r}")
        whole = {name: (getattr(self, name), 1) for name in ("candidates", "patience", "swaps")}
        check_settings(whole=whole, numbers={}, loss=self.loss)

    def num_steps(self, budget: Budget) -> int:
        return self.start.num_steps(budget) + self.swaps

    def run(self, target: Target, budget: Budget, *, generator: torch.Generator, trace: AttackTrace) -> Tensor:
        flips = self.start.run(target, budget, generator=generator, trace=trace)
        (badness,) = target.badness([flips], self.loss)
        for _ in range(self.swaps):
            found = self._improve(target, budget, flips, badness, trace)
            trace.phase("swap")
            if found is None:
                break
            flips, badness = found
        return flips

    def _improve(
        self, target: Target, budget: Budget, flips: Tensor, badness: Badness, trace: AttackTrace
    ) -> tuple[Tensor, Badness] | None:
        """Flips that differ in one or two and are worse for the model; none if they were not found."""
        gradient = target.engine(self.loss)(flips, target.data.x.new_ones(flips.size(1)))
        trace.step(gradient.loss)
        order = gradient.at(flips).argsort().tolist()
        singles: list[tuple[int, ...]] = [(least,) for least in order[: self.patience]]
        # While there is budget left, nothing need be given up.
        given_up = [(), *singles] if flips.size(1) < budget.total else singles
        for gone in (*given_up, *combinations(order[:_IN_PAIRS], 2)):
            kept = [position for position in range(flips.size(1)) if position not in gone]
            found = self._refill(target, budget, flips[:, kept], max(1, len(gone)))
            if found[1] < badness:
                return found
        return None

    def _refill(self, target: Target, budget: Budget, kept: Tensor, room: int) -> tuple[Tensor, Badness]:
        """The worst for the model of these flips, and of these with up to ``room`` others, by a beam search."""
        beam, seen = [kept], [kept]
        judged = target.badness(seen, self.loss)
        for _ in range(room):
            found = [candidate for flips in beam for candidate in self._additions(target, budget, flips)]
            found_judged = target.badness(found, self.loss)
            order = sorted(range(len(found)), key=found_judged.__getitem__)
            beam = [found[i] for i in order[:_BEAM]]
            seen, judged = seen + found, judged + found_judged
        least = min(judged)
        return seen[judged.index(least)], least

    def _additions(self, target: Target, budget: Budget, flips: Tensor) -> list[Tensor]:
        """These flips with each of the most promising others."""
        usable = budget.after(flips).usable
        if usable is not None and usable.numel() < 2:
            return []
        gradient = target.engine(self.loss)(flips, target.data.x.new_ones(flips.size(1)))
        promising = gradient.top(self.candidates, among=usable, exclude=flips).pairs
        return [torch.cat([flips, pair[:, None]], dim=1) for pair in promising.T]
