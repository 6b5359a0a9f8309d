"""Constraints on edge flips: pairs that may be flipped, and the cost of each flip."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgeproof._checks import check_nodes, check_pairs, describe
from edgeproof._names import unknown_name
from edgeproof._tensors import fingerprint

Selection = str | Tensor | Callable[[Tensor], Tensor]
"""Set of pairs: ``"additions"`` (missing edges), ``"deletions"`` (edges), a tensor, or a function.

A tensor contains pairs, shape ``[2, pairs]``; or node ids or a mask of nodes, which stand for all pairs with at least one of
these nodes. A function takes pairs as a tensor of shape ``[2, pairs]``, smaller node id first, and returns a mask of shape
``[pairs]``.
"""

Costs = Callable[[Tensor], Tensor] | tuple[Tensor, Tensor]
"""Positive integer cost of each flip.

A function that takes pairs of shape ``[2, pairs]``, smaller node id first, and returns an int64 tensor of shape ``[pairs]``; or
a tuple of pairs, shape ``[2, pairs]``, and their costs, where all other pairs cost 1.
"""

_ADDITIONS, _DELETIONS = "additions", "deletions"
# Permitted pairs are listed if at most this many have to be examined.
_MAX_EXAMINED = {"all pairs": 1 << 22, "pairs of given nodes": 1 << 24}
_CHUNK = 1 << 20
# Pairs at which constraints that cannot be listed are compared.
_NUM_PROBES = 1 << 16


@dataclass(frozen=True, eq=False)
class Constraints:
    """Pairs that an attack may flip, and the cost of each flip.

    A pair may be flipped if every selection in ``allowed`` contains it and none in ``forbidden`` does.

    Args:
        allowed: One :data:`Selection` or a tuple of them. Default: all pairs.
        forbidden: One :data:`Selection` or a tuple of them. Default: no pair.
        costs: :data:`Costs` of flips, which count towards the budget in place of 1. Default: every flip costs 1.

    >>> constraints = Constraints(allowed=torch.tensor([0]), forbidden="deletions")
    >>> path = Data(x=torch.zeros(3, 1), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    >>> constraints.on(path).mask(torch.tensor([[0, 0, 1], [1, 2, 2]]))
    tensor([False,  True, False])
    """

    allowed: Selection | tuple[Selection, ...] | None = None
    forbidden: Selection | tuple[Selection, ...] | None = None
    costs: Costs | None = None

    def __post_init__(self) -> None:
        for name in ("allowed", "forbidden"):
            value = getattr(self, name)
            selections = value if isinstance(value, tuple) else () if value is None else (value,)
            for selection in selections:
                _check_selection(name, selection)
            object.__setattr__(self, name, selections)
        if isinstance(self.costs, tuple):
            if len(self.costs) != 2:
                raise ValueError(f"expected costs as a tuple of pairs and costs, got {len(self.costs)} values")
            _check_cost_table(*self.costs)
        elif self.costs is not None and not callable(self.costs):
            raise TypeError(
                f"expected costs as a function or a tuple of pairs and costs, got {type(self.costs).__name__}"
            )

    @property
    def description(self) -> str:
        """Constraints in words; pairs and nodes are identified by a hash.

        >>> Constraints("additions", forbidden=torch.tensor([3, 5])).description
        'allowed: additions; forbidden: 2 nodes [6a9737d6]'
        """
        parts = [
            f"{name}: {', '.join(map(_describe_selection, getattr(self, name)))}"
            for name in ("allowed", "forbidden")
            if getattr(self, name)
        ]
        if isinstance(self.costs, tuple):
            parts.append(f"costs of {self.costs[1].numel()} pairs [{fingerprint(self.costs)[:8]}]")
        elif self.costs is not None:
            parts.append(f"costs by {_describe_function(self.costs)}")
        return "; ".join(parts)

    def on(self, data: Data) -> PermittedPairs:
        """Return the permitted pairs of a graph.

        Raises:
            ValueError: If a selection does not fit the graph, or a function returns anything but a mask.
        """
        return PermittedPairs(self, data)


class PermittedPairs:
    """Pairs of one graph that :class:`Constraints` permit to flip.

    Args:
        constraints: The constraints.
        data: Undirected graph.
    """

    def __init__(self, constraints: Constraints, data: Data) -> None:
        self.constraints, self.edge_index = constraints, data.edge_index
        self.num_nodes, self._device = int(data.x.size(0)), data.edge_index.device
        row, col = data.edge_index
        edges = (row * self.num_nodes + col)[row < col].sort().values
        assert isinstance(constraints.allowed, tuple)
        assert isinstance(constraints.forbidden, tuple)
        self._allowed = [_pair_set(selection, data, edges) for selection in constraints.allowed]
        self._forbidden = [_pair_set(selection, data, edges) for selection in constraints.forbidden]
        self._cost_table: tuple[Tensor, Tensor] | None = None
        if isinstance(constraints.costs, tuple):
            pairs, costs = (tensor.to(self._device) for tensor in constraints.costs)
            check_pairs(pairs, self.num_nodes)
            key, order = _key(pairs, self.num_nodes).sort()
            self._cost_table = key, costs[order]
        if self.num_nodes > 1:
            # A function that returns anything but a mask fails here, before the search.
            probe = torch.tensor([[0], [1]], device=self._device)
            self.mask(probe)
            self.cost(probe)

    def mask(self, pairs: Tensor) -> Tensor:
        """Return which pairs, shape ``[2, pairs]``, may be flipped."""
        pairs = torch.stack([pairs.amin(dim=0), pairs.amax(dim=0)])
        mask = torch.ones(pairs.size(1), dtype=torch.bool, device=pairs.device)
        for selection in self._allowed:
            mask &= selection.contains(pairs)
        for selection in self._forbidden:
            mask &= ~selection.contains(pairs)
        return mask

    @property
    def has_costs(self) -> bool:
        """Whether flips have costs other than 1."""
        return self.constraints.costs is not None

    def cost(self, pairs: Tensor) -> Tensor:
        """Return the cost of each pair, shape ``[pairs]``."""
        ones = torch.ones(pairs.size(1), dtype=torch.long, device=pairs.device)
        if self._cost_table is not None:
            key, costs = self._cost_table
            place, found = _search(_key(pairs, self.num_nodes), key)
            return torch.where(found, costs[place], ones) if key.numel() else ones
        if not callable(self.constraints.costs):
            return ones
        costs = self.constraints.costs(torch.stack([pairs.amin(dim=0), pairs.amax(dim=0)]))
        if not isinstance(costs, Tensor) or costs.dtype != torch.long or costs.shape != ones.shape:
            raise ValueError(f"expected costs to return int64 of shape {list(ones.shape)}, got {describe(costs)}")
        if costs.numel() and int(costs.min()) < 1:
            raise ValueError(f"expected costs >= 1, got {int(costs.min())}")
        return costs

    @cached_property
    def keys(self) -> Tensor | None:
        """Ascending ``u * nodes + v`` of all permitted pairs, ``u < v``; None if there are too many pairs to list."""
        listed = [keys for selection in self._allowed if (keys := selection.keys) is not None]
        if listed:
            keys = min(listed, key=Tensor.numel)
        elif self.num_nodes * (self.num_nodes - 1) // 2 <= _MAX_EXAMINED["all pairs"]:
            keys = _key(torch.triu_indices(self.num_nodes, self.num_nodes, 1, device=self._device), self.num_nodes)
        else:
            return None
        return torch.cat([chunk[self.mask(_pairs(chunk, self.num_nodes))] for chunk in keys.split(_CHUNK)])

    @cached_property
    def pairs(self) -> Tensor | None:
        """All permitted pairs in ascending order, shape ``[2, pairs]``; None if there are too many to list."""
        return None if self.keys is None else _pairs(self.keys, self.num_nodes)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of permitted pairs and costs; of a sample of them if there are too many to list."""
        keys = self.keys
        if keys is None:
            generator = torch.Generator().manual_seed(0)
            keys = torch.randint(self.num_nodes**2, (_NUM_PROBES,), generator=generator).to(self._device)
            pairs = _pairs(keys, self.num_nodes)
            pairs = pairs[:, pairs[0] != pairs[1]]
            return fingerprint([self.mask(pairs), self.cost(pairs)])
        pairs = _pairs(keys, self.num_nodes)
        return fingerprint([pairs, self.cost(pairs)])


class _PairList:
    """Listed pairs, or with ``complement`` all others."""

    def __init__(self, keys: Tensor, num_nodes: int, *, complement: bool = False) -> None:
        self._listed, self._num_nodes, self._complement = keys, num_nodes, complement

    def contains(self, pairs: Tensor) -> Tensor:
        return _search(_key(pairs, self._num_nodes), self._listed)[1] ^ self._complement

    @property
    def keys(self) -> Tensor | None:
        return None if self._complement else self._listed


class _PairsAtNodes:
    """Pairs with at least one of the given nodes."""

    def __init__(self, chosen: Tensor) -> None:
        self._chosen = chosen

    def contains(self, pairs: Tensor) -> Tensor:
        return self._chosen[pairs[0]] | self._chosen[pairs[1]]

    @property
    def keys(self) -> Tensor | None:
        nodes, n = self._chosen.nonzero(), self._chosen.numel()
        if nodes.numel() * n > _MAX_EXAMINED["pairs of given nodes"]:
            return None
        others = torch.arange(n, device=nodes.device)
        pairs = torch.stack(torch.broadcast_tensors(nodes, others)).flatten(1)
        keys: Tensor = _key(pairs[:, pairs[0] != pairs[1]], n).unique()
        return keys


class _PairFunction:
    """Pairs for which a function returns True."""

    keys = None

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self._function = function

    def contains(self, pairs: Tensor) -> Tensor:
        mask = self._function(pairs)
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != pairs.shape[1:]:
            raise ValueError(
                f"expected the function on pairs to return a mask of shape {list(pairs.shape[1:])}, got {describe(mask)}"
            )
        return mask


_PairSet = _PairList | _PairsAtNodes | _PairFunction


def _check_selection(name: str, selection: object) -> None:
    if isinstance(selection, str):
        if selection not in (_ADDITIONS, _DELETIONS):
            raise unknown_name(name, selection, [_ADDITIONS, _DELETIONS])
        return
    if isinstance(selection, Tensor):
        is_pairs = selection.dtype == torch.long and selection.dim() == 2 and selection.size(0) == 2
        if is_pairs or (selection.dtype in (torch.long, torch.bool) and selection.dim() == 1):
            return
        got = describe(selection)
    elif callable(selection):
        return
    else:
        got = type(selection).__name__
    raise TypeError(
        f"expected {name} as 'additions', 'deletions', pairs of shape [2, pairs], node ids, a mask of nodes, or a function on "
        f"pairs, got {got}"
    )


def _describe_selection(selection: Selection) -> str:
    if isinstance(selection, str):
        return selection
    if not isinstance(selection, Tensor):
        return _describe_function(selection)
    if selection.dim() == 2:
        count = f"{selection.size(1)} pairs"
    else:
        count = f"{int(selection.sum()) if selection.dtype == torch.bool else selection.numel()} nodes"
    return f"{count} [{fingerprint([selection])[:8]}]"


def _describe_function(function: object) -> str:
    return f"function {getattr(function, '__qualname__', type(function).__name__)}"


def _check_cost_table(pairs: Tensor, costs: Tensor) -> None:
    if not isinstance(pairs, Tensor) or pairs.dim() != 2:
        raise ValueError(f"expected pairs of shape [2, pairs] and their costs, got {describe(pairs)}")
    if not isinstance(costs, Tensor) or costs.dtype != torch.long or costs.shape != pairs.shape[1:]:
        raise ValueError(f"expected one int64 cost per pair, shape {list(pairs.shape[1:])}, got {describe(costs)}")
    if costs.numel() and int(costs.min()) < 1:
        raise ValueError(f"expected costs >= 1, got {int(costs.min())}")


def _pair_set(selection: Selection, data: Data, edges: Tensor) -> _PairSet:
    n, device = int(data.x.size(0)), edges.device
    if isinstance(selection, str):
        return _PairList(edges, n, complement=selection == _ADDITIONS)
    if not isinstance(selection, Tensor):
        return _PairFunction(selection)
    selection = selection.to(device)
    if selection.dim() == 2:
        check_pairs(selection, n)
        return _PairList(_key(selection, n).unique(), n)
    if selection.dtype == torch.bool:
        if selection.numel() != n:
            raise ValueError(f"expected a mask of the {n} nodes of the graph, got {selection.numel()} entries")
        return _PairsAtNodes(selection)
    if selection.numel():
        check_nodes(selection, data, what="nodes of the constraints")
    return _PairsAtNodes(torch.zeros(n, dtype=torch.bool, device=device).index_fill_(0, selection, True))


def _key(pairs: Tensor, num_nodes: int) -> Tensor:
    return pairs.amin(dim=0) * num_nodes + pairs.amax(dim=0)


def _pairs(key: Tensor, num_nodes: int) -> Tensor:
    return torch.stack([key // num_nodes, key % num_nodes])


def _search(key: Tensor, ascending: Tensor) -> tuple[Tensor, Tensor]:
    """Return a position in ``ascending`` for each key, and whether the key is found there."""
    if not ascending.numel():
        return torch.zeros_like(key), torch.zeros_like(key, dtype=torch.bool)
    place = torch.searchsorted(ascending, key).clamp_(max=ascending.numel() - 1)
    return place, ascending[place] == key
