"""Record a function as a CUDA graph.

On small inputs a GPU finishes each kernel before the host has launched the next one. A recorded function is replayed as a
whole, without the host.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import torch

Result = TypeVar("Result")


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
