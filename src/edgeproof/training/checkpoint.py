"""The whole state of a training run on disk, so that it goes on to the same end (bit by bit on a CPU)."""

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
# Seconds.
_LONGEST_WRITE = 3600.0


class CheckpointError(ValueError):
    """A checkpoint that is damaged, or of another run."""


@dataclass
class RunState:
    """Where a run stands after its latest epoch; the one mutable value of training.

    Args:
        next_epoch: the epoch to run next.
        best_epoch: the epoch with the lowest validation loss so far.
        best_loss: that loss.
        best_state: the model's state after it, a copy.
        records: every epoch so far.
        flips: what the attack on the training graph last found; none without one.
        seconds: time spent so far.
        phases: time spent so far, by what on.
        stopped: why the run ended, if it did.
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
    """A file that holds one run.

    Args:
        path: the file.
        run: what identifies the run (settings, model, split); a checkpoint never serves another one.
        every: epochs between two writes.
    """

    path: Path
    run: dict[str, Any]
    every: int

    def due(self, state: RunState) -> bool:
        """Whether it is time to write: every so many epochs, and at the end."""
        return state.stopped is not None or len(state.records) % self.every == 0

    def save(
        self, state: RunState, model: nn.Module, optimizer: torch.optim.Optimizer, average: nn.Module | None
    ) -> None:
        """Write everything that the rest of the run depends on, in one step."""
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
        # A clone each: safetensors refuses tensors that share memory.
        write_tensors(self.path, {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}, header)

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer, average: nn.Module | None) -> RunState:
        """Put model, optimizer and random generators back where the checkpoint left them.

        Raises:
            CheckpointError: if the file is damaged, no checkpoint, or belongs to a different run.
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


def check_goes_on(path: Path, run: dict[str, Any]) -> None:
    """Raise now if a file is there that this run, as far as it is known, could not go on from."""
    if path.exists():
        _read(path, run)


def _read(path: Path, run: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        header, tensors = read_tensors(path)
    except ValueError as error:
        raise CheckpointError(str(error)) from error
    if header.get("checkpoint") != _FORMAT:
        raise CheckpointError(f"{path} is no training checkpoint of this version")
    saved = header.get("run")
    for key, value in run.items():
        found = saved.get(key) if isinstance(saved, dict) else None
        if found != value:
            # Who trains the same object again after an interrupt has parameters of the interrupted run in it.
            anew = "build the model anew with the same seed, " if key == "initial parameters" else ""
            raise CheckpointError(
                f"{path} belongs to another run, with {key} {found!r} instead of {value!r}: "
                f"{anew}choose another checkpoint, or delete this one to start anew"
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


def beside(checkpoint: Path, part: str) -> Path:
    """Where the state of a run is kept that comes before the one of this checkpoint."""
    return checkpoint.with_name(f"{checkpoint.name}.{part}")


def files_beside(checkpoint: Path) -> list[Path]:
    """All that was kept :func:`beside` a checkpoint, and what writes left that were killed in the middle."""
    name, part = re.escape(checkpoint.name), r"\.(labels\d+|warmup)"
    kept, unfinished = re.compile(rf"{name}{part}"), re.compile(rf"\.{name}({part})?\.\w+\.tmp")
    return sorted(
        path
        for path in checkpoint.parent.glob("*")
        if kept.fullmatch(path.name) or (unfinished.fullmatch(path.name) and _is_abandoned(path))
    )


def _is_abandoned(path: Path) -> bool:
    """Whether nobody can be writing this any more: two runs may have the same checkpoint, and end at different times."""
    try:
        return time.time() - path.stat().st_mtime > _LONGEST_WRITE
    except FileNotFoundError:
        return False
