"""Exact search for the pairs with the largest gradient, over any number of pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from edgeproof.kernels import dispatch
from edgeproof.propagation.pairs import Attended, Bilinear, Pairs, Scores, contained, num_pairs

if TYPE_CHECKING:
    from edgeproof.propagation.edge_gradient import EdgeGradient

# Rounding of the factors of a float32 matrix product, by the setting of torch.
_MATMUL_ROUNDING = {"highest": 0.0, "high": 2.0**-10, "medium": 2.0**-7}


class BestPairs(NamedTuple):
    """Pairs with the largest scores, in descending order; ties in ascending order of ``(u, v)``.

    Args:
        pairs: Pairs, shape ``[2, k]``, the smaller node id first.
        scores: Score of each pair, shape ``[k]``.
    """

    pairs: Tensor
    scores: Tensor


@dataclass(frozen=True)
class SearchOptions:
    """Sizes that trade memory for speed; the result does not depend on them.

    Args:
        block_size: Pairs scored at once.
        tile_size: Pairs in a dense tile of the matrix of all pairs. Default: ``2**22`` on a CPU, ``2**26`` on a GPU.
        exhaustive_limit: Score every pair if there are at most this many.
        sample_size: Sampled pairs from which a larger search takes its threshold.
        num_thresholds: Thresholds tried before the search falls back to tiles.
        max_keys: Pairs above the threshold that are held at once.
        slack_factor: Factor on the assumed rounding error of the scores in a tile.
    """

    block_size: int = 1 << 20
    tile_size: int | None = None
    exhaustive_limit: int = 1 << 22
    sample_size: int = 1 << 22
    num_thresholds: int = 3
    max_keys: int = 1 << 26
    slack_factor: float = 1.0


class RunningTopK:
    """The ``k`` best pairs offered so far, in memory of a few times ``k``.

    Args:
        k: Number of pairs to keep.
        like: Tensor with the dtype and device of the scores.
    """

    def __init__(self, k: int, like: Tensor) -> None:
        self.k = k
        self.scores = like.new_empty(0)
        self.keys = torch.empty(0, dtype=torch.long, device=like.device)
        self.threshold = -torch.inf

    def offer(self, scores: Tensor, keys: Tensor) -> None:
        """Add candidates by key. Scores of minus infinity are ignored."""
        candidates = (scores >= self.threshold) & (scores > -torch.inf)
        scores, keys = scores[candidates], keys[candidates]
        if scores.numel() > 4 * self.k:
            # Keep ties with the k-th best of this batch: which of them stay depends on their keys.
            candidates = scores >= scores.topk(self.k, sorted=False).values.min()
            scores, keys = scores[candidates], keys[candidates]
        self.scores, self.keys = torch.cat([self.scores, scores]), torch.cat([self.keys, keys])
        if self.scores.numel() > 2 * self.k:
            self._prune()

    def clear(self) -> None:
        """Remove all candidates."""
        self.scores, self.keys, self.threshold = self.scores[:0], self.keys[:0], -torch.inf

    def best(self, num_nodes: int) -> BestPairs:
        """Return the best pairs so far, in order."""
        self._prune()
        return BestPairs(torch.stack([self.keys // num_nodes, self.keys % num_nodes]), self.scores)

    def _prune(self) -> None:
        self.keys, order = self.keys.sort()
        self.scores, order = self.scores[order].sort(descending=True, stable=True)
        self.scores, self.keys = self.scores[: self.k], self.keys[order[: self.k]]
        if self.scores.numel() == self.k:
            self.threshold = float(self.scores[-1])


def search(gradient: EdgeGradient, k: int, nodes: Tensor, excluded: Tensor, options: SearchOptions) -> BestPairs:
    """Return the ``k`` pairs of largest gradient.

    Args:
        gradient: Gradient that scores the pairs.
        k: Number of pairs.
        nodes: Ascending node ids; both nodes of a pair must be among them.
        excluded: Ascending keys of pairs to ignore.
        options: Sizes of the search.
    """
    best = RunningTopK(k, gradient.logits)
    if gradient.path == "propagate" and not gradient.scores:
        # All gradients are zero, so the first pairs are the best.
        _search_blocks(gradient, best, nodes, excluded, options, limit=k + excluded.numel())
    elif gradient.path == "autograd" or num_pairs(nodes.numel()) <= options.exhaustive_limit:
        _search_blocks(gradient, best, nodes, excluded, options)
    elif any(isinstance(score, Attended) for score in gradient.scores):
        _search_tiles(gradient, best, nodes, excluded, options)
    else:
        _search_above_threshold(gradient, best, nodes, excluded, options)
    pairs = best.best(gradient.engine.num_nodes).pairs
    # Rank by the gradients of one call: by autograd they can differ in rounding with the pairs of a block.
    ranked = RunningTopK(k, gradient.logits)
    ranked.offer(gradient.at(pairs), pairs[0] * gradient.engine.num_nodes + pairs[1])
    return ranked.best(gradient.engine.num_nodes)


def rounding_slack(scores: Sequence[Scores]) -> Tensor:
    """Return a bound on the difference between the scores in a tile and those of :meth:`EdgeGradient.at`.

    Both add the same products in different order. If torch may compute float32 matrix products in lower precision, tiles have
    the rounding error of that precision.
    """
    terms = []
    for score in scores:
        unit = torch.finfo(score.b.dtype).eps
        if score.b.dtype == torch.float32:
            unit = max(unit, _MATMUL_ROUNDING[torch.get_float32_matmul_precision()])
        terms.append(score.upper_bound * 2 * max(8, score.b.size(1)) * unit)
    return torch.stack(terms).sum()


def _search_blocks(
    gradient: EdgeGradient,
    best: RunningTopK,
    nodes: Tensor,
    excluded: Tensor,
    options: SearchOptions,
    limit: int | None = None,
) -> None:
    """Score all pairs (or the first ``limit``) in order, one block at a time."""
    n, m = gradient.engine.num_nodes, nodes.numel()
    total = num_pairs(m) if limit is None else min(limit, num_pairs(m))
    for start in range(0, total, options.block_size):
        number = torch.arange(start, min(start + options.block_size, total), device=nodes.device)
        local = Pairs.from_number(number, m)
        pairs = Pairs(nodes[local.u], nodes[local.v], n)
        if excluded.numel():
            pairs = pairs[~contained(pairs.key, excluded)]
        best.offer(gradient.at(pairs), pairs.key)


def _search_tiles(
    gradient: EdgeGradient, best: RunningTopK, nodes: Tensor, excluded: Tensor, options: SearchOptions
) -> None:
    """Score dense tiles of the matrix of all pairs, and score the candidates of each tile again exactly."""
    n, m, device = gradient.engine.num_nodes, nodes.numel(), gradient.logits.device
    slack = options.slack_factor * rounding_slack(gradient.scores)
    # Edges and excluded pairs, renumbered by position in `nodes`, which keeps their order.
    position = torch.full((n,), -1, device=nodes.device)
    position[nodes] = torch.arange(m, device=nodes.device)
    edges, excluded_pairs = (_renumber(key, position, n) for key in (gradient.engine.edge_key, excluded))
    tile_size = options.tile_size or (1 << 26 if device.type == "cuda" else 1 << 22)
    num_rows = max(1, tile_size // m)
    for start in range(0, m, num_rows):
        rows, cols = nodes[start : start + num_rows], nodes[start:]
        terms = [score.tile(rows, cols) for score in gradient.scores]
        tile = sum(terms[1:], terms[0])
        row, col = _with_first_node_in(edges, start, start + rows.numel())
        tile[row - start, col - start] = -tile[row - start, col - start]
        row, col = _with_first_node_in(excluded_pairs, start, start + rows.numel())
        tile[row - start, col - start] = -torch.inf
        upper = torch.ones_like(tile, dtype=torch.bool).triu_(diagonal=1)
        i, j = _candidates(tile.masked_fill_(~upper, -torch.inf), best, slack).nonzero(as_tuple=True)
        for block_i, block_j in zip(i.split(options.block_size), j.split(options.block_size), strict=True):
            pairs = Pairs(rows[block_i], cols[block_j], n)
            best.offer(gradient.at(pairs), pairs.key)


def _candidates(tile: Tensor, best: RunningTopK, slack: Tensor) -> Tensor:
    """Return a mask of the scores that can be among the best, given that a tile is exact only up to ``slack``."""
    mask = (tile >= _subtract_slack(torch.full_like(slack, best.threshold), slack)) & (tile > -torch.inf)
    if int(mask.sum()) > 4 * best.k:
        # Only the k best of this tile can stay. Both their scores and the k-th best of the tile are rounded.
        mask &= tile >= _subtract_slack(tile[mask].topk(best.k, sorted=False).values.min(), 2 * slack)
    return mask


def _subtract_slack(threshold: Tensor, slack: Tensor) -> Tensor:
    """Lower a threshold by the slack; to minus infinity if the slack is not finite."""
    return torch.where(slack.isfinite(), threshold - slack, -torch.inf)


def _search_above_threshold(
    gradient: EdgeGradient, best: RunningTopK, nodes: Tensor, excluded: Tensor, options: SearchOptions
) -> None:
    """Take a threshold that more than ``k`` pairs exceed from a sample, then collect all pairs above it in one pass."""
    (score,) = gradient.scores
    assert isinstance(score, Bilinear)
    n, m, backend = gradient.engine.num_nodes, nodes.numel(), gradient.engine.backend
    # Edges have the opposite sign, so they are scored separately.
    edges = Pairs.from_key(gradient.engine.edge_key, n)
    eligible = torch.zeros(n, dtype=torch.bool, device=nodes.device).index_fill_(0, nodes, True)
    edges = edges[eligible[edges.u] & eligible[edges.v] & ~contained(edges.key, excluded)]
    best.offer(gradient.at(edges), edges.key)
    ignored = torch.cat([gradient.engine.edge_key, excluded]).sort().values

    local = Bilinear(score.b[nodes], score.h[nodes], score.node[nodes])
    generator = torch.Generator(nodes.device).manual_seed(0)
    number = torch.randint(0, num_pairs(m), (options.sample_size,), device=nodes.device, generator=generator)
    sampled = local.at(Pairs.from_number(number.sort().values, m), backend)
    slack = options.slack_factor * rounding_slack([local])
    rank = max(32, math.ceil(2 * best.k * sampled.numel() / num_pairs(m)))
    capacity = min(options.max_keys, max(1 << 20, 8 * rank * num_pairs(m) // sampled.numel()))
    for _ in range(options.num_thresholds):
        threshold = sampled.topk(min(rank, sampled.numel())).values[-1:]
        key, count = dispatch.pairs_above(local.b, local.h, local.node, threshold - slack, capacity, backend=backend)
        if capacity < count <= options.max_keys:
            key, count = dispatch.pairs_above(local.b, local.h, local.node, threshold - slack, count, backend=backend)
        if count > options.max_keys:
            break
        pairs = Pairs.from_key(key.sort().values, m)
        pairs = Pairs(nodes[pairs.u], nodes[pairs.v], n)
        pairs = pairs[~contained(pairs.key, ignored)]
        scores = gradient.at(pairs)
        above = int((scores > threshold).sum() + (best.scores > threshold).sum())
        if above >= best.k:
            best.offer(scores, pairs.key)
            return
        rank *= 8
    # No threshold separates the best: many pairs have equal gradients, or k is close to the number of pairs.
    best.clear()
    _search_tiles(gradient, best, nodes, excluded, options)


def _renumber(key: Tensor, position: Tensor, num_nodes: int) -> Tensor:
    """Return the pairs with both nodes renumbered by ``position``, without those that have a node at position -1."""
    pairs = torch.stack([position[key // num_nodes], position[key % num_nodes]])
    return pairs[:, (pairs >= 0).all(dim=0)]


def _with_first_node_in(pairs: Tensor, start: int, end: int) -> Tensor:
    """Return the pairs, sorted by first node, whose first node is in ``[start, end)``."""
    bounds = torch.tensor([start, end], device=pairs.device)
    first, last = torch.searchsorted(pairs[0].contiguous(), bounds).tolist()
    return pairs[:, first:last]
