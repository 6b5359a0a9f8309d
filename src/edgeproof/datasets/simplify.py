"""Counting and fixing edges that a simple undirected graph does not have."""

from __future__ import annotations

from copy import copy
from dataclasses import asdict, dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgeproof._checks import check_bool, check_data
from edgeproof._tensors import sort_keys
from edgeproof._warnings import EdgeproofWarning, warn


class DatasetWarning(EdgeproofWarning):
    """Changed edges of a graph."""


@dataclass(frozen=True)
class Fixes:
    """Changes that make edges simple and undirected.

    Args:
        to_undirected: Add the reverse of each edge without one.
        remove_self_loops: Remove edges from a node to itself.
        merge_duplicates: Keep one of several equal edges.
        drop_weights: Give all edges the weight 1; edges of weight 0 are removed.
    """

    to_undirected: bool = False
    remove_self_loops: bool = False
    merge_duplicates: bool = False
    drop_weights: bool = False

    def __post_init__(self) -> None:
        check_bool(**asdict(self))

    @property
    def names(self) -> list[str]:
        """Names of the requested changes."""
        return [name for name, requested in asdict(self).items() if requested]


@dataclass(frozen=True)
class EdgeCounts:
    """Numbers of edges that a simple undirected graph does not have, or that were changed.

    Args:
        one_way: Edges without their reverse.
        self_loops: Edges from a node to itself.
        duplicates: Edges that repeat an earlier one, other than self-loops.
        weighted: Edges of a weight other than 1.
    """

    one_way: int = 0
    self_loops: int = 0
    duplicates: int = 0
    weighted: int = 0

    def __bool__(self) -> bool:
        return any(asdict(self).values())

    @property
    def problems(self) -> list[tuple[str, str]]:
        """Description of each kind of edge that occurs, and the field of :class:`Fixes` that fixes it."""
        found = (
            (self.one_way, "edges without their reverse", "to_undirected"),
            (self.self_loops, "self-loops", "remove_self_loops"),
            (self.duplicates, "repeated edges", "merge_duplicates"),
            (self.weighted, "edges of a weight other than 1", "drop_weights"),
        )
        return [(f"{count:,} {what}", fix) for count, what, fix in found if count]

    def __str__(self) -> str:
        done = (
            (self.one_way, "added the reverse of {:,} edges"),
            (self.self_loops, "removed {:,} self-loops"),
            (self.duplicates, "merged {:,} repeated edges"),
            (self.weighted, "dropped {:,} weights other than 1"),
        )
        return ", ".join(text.format(count) for count, text in done if count) or "no edges changed"


def count_problems(data: Data) -> EdgeCounts:
    """Count the edges that a simple undirected graph does not have.

    >>> edges = torch.tensor([[0, 1, 0, 0, 2], [1, 0, 2, 2, 2]])
    >>> count_problems(Data(x=torch.ones(3, 1), edge_index=edges))
    EdgeCounts(one_way=1, self_loops=1, duplicates=1, weighted=0)
    """
    key, is_loop = _keys(data)
    num_loops = int(is_loop.sum())
    simple = key[~is_loop] if num_loops else key
    unique = _sorted_unique(simple)
    return EdgeCounts(
        one_way=unique.numel() - _num_common(unique, sort_keys(_reverse(unique, data.x.size(0)))),
        self_loops=num_loops,
        duplicates=simple.numel() - unique.numel(),
        weighted=0 if data.get("edge_weight") is None else int((_weights(data) != 1).sum()),
    )


def simplify(data: Data, fixes: Fixes, name: str = "the graph") -> tuple[Data, EdgeCounts]:
    """Return the graph as a simple undirected one, with sorted edges.

    Args:
        data: Graph; ``edge_weight`` may have weights.
        fixes: Changes to make.
        name: Name of the graph in error messages.

    Returns:
        Graph without weights, and the numbers of changed edges.

    Raises:
        ValueError: For node ids out of range, or if the edges need a change that was not requested; one message lists all.

    >>> data = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1, 0], [0, 0, 1]]))
    >>> simple, changed = simplify(data, Fixes(remove_self_loops=True))
    >>> print(changed)
    removed 1 self-loops
    """
    counts = count_problems(data)
    missing = [problem for problem in counts.problems if problem[1] not in fixes.names]
    if missing:
        remedies = ", ".join(f"{fix}=True (--{fix.replace('_', '-')})" for _, fix in missing)
        raise ValueError(
            f"expected a simple undirected graph, got {_join([what for what, _ in missing])} in {name}; pass {remedies}"
        )
    n = data.x.size(0)
    key, is_loop = _keys(data)
    simple = copy(data)
    if counts or not bool((key[1:] > key[:-1]).all()):
        key = key[~is_loop & (_weights(data) != 0)] if counts else key
        key = _sorted_unique(torch.cat([key, _reverse(key, n)]))
        simple.edge_index = torch.stack([key // n, key % n])
    if "edge_weight" in simple:
        del simple.edge_weight
    return simple, counts


def finish(data: Data, fixes: Fixes, name: str = "the graph") -> Data:
    """Simplify a graph that was just read, warn about changed edges, and check it."""
    simple, changed = simplify(data, fixes, name)
    if changed:
        warn("EP301", f"{name}: {changed}", DatasetWarning, stacklevel=3)
    try:
        check_data(simple, labels=simple.y is not None)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return simple


def _keys(data: Data) -> tuple[Tensor, Tensor]:
    """Return a number for each edge, row-major, and whether it is a self-loop."""
    n, edges = data.x.size(0), data.edge_index
    outside = edges[(edges < 0) | (edges >= n)]
    if outside.numel():
        raise ValueError(f"expected node ids between 0 and {n - 1}, got {int(outside[0])} in an edge")
    return edges[0] * n + edges[1], edges[0] == edges[1]


def _reverse(key: Tensor, num_nodes: int) -> Tensor:
    return key % num_nodes * num_nodes + key // num_nodes


def _sorted_unique(key: Tensor) -> Tensor:
    """Return the distinct keys in order."""
    key = sort_keys(key)
    is_new = key[1:] != key[:-1]
    return key if bool(is_new.all()) else torch.cat([key[:1], key[1:][is_new]])


def _num_common(first: Tensor, second: Tensor) -> int:
    """Return the number of common entries of two sorted lists without duplicates."""
    if torch.equal(first, second):
        return first.numel()
    position = torch.searchsorted(first, second).clamp(max=first.numel() - 1)
    return int((first[position] == second).sum())


def _weights(data: Data) -> Tensor:
    weight = data.get("edge_weight")
    if weight is None:
        return torch.ones(data.edge_index.size(1))
    if not bool(weight.isfinite().all()):
        raise ValueError("expected finite edge weights, got NaN or Inf")
    return torch.as_tensor(weight)


def _join(texts: list[str]) -> str:
    return " and ".join(part for part in (", ".join(texts[:-1]), texts[-1]) if part)
