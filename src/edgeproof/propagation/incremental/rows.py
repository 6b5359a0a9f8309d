"""Models of few message-passing layers on any device: only the rows within reach of a flip are computed, in batches."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from edgeproof.propagation.adjacency import Adjacency
from edgeproof.propagation.incremental.base import Scan, is_exact, margins_of, toggled

if TYPE_CHECKING:
    from edgeproof.propagation.edge_gradient import EdgeGradientEngine

# Models of more layers reach so many rows that full evaluation is not slower.
_MAX_DEPTH = 4
# Nodes of the path on which the number of layers is measured.
_PATH_LENGTH = 24
# Copies computed at once, and candidates of the first batch, which measures the number of copies per candidate.
_MAX_ROWS, _FIRST_BATCH = 1 << 17, 64


class _Neighbors(NamedTuple):
    """Graph in CSR form, without self-loops."""

    rowptr: Tensor
    col: Tensor

    def of(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return all neighbors of the nodes, and the position of the node that each belongs to."""
        start, count = self.rowptr[nodes], self.rowptr.diff()[nodes]
        owner = torch.arange(nodes.numel(), device=nodes.device).repeat_interleave(count)
        first = count.cumsum(0) - count
        return self.col[start[owner] + torch.arange(owner.numel(), device=nodes.device) - first[owner]], owner


