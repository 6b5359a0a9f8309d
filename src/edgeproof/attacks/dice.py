"""Attacks that ask no gradient: random flips, and DICE (Waniek et al., 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgeproof.attacks.base import Attack
from edgeproof.attacks.blocks import sample_touching
from edgeproof.attacks.projections import discretize
from edgeproof.attacks.target import Target
from edgeproof.attacks.trace import AttackTrace
from edgeproof.budget import Budget
from edgeproof.graph import UNKNOWN
from edgeproof.propagation.pairs import contained

# Candidates drawn for every flip allowed: enough that most budgets are used up where there are pairs to use them on.
_DRAWN_PER_FLIP = 64
_DRAWN_AT_LEAST = 10_000


@dataclass(frozen=True, kw_only=True)
class RandomFlips(Attack):
    """Flip random pairs, each with at least one target node: the baseline that every attack should beat.

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> RandomFlips()(models.build("GCN", 21, 2, seed=0), data, nodes, Budget(20)).flips.shape
    torch.Size([2, 20])
    """

    def num_steps(self, budget: Budget) -> int:
        return 0

    def run(self, target: Target, budget: Budget, *, generator: torch.Generator, trace: AttackTrace) -> Tensor:
        return _take(_candidates(target, budget, generator), budget)


@dataclass(frozen=True, kw_only=True)
class DICE(Attack):
    """Delete internally, connect externally: remove edges within a class, add edges between classes, at random.

    Every flip has at least one target node. The labels of all nodes of the graph must be known.

    Args:
        add_ratio: share of the flips that add an edge; where edges to remove run out, more are added.

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> DICE()(models.build("GCN", 21, 2, seed=0), data, nodes, Budget(20)).flips.shape
    torch.Size([2, 20])
    """

    add_ratio: float = 0.6

    def __post_init__(self) -> None:
        if not isinstance(self.add_ratio, (int, float)) or not 0 <= self.add_ratio <= 1:
            raise ValueError(f"expected 0 <= add_ratio <= 1, got {self.add_ratio!r}")

    def num_steps(self, budget: Budget) -> int:
        return 0

    def run(self, target: Target, budget: Budget, *, generator: torch.Generator, trace: AttackTrace) -> Tensor:
        y = target.data.y
        if not isinstance(y, Tensor):
            raise ValueError("expected the labels of nodes in data.y, which DICE goes by, got none")
        y = y.index_copy(0, target.nodes, target.labels)
        inner = _edges_at(target, generator)
        inner = inner[:, y[inner[0]] == y[inner[1]]]
        removed = _take(inner, Budget(budget.total - round(self.add_ratio * budget.total), budget.local))
        # Nothing can be said of nodes whose class is not known.
        known = None if bool((y != UNKNOWN).all()) else (y != UNKNOWN).nonzero().squeeze(1)
        outer = _candidates(target, budget, generator, known)
        outer = outer[:, (y[outer[0]] != y[outer[1]]) & ~_is_edge(target, outer)]
        return torch.cat([removed, _take(outer, budget.after(removed))], dim=1)


def _candidates(target: Target, budget: Budget, generator: torch.Generator, others: Tensor | None = None) -> Tensor:
    size = max(_DRAWN_AT_LEAST, _DRAWN_PER_FLIP * budget.total)
    return sample_touching(target.nodes, target.num_nodes, size, generator=generator, others=others)


def _take(pairs: Tensor, budget: Budget) -> Tensor:
    """The first pairs that fit."""
    order = torch.linspace(1, 0.5, pairs.size(1), dtype=torch.float64, device=pairs.device)
    return pairs[:, discretize(order, pairs, budget)]


def _edges_at(target: Target, generator: torch.Generator) -> Tensor:
    """The edges with at least one target node, each once, in random order."""
    row, col = target.data.edge_index
    aimed_at = torch.zeros(target.num_nodes, dtype=torch.bool, device=target.device).index_fill_(0, target.nodes, True)
    edges: Tensor = target.data.edge_index[:, (row < col) & (aimed_at[row] | aimed_at[col])]
    return edges[:, torch.randperm(edges.size(1), generator=generator, device=edges.device)]


def _is_edge(target: Target, pairs: Tensor) -> Tensor:
    n = target.num_nodes
    row, col = target.data.edge_index
    return contained(pairs[0] * n + pairs[1], (row * n + col).sort().values)
