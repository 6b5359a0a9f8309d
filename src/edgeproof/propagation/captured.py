"""One run of a model as a CUDA graph.

On a small graph a GPU finishes each kernel before the next one has been launched; recorded once and replayed as a whole, the
kernels follow each other without the host.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

import torch
from torch import Tensor

from edgeproof.propagation.pair_scores import Attended, Scores
from edgeproof.propagation.rules import Attention

Result = TypeVar("Result")
Run = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, list[Scores] | None]]


class CapturedRun:
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


def record(
    run: Callable[[], Result], device: torch.device, generator: torch.Generator | None = None, *, warm: bool = False
) -> tuple[torch.cuda.CUDAGraph, Result]:
    """Record a function without arguments, and give back what its replays will write over.

    Args:
        run: the function; it must not look at values on the host.
        device: the GPU.
        generator: what it draws random numbers from, if it does.
        warm: whether one like it has been recorded before: one trial run is enough then.
    """
    # If an earlier recording were thrown away in the meantime, its memory would be freed, and this one spoilt.
    collecting = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.device(device):
            # What runs for the first time allocates and compiles, which must not be recorded.
            aside = _side_stream(device)
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                for _ in range(1 if warm else 3):
                    run()
            torch.cuda.current_stream().wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            if generator is not None:
                graph.register_generator_state(generator)
            result = _capture(graph, run, generator)
    finally:
        if collecting:
            gc.enable()
    return graph, result


def _capture(graph: torch.cuda.CUDAGraph, run: Callable[[], Result], generator: torch.Generator | None) -> Result:
    default = torch.cuda.default_generators[torch.cuda.current_device()]
    drawn_from = [default] if generator is None else [default, generator]
    before = [one.clone_state() for one in drawn_from]
    try:
        with torch.cuda.graph(graph):
            return run()
    except RuntimeError:
        # A recording that fails leaves them as if it still went on: nothing could draw from them any more.
        for one, state in zip(drawn_from, before, strict=True):
            one.graphsafe_set_state(state)
        raise


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
