"""Record functions as CUDA graphs.

On small inputs a GPU finishes each kernel before the host launches the next one. A CUDA graph launches all kernels of a
function at once.
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
    """Record a function without arguments as a CUDA graph.

    Args:
        run: Function to record. It must not need a host-device sync.
        device: GPU.
        generator: Generator that the function draws from, if any.
        warm: Whether a similar function has been recorded before, so that one warm-up run is enough.

    Returns:
        The graph; and the result of the function, whose tensors every replay overwrites.
    """
    # Garbage collection of an earlier graph during the capture would free its memory and invalidate this one.
    collecting = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.device(device):
            # First runs allocate memory and compile kernels, which must not be captured.
            side = _side_stream(device)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(1 if warm else 3):
                    run()
            torch.cuda.current_stream().wait_stream(side)
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
    generators = [default] if generator is None else [default, generator]
    states = [each.clone_state() for each in generators]
    try:
        with torch.cuda.graph(graph):
            return run()
    except RuntimeError:
        # A failed capture leaves the generators in capture mode, in which nothing else can draw from them.
        for each, state in zip(generators, states, strict=True):
            each.graphsafe_set_state(state)
        raise


@lru_cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """Return one stream per device: cuBLAS keeps a workspace for every stream it has used."""
    return torch.cuda.Stream(device)
