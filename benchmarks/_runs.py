"""What benchmarks share: those that train many models leave one result file each, and go on where they stopped."""

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
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=end_with_parent) as pool:
        for future in as_completed([pool.submit(measure, unit, device, threads) for unit in missing]):
            print(future.result(), flush=True)


def summary(values: Sequence[float]) -> str:
    """Mean and standard error."""
    if not values:
        return "-"
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values) / len(values) ** 0.5:.1f}"


def on(device: str) -> torch.device:
    """A device of this machine, by name."""
    place = torch.device(device)
    if place.type == "cuda" and not torch.cuda.is_available():
        raise typer.BadParameter("this machine has no CUDA GPU, or this torch cannot use it")
    return place


def write_record(path: Path, device: torch.device | str, **found: Any) -> None:
    """Keep what was found, and what found it: command, day, machine and code."""
    record = {
        "command": f"python benchmarks/{Path(sys.argv[0]).name} {' '.join(sys.argv[1:])}",
        "day": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "environment": describe_environment(device),
        **found,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {path}")


def made_by(record: dict[str, Any]) -> str:
    """Command, day and machine, for a page."""
    about = dict(record["environment"])
    threads, source = about.pop("threads"), about.pop("source")
    machine = ", ".join(f"{key} {value}" for key, value in about.items())
    return f"`{record['command']}` on {machine}, {threads} CPU threads, on {record['day']} with source {source}."