class RowsEvaluator:
    r"""Run the model on the graph and, beside it, on copies of the nodes whose rows a flip changes.

    A copy of node :math:`w` for candidate :math:`i` receives messages from the neighbors of :math:`w` in the graph with flip
    :math:`i`: from their copies if there are any, else from the nodes themselves. For a model of :math:`L` layers, the copies
    needed are those of the flipped pair and of nodes at a distance :math:`a` from it and :math:`b` from a target node with
    :math:`a + b \le L`, or with :math:`2 a < L`, as the flip may be the way to the target.

    This is exact if every layer computes a row from itself, its neighbors and the number of neighbors of both. See
    :class:`IncrementalEvaluator`.

    Args:
        engine: Model on the ``"propagate"`` path, graph, target nodes and labels.
        depth: Number of layers :math:`L`.
    """

    name = "rows"

    def __init__(self, engine: EdgeGradientEngine, depth: int) -> None:
        self._engine, self._depth = engine, depth
        self.num_hops: int | None = depth
        self._nodes = engine.nodes
        self._target = torch.full((engine.num_nodes,), -1, device=self._nodes.device)
        self._target[self._nodes] = torch.arange(self._nodes.numel(), device=self._nodes.device)
        row, col = engine.data.edge_index
        self._keys = (row * engine.num_nodes + col).sort().values
        self.flips = engine.data.edge_index.new_empty(2, 0)
        self._compute()

    def scan(self, candidates: Tensor, only: int | None = None) -> Scan:
        if only is not None:
            return self._with_target(only).scan(candidates)
        parts, start, size = [], 0, _FIRST_BATCH
        # Every batch also runs the model on the graph itself, so that there should be as many copies as nodes.
        limit = max(_MAX_ROWS, self._engine.num_nodes)
        while start < candidates.size(1):
            copies, *part = self._scan_part(candidates[:, start : start + size])
            parts.append(part)
            start, size = start + size, max(1, min(4 * size, size * limit // max(1, copies)))
        counts = [self._nodes.new_zeros(1), *(count for count, _, _ in parts)]
        positions = [self._nodes[:0], *(position for _, position, _ in parts)]
        margins = [self.margins[:0], *(margin for _, _, margin in parts)]
        return Scan(torch.cat(counts).cumsum(0), torch.cat(positions), torch.cat(margins), self.margins)

    def apply(self, flips: Tensor) -> None:
        n = self._engine.num_nodes
        self.flips = toggled(self.flips, flips, n)
        keys, count = torch.cat([self._keys, flips[0] * n + flips[1], flips[1] * n + flips[0]]).unique(
            return_counts=True
        )
        self._keys = keys[count == 1]
        self._compute()

    def _compute(self) -> None:
        n, device = self._engine.num_nodes, self._nodes.device
        row, col = self._keys // n, self._keys % n
        self._graph = _Neighbors(torch.searchsorted(row, torch.arange(n + 1, device=device)), col)
        self._entries = torch.stack([col, row])
        self._distance = self._distance_to(self._nodes)
        logits = self._engine.logits_over(self._adjacency(self._entries, n), torch.arange(n, device=device))
        self.margins = margins_of(logits[self._nodes].double(), self._engine.labels)

    def _with_target(self, position: int) -> RowsEvaluator:
        """Return an evaluator of one target node in the same state."""
        one, node = copy(self), self._nodes[position : position + 1]
        one._target = torch.full_like(self._target, -1).index_fill_(0, node, position)
        one._distance = self._distance_to(node)
        return one

    def _distance_to(self, nodes: Tensor) -> Tensor:
        """Return the distance of every node to the nearest of the given ones; depth + 1 if it is larger than the depth."""
        distance = torch.full((self._engine.num_nodes,), self._depth + 1, device=nodes.device)
        distance[nodes] = 0
        for step in range(1, self._depth + 1):
            near = self._graph.of((distance == step - 1).nonzero().squeeze(1))[0]
            distance[near] = distance[near].clamp(max=step)
        return distance

    def _scan_part(self, pairs: Tensor) -> tuple[int, Tensor, Tensor, Tensor]:
        n, count, device = self._engine.num_nodes, pairs.size(1), pairs.device
        copies = self._copies(pairs)
        candidate, node = copies // n, copies % n
        sender, receiver = self._graph.of(node)
        index = torch.arange(count, device=device)
        # Entries that the flip removes or adds, at the copies of both ends; entries are sorted by receiver and sender.
        ends = torch.searchsorted(copies, torch.cat([index * n + pairs[0], index * n + pairs[1]]))
        flipped = ends * n + torch.cat([pairs[1], pairs[0]])
        entry = receiver * n + sender
        place = torch.searchsorted(entry, flipped).clamp_(max=max(0, entry.numel() - 1))
        found = entry[place] == flipped if entry.numel() else torch.zeros_like(flipped, dtype=torch.bool)
        kept = torch.ones_like(entry, dtype=torch.bool)
        kept[place[found]] = False
        entry = torch.cat([entry[kept], flipped[~found]])
        receiver, sender = entry // n, entry % n
        wanted = candidate[receiver] * n + sender
        place = torch.searchsorted(copies, wanted).clamp_(max=copies.numel() - 1)
        sender = torch.where(copies[place] == wanted, n + place, sender)
        entries = torch.cat([self._entries, torch.stack([sender, n + receiver])], dim=1)
        rows = torch.cat([torch.arange(n, device=device), node])
        logits = self._engine.logits_over(self._adjacency(entries, rows.numel()), rows)[n:]
        position = self._target[node]
        is_target = position >= 0
        margin = margins_of(logits[is_target].double(), self._engine.labels[position[is_target]])
        counts = torch.zeros(count, dtype=torch.long, device=device).index_add_(0, candidate, is_target.long())
        return copies.numel(), counts, position[is_target], margin

    def _copies(self, pairs: Tensor) -> Tensor:
        """Return ``candidate * nodes + node`` of every copy, ascending."""
        n = self._engine.num_nodes
        index = torch.arange(pairs.size(1), device=pairs.device)
        frontier = torch.cat([index * n + pairs[0], index * n + pairs[1]]).sort().values
        reached = frontier
        for step in range(1, self._depth + 1):
            node, owner = self._graph.of(frontier % n)
            needed = (step + self._distance[node] <= self._depth) | (2 * step < self._depth)
            frontier = (frontier[owner[needed]] // n * n + node[needed]).unique()
            place = torch.searchsorted(reached, frontier).clamp_(max=reached.numel() - 1)
            frontier = frontier[reached[place] != frontier]
            reached = torch.cat([reached, frontier]).sort().values
        return reached

    def _adjacency(self, entries: Tensor, num_rows: int) -> Adjacency:
        return Adjacency.from_edge_index(entries, num_nodes=num_rows, dtype=self._engine.adjacency.weight.dtype)


def rows_evaluator(engine: EdgeGradientEngine) -> RowsEvaluator | None:
    """Return the evaluator if the model has few local layers, which its logits with and without flips confirm."""
    if engine.path != "propagate" or engine.num_nodes < 2:
        return None
    depth = measured_depth(engine)
    if depth is None:
        return None
    evaluator = RowsEvaluator(engine, depth)
    return evaluator if is_exact(evaluator, engine) else None


def measured_depth(engine: EdgeGradientEngine) -> int | None:
    """Return the number of message-passing layers: how far NaN spreads from the first node of a path.

    None if it spreads farther than a few nodes, as in diffusion and in models with global operations.
    """
    device = engine.data.x.device
    nodes = torch.arange(_PATH_LENGTH, device=device)
    path = torch.stack([nodes[:-1], nodes[1:]])
    adjacency = Adjacency.from_edge_index(
        torch.cat([path, path.flip(0)], dim=1), num_nodes=_PATH_LENGTH, dtype=engine.adjacency.weight.dtype
    )
    try:
        logits = engine.logits_over(adjacency, nodes % engine.num_nodes, poisoned=0)
    except (ValueError, RuntimeError):
        # Models may refuse non-finite inputs.
        return None
    reached = (~logits.isfinite().all(dim=1)).nonzero().squeeze(1)
    depth = int(reached.max()) if reached.numel() else 0
    return depth if 1 <= depth <= _MAX_DEPTH else None
