"""Flips that are known already: from a file, from an attack on another model, or by hand."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgeproof._checks import check_pairs
from edgeproof.attacks.base import Attack
from edgeproof.attacks.target import Target
from edgeproof.attacks.trace import AttackTrace
from edgeproof.budget import Budget


@dataclass(frozen=True, kw_only=True, eq=False)
class FixedFlips(Attack):
    """Apply these flips: an attack found elsewhere, held to the budget and judged like any other.

    Args:
        flips: distinct pairs, shape ``[2, flips]``.
        origin: where they come from, in words.

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> one, other = (models.build(name, 21, 2, seed=0) for name in ("GCN", "GPRGNN"))
    >>> from edgeproof.attacks import GreedyRBCD
    >>> found = GreedyRBCD(steps=5)(one, data, nodes, Budget(20))
    >>> FixedFlips(flips=found.flips, origin="GCN")(other, data, nodes, Budget(20)).flips.equal(found.flips)
    True
    """

    flips: Tensor
    origin: str = "given"

    def num_steps(self, budget: Budget) -> int:
        return 0

    def run(self, target: Target, budget: Budget, *, generator: torch.Generator, trace: AttackTrace) -> Tensor:
        check_pairs(self.flips, target.num_nodes)
        return self.flips.to(target.device)

    def __repr__(self) -> str:
        return f"FixedFlips({self.flips.size(1)} flips, origin={self.origin!r})"
