"""Budgets: the maximum number of edge flips in the graph and at each node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgeproof._checks import (
    Nodes,
    check_data,
    check_int,
    check_non_negative,
    check_pairs,
    describe,
    is_number,
    node_ids,
)
from edgeproof._names import look_up
from edgeproof.constraints import Constraints, PermittedPairs
from edgeproof.graph import degree

# Bound on node ids in flips without a local budget, where the number of nodes is unknown.
_MAX_NODES = 1 << 62
# Largest budgets: more than the pairs of any graph, and sums of two fit in int64.
_MAX_FLIPS = 1 << 62

NO_FLIPS = (
    "the budget allows no flip, so the accuracy is the clean accuracy, not a measure of robustness. Use a larger epsilon "
    "or local budget, or fewer constraints"
)


@dataclass(frozen=True, eq=False)
class Budget:
    r"""At most ``total`` flips in the graph, and at most ``local[u]`` flips at node :math:`u`.

    A flip adds a missing edge or removes an existing one. It counts once towards ``total`` and once at each endpoint; with
    costs, its cost counts.

    Args:
        total: Global budget :math:`\Delta`, an integer; it may exceed the number of pairs.
        local: Local budgets :math:`\Delta^{(l)}`, one integer per node; None for no local budget.
        constraints: Pairs that may be flipped, and the costs of flips; None for all pairs at cost 1.
        permitted: The constraints on a known graph; set by :meth:`on`.

    >>> Budget(2, torch.tensor([1, 1, 0])).check(torch.tensor([[0], [2]]))
    Traceback (most recent call last):
    ...
    edgeproof.budget.BudgetExceededError: node 2 has a budget of 0, got 1 flips at it
    """

    total: int
    local: Tensor | None = None
    constraints: Constraints | None = None
    permitted: PermittedPairs | None = None

    def __str__(self) -> str:
        local = ""
        if self.local is not None and self.local.numel():
            local = f", {int(self.local.min())} to {int(self.local.max())} at each of {self.local.numel():,} nodes"
        constraints = "" if self.constraints is None else f", {self.constraints.description}"
        return f"budget of {self.total:,} flips{local}{constraints}"

    def __post_init__(self) -> None:
        check_int(0, total=self.total)
        check_int(0, _MAX_FLIPS, total=self.total)
        object.__setattr__(self, "total", int(self.total))
        if self.constraints is not None and not isinstance(self.constraints, Constraints):
            raise TypeError(f"expected edgeproof.Constraints, got {type(self.constraints).__name__}")
        if self.local is None:
            return
        local = self.local
        if not isinstance(local, Tensor) or local.dtype != torch.long or local.dim() != 1:
            got = describe(local) if isinstance(local, Tensor) else repr(local)
            raise ValueError(f"expected local as a 1-D int64 tensor, one integer per node, got {got}")
        if local.numel() and int(local.min()) < 0:
            raise ValueError(f"expected local budgets >= 0, got {int(local.min())} at node {int(local.argmin())}")

    def __repr__(self) -> str:
        constraints = "" if self.constraints is None else f", constraints={self.constraints}"
        return f"{type(self).__name__}(total={self.total}, local={self.local}{constraints})"

    @classmethod
    def from_epsilon(
        cls,
        data: Data,
        nodes: Nodes,
        epsilon: float,
        *,
        local: float | Tensor | None = None,
        count: str = "incident",
        constraints: Constraints | None = None,
    ) -> Budget:
        r"""Return a budget as a fraction of the edges at the attacked nodes.

        Args:
            data: Graph.
            nodes: Attacked nodes :math:`\mathcal A`: ids, or a boolean mask.
            epsilon: Fraction :math:`\epsilon`; the total is :math:`\epsilon m`, rounded (halves to the even integer).
            local: Factor :math:`f`, which gives node :math:`u` the budget :math:`\lfloor f d_u \rfloor` from its degree; or
                one integer per node. None for no local budget.
            count: Definition of :math:`m`: ``"incident"``, the number of edges with at least one endpoint in
                :math:`\mathcal A`, as in the paper's tables; or ``"half_degree"``, half the sum of the degrees in
                :math:`\mathcal A`, as in its text.
            constraints: Pairs that may be flipped, and the costs of flips; they do not change :math:`m`.

        >>> path = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> data = Data(x=torch.zeros(4, 1), edge_index=path)
        >>> Budget.from_epsilon(data, torch.tensor([1, 2]), 1.0, local=0.5)
        Budget(total=3, local=tensor([0, 1, 1, 0]))
        >>> Budget.from_epsilon(data, torch.tensor([1, 2]), 1.0, count="half_degree")
        Budget(total=2, local=None)
        """
        check_data(data, labels=False)
        num_edges = look_up("count", count, _COUNTS)(data, node_ids(nodes, data))
        check_epsilon(epsilon)
        if epsilon * num_edges > _MAX_FLIPS:
            raise ValueError(
                f"expected an epsilon that allows at most {_MAX_FLIPS} flips, got {epsilon:g} of {num_edges:g} edges"
            )
        return cls(round(epsilon * num_edges), _local(data, local), constraints).on(data)

    @classmethod
    def from_epsilons(
        cls,
        data: Data,
        nodes: Nodes,
        epsilons: Iterable[float],
        *,
        local: float | Tensor | None = None,
        count: str = "incident",
        constraints: Constraints | None = None,
    ) -> list[Budget]:
        """Return one budget per epsilon; see :meth:`from_epsilon`."""
        budgets = [cls.from_epsilon(data, nodes, epsilon, local=local, count=count) for epsilon in epsilons]
        permitted = None if constraints is None else constraints.on(data)
        return [replace(budget, constraints=constraints, permitted=permitted) for budget in budgets]

    def on(self, data: Data) -> Budget:
        """Return the budget with its tensors on the device of a graph, and its constraints applied to this graph.

        Raises:
            ValueError: If the constraints do not fit the graph.
        """
        local = None if self.local is None else self.local.to(data.edge_index.device)
        permitted = self.permitted
        if self.constraints is not None and (permitted is None or permitted.edge_index is not data.edge_index):
            permitted = self.constraints.on(data)
        return replace(self, local=local, permitted=permitted)

    def check(self, flips: Tensor) -> None:
        """Raise :class:`BudgetExceededError` unless the flips, shape ``[2, flips]``, are distinct pairs within the budget.

        Raises:
            BudgetExceededError: If they exceed the total or a local budget, repeat a pair, or violate the constraints.
            ValueError: If they are not pairs of different nodes, or the graph of the constraints is unknown (see :meth:`on`).
        """
        check_pairs(flips, _MAX_NODES if self.local is None else self.local.numel())
        self._check_graph()
        if self.permitted is not None:
            check_pairs(flips, self.permitted.num_nodes)
            self._check_permitted(flips)
        cost = self.cost(flips)
        if int(cost.sum()) > self.total:
            if self.unit_costs:
                raise BudgetExceededError(f"the budget is {self.total} flips in total, got {flips.size(1)}")
            raise BudgetExceededError(f"the budget is {self.total} in total, got flips that cost {int(cost.sum())}")
        repeated = flips.size(1) - ((flips.amin(dim=0) << 32) + flips.amax(dim=0)).unique().numel()
        if repeated:
            raise BudgetExceededError(f"each pair may be flipped at most once, got {repeated} repeated")
        if self.local is None:
            return
        excess = self.used(flips) - self.local
        if bool((excess > 0).any()):
            node = int(excess.argmax())
            more = int((excess > 0).sum()) - 1
            used = int(self.used(flips)[node])
            raise BudgetExceededError(
                f"node {node} has a budget of {int(self.local[node])}, got "
                + (f"{used} flips at it" if self.unit_costs else f"flips at it that cost {used}")
                + (f"; {more} more nodes exceed their budget" if more else "")
            )

    def cost(self, pairs: Tensor) -> Tensor:
        """Return the cost of flipping each pair, shape ``[pairs]``."""
        self._check_graph()
        if self.permitted is None or self.unit_costs:
            return torch.ones(pairs.size(1), dtype=torch.long, device=pairs.device)
        return self.permitted.cost(pairs)

    def permits(self, pairs: Tensor) -> Tensor:
        """Return which pairs, shape ``[2, pairs]``, could be flipped if no other pair were.

        >>> Budget(2, torch.tensor([1, 1, 0])).permits(torch.tensor([[0, 0], [1, 2]]))
        tensor([ True, False])
        """
        cost = self.cost(pairs)
        mask = cost <= self.total
        if self.local is not None:
            mask &= (cost <= self.local[pairs[0]]) & (cost <= self.local[pairs[1]])
        if self.permitted is not None:
            mask &= self.permitted.mask(pairs)
        return mask

    def used(self, flips: Tensor) -> Tensor:
        """Return the cost of the flips at each node, shape ``[nodes]``; requires a local budget."""
        assert self.local is not None
        return torch.zeros_like(self.local).index_add_(0, flips.flatten(), self.cost(flips).repeat(2))

    def after(self, flips: Tensor) -> Budget:
        """Return the remaining budget after the given flips."""
        local = None if self.local is None else self.local - self.used(flips)
        return replace(self, total=self.total - int(self.cost(flips).sum()), local=local)

    @cached_property
    def usable(self) -> Tensor | None:
        """Ids of the nodes with a positive local budget, ascending; None if there is no restriction."""
        if self.local is None or bool((self.local > 0).all()):
            return None
        return self.local.nonzero().squeeze(1)

    @property
    def allows_flips(self) -> bool:
        """Whether the budget allows at least one flip.

        >>> Budget(3).allows_flips, Budget(0).allows_flips, Budget(3, torch.tensor([0, 2, 0])).allows_flips
        (True, False, False)
        """
        if self.total == 0 or (self.usable is not None and self.usable.numel() < 2):
            return False
        listed = None if self.permitted is None else self.permitted.pairs
        return listed is None or bool(self.permits(listed).any())

    @property
    def unit_costs(self) -> bool:
        """Whether every flip costs 1."""
        return self.permitted is None or not self.permitted.has_costs

    def _check_graph(self) -> None:
        if self.constraints is not None and self.permitted is None:
            raise ValueError("expected a budget whose constraints are applied to a graph: call budget.on(data) first")

    def _check_permitted(self, flips: Tensor) -> None:
        assert self.permitted is not None
        refused = flips[:, ~self.permitted.mask(flips)]
        if refused.numel():
            first = tuple(refused[:, 0].tolist())
            raise BudgetExceededError(
                f"the constraints do not permit {refused.size(1)} of the flips, such as the pair {first}"
            )


class BudgetExceededError(ValueError):
    """Flips exceed a budget."""


def check_epsilon(epsilon: float) -> None:
    """Raise unless ``epsilon`` is a finite number >= 0."""
    check_non_negative(epsilon=epsilon)


def check_count(count: str) -> None:
    """Raise unless ``count`` is ``"incident"`` or ``"half_degree"``; see :meth:`Budget.from_epsilon`."""
    look_up("count", count, _COUNTS)


def check_factor(local: float) -> None:
    """Raise unless ``local`` is a finite number >= 0, a factor of :meth:`Budget.from_epsilon`."""
    if not is_number(local) or local < 0:
        raise ValueError(f"expected local as a finite number >= 0, a fraction of each node's degree, got {local!r}")


def _incident(data: Data, nodes: Tensor) -> float:
    attacked = torch.zeros(data.x.size(0), dtype=torch.bool, device=nodes.device)
    attacked[nodes] = True
    row, col = data.edge_index
    return int((attacked[row] | attacked[col]).sum()) / 2


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
    check_factor(local)
    budgets = degree(data).double() * float(local)
    if bool((budgets > _MAX_FLIPS).any()):
        raise ValueError(
            f"expected local budgets of at most {_MAX_FLIPS} flips, got {float(budgets.max()):g} from {local:g}"
        )
    return budgets.floor().long()
