"""Known flips as an attack: from a file, from an attack on another model, or chosen by hand."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgeproof._checks import check_pairs
from edgeproof.attacks.base import Attack, AttackTrace, Needs, Target
from edgeproof.budget import Budget


@dataclass(frozen=True, kw_only=True, eq=False)
class FixedFlips(Attack):
    """Apply given flips, checked against the budget and evaluated like any other attack.

    Args:
        flips: Distinct pairs, shape ``[2, flips]``.
        origin: Description of where the flips come from.

    >>> from edgeproof import datasets, models
    >>> from edgeproof.attacks import GreedyRBCD
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> gcn, gprgnn = (models.build(name, 21, 2, seed=0) for name in ("GCN", "GPRGNN"))
    >>> flips = GreedyRBCD(steps=5)(gcn, data, nodes, Budget(20)).flips
    >>> FixedFlips(flips=flips, origin="GCN")(gprgnn, data, nodes, Budget(20)).flips.equal(flips)
    True
    """

    flips: Tensor
    origin: str = "given"

    @property
    def needs(self) -> Needs:
        return "predictions"

    def num_steps(self, budget: Budget) -> int:
        return 0

    def run(self, target: Target, budget: Budget, *, generator: torch.Generator, trace: AttackTrace) -> Tensor:
        check_pairs(self.flips, target.num_nodes)
        return self.flips.to(target.device)

    def __repr__(self) -> str:
        return f"FixedFlips({self.flips.size(1)} flips, origin={self.origin!r})"
