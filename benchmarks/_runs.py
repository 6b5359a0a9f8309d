"""What the benchmarks that train many models share: they leave one result file each, and go on where they stopped."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Protocol, TypeVar


class Unit(Protocol):
    """One model to train and to test."""

    @property
    def path(self) -> Path: ...


U = TypeVar("U", bound=Unit)


def run_missing(
    units: Sequence[U], measure: Callable[[U, str, int], str], *, jobs: int, device: str, threads: int, force: bool
) -> None:
    """Call ``measure(unit, device, threads)`` for every unit without a result file, several at once; it writes the file."""
    missing = [unit for unit in units if force or not unit.path.exists()]
    print(f"{len(missing)} of {len(units)} models to train and test", flush=True)
    # Spawned, because CUDA does not survive a fork.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(measure, unit, device, threads) for unit in missing]):
            print(future.result(), flush=True)


def summary(values: Sequence[float]) -> str:
    """Mean and standard error."""
    if not values:
        return "-"
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values) / len(values) ** 0.5:.1f}"
