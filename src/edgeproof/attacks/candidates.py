"""Pairs that a budget with constraints allows to flip next: sampling and exact search."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from edgeproof.budget import Budget
from edgeproof.propagation import BestPairs, EdgeGradient
from edgeproof.propagation.pairs import Pairs, contained, num_pairs, numbers_among, pairs_among
from edgeproof.propagation.search import RunningTopK

# Pairs whose gradients are computed at once.
_BLOCK_SIZE = 1 << 20
# Pairs from which the fraction of permitted ones is estimated, and limit on the oversampling that makes up for the others.
_NUM_PROBES, _MAX_OVERSAMPLING = 1 << 16, 64


class Candidates:
    """Pairs among the usable nodes of a budget that its constraints permit.

    Args:
        budget: Remaining budget, with constraints on the graph of the pairs.
        num_nodes: Number of nodes of the graph.
    """

    def __init__(self, budget: Budget, num_nodes: int) -> None:
        self.budget, self.num_nodes, self.nodes = budget, num_nodes, budget.usable

    @cached_property
    def listed(self) -> Pairs | None:
        """All candidates; None if there are too many pairs to list."""
        assert self.budget.permitted is not None
        pairs = self.budget.permitted.pairs
        if pairs is None:
            return None
        pairs = pairs[:, self.budget.permits(pairs)]
        return Pairs(pairs[0], pairs[1], self.num_nodes)

    @property
    def count(self) -> int:
        """Number of candidates; an estimate if they are not listed."""
        return len(self.listed) if self.listed is not None else round(self._acceptance * self._num_pairs)

    @cached_property
    def numbers(self) -> Tensor | None:
        """Linear indices of :attr:`listed` among the usable nodes, ascending."""
        return None if self.listed is None else numbers_among(self.listed, self.nodes)

    def filter(self, number: Tensor) -> Tensor:
        """Return the linear indices, among the usable nodes, of pairs that are permitted."""
        return number[self._permits(number)]

    @property
    def oversampling(self) -> float:
        """Factor on the number of sampled pairs that makes up for those that are not permitted."""
        return min(_MAX_OVERSAMPLING, 1 / max(self._acceptance, 1e-9))

    @property
    def _num_pairs(self) -> int:
        return num_pairs(self.num_nodes if self.nodes is None else self.nodes.numel())

    @cached_property
    def _acceptance(self) -> float:
        assert self.budget.permitted is not None
        device = self.budget.permitted.edge_index.device
        generator = torch.Generator(device).manual_seed(0)
        probes = torch.randint(self._num_pairs, (_NUM_PROBES,), generator=generator, device=device).sort().values
        return float(self._permits(probes).double().mean())

    def _permits(self, number: Tensor) -> Tensor:
        return self.budget.permits(pairs_among(number, self.num_nodes, self.nodes).both)


def top_candidates(gradient: EdgeGradient, k: int, budget: Budget, *, exclude: Tensor) -> BestPairs:
    """Return the ``k`` pairs of largest gradient that a budget allows to flip next.

    Without constraints, this is :meth:`EdgeGradient.top <edgeproof.propagation.EdgeGradient.top>`. With costs, pairs are ranked
    by gradient per cost, which is also their score.

    Args:
        gradient: Gradient that scores the pairs.
        k: Number of pairs.
        budget: Remaining budget.
        exclude: Pairs to ignore, shape ``[2, e]``.
    """
    n = gradient.engine.num_nodes
    if budget.permitted is None:
        return gradient.top(k, among=budget.usable, exclude=exclude)
    candidates = Candidates(budget, n)
    gradient.check_finite()
    best, excluded = RunningTopK(k, gradient.logits), Pairs.of(exclude, n).key
    listed = candidates.listed
    total = num_pairs(n) if listed is None else len(listed)
    for start in range(0, total, _BLOCK_SIZE):
        number = torch.arange(start, min(start + _BLOCK_SIZE, total), device=exclude.device)
        pairs = Pairs.from_number(number, n) if listed is None else listed[number]
        if listed is None:
            pairs = pairs[budget.permits(pairs.both)]
        pairs = pairs[~contained(pairs.key, excluded)]
        best.offer(gradient.at(pairs) / budget.cost(pairs.both), pairs.key)
    return best.best(n)
