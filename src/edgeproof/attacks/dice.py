"""Attacks without gradients: random flips and DICE (Waniek et al., 2018)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from edgeproof.attacks.base import Attack, AttackTrace, Needs, Target
from edgeproof.attacks.blocks import sample_incident_pairs
from edgeproof.attacks.candidates import Candidates
from edgeproof.attacks.projections import discretize
from edgeproof.budget import Budget
from edgeproof.graph import UNKNOWN
from edgeproof.propagation.pairs import contained

# Candidates per flip of the budget: enough to spend most budgets if sufficiently many pairs are allowed.
_CANDIDATES_PER_FLIP = 64
_MIN_CANDIDATES = 10_000


@dataclass(frozen=True, kw_only=True)
class RandomFlips(Attack):
    """Flip random pairs that contain at least one target node; a baseline that every other attack should beat.

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> RandomFlips()(models.build("GCN", 21, 2, seed=0), data, nodes, Budget(20)).flips.shape
    torch.Size([2, 20])
    """

    @property
    def needs(self) -> Needs:
        return "predictions"

    def num_steps(self, budget: Budget) -> int:
        return 0

    def run(self, target: Target, budget: Budget, *, generator: torch.Generator, trace: AttackTrace) -> Tensor:
        return _first_within(random_pairs(target, budget, generator), budget)


@dataclass(frozen=True, kw_only=True)
class DICE(Attack):
    """Delete Internally, Connect Externally: remove random edges within classes and add random edges between classes.

    Every flip contains at least one target node. Nodes without a label are never part of a flip.

    Args:
        add_ratio: Fraction of flips that add an edge. If there are too few edges to remove, more are added.

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> DICE()(models.build("GCN", 21, 2, seed=0), data, nodes, Budget(20)).flips.shape
    torch.Size([2, 20])
    """

    add_ratio: float = 0.6

    def __post_init__(self) -> None:
        if not isinstance(self.add_ratio, (int, float)) or not 0 <= self.add_ratio <= 1:
            raise ValueError(f"expected 0 <= add_ratio <= 1, got {self.add_ratio!r}")

    @property
    def needs(self) -> Needs:
        return "predictions"

    def num_steps(self, budget: Budget) -> int:
        return 0

    def run(self, target: Target, budget: Budget, *, generator: torch.Generator, trace: AttackTrace) -> Tensor:
        y = target.data.y
        if not isinstance(y, Tensor):
            raise ValueError("expected node labels in data.y, which DICE needs, got None")
        y = y.index_copy(0, target.nodes, target.labels)
        internal = _incident_edges(target, generator)
        internal = internal[:, y[internal[0]] == y[internal[1]]]
        removed = _first_within(internal, replace(budget, total=budget.total - round(self.add_ratio * budget.total)))
        labelled = None if bool((y != UNKNOWN).all()) else (y != UNKNOWN).nonzero().squeeze(1)
        external = random_pairs(target, budget, generator, labelled)
        external = external[:, (y[external[0]] != y[external[1]]) & ~_is_edge(target, external)]
        return torch.cat([removed, _first_within(external, budget.after(removed))], dim=1)


def random_pairs(target: Target, budget: Budget, generator: torch.Generator, partners: Tensor | None = None) -> Tensor:
    """Return pairs with at least one target node in random order; all that the constraints permit if they are listed."""
    candidates = None if budget.permitted is None else Candidates(budget, target.num_nodes)
    if candidates is not None and candidates.listed is not None:
        pairs = candidates.listed.both
        is_end = _mask(target, target.nodes)[pairs].any(dim=0)
        pairs = pairs[:, is_end if partners is None else is_end & _mask(target, partners)[pairs].all(dim=0)]
        return pairs[:, torch.randperm(pairs.size(1), generator=generator, device=pairs.device)]
    size = max(_MIN_CANDIDATES, _CANDIDATES_PER_FLIP * budget.total)
    return sample_incident_pairs(target.nodes, target.num_nodes, size, generator=generator, partners=partners)


def _first_within(pairs: Tensor, budget: Budget) -> Tensor:
    """Return the pairs that fit the budget if taken greedily in their order."""
    priority = torch.linspace(1, 0.5, pairs.size(1), dtype=torch.float64, device=pairs.device)
    return pairs[:, discretize(priority, pairs, budget)]


def _incident_edges(target: Target, generator: torch.Generator) -> Tensor:
    """Return the undirected edges with at least one target node, in random order."""
    row, col = target.data.edge_index
    is_target = _mask(target, target.nodes)
    edges: Tensor = target.data.edge_index[:, (row < col) & (is_target[row] | is_target[col])]
    return edges[:, torch.randperm(edges.size(1), generator=generator, device=edges.device)]


def _mask(target: Target, nodes: Tensor) -> Tensor:
    return torch.zeros(target.num_nodes, dtype=torch.bool, device=target.device).index_fill_(0, nodes, True)


def _is_edge(target: Target, pairs: Tensor) -> Tensor:
    n = target.num_nodes
    row, col = target.data.edge_index
    return contained(pairs[0] * n + pairs[1], (row * n + col).sort().values)
