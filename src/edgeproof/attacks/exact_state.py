"""State of attacks by exact gains: flips so far, and the exact effect of the next one for a pool of candidates."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from edgeproof import losses
from edgeproof.attacks.base import AttackTrace, Target, num_usable_pairs
from edgeproof.attacks.candidates import top_candidates
from edgeproof.budget import Budget
from edgeproof.propagation import EdgeGradient
from edgeproof.propagation.incremental import IncrementalEvaluator, Scan, incremental_evaluator, toggled
from edgeproof.propagation.pairs import Pairs, contained

# A misclassified node counts more than any change of margins.
_LOST = 1e6
# Largest number of margins of a scan that are held at once.
_MAX_MARGINS = 1 << 24
# Pairs at the target nodes that are scored by their gradients; of more, a random sample.
_MAX_SCORED = 1 << 23
# Largest number of pairs over which the search for the largest gradients is exact.
_MAX_SEARCHED = 1 << 28


class ExactState:
    """Flips within a budget, their exact margins, and candidates for the next flip with their exact gains.

    The gain of a flip is the number of target nodes that it misclassifies, and for ties the rise of the log margin; both per
    cost. Gains are kept until they are computed again: see :meth:`best`.

    Args:
        target: Model, graph and nodes under attack.
        budget: Budget.
        generator: Random generator, for samples of candidates on large graphs.
        trace: Receives the number of scanned flips.
        num_candidates: Number of candidates.
    """

    def __init__(
        self,
        target: Target,
        budget: Budget,
        *,
        generator: torch.Generator,
        trace: AttackTrace,
        num_candidates: int,
    ) -> None:
        self.target, self.budget, self.trace = target, budget, trace
        self._generator, self._num_candidates = generator, num_candidates
        self.engine = target.engine("log_margin")
        self.evaluator: IncrementalEvaluator = incremental_evaluator(self.engine)
        # The scale of the margins is that of the clean graph throughout, so that gains are comparable.
        self._unit = losses.log_margin_unit(target.clean_logits.double())
        self._attackable = self.evaluator.margins > 0
        self.pairs: Tensor = target.data.edge_index.new_empty(2, 0)
        self.known_losses, self.known_changes = self.evaluator.margins[:0], self.evaluator.margins[:0]
        self._fresh = torch.empty(0, dtype=torch.bool, device=target.device)

    @property
    def flips(self) -> Tensor:
        """Current flips, ascending, shape ``[2, flips]``."""
        return self.evaluator.flips

    @property
    def left(self) -> Budget:
        """Remaining budget."""
        return self.budget.after(self.flips)

    @property
    def num_correct(self) -> int:
        """Number of target nodes that are classified correctly."""
        return int((self.evaluator.margins > 0).sum())

    @property
    def score(self) -> tuple[int, float]:
        """Number of correctly classified target nodes, and the negative log margin; a lower score is a stronger attack."""
        return self.num_correct, -float(self._terms(self.evaluator.margins).sum())

    def scan(self, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Return, for each pair, how many target nodes its flip misclassifies, and the change of the log margin."""
        lost: list[Tensor] = [torch.empty(0, dtype=torch.long, device=pairs.device)]
        change: list[Tensor] = [self.evaluator.margins[:0]]

        def collect(scan: Scan) -> None:
            lost.append(scan.num_lost)
            change.append(scan.total(self._terms(scan.before), self._terms(scan.margin)))

        self._scan_in_parts(pairs, collect)
        return torch.cat(lost), torch.cat(change)

    def lost_nodes(self, pairs: Tensor) -> list[list[int]]:
        """Return, for each pair, the positions of the target nodes that its flip misclassifies."""
        found: list[list[int]] = []

        def collect(scan: Scan) -> None:
            lost = (scan.before > 0)[scan.position] & ~(scan.margin > 0)
            own: list[list[int]] = [[] for _ in range(len(scan))]
            for candidate, position in zip(scan.candidate[lost].tolist(), scan.position[lost].tolist(), strict=True):
                own[candidate].append(position)
            found.extend(sorted(nodes) for nodes in own)

        self._scan_in_parts(pairs, collect)
        return found

    def margins_at(self, pairs: Tensor, position: int) -> Tensor:
        """Return, for each pair, the margin of one target node after its flip."""
        found: list[Tensor] = []

        def collect(scan: Scan) -> None:
            margins = scan.before[position].repeat(len(scan))
            own = scan.position == position
            margins[scan.candidate[own]] = scan.margin[own]
            found.append(margins)

        self._scan_in_parts(pairs, collect)
        return torch.cat(found)

    def refresh(self, budget: Budget) -> None:
        """Choose candidates anew, by the gradient in the current state, and compute all gains.

        Args:
            budget: Budget that candidates must fit: what is left, or all of it if flips may be taken back.
        """
        self.pairs = self._choose(budget)
        self._fresh = torch.zeros(self.pairs.size(1), dtype=torch.bool, device=self.pairs.device)
        self.known_losses = torch.zeros(self.pairs.size(1), dtype=torch.double, device=self.pairs.device)
        self.known_changes, self._cost = torch.zeros_like(self.known_losses), self.budget.cost(self.pairs)
        self._rescan(torch.arange(self.pairs.size(1), device=self.pairs.device))

    def best(
        self, batch: int, *, banned: Tensor | None = None, emphasis: Tensor | None = None
    ) -> tuple[Tensor, float] | None:
        """Return the candidate of largest gain, shape ``[2, 1]``, and its gain; None if the budget permits no candidate.

        Candidates of largest known gain are computed again, ``batch`` at a time, until the largest gain is up to date.

        Args:
            batch: Number of candidates that are computed at once.
            banned: Mask of candidates that are left out.
            emphasis: Factor on the change of the log margin of each candidate.
        """
        allowed = self.left.permits(self.pairs) & ~self.in_flips(self.pairs)
        if banned is not None:
            allowed &= ~banned
        while self.pairs.size(1):
            change = self.known_changes if emphasis is None else self.known_changes * emphasis
            gains = torch.where(allowed, (_LOST * self.known_losses + change) / self._cost, -torch.inf)
            first = int(gains.argmax())
            if gains[first] == -torch.inf:
                return None
            if self._fresh[first]:
                return self.pairs[:, first : first + 1], float(gains[first])
            stale = torch.where(self._fresh, -torch.inf, gains)
            chosen = stale.topk(min(batch, stale.numel())).indices
            self._rescan(chosen[stale[chosen] > -torch.inf])
        return None

    def is_among(self, pairs: Tensor) -> Tensor:
        """Return a mask of the candidates that are among ``pairs``, which are in ascending order."""
        n = self.target.num_nodes
        return contained(self.pairs[0] * n + self.pairs[1], pairs[0] * n + pairs[1])

    def apply(self, pairs: Tensor) -> None:
        """Flip pairs, or take current flips back; gains at nodes that the flips bring closer to the boundary are updated."""
        before = self.evaluator.margins
        self.evaluator.apply(pairs)
        if not self.pairs.numel():
            return
        self._fresh[:] = False
        closer = self._terms(self.evaluator.margins) - self._terms(before)
        weakened = (closer > 0.1) & (self.evaluator.margins > 0)
        near = torch.zeros(self.target.num_nodes, dtype=torch.bool, device=pairs.device)
        near[self.target.nodes[weakened]] = True
        near[pairs.flatten()] = True
        self._rescan(near[self.pairs].any(dim=0).nonzero().squeeze(1))

    def snapshot(self) -> tuple[Tensor, ...]:
        """Return the current flips and what is known of the gains, for :meth:`restore`."""
        return self.flips, self.known_losses.clone(), self.known_changes.clone(), self._fresh.clone()

    def restore(self, saved: tuple[Tensor, ...]) -> None:
        """Return to the flips of a snapshot; the candidates must not have been chosen anew since."""
        flips, self.known_losses, self.known_changes, self._fresh = saved
        self.return_to(flips)

    def return_to(self, flips: Tensor) -> None:
        """Return to earlier flips, without a change of what is known of the gains."""
        changed = toggled(self.flips, flips, self.target.num_nodes)
        if changed.size(1):
            self.evaluator.apply(changed)

    def _rescan(self, chosen: Tensor) -> None:
        lost, change = self.scan(self.pairs[:, chosen])
        self.known_losses[chosen], self.known_changes[chosen] = lost.double(), change
        self._fresh[chosen] = True

    def _scan_in_parts(self, pairs: Tensor, collect: Callable[[Scan], None]) -> None:
        size = max(1, _MAX_MARGINS // max(1, self.target.nodes.numel()))
        for part in pairs.split(size, dim=1):
            if part.size(1):
                collect(self.evaluator.scan(part.contiguous()))
        self.trace.count_queries(pairs.size(1))
        self.trace.phase("scan")

    def _terms(self, margins: Tensor) -> Tensor:
        terms: Tensor = losses.log_margin_terms(margins / self._unit)
        return terms

    def in_flips(self, pairs: Tensor) -> Tensor:
        """Return which pairs are among the current flips."""
        n = self.target.num_nodes
        inside: Tensor = contained(pairs.amin(dim=0) * n + pairs.amax(dim=0), self.flips[0] * n + self.flips[1])
        return inside

    def _choose(self, budget: Budget) -> Tensor:
        """Return candidates: the pairs of largest gradient at each target node, and of all pairs."""
        target = self.target
        gradient = self.engine(self.flips, target.ones(self.flips.size(1)))
        self.trace.phase("forward and backward")
        n, half = target.num_nodes, max(1, self._num_candidates // 2)
        # Current flips are candidates for the time after they are taken back.
        chosen = [self.flips, self._at_targets(gradient, budget, half)]
        if budget.allows_flips and num_usable_pairs(n, budget) <= _MAX_SEARCHED:
            chosen.append(top_candidates(gradient, half, budget, exclude=self.flips).pairs)
        both = torch.cat(chosen, dim=1)
        key = (both.amin(dim=0) * n + both.amax(dim=0)).unique()
        self.trace.phase("candidates")
        return Pairs.from_key(key, n).both

    def _at_targets(self, gradient: EdgeGradient, left: Budget, count: int) -> Tensor:
        """Return the permitted pairs of largest gradient at each target node that is ever classified correctly."""
        n, target = self.target.num_nodes, self.target
        nodes = target.nodes[self._attackable | (self.evaluator.margins > 0)]
        usable = torch.arange(n, device=target.device) if left.usable is None else left.usable
        nodes = nodes[torch.isin(nodes, usable)]
        if not nodes.numel():
            return nodes.new_empty(2, 0)
        if usable.numel() * nodes.numel() > _MAX_SCORED:
            order = torch.randperm(usable.numel(), generator=self._generator, device=target.device)
            usable = usable[order[: max(2, _MAX_SCORED // nodes.numel())]]
        pairs = torch.stack(torch.broadcast_tensors(nodes[:, None], usable)).flatten(1)
        valid = pairs[0] != pairs[1]
        valid[valid.clone()] = left.permits(pairs[:, valid]) & ~self.in_flips(pairs[:, valid])
        scores = gradient.logits.new_full((pairs.size(1),), -torch.inf)
        scores[valid] = gradient.at(pairs[:, valid])
        scores = scores.view(nodes.numel(), usable.numel())
        share = min(usable.numel(), max(1, count // nodes.numel()))
        best = scores.topk(share, dim=1)
        found = torch.stack([nodes[:, None].expand_as(best.indices), usable[best.indices]]).flatten(1)
        # Of more target nodes than candidates, those with the largest gradients.
        first = best.values.flatten().topk(min(count, found.size(1))) if nodes.numel() > count else None
        values = best.values.flatten() if first is None else first.values
        found = found if first is None else found[:, first.indices]
        return found[:, values > -torch.inf]
