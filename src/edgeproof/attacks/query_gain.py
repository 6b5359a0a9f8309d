"""QueryGain: greedy flips by their exact effect, from predictions alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from edgeproof import losses
from edgeproof._checks import check_fraction, check_int
from edgeproof.attacks.base import Attack, AttackTrace, Needs, Target
from edgeproof.attacks.exact_state import ExactState
from edgeproof.attacks.predictions import Predictions
from edgeproof.attacks.surrogate import fit_surrogate
from edgeproof.budget import Budget
from edgeproof.propagation.incremental.base import toggled
from edgeproof.propagation.pairs import Pairs

# A misclassified node counts more than any change of margins.
_LOST = 1e6


@dataclass(frozen=True, kw_only=True)
class QueryGain(Attack):
    r"""Repeatedly make the flip that misclassifies most target nodes, with the model's predictions as the only information.

    **Candidates** are pairs at the target nodes that are still classified correctly: those of largest gain for a surrogate, a
    GCN fitted to the model's predictions, pairs of nodes of small margin, and random ones. **Probes** estimate the margins
    after each candidate: one query flips many candidates without common nodes, which is exact up to the interaction of flips
    at different nodes. **Gains** are then exact, one query per flip, for the best candidates by their probes and by the
    surrogate. As in :class:`ExactGain`, the number of misclassified nodes counts first, then the log margin. When the budget
    is spent, **rounds** take back some of the flips of smallest gain and spend their budget again; a round counts if it helps.

    Probed graphs may have more flips than the budget; they serve as estimates only.

    Args:
        candidates: Number of candidates per target node, and as many again that join two target nodes.
        explore: Fraction of random candidates.
        groups: Number of queries over which one candidate of each target node is distributed at least.
        batch: Number of exact gains per flip.
        refresh: Number of flips after which candidates are chosen and probed anew.
        rounds: Number of rounds in which flips are taken back and replaced.
        replaced: Fraction of the flips taken back in a round.

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> attack = QueryGain(candidates=16, batch=8)
    >>> result = attack(models.build("GCN", 21, 2, seed=0), data, nodes, Budget(5))
    >>> result.flips.size(1) <= 5, result.accuracy < result.clean_accuracy, result.queries < 600
    (True, True, True)
    """

    candidates: int = 64
    explore: float = 0.25
    groups: int = 4
    batch: int = 32
    refresh: int = 20
    rounds: int = 20
    replaced: float = 0.15

    def __post_init__(self) -> None:
        check_int(1, candidates=self.candidates, groups=self.groups, batch=self.batch, refresh=self.refresh)
        check_int(0, rounds=self.rounds)
        check_fraction(explore=self.explore, replaced=self.replaced)

    @property
    def needs(self) -> Needs:
        return "predictions"

    def num_steps(self, budget: Budget) -> int:
        return budget.total + self.rounds * (1 + round(self.replaced * budget.total))

    def run(self, target: Target, budget: Budget, *, generator: torch.Generator, trace: AttackTrace) -> Tensor:
        state = _State(target, budget, self, generator, trace)
        self._spend(state)
        for _ in range(self.rounds if state.flips.numel() else 0):
            flips, margins, score = state.flips, state.margins, state.score
            state.take_back(max(1, round(self.replaced * flips.size(1))))
            self._spend(state)
            if state.score >= score:
                state.set(flips, margins)
        return state.flips

    def _spend(self, state: _State) -> None:
        """Add flips until the budget is spent or no candidate has a positive gain."""
        while state.left.allows_flips:
            if state.since_probe >= self.refresh:
                state.probe()
            if not state.flip_best():
                if state.since_probe == 0:
                    return
                state.probe()


class _State:
    """Flips so far, exact margins, and candidates with the estimated fall of the margin at their target node."""

    def __init__(
        self, target: Target, budget: Budget, attack: QueryGain, generator: torch.Generator, trace: AttackTrace
    ) -> None:
        self.target, self.budget, self.attack, self.trace = target, budget, attack, trace
        self._generator = generator
        self._predictions = Predictions(target, trace)
        surrogate = fit_surrogate(target.model, target.data, seed=generator.initial_seed())
        trace.count_queries(1)
        source = Target(surrogate, target.data, target.nodes, target.labels, target.backend)
        # Its scans are not queries of the model.
        self._guide = ExactState(
            source,
            budget,
            generator=generator,
            trace=AttackTrace(target.device),
            num_candidates=2 * attack.candidates * target.nodes.numel(),
        )
        self.flips: Tensor = target.data.edge_index.new_empty(2, 0)
        self.margins = self._predictions.margins([self.flips])[0]
        self._unit = losses.log_margin_unit(target.clean_logits.double())
        self._position = torch.full((target.num_nodes,), -1, device=target.device)
        self._position[target.nodes] = torch.arange(target.nodes.numel(), device=target.device)
        # Candidates; and for each end of one that is a target node, its position, the candidate, and the fall of its margin.
        self._pairs, self._position_of, self._pair_of = self.flips, self.flips[0], self.flips[0]
        self._fall = self.margins[:0]
        # Flips since the last probes, if there are any.
        self.since_probe = attack.refresh
        trace.phase("surrogate")

    @property
    def score(self) -> tuple[int, float]:
        """Number of correctly classified target nodes, and the negative log margin; a lower score is a stronger attack."""
        terms = losses.log_margin_terms((self.margins / self._unit).clamp(-1e9, 1e9))
        return int((self.margins > 0).sum()), -float(terms.sum())

    def set(self, flips: Tensor, margins: Tensor) -> None:
        """Return to earlier flips."""
        change = toggled(self.flips, flips, self.target.num_nodes)
        if change.numel():
            self._guide.apply(change)
        self.flips, self.margins = flips, margins

    def take_back(self, count: int) -> None:
        """Take back ``count`` of the flips of smallest gain, chosen at random among twice as many."""
        n = self.target.num_nodes
        sets = [toggled(self.flips, flip[:, None], n) for flip in self.flips.T]
        gains = self._gain(self.margins, self._predictions.margins(sets)).sum(dim=1) / self.budget.cost(self.flips)
        weakest = gains.argsort(stable=True)[: 2 * count]
        drawn = torch.rand(weakest.numel(), generator=self._generator, device=weakest.device).argsort()[:count]
        kept = toggled(self.flips, self.flips[:, weakest[drawn]], n)
        self.set(kept, self._predictions.margins([kept])[0])
        self.trace.phase("rounds")

    @property
    def left(self) -> Budget:
        """Remaining budget."""
        return self.budget.after(self.flips)

    def probe(self) -> None:
        """Choose candidates anew, and estimate the fall of the margin that each causes at its target nodes."""
        self._pairs = self._choose()
        self.trace.phase("candidates")
        queries = self._schedule(self._pairs)
        margins = self._predictions.margins([self._with(self._pairs[:, chosen]) for chosen in queries])
        of = torch.cat([torch.full_like(chosen, number) for number, chosen in enumerate(queries)] + [self.flips[0, :0]])
        chosen = torch.cat([*queries, self.flips[0, :0]])
        # One entry per candidate and end that is a target node.
        position = self._position[self._pairs[:, chosen]].flatten()
        is_target = position >= 0
        self._position_of, self._pair_of = position[is_target], chosen.repeat(2)[is_target]
        self._fall = self.margins[self._position_of] - margins[of.repeat(2)[is_target], self._position_of]
        self.since_probe = 0
        self.trace.phase("probes")

    def flip_best(self) -> bool:
        """Make the flip of largest exact gain among those of largest estimated gain; False if no gain is positive."""
        probed, guided = self._by_probes(), self._by_surrogate()
        half = -(-self.attack.batch // 2)
        for start in range(0, max(probed.size(1), guided.size(1)), half):
            part = slice(start, start + half)
            tried = self._distinct(torch.cat([probed[:, part], guided[:, part]], dim=1))
            margins = self._predictions.margins([self._with(pair[:, None]) for pair in tried.T])
            gains = self._gain(margins, self.margins).sum(dim=1) / self.budget.cost(tried)
            first = int(gains.argmax())
            self.trace.phase("exact gains")
            if gains[first] > 0:
                self.set(self._with(tried[:, first : first + 1]), margins[first])
                self.since_probe += 1
                self.trace.step((self.margins > 0).double().mean())
                return True
        return False

    def _by_probes(self) -> Tensor:
        """Return the permitted candidates of positive gain by their probes, the largest first."""
        before = self.margins[self._position_of]
        gain = self._gain(before - self._fall, before)
        return self._ordered(self._pairs, gain.new_zeros(self._pairs.size(1)).index_add_(0, self._pair_of, gain))

    def _by_surrogate(self) -> Tensor:
        """Return the permitted candidates of positive gain at all target nodes of the surrogate, the largest first."""
        return self._ordered(self._guide.pairs, self._guide_gains())

    def _guide_gains(self) -> Tensor:
        return _LOST * self._guide.known_losses + self._guide.known_changes

    def _ordered(self, pairs: Tensor, gain: Tensor) -> Tensor:
        gain = gain / self.budget.cost(pairs)
        gain = torch.where(self.left.permits(pairs) & ~self._taken(pairs), gain, -torch.inf)
        return pairs[:, gain.argsort(descending=True, stable=True)[: int((gain > 0).sum())]]

    def _gain(self, after: Tensor, before: Tensor) -> Tensor:
        """Return the gain at each node: newly misclassified, then the rise of the log margin."""
        terms = [losses.log_margin_terms((margins / self._unit).clamp(-1e9, 1e9)) for margins in (after, before)]
        return _LOST * ((before > 0).double() - (after > 0).double()) + terms[0] - terms[1]

    def _choose(self) -> Tensor:
        """Return candidates at the target nodes that are classified correctly, shape ``[2, candidates]``."""
        self._guide.refresh(self._guide.left)
        promising = self._guide.pairs[:, self._guide_gains().argsort(descending=True)]
        nodes = self.target.nodes[self.margins > 0]
        num_random = round(self.attack.explore * self.attack.candidates)
        num_promising = self.attack.candidates - num_random
        found = [promising[:, (promising == node).any(dim=0)][:, :num_promising] for node in nodes]
        usable = (
            torch.arange(self.target.num_nodes, device=nodes.device) if self.left.usable is None else self.left.usable
        )
        drawn = torch.randint(
            usable.numel(), (nodes.numel() * num_random,), generator=self._generator, device=nodes.device
        )
        found.append(torch.stack([nodes.repeat_interleave(num_random), usable[drawn]]))
        # A flip between two nodes near the decision boundary can misclassify both.
        order = self.margins[self.margins > 0].argsort(stable=True)
        fragile = nodes[order[: round(math.sqrt(2 * self.attack.candidates * nodes.numel()))]]
        found.append(torch.combinations(fragile).T)
        pairs = torch.cat(found, dim=1)
        pairs = pairs[:, pairs[0] != pairs[1]]
        key = (torch.minimum(pairs[0], pairs[1]) * self.target.num_nodes + torch.maximum(pairs[0], pairs[1])).unique()
        pairs = Pairs.from_key(key, self.target.num_nodes).both
        return pairs[:, self.left.permits(pairs) & ~self._taken(pairs)]

    def _schedule(self, pairs: Tensor) -> list[Tensor]:
        """Distribute candidates over queries in random order, so that no two candidates of a query share a node."""
        capacity = max(1, int((self.margins > 0).sum()) // self.attack.groups)
        order = torch.randperm(pairs.size(1), generator=self._generator, device=pairs.device)
        queries: list[list[int]] = []
        # Queries that have a candidate at each node, and full queries, as bits.
        busy: dict[int, int] = {}
        full = 0
        for index, u, v in zip(order.tolist(), *pairs[:, order].tolist(), strict=True):
            taken = busy.get(u, 0) | busy.get(v, 0) | full
            slot = (~taken & (taken + 1)).bit_length() - 1
            if slot == len(queries):
                queries.append([])
            queries[slot].append(index)
            busy[u], busy[v] = busy.get(u, 0) | 1 << slot, busy.get(v, 0) | 1 << slot
            full |= (len(queries[slot]) == capacity) << slot
        return [torch.tensor(each, device=pairs.device) for each in queries]

    def _with(self, pairs: Tensor) -> Tensor:
        """Return the flips with more pairs."""
        return Pairs.of(torch.cat([self.flips, pairs], dim=1), self.target.num_nodes).both

    def _distinct(self, pairs: Tensor) -> Tensor:
        """Return the pairs in their order without repeats."""
        key = pairs[0] * self.target.num_nodes + pairs[1]
        unique, group = key.unique(return_inverse=True)
        position = torch.arange(key.numel(), device=key.device)
        first = torch.full_like(unique, key.numel()).scatter_reduce_(0, group, position, "amin")
        return pairs[:, first.sort().values]

    def _taken(self, pairs: Tensor) -> Tensor:
        n = self.target.num_nodes
        return torch.isin(pairs[0] * n + pairs[1], self.flips[0] * n + self.flips[1])
