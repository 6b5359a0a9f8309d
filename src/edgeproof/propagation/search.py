"""The search for the pairs of largest gradient: over all of them, whatever their number, and exact."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from edgeproof.kernels import dispatch
from edgeproof.propagation.best_pairs import Running
from edgeproof.propagation.pair_scores import Attended, Bilinear, Scores
from edgeproof.propagation.pairs import Pairs, contained, num_pairs

if TYPE_CHECKING:
    from edgeproof.propagation.edge_gradient import EdgeGradient

# Pairs scored at once: bounds the memory of a dense tile and of a block.
_TILE = {"cpu": 1 << 22, "cuda": 1 << 26}
_BLOCK = 1 << 20
# Up to so many pairs, looking at each of them is the fastest search.
_FEW_PAIRS = 1 << 22
# Pairs from whose scores the threshold of a larger search comes.
_SAMPLE = 1 << 22
# Thresholds tried, and keys held at once, before the search goes tile by tile.
_TRIES = 3
# What the factors of products of matrices may be rounded to, by torch's settings.
_UNIT_OF = {"highest": 0.0, "high": 2.0**-10, "medium": 2.0**-7}
_MOST_KEYS = 1 << 26


def search(gradient: EdgeGradient, running: Running, nodes: Tensor, excluded: Tensor) -> None:
    """Offer ``running`` the pairs among ``nodes``, but for the excluded ones (by ascending key)."""
    if gradient.path == "propagate" and not gradient.scores:
        # All gradients are zero: the first pairs are as good as any.
        _search_blocks(gradient, running, nodes, excluded, limit=running.k + excluded.numel())
    elif gradient.path == "autograd" or num_pairs(nodes.numel()) <= _FEW_PAIRS:
        _search_blocks(gradient, running, nodes, excluded)
    elif any(isinstance(score, Attended) for score in gradient.scores):
        _search_tiles(gradient, running, nodes, excluded)
    else:
        _search_above(gradient, running, nodes, excluded)


def _search_blocks(
    gradient: EdgeGradient, running: Running, nodes: Tensor, excluded: Tensor, limit: int | None = None
) -> None:
    """All pairs by their numbers, or the first of them, a block at a time."""
    n, m = gradient.engine.num_nodes, nodes.numel()
    total = num_pairs(m) if limit is None else min(limit, num_pairs(m))
    for start in range(0, total, _BLOCK):
        number = torch.arange(start, min(start + _BLOCK, total), device=nodes.device)
        local = Pairs.from_number(number, m)
        pairs = Pairs(nodes[local.u], nodes[local.v], n)
        if excluded.numel():
            pairs = pairs[~contained(pairs.key, excluded)]
        running.offer(gradient.at(pairs), pairs.key)


def _search_tiles(gradient: EdgeGradient, running: Running, nodes: Tensor, excluded: Tensor) -> None:
    """Rows of the matrix of all pairs, a dense tile at a time; what may be among the best is scored again, one by one."""
    n, m, slack = gradient.engine.num_nodes, nodes.numel(), _slack(gradient.scores)
    # Edges and excluded pairs in the numbering of `nodes`, which keeps their order.
    place = torch.full((n,), -1, device=nodes.device)
    place[nodes] = torch.arange(m, device=nodes.device)
    edges, barred = (_renumbered(key, place, n) for key in (gradient.engine.edge_key, excluded))
    size = max(1, _TILE.get(gradient.logits.device.type, 1 << 22) // m)
    for start in range(0, m, size):
        rows, cols = nodes[start : start + size], nodes[start:]
        terms = [score.tile(rows, cols) for score in gradient.scores]
        tile = sum(terms[1:], terms[0])
        for pairs, change in ((edges, torch.neg), (barred, _never)):
            row, col = _between(pairs, start, start + rows.numel())
            tile[row - start, col - start] = change(tile[row - start, col - start])
        upper = torch.ones_like(tile, dtype=torch.bool).triu_(diagonal=1)
        i, j = _promising(tile.masked_fill_(~upper, -torch.inf), running, slack).nonzero(as_tuple=True)
        for some_i, some_j in zip(i.split(_BLOCK), j.split(_BLOCK), strict=True):
            found = Pairs(rows[some_i], cols[some_j], n)
            running.offer(gradient.at(found), found.key)


def _promising(tile: Tensor, running: Running, slack: Tensor) -> Tensor:
    """Which scores of a tile may be among the best, though a tile adds up in another order than what is compared."""
    good = (tile >= _lowered(torch.full_like(slack, running.threshold), slack)) & (tile > -torch.inf)
    if int(good.sum()) > 4 * running.k:
        # Only the k best of this tile can stay: those are no worse than its k-th best, but for the rounding of both.
        good &= tile >= _lowered(tile[good].topk(running.k, sorted=False).values.min(), 2 * slack)
    return good


def _lowered(threshold: Tensor, slack: Tensor) -> Tensor:
    """A threshold that leaves room for rounding; where nothing is known of that, one that anything exceeds."""
    return torch.where(slack.isfinite(), threshold - slack, -torch.inf)


def _search_above(gradient: EdgeGradient, running: Running, nodes: Tensor, excluded: Tensor) -> None:
    """A threshold that more than enough pairs exceed, from a sample of them; then all that do, in one pass."""
    (score,) = gradient.scores
    assert isinstance(score, Bilinear)
    n, m, backend = gradient.engine.num_nodes, nodes.numel(), gradient.engine.backend
    # Edges count with the other sign, so they are scored on their own.
    edges = Pairs.from_key(gradient.engine.edge_key, n)
    eligible = torch.zeros(n, dtype=torch.bool, device=nodes.device).index_fill_(0, nodes, True)
    edges = edges[eligible[edges.u] & eligible[edges.v] & ~contained(edges.key, excluded)]
    running.offer(gradient.at(edges), edges.key)
    barred = torch.cat([gradient.engine.edge_key, excluded]).sort().values

    local = Bilinear(score.b[nodes], score.h[nodes], score.node[nodes])
    generator = torch.Generator(nodes.device).manual_seed(0)
    number = torch.randint(0, num_pairs(m), (_SAMPLE,), device=nodes.device, generator=generator)
    sampled = local.at(Pairs.from_number(number.sort().values, m), backend)
    # What rounding could hide below the threshold is looked at, too.
    slack = _slack([local])
    rank = max(32, math.ceil(2 * running.k * sampled.numel() / num_pairs(m)))
    capacity = min(_MOST_KEYS, max(1 << 20, 8 * rank * num_pairs(m) // sampled.numel()))
    for _ in range(_TRIES):
        threshold = sampled.topk(min(rank, sampled.numel())).values[-1:]
        key, count = dispatch.pairs_above(local.b, local.h, local.node, threshold - slack, capacity, backend=backend)
        if capacity < count <= _MOST_KEYS:
            key, count = dispatch.pairs_above(local.b, local.h, local.node, threshold - slack, count, backend=backend)
        if count > _MOST_KEYS:
            break
        pairs = Pairs.from_key(key.sort().values, m)
        pairs = Pairs(nodes[pairs.u], nodes[pairs.v], n)
        pairs = pairs[~contained(pairs.key, barred)]
        scores = gradient.at(pairs)
        above = int((scores > threshold).sum() + (running.scores > threshold).sum())
        if above >= running.k:
            running.offer(scores, pairs.key)
            return
        rank *= 8
    # Very many pairs have the same gradient, or nearly all are asked for: no threshold tells few from many.
    running.clear()
    _search_tiles(gradient, running, nodes, excluded)


def _slack(scores: Sequence[Scores]) -> Tensor:
    """By how much a score in a tile may differ from what `at` gives: products are added up in another order.

    Where torch may multiply matrices of single precision in a lower one, a tile is that much coarser.
    """
    terms = []
    for score in scores:
        unit = torch.finfo(score.b.dtype).eps
        if score.b.dtype == torch.float32:
            unit = max(unit, _UNIT_OF[torch.get_float32_matmul_precision()])
        terms.append(score.largest * 2 * max(8, score.b.size(1)) * unit)
    return torch.stack(terms).sum()


def _renumbered(key: Tensor, place: Tensor, num_nodes: int) -> Tensor:
    """Pairs by key in another numbering of nodes; those with an end outside it are left out."""
    pairs = torch.stack([place[key // num_nodes], place[key % num_nodes]])
    return pairs[:, (pairs >= 0).all(dim=0)]


def _between(pairs: Tensor, start: int, end: int) -> Tensor:
    """Those of the sorted pairs whose first node is in ``[start, end)``."""
    bounds = torch.tensor([start, end], device=pairs.device)
    first, last = torch.searchsorted(pairs[0].contiguous(), bounds).tolist()
    return pairs[:, first:last]


def _never(scores: Tensor) -> Tensor:
    return torch.full_like(scores, -torch.inf)
