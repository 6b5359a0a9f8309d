"""Flips that can change the prediction for one node."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from edgeproof.budget import Budget
from edgeproof.propagation.pairs import Pairs, contained, num_pairs

SCOPES = ("influence", "direct")


class NodeCandidates:
    """Flips that can change the margin of one node, given earlier flips.

    In scope ``"direct"`` these are the pairs with the node. In scope ``"influence"``, with a known number of hops :math:`L`,
    they are the pairs with a node within :math:`L - 1` hops, and the pairs that only change a degree at :math:`L` hops. Of
    the latter, one addition and one deletion stand for all with the same node and another end out of reach.

    Args:
        data: Graph.
        scope: One of :data:`SCOPES`.
        budget: Permitted flips and local budgets.
        num_hops: :math:`L`; None if unknown.
    """

    def __init__(self, data: Data, scope: str, budget: Budget, num_hops: int | None) -> None:
        self._scope, self._budget, self._num_hops = scope, budget, num_hops
        self._n, self._device = int(data.x.size(0)), data.edge_index.device
        self._edges = (data.edge_index[0] * self._n + data.edge_index[1]).sort().values
        keys = self._edges.cpu().numpy()
        self._rowptr, self._col = np.searchsorted(keys, np.arange(self._n + 1) * self._n), keys % self._n
        permitted = budget.permitted
        self._listed = None if permitted is None else permitted.pairs

    @property
    def shared(self) -> bool:
        """Whether all nodes have the same candidates on the clean graph."""
        return self._scope == "influence" and self._num_hops is None

    def count(self, node: int, flips: Tensor) -> int:
        """Return an upper bound on the number of pairs of a complete list."""
        if self._scope == "direct":
            count = self._n - 1
        elif self._num_hops is None:
            count = num_pairs(self._n)
        else:
            hops = np.array(list(self._hops(node, flips, self._num_hops).values()))
            inner, outer = int((hops < self._num_hops).sum()), int((hops == self._num_hops).sum())
            count = inner * self._n + outer * (outer + 4) // 2
        return count if self._listed is None else min(count, self._listed.size(1))

    def complete(self, node: int, flips: Tensor, *, repeats: bool = False) -> Tensor:
        """Return all flips that can change the node's margin; with ``repeats``, also those of equal effect."""
        if self._scope == "direct":
            return self._permitted(self._pairs_at([node]), flips)
        if self._num_hops is None:
            pairs = (
                torch.triu_indices(self._n, self._n, 1, device=self._device) if self._listed is None else self._listed
            )
            return self._permitted(pairs, flips)
        hops = self._hops(node, flips, self._num_hops)
        pairs = self._permitted(self._pairs_at(list(hops)), flips)
        return pairs if repeats else self._without_repeats(pairs, hops)

    def near(self, node: int, flips: Tensor) -> Tensor:
        """Return the flips with an end within one hop of the node; for searches that cannot be complete."""
        nodes = [node] if self._scope == "direct" else list(self._hops(node, flips, 1))
        pairs = self._permitted(self._pairs_at(nodes), flips)
        if not pairs.size(1) and self._listed is not None and self._scope == "influence":
            pairs = self._permitted(self._listed, flips)
        return pairs

    def _pairs_at(self, nodes: list[int]) -> Tensor:
        """Return all pairs with one of the nodes, in ascending order."""
        ends, others = torch.tensor(nodes, device=self._device)[:, None], torch.arange(self._n, device=self._device)
        key = torch.minimum(ends, others) * self._n + torch.maximum(ends, others)
        key = key[ends != others]
        key = key.sort().values if len(nodes) == 1 else key.unique()
        return torch.stack([key // self._n, key % self._n])

    def _permitted(self, pairs: Tensor, flips: Tensor) -> Tensor:
        """Return the pairs that the budget permits after the flips, without the flips themselves."""
        mask = self._budget.after(flips).permits(pairs)
        taken = Pairs.of(flips, self._n).key
        return pairs[:, mask & ~contained(pairs[0] * self._n + pairs[1], taken)]

    def _without_repeats(self, pairs: Tensor, hops: dict[int, int]) -> Tensor:
        """Keep one of the pairs that change the same degree at the last hop, and nothing else within reach."""
        assert self._num_hops is not None
        last = self._num_hops
        distance = torch.full((self._n,), last + 1)
        distance[torch.tensor(list(hops))] = torch.tensor(list(hops.values()))
        u, v = distance.to(self._device)[pairs]
        repeated = ((torch.minimum(u, v) == last) & (torch.maximum(u, v) == last + 1)).nonzero().squeeze(1)
        ends = pairs[:, repeated]
        inside = torch.where(u[repeated] == last, ends[0], ends[1])
        # Flips are never among the candidates, so edges are those of the clean graph.
        effect, group = (2 * inside + contained(ends[0] * self._n + ends[1], self._edges)).unique(return_inverse=True)
        first = torch.full_like(effect, self._n**2).scatter_reduce_(0, group, repeated, "amin")
        keep = torch.ones_like(u, dtype=torch.bool)
        keep[repeated] = False
        keep[first] = True
        return pairs[:, keep]

    def _hops(self, node: int, flips: Tensor, limit: int) -> dict[int, int]:
        """Return the distance of every node within ``limit`` hops on the flipped graph."""
        flipped: dict[int, set[int]] = {}
        for u, v in flips.T.tolist():
            flipped.setdefault(u, set()).add(v)
            flipped.setdefault(v, set()).add(u)
        hops, frontier = {node: 0}, [node]
        for distance in range(1, limit + 1):
            reached = set[int]()
            for w in frontier:
                neighbors = set(self._col[self._rowptr[w] : self._rowptr[w + 1]].tolist())
                reached |= neighbors ^ flipped.get(w, set())
            frontier = sorted(reached - hops.keys())
            hops.update(dict.fromkeys(frontier, distance))
        return hops
