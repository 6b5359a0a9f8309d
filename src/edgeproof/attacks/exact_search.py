"""Local search by exact gains: take flips back, and spend the budget better."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgeproof._checks import check_int
from edgeproof.attacks.base import Attack, AttackTrace, Refining, Target
from edgeproof.attacks.exact_gain import ExactGain
from edgeproof.attacks.exact_state import ExactState
from edgeproof.budget import Budget

# Largest fraction of the flips that a move takes back, and largest number of flips at one node.
_FRACTION, _AT_NODE = 0.15, 8
# Small budgets allow few different moves.
_MOVES_PER_FLIP = 30

_GREEDY = ExactGain()


@dataclass(frozen=True, kw_only=True)
class ExactSearch(Refining):
    """Improve the flips of another attack: take some of them back, and flip the pairs of largest exact gain instead.

    Moves of four kinds alternate. *Replace one* takes back the next flip in the order of what it contributes. *Replace two*
    takes back two of the flips that contribute least. *Repair a node* takes back the flips at one node, preferably at a target
    node that they fail to misclassify, so that others get them. *Replace several* takes back a random part. A move is kept
    unless more target nodes are then classified correctly. The result is the best state: that with the fewest of them, and the
    largest log margin among those.

    Args:
        start: Attack that provides the initial flips.
        moves: Number of moves.
        candidates: Number of candidates; see :class:`ExactGain`.
        refresh: Number of moves after which candidates are chosen anew.
        batch: Number of candidates whose gains are computed again at once.

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> model, budget = models.build("GCN", 21, 2, seed=0), Budget(5)
    >>> start = ExactGain(candidates=500)
    >>> search = ExactSearch(start=start, candidates=500, moves=8)
    >>> search(model, data, nodes, budget).accuracy <= start(model, data, nodes, budget).accuracy
    True
    """

    start: Attack = _GREEDY
    moves: int = 200
    candidates: int = 20_000
    refresh: int = 100
    batch: int = 64

    def __post_init__(self) -> None:
        if not isinstance(self.start, Attack):
            raise TypeError(f"expected start to be an attack, got {self.start!r}")
        check_int(1, moves=self.moves, candidates=self.candidates, refresh=self.refresh, batch=self.batch)

    @property
    def own_steps(self) -> int:
        return self.moves

    def run(self, target: Target, budget: Budget, *, generator: torch.Generator, trace: AttackTrace) -> Tensor:
        flips = self.start.run(target, budget, generator=generator, trace=trace)
        state = ExactState(target, budget, generator=generator, trace=trace, num_candidates=self.candidates)
        if flips.size(1):
            state.apply(flips)
        best, best_flips = state.score, state.flips
        for move in range(min(self.moves, _MOVES_PER_FLIP * budget.total)):
            if not state.num_correct:
                break
            if move % self.refresh == 0:
                state.refresh(budget)
            num_correct, saved = state.num_correct, state.snapshot()
            removed = self._removal(state, move, generator)
            if removed.size(1):
                state.apply(removed)
            banned, emphasis = self._variation(state, removed, move, generator)
            self._fill(state, banned, emphasis)
            trace.step(torch.tensor(state.num_correct / target.nodes.numel()))
            if state.num_correct > num_correct:
                state.restore(saved)
            elif state.score < best:
                best, best_flips = state.score, state.flips
        return best_flips

    def _variation(
        self, state: ExactState, removed: Tensor, move: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return the candidates that a move leaves out, and random factors on the change of the log margin of each.

        Without them, the flips that were taken back would be the best ones again.
        """
        count, device = state.pairs.size(1), state.pairs.device
        chance = torch.rand(count, generator=generator, device=device)
        # A single flip is always replaced by another one.
        banned = state.is_among(removed) & (chance < (1.0 if move % 4 == 0 else 0.5))
        return banned, torch.rand(count, generator=generator, device=device, dtype=torch.double)

    def _fill(self, state: ExactState, banned: Tensor, emphasis: Tensor) -> None:
        while state.left.allows_flips:
            found = state.best(self.batch, banned=banned, emphasis=emphasis)
            if found is None or found[1] <= 0:
                return
            state.apply(found[0])

    def _removal(self, state: ExactState, move: int, generator: torch.Generator) -> Tensor:
        """Return the flips to take back."""
        flips, count = state.flips, state.flips.size(1)
        if not count:
            return flips
        kind, turn = move % 4, move // 4
        if kind == 2:
            return flips[:, self._at_one_node(state, generator)]
        if kind == 3:
            size = int(
                torch.randint(1, max(2, round(_FRACTION * count)) + 1, (), generator=generator, device=generator.device)
            )
            return flips[:, torch.randperm(count, generator=generator, device=generator.device)[:size]]
        lost, change = state.scan(flips)
        # Fewest nodes corrected first; then the smallest loss of log margin.
        order = (-lost * 1e6 - change).argsort()
        if kind == 0:
            return flips[:, order[turn % count]][:, None]
        half = max(2, count // 2)
        return flips[:, order[torch.randperm(min(half, count), generator=generator, device=generator.device)[:2]]]

    def _at_one_node(self, state: ExactState, generator: torch.Generator) -> Tensor:
        """Return the positions of the flips at a random node, if possible a correctly classified target node."""
        flips, target = state.flips, state.target
        resisting = torch.zeros(target.num_nodes, dtype=torch.bool, device=flips.device)
        resisting[target.nodes[state.evaluator.margins > 0]] = True
        ends = flips[resisting[flips]]
        ends = ends if ends.numel() else flips.flatten()
        node = ends[torch.randint(ends.numel(), (), generator=generator, device=generator.device)]
        return (flips == node).any(dim=0).nonzero().squeeze(1)[:_AT_NODE]
