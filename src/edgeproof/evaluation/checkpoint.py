"""Checkpoints of evaluations: the flips of all finished searches."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgeproof._files import check_writable
from edgeproof.attacks.base import Attack, AttackResult, Target, result_of_flips
from edgeproof.budget import Budget
from edgeproof.serialization import read_tensors, write_tensors
from edgeproof.training.checkpoint import CheckpointError

# Version of the file format; since 3, numbers of queries are stored.
_FORMAT = 3


@dataclass(frozen=True, eq=False)
class Record:
    """One finished search.

    Args:
        flips: Flips that it found.
        trace: Loss at every step.
        seconds: Seconds per phase.
        path: Gradient path.
        queries: Number of perturbed graphs that the search evaluated.
        elapsed: Seconds since the end of the search before.
    """

    flips: Tensor
    trace: tuple[float, ...]
    seconds: dict[str, float]
    path: str
    queries: int
    elapsed: float

    @classmethod
    def of(cls, result: AttackResult, elapsed: float) -> Record:
        """Return the record of a result."""
        return cls(result.flips.cpu(), result.trace, result.seconds, result.path, result.queries, elapsed)

    def restore(self, attack: Attack, target: Target, budget: Budget, seed: int) -> AttackResult:
        """Return the result; flips are checked against the budget, and accuracy and margins are computed again."""
        flips = self.flips.to(target.device)
        budget.check(flips)
        result = result_of_flips(attack, target, budget, flips, seed=seed)
        return replace(result, trace=self.trace, seconds=self.seconds, path=self.path, queries=self.queries)


@dataclass
class Checkpoint:
    """Finished searches of one evaluation in the order of their runs, and a file for them.

    Args:
        path: File; None to keep the searches in memory only.
        run: Identity of the evaluation; files of other evaluations are refused.
        records: Finished searches.
        baselines: Accuracies of the baselines; None before they are known.
    """

    path: Path | None
    run: Mapping[str, Any]
    records: list[Record] = field(default_factory=list)
    baselines: dict[str, float] | None = None

    @classmethod
    def open(cls, path: str | Path | None, run: Mapping[str, Any]) -> Checkpoint:
        """Read the file if it exists.

        Raises:
            CheckpointError: If the file is damaged or belongs to another evaluation.
            ValueError: If the file cannot be written.
        """
        if path is None:
            return cls(None, run)
        path = Path(path)
        check_writable(path)
        return _read(path, run) if path.exists() else cls(path, run)

    def add(self, record: Record) -> None:
        """Append a finished search and write the file."""
        self.records.append(record)
        self.save()

    def save(self) -> None:
        """Write the file atomically."""
        if self.path is None:
            return
        content = {
            "run": self.run,
            "baselines": self.baselines,
            "searches": [[record.seconds, record.path, record.queries, record.elapsed] for record in self.records],
        }
        tensors = {f"flips.{i}": record.flips.contiguous() for i, record in enumerate(self.records)}
        tensors |= {
            f"trace.{i}": torch.tensor(record.trace, dtype=torch.float64) for i, record in enumerate(self.records)
        }
        write_tensors(self.path, tensors, {"evaluation": _FORMAT, **content})


def num_finished(path: str | Path) -> int:
    """Return the number of finished searches in a checkpoint of :func:`edgeproof.evaluate`; 0 if there is no such file.

    Raises:
        CheckpointError: If the file is damaged.

    >>> num_finished("nowhere.checkpoint")
    0
    """
    return len(_contents(Path(path))[0]["searches"]) if Path(path).exists() else 0


def _read(path: Path, run: Mapping[str, Any]) -> Checkpoint:
    content, tensors = _contents(path)
    for key, value in json.loads(json.dumps(run)).items():
        saved = content["run"].get(key)
        if saved != value:
            raise CheckpointError(
                f"{path} belongs to another evaluation, with {key} {_shorten(saved)} instead of {_shorten(value)}: choose "
                "another checkpoint, or delete this one to start again"
            )
    records = [
        Record(tensors[f"flips.{i}"], tuple(tensors[f"trace.{i}"].tolist()), *values)
        for i, values in enumerate(content["searches"])
    ]
    return Checkpoint(path, run, records, content["baselines"])


def _contents(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the content of an undamaged file."""
    try:
        header, tensors = read_tensors(path)
    except ValueError as error:
        raise CheckpointError(f"{error}: delete it to start again") from error
    if header.get("evaluation") != _FORMAT:
        raise CheckpointError(f"{path} is not an evaluation checkpoint of this version: delete it to start again")
    return header, tensors


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
