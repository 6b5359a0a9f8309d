"""Checkpoints of training runs: a resumed run ends with the same result, bit for bit on a CPU."""

from __future__ import annotations

import re
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from edgeproof.serialization import read_tensors, write_tensors
from edgeproof.training.history import Epoch

_FORMAT = 2
# Temporary files older than this many seconds are left over from a killed process.
_MAX_WRITE_SECONDS = 3600.0


class CheckpointError(ValueError):
    """Checkpoint that is damaged or belongs to another run."""


@dataclass
class RunState:
    """Mutable state of a training run between two epochs.

    Args:
        next_epoch: Next epoch.
        best_epoch: Epoch with the lowest selection loss so far.
        best_loss: Lowest selection loss so far; see :func:`edgeproof.training.loop.selection_loss`.
        best_state: Copy of the model's state after the best epoch.
        records: Metrics of all epochs so far.
        flips: Latest flips of the attack on the training graph; None without an attack.
        seconds: Runtime so far.
        phases: Runtime so far by phase.
        stopped: Reason why the run ended; None while it is running.
    """

    next_epoch: int
    best_epoch: int | None = None
    best_loss: float = float("inf")
    best_state: dict[str, Tensor] = field(default_factory=dict)
    records: list[Epoch] = field(default_factory=list)
    flips: Tensor | None = None
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    stopped: str | None = None


@dataclass(frozen=True)
class Checkpoint:
    """Checkpoint file of one run.

    Args:
        path: File.
        run: Identity of the run (settings, model, split); :meth:`restore` rejects files of other runs.
        every: Number of epochs between two writes.
    """

    path: Path
    run: dict[str, Any]
    every: int

    def due(self, state: RunState) -> bool:
        """Return whether to write now: every ``every`` epochs, and at the end of the run."""
        return state.stopped is not None or len(state.records) % self.every == 0

    def save(
        self, state: RunState, model: nn.Module, optimizer: torch.optim.Optimizer, average: nn.Module | None
    ) -> None:
        """Write the complete state of the run, atomically."""
        tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
        tensors |= {f"best.{name}": tensor for name, tensor in state.best_state.items()}
        for index, moments in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": tensor for name, tensor in moments.items()}
        if average is not None:
            tensors |= {f"average.{name}": tensor for name, tensor in average.state_dict().items()}
        if state.flips is not None:
            tensors["flips."] = state.flips
        tensors |= {f"random.{name}": value for name, value in _random_states(model).items()}
        header = {
            "checkpoint": _FORMAT,
            "run": self.run,
            "next_epoch": state.next_epoch,
            "best_epoch": state.best_epoch,
            "best_loss": state.best_loss,
            "records": [list(asdict(record).values()) for record in state.records],
            "seconds": state.seconds,
            "phases": state.phases,
            "stopped": state.stopped,
        }
        # safetensors rejects tensors that share memory.
        write_tensors(self.path, {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}, header)

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer, average: nn.Module | None) -> RunState:
        """Restore model, optimizer and random generators, and return the state of the run.

        Raises:
            CheckpointError: If the file is damaged, not a checkpoint, or belongs to another run.
        """
        header, tensors = _read(self.path, self.run)
        try:
            parts: dict[str, dict[str, Tensor]] = {
                part: {} for part in ("model", "best", "optimizer", "average", "flips", "random")
            }
            for name, tensor in tensors.items():
                part, _, rest = name.partition(".")
                parts[part][rest] = tensor
            moments: dict[int, dict[str, Tensor]] = {}
            for name, tensor in parts["optimizer"].items():
                index, _, key = name.partition(".")
                moments.setdefault(int(index), {})[key] = tensor
            device = next(model.parameters()).device
            state = RunState(
                next_epoch=int(header["next_epoch"]),
                best_epoch=header["best_epoch"],
                best_loss=float(header["best_loss"]),
                best_state={name: tensor.to(device) for name, tensor in parts["best"].items()},
                records=[_epoch(values) for values in header["records"]],
                flips=parts["flips"][""].to(device) if parts["flips"] else None,
                seconds=float(header["seconds"]),
                phases={str(phase): float(seconds) for phase, seconds in header["phases"].items()},
                stopped=header["stopped"],
            )
            model.load_state_dict(parts["model"])
            if average is not None:
                average.load_state_dict(parts["average"])
            optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
            _set_random_states(model, parts["random"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"{self.path} is a damaged checkpoint: {error}") from error
        return state


def _epoch(values: list[Any]) -> Epoch:
    record = Epoch(*values)
    return record if record.gamma is None else replace(record, gamma=tuple(record.gamma))


def check_resumable(path: Path, run: dict[str, Any]) -> None:
    """Raise if the file exists and belongs to another run; ``run`` may contain a part of the identity only."""
    if path.exists():
        _read(path, run)


def _read(path: Path, run: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        header, tensors = read_tensors(path)
    except ValueError as error:
        raise CheckpointError(str(error)) from error
    if header.get("checkpoint") != _FORMAT:
        raise CheckpointError(f"{path} is not a training checkpoint of this version")
    saved = header.get("run")
    for key, value in run.items():
        saved_value = saved.get(key) if isinstance(saved, dict) else None
        if saved_value != value:
            # A model object that was trained before has other initial parameters.
            rebuild = "build a new model with the same seed, " if key == "initial parameters" else ""
            raise CheckpointError(
                f"{path} belongs to another run, with {key} {saved_value!r} instead of {value!r}: "
                f"{rebuild}choose another checkpoint, or delete this one to start again"
            )
    return header, tensors


def _random_states(model: nn.Module) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    device = next(model.parameters()).device
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _set_random_states(model: nn.Module, states: dict[str, Tensor]) -> None:
    torch.set_rng_state(states["cpu"])
    device = next(model.parameters()).device
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)


def sibling_path(checkpoint: Path, part: str) -> Path:
    """Return the checkpoint file of another part of the run: ``"warmup"``, ``"labels0"``, ``"start1"``, ``"restart1"`` ..."""
    return checkpoint.with_name(f"{checkpoint.name}.{part}")


def sibling_files(checkpoint: Path) -> list[Path]:
    """Return all existing :func:`sibling_path` files of a checkpoint, and temporary files left by killed processes."""
    name, part = re.escape(checkpoint.name), r"(\.(labels\d+|(warmup)?(start\d+)?|restart\d+))+"
    complete, temporary = re.compile(rf"{name}{part}"), re.compile(rf"\.{name}({part})?\.\w+\.tmp")
    return sorted(
        path
        for path in checkpoint.parent.glob("*")
        if complete.fullmatch(path.name) or (temporary.fullmatch(path.name) and _is_abandoned(path))
    )


def remove_checkpoints(checkpoint: str | Path) -> None:
    """Remove the checkpoint of a finished run, with those of its label models and its warm-up."""
    file = Path(checkpoint)
    for path in (file, *sibling_files(file)):
        path.unlink(missing_ok=True)


def _is_abandoned(path: Path) -> bool:
    """Return whether a temporary file is too old to belong to a running process with the same checkpoint."""
    try:
        return time.time() - path.stat().st_mtime > _MAX_WRITE_SECONDS
    except FileNotFoundError:
        return False
