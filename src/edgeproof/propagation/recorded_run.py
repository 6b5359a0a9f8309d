"""One run of a model as a CUDA graph.

On a small graph a GPU finishes each kernel before the next one has been launched; recorded once and replayed as a whole, the
kernels follow each other without the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from edgeproof.kernels.cuda_graph import record
from edgeproof.propagation.message_rules import Attention
from edgeproof.propagation.pair_scores import Attended, Scores

Run = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, list[Scores] | None]]


class RecordedRun:
    """A function of pairs and flips, recorded for up to ``capacity`` pairs; fewer are filled up with flips of weight 0.

    Args:
        run: the function; it must not look at the values of its arguments on the host.
        capacity: most pairs.
        num_nodes: nodes of the graph, at least 2.
        like: a tensor with the flips' dtype and device.
    """

    def __init__(self, run: Run, capacity: int, num_nodes: int, like: Tensor) -> None:
        self.capacity = capacity
        self.flip = like.new_zeros(capacity)
        # Any pairs will do, but many at one node would make its row long.
        u = torch.arange(capacity, device=like.device) % (num_nodes - 1)
        self.pairs = torch.stack([u, u + 1])
        self.graph, self.results = record(lambda: run(self.pairs, self.flip), like.device)

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


def _copied(score: Scores) -> Scores:
    if isinstance(score, Attended):
        rule = score.rule
        nodes = (rule.receiver.clone(), rule.sender.clone(), rule.shift.clone(), rule.total.clone())
        return Attended(Attention(*nodes, rule.slope), score.b.clone(), score.h.clone(), score.own.clone())
    return replace(score, b=score.b.clone(), h=score.h.clone(), node=score.node.clone())
