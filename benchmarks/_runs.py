"""Shared helpers of the benchmarks: resumable runs, result files and their provenance."""

from __future__ import annotations

import datetime
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
import typer

from edgeproof.evaluation.result import describe_environment
from edgeproof.experiments.engines.local import end_with_parent


class Unit(Protocol):
    """Model to train and test, with the path of its result file."""

    @property
    def path(self) -> Path: ...


U = TypeVar("U", bound=Unit)


def run_missing(
    units: Sequence[U], measure: Callable[[U, str, int], str], *, jobs: int, device: str, threads: int, force: bool
) -> None:
    """Call ``measure(unit, device, threads)`` in worker processes for every unit without a result file.

    Args:
        units: Models to train and test.
        measure: Function that writes the result file and returns a line to print.
        jobs: Number of worker processes.
        device: Device of each worker.
        threads: Number of CPU threads of each worker.
        force: Whether to repeat units that have a result file.
    """
    missing = [unit for unit in units if force or not unit.path.exists()]
    print(f"{len(missing)} of {len(units)} models to train and test", flush=True)
    # CUDA cannot be used in forked processes.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=end_with_parent) as pool:
        for future in as_completed([pool.submit(measure, unit, device, threads) for unit in missing]):
            print(future.result(), flush=True)


def summary(values: Sequence[float]) -> str:
    """Format the mean and its standard error."""
    if not values:
        return "-"
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values) / len(values) ** 0.5:.1f}"


def get_device(name: str) -> torch.device:
    """Return a device by name.

    Raises:
        typer.BadParameter: If it is a CUDA device and CUDA is not available.
    """
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise typer.BadParameter("CUDA is not available: expected a CUDA GPU and a PyTorch build that supports it")
    return device


def write_record(path: Path, device: torch.device | str, **results: Any) -> None:
    """Write results as JSON, with the command, day, machine and code version that produced them."""
    record = {
        "command": f"python benchmarks/{Path(sys.argv[0]).name} {' '.join(sys.argv[1:])}",
        "day": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "environment": describe_environment(device),
        **results,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {path}")


def provenance(record: dict[str, Any]) -> str:
    """Return the command, day, machine and code version of a record as a sentence."""
    environment = dict(record["environment"])
    threads, source = environment.pop("threads"), environment.pop("source")
    machine = ", ".join(f"{key} {value}" for key, value in environment.items())
    return f"`{record['command']}` on {machine}, {threads} CPU threads, on {record['day']} with source {source}."
