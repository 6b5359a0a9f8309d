"""Forward and backward pass of a model, recorded as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from edgeproof.kernels.cuda_graph import record
from edgeproof.propagation.message_rules import Attention
from edgeproof.propagation.pairs import Attended, Scores

Run = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, list[Scores] | None]]


class RecordedRun:
    """Function of pairs and flip weights, recorded for up to ``capacity`` pairs. Unused places hold flips of weight 0.

    Args:
        run: Function to record. It must not cause a host-device sync.
        capacity: Largest number of pairs.
        num_nodes: Number of nodes of the graph, at least 2.
        like: Tensor with the dtype and device of the flip weights.
    """

    def __init__(self, run: Run, capacity: int, num_nodes: int, like: Tensor) -> None:
        self.capacity = capacity
        self.flip = like.new_zeros(capacity)
        # Placeholder pairs are spread over all nodes: many at one node would make its row long.
        u = torch.arange(capacity, device=like.device) % (num_nodes - 1)
        self.pairs = torch.stack([u, u + 1])
        self.graph, self.results = record(lambda: run(self.pairs, self.flip), like.device)

    def __call__(self, pairs: Tensor, flip: Tensor) -> tuple[Tensor, Tensor, list[Scores] | None]:
        """Replay the recording and return copies of its results, which the next replay overwrites."""
        # Pairs of an earlier run may remain behind these: with weight 0 they have no effect.
        self.flip.zero_()
        self.pairs[:, : flip.numel()].copy_(pairs)
        self.flip[: flip.numel()].copy_(flip)
        self.graph.replay()
        loss, logits, scores = self.results
        return loss.clone(), logits.clone(), None if scores is None else [_clone(score) for score in scores]


def try_record(run: Run, capacity: int, num_nodes: int, like: Tensor) -> RecordedRun | None:
    """Record a run, or return None if it cannot be recorded because it causes a host-device sync."""
    try:
        return RecordedRun(run, capacity, num_nodes, like)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        return None


def _clone(score: Scores) -> Scores:
    if isinstance(score, Attended):
        rule = score.rule
        nodes = (rule.receiver.clone(), rule.sender.clone(), rule.shift.clone(), rule.total.clone())
        return Attended(Attention(*nodes, rule.slope), score.b.clone(), score.h.clone(), score.own.clone())
    return replace(score, b=score.b.clone(), h=score.h.clone(), node=score.node.clone())
