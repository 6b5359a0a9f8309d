"""Unordered pairs of nodes, and the one order in which they are counted.

A pair is ``(u, v)`` with ``u < v``, and its key is ``u * nodes + v``; pairs are sorted by key. Pairs are also numbered
from 0 to ``nodes * (nodes - 1) / 2 - 1`` in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from edgeproof._checks import check_pairs
from edgeproof.kernels import dispatch


@dataclass(frozen=True, eq=False)
class Pairs:
    """Distinct pairs in ascending order.

    Whoever makes one vouches for the order; :meth:`of` sorts and checks.

    Args:
        u: the smaller ends, shape ``[pairs]``.
        v: the larger ends, shape ``[pairs]``.
        num_nodes: number of nodes of the graph.
    """

    u: Tensor
    v: Tensor
    num_nodes: int

    @classmethod
    def of(cls, pairs: Tensor, num_nodes: int) -> Pairs:
        """Check and sort pairs given as a tensor of shape ``[2, pairs]``, ends in either order."""
        check_pairs(pairs, num_nodes)
        key = (pairs.amin(dim=0) * num_nodes + pairs.amax(dim=0)).sort().values
        if bool((key[1:] == key[:-1]).any()):
            raise ValueError(f"expected distinct pairs, got {int((key[1:] == key[:-1]).sum())} repeated")
        return cls.from_key(key, num_nodes)

    @classmethod
    def from_key(cls, key: Tensor, num_nodes: int) -> Pairs:
        """From ascending keys."""
        return cls(key // num_nodes, key % num_nodes, num_nodes)

    @classmethod
    def from_number(cls, number: Tensor, num_nodes: int) -> Pairs:
        """From ascending numbers, which are kept: they must not be changed afterwards.

        >>> Pairs.from_number(torch.arange(6), 4).both
        tensor([[0, 0, 0, 1, 1, 2],
                [1, 2, 3, 2, 3, 3]])
        """
        pairs = cls(*dispatch.unrank_pairs(number, num_nodes), num_nodes)
        pairs.__dict__["number"] = number
        return pairs

    @property
    def both(self) -> Tensor:
        """As a tensor of shape ``[2, pairs]``."""
        return torch.stack([self.u, self.v])

    @property
    def key(self) -> Tensor:
        """``u * nodes + v`` of each pair: ascending."""
        return self.u * self.num_nodes + self.v

    @cached_property
    def number(self) -> Tensor:
        """The number of each pair: ascending; remembered."""
        return self.u * (2 * self.num_nodes - self.u - 1) // 2 + self.v - self.u - 1

    def __len__(self) -> int:
        return self.u.numel()

    def __getitem__(self, chosen: Tensor) -> Pairs:
        """Some of the pairs, by a mask or by ascending positions."""
        return Pairs(self.u[chosen], self.v[chosen], self.num_nodes)


def contained(key: Tensor, ascending: Tensor) -> Tensor:
    """Which of the keys are among the others, which ascend."""
    if not ascending.numel():
        return torch.zeros_like(key, dtype=torch.bool)
    return ascending[torch.searchsorted(ascending, key).clamp_(max=ascending.numel() - 1)] == key


def num_pairs(num_nodes: int) -> int:
    """How many pairs there are among ``num_nodes`` nodes."""
    return num_nodes * (num_nodes - 1) // 2
