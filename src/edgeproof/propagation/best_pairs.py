"""The best of very many pairs, a few at a time."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class BestPairs(NamedTuple):
    """Pairs with the largest scores: descending, and ascending by ``(u, v)`` where scores are equal.

    Args:
        pairs: shape ``[2, k]``, the smaller end first.
        scores: shape ``[k]``.
    """

    pairs: Tensor
    scores: Tensor


class Running:
    """The ``k`` best of everything offered so far; memory stays within a few times ``k``.

    Args:
        k: how many to keep.
        like: a tensor with the scores' dtype and device.
    """

    def __init__(self, k: int, like: Tensor) -> None:
        self.k = k
        self.scores = like.new_empty(0)
        self.keys = torch.empty(0, dtype=torch.long, device=like.device)
        self.threshold = -torch.inf

    def offer(self, scores: Tensor, keys: Tensor) -> None:
        """Consider more pairs, given by key; a score of minus infinity never counts."""
        good = (scores >= self.threshold) & (scores > -torch.inf)
        scores, keys = scores[good], keys[good]
        if scores.numel() > 4 * self.k:
            # Far too many: only those that are at least the k-th best of this lot can stay.
            good = scores >= scores.topk(self.k, sorted=False).values.min()
            scores, keys = scores[good], keys[good]
        self.scores, self.keys = torch.cat([self.scores, scores]), torch.cat([self.keys, keys])
        if self.scores.numel() > 2 * self.k:
            self._prune()

    def clear(self) -> None:
        """Forget everything offered."""
        self.scores, self.keys, self.threshold = self.scores[:0], self.keys[:0], -torch.inf

    def best(self, num_nodes: int) -> BestPairs:
        """The best so far, in order."""
        self._prune()
        return BestPairs(torch.stack([self.keys // num_nodes, self.keys % num_nodes]), self.scores)

    def _prune(self) -> None:
        self.keys, order = self.keys.sort()
        self.scores, order = self.scores[order].sort(descending=True, stable=True)
        self.scores, self.keys = self.scores[: self.k], self.keys[order[: self.k]]
        if self.scores.numel() == self.k:
            self.threshold = float(self.scores[-1])
