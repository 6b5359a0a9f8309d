"""What an adversary may change: how many pairs of nodes in all, and how many at each node."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgeproof._checks import check_data, check_nodes, check_pairs
from edgeproof._names import look_up
from edgeproof.graph import degree

# Where no local budget says how many nodes there are.
_MOST_NODES = 1 << 62


@dataclass(frozen=True, eq=False)
class Budget:
    r"""At most ``total`` flips, and at most ``local[u]`` of them at node :math:`u`.

    A flip adds a pair of nodes that is no edge, or removes one that is. It counts once in ``total``, and once at each of its
    two ends.

    Args:
        total: :math:`\Delta`, a whole number; more than there are pairs is no error.
        local: :math:`\Delta^{(l)}`, one whole number per node of the graph; without it only the total counts.

    >>> Budget(2, torch.tensor([1, 1, 0])).check(torch.tensor([[0], [2]]))
    Traceback (most recent call last):
    ...
    edgeproof.budget.BudgetExceededError: node 2 has a budget of 0, got 1 flips at it
    """

    total: int
    local: Tensor | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.total, Integral) or isinstance(self.total, bool) or self.total < 0:
            raise ValueError(f"expected total to be a whole number >= 0, got {self.total!r}")
        object.__setattr__(self, "total", int(self.total))
        if self.local is None:
            return
        local = self.local
        if not isinstance(local, Tensor) or local.dtype != torch.long or local.dim() != 1:
            found = f"{local.dtype} of shape {list(local.shape)}" if isinstance(local, Tensor) else repr(local)
            raise ValueError(f"expected local as a 1-D int64 tensor, one number per node, got {found}")
        if local.numel() and int(local.min()) < 0:
            raise ValueError(f"expected local budgets >= 0, got {int(local.min())} at node {int(local.argmin())}")

    @classmethod
    def from_epsilon(
        cls,
        data: Data,
        nodes: Tensor,
        epsilon: float,
        *,
        local: float | Tensor | None = None,
        count: str = "incident",
    ) -> Budget:
        r"""A share of the edges at the nodes under attack.

        Args:
            data: the graph.
            nodes: the nodes under attack, :math:`\mathcal A`.
            epsilon: the share :math:`\epsilon`; the total is :math:`\epsilon m`, rounded (halves to the even number).
            local: a factor :math:`f`, which gives node :math:`u` the budget :math:`\lfloor f d_u \rfloor` from its degree; or
                one whole number per node of the graph.
            count: what :math:`m` is: ``"incident"``, the edges with at least one end in :math:`\mathcal A`, as in the paper's
                tables; or ``"half_degree"``, half the sum of the degrees in :math:`\mathcal A`, as in its text.

        >>> path = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> data = Data(x=torch.zeros(4, 1), edge_index=path)
        >>> Budget.from_epsilon(data, torch.tensor([1, 2]), 1.0, local=0.5)
        Budget(total=3, local=tensor([0, 1, 1, 0]))
        >>> Budget.from_epsilon(data, torch.tensor([1, 2]), 1.0, count="half_degree")
        Budget(total=2, local=None)
        """
        check_data(data, labels=False)
        check_nodes(nodes, data)
        counted = look_up("count", count, _COUNTS)(data, nodes)
        check_epsilon(epsilon)
        return cls(round(epsilon * counted), _local(data, local))

    @classmethod
    def from_epsilons(
        cls,
        data: Data,
        nodes: Tensor,
        epsilons: Iterable[float],
        *,
        local: float | Tensor | None = None,
        count: str = "incident",
    ) -> list[Budget]:
        """One budget per share, each as :meth:`from_epsilon` makes it."""
        return [cls.from_epsilon(data, nodes, epsilon, local=local, count=count) for epsilon in epsilons]

    def check(self, flips: Tensor) -> None:
        """Raise :class:`BudgetExceededError` unless the flips, shape ``[2, flips]``, are distinct pairs within the budget."""
        check_pairs(flips, _MOST_NODES if self.local is None else self.local.numel())
        if flips.size(1) > self.total:
            raise BudgetExceededError(f"the budget is {self.total} flips in all, got {flips.size(1)}")
        repeated = flips.size(1) - ((flips.amin(dim=0) << 32) + flips.amax(dim=0)).unique().numel()
        if repeated:
            raise BudgetExceededError(f"a pair is flipped once or not at all, got {repeated} repeated")
        if self.local is None:
            return
        over = self.used(flips) - self.local
        if bool((over > 0).any()):
            node = int(over.argmax())
            more = int((over > 0).sum()) - 1
            raise BudgetExceededError(
                f"node {node} has a budget of {int(self.local[node])}, got {int(self.used(flips)[node])} flips at it"
                + (f"; {more} more nodes exceed theirs" if more else "")
            )

    def used(self, flips: Tensor) -> Tensor:
        """Flips at each node of the graph; only where there is a local budget."""
        assert self.local is not None
        return torch.bincount(flips.flatten(), minlength=self.local.numel())

    def after(self, flips: Tensor) -> Budget:
        """What is left of the budget after these flips."""
        local = None if self.local is None else self.local - self.used(flips)
        return Budget(self.total - flips.size(1), local)

    @cached_property
    def usable(self) -> Tensor | None:
        """Nodes that may take part in a flip, ascending; none if that is all of them."""
        if self.local is None or bool((self.local > 0).all()):
            return None
        return self.local.nonzero().squeeze(1)

    def to(self, device: torch.device | str) -> Budget:
        """The same budget with its tensor on another device."""
        return Budget(self.total, None if self.local is None else self.local.to(device))


class BudgetExceededError(ValueError):
    """Flips that a budget does not allow."""


def check_epsilon(epsilon: float) -> None:
    """Raise unless this is a share that a budget can be made from."""
    if not _is_share(epsilon):
        raise ValueError(f"expected epsilon to be a finite number >= 0, got {epsilon!r}")


def check_count(count: str) -> None:
    """Raise unless this says which edges epsilon is a share of."""
    look_up("count", count, _COUNTS)


def check_factor(local: float) -> None:
    """Raise unless the degrees' product with this is a local budget."""
    if not _is_share(local):
        raise ValueError(f"expected local as a finite number >= 0, a share of each node's degree, got {local!r}")


def _is_share(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value) and float(value) >= 0


def _incident(data: Data, nodes: Tensor) -> float:
    target = torch.zeros(data.x.size(0), dtype=torch.bool, device=nodes.device)
    target[nodes] = True
    row, col = data.edge_index
    return int((target[row] | target[col]).sum()) / 2


def _half_degree(data: Data, nodes: Tensor) -> float:
    return int(degree(data)[nodes].sum()) / 2


_COUNTS = {"incident": _incident, "half_degree": _half_degree}


def _local(data: Data, local: float | Tensor | None) -> Tensor | None:
    if local is None:
        return None
    if isinstance(local, Tensor):
        if local.shape != (data.x.size(0),):
            raise ValueError(f"expected one local budget per node, shape [{data.x.size(0)}], got {list(local.shape)}")
        return local.to(data.x.device)
    if not _is_share(local):
        raise ValueError(f"expected local as a factor >= 0 or one whole number per node, got {local!r}")
    return (degree(data).double() * local).floor().long()
