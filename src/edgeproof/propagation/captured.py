"""One run of a model as a CUDA graph.

On a small graph a GPU finishes each kernel before the next one has been launched; recorded once and replayed as a whole, the
kernels follow each other without the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from edgeproof.propagation.pair_scores import Attended, Scores
from edgeproof.propagation.rules import Attention

Run = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, list[Scores] | None]]


class CapturedRun:
    """A function of pairs and flips, recorded for up to ``capacity`` pairs; fewer are filled up with flips of weight 0.

    Args:
        run: the function; it must not look at the values of its arguments on the host.
        capacity: most pairs.
        like: a tensor with the flips' dtype and device.
    """

    def __init__(self, run: Run, capacity: int, like: Tensor) -> None:
        self.capacity = capacity
        self.pairs = torch.zeros(2, capacity, dtype=torch.long, device=like.device)
        self.flip = like.new_zeros(capacity)
        self.pairs[1] = 1
        # What runs for the first time allocates and compiles, which must not be recorded.
        aside = _side_stream(like.device)
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                run(self.pairs, self.flip)
        torch.cuda.current_stream().wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.results = run(self.pairs, self.flip)

    def __call__(self, pairs: Tensor, flip: Tensor) -> tuple[Tensor, Tensor, list[Scores] | None]:
        self._fill(pairs, flip)
        self.graph.replay()
        loss, logits, scores = self.results
        # The next replay writes over the results, so what is handed out is a copy.
        return loss.clone(), logits.clone(), None if scores is None else [_copied(score) for score in scores]

    def _fill(self, pairs: Tensor, flip: Tensor) -> None:
        # Pairs of an earlier run may stay behind these: with weight 0 they flip nothing.
        self.flip.zero_()
        self.pairs[:, : flip.numel()].copy_(pairs)
        self.flip[: flip.numel()].copy_(flip)


@lru_cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all: cuBLAS keeps a workspace for every stream that it has ever seen."""
    return torch.cuda.Stream(device)


def _copied(score: Scores) -> Scores:
    if isinstance(score, Attended):
        rule = score.rule
        nodes = (rule.receiver.clone(), rule.sender.clone(), rule.shift.clone(), rule.total.clone())
        return Attended(Attention(*nodes, rule.slope), score.b.clone(), score.h.clone(), score.own.clone())
    return replace(score, b=score.b.clone(), h=score.h.clone(), node=score.node.clone())
