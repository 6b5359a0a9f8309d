"""What an attack notes down on its way: losses, times, and a progress bar."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from edgeproof._progress import Advance


def ignore(done: int, text: str) -> None:
    """Moves no progress bar."""


class AttackTrace:
    """The record of one run, kept without making a GPU wait.

    Args:
        device: where the run takes place.
        advance: moves a progress bar; see :func:`edgeproof._progress.progress_bar`.
        done: steps that the bar stands at already.
    """

    def __init__(self, device: torch.device, advance: Advance, done: int = 0) -> None:
        self._cuda = device.type == "cuda"
        self._advance, self._done = advance, done
        self._losses: list[Tensor] = []
        self._marks: list[tuple[str, torch.cuda.Event | float]] = []
        self.phase("")

    def phase(self, phase: str) -> None:
        """What happened since the last call was this phase."""
        mark: torch.cuda.Event | float = time.perf_counter()
        if self._cuda:
            mark = torch.cuda.Event(enable_timing=True)
            mark.record()
        self._marks.append((phase, mark))

    def step(self, loss: Tensor) -> None:
        """A step was made, from flips of this loss."""
        self._losses.append(loss.detach())
        self._done += 1
        self._advance(self._done, "")

    @property
    def num_steps(self) -> int:
        """Steps made so far."""
        return len(self._losses)

    def go_back(self, num_steps: int) -> None:
        """Only the first so many steps count; the others are made again."""
        self._done -= len(self._losses) - num_steps
        del self._losses[num_steps:]

    @property
    def trace(self) -> tuple[float, ...]:
        """The loss of every step."""
        return tuple(torch.stack(self._losses).tolist()) if self._losses else ()

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of each phase, added up."""
        if self._cuda:
            torch.cuda.synchronize()
        total: dict[str, float] = {}
        for (_, before), (phase, after) in zip(self._marks, self._marks[1:], strict=False):
            if isinstance(before, torch.cuda.Event):
                assert isinstance(after, torch.cuda.Event)
                passed = before.elapsed_time(after) / 1000
            else:
                assert isinstance(after, float)
                passed = after - before
            total[phase] = total.get(phase, 0.0) + passed
        return total
