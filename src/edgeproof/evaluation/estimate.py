"""Estimate of the remaining time of an evaluation, and its progress bar."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from edgeproof._progress import Advance, duration
from edgeproof.budget import Budget
from edgeproof.evaluation.plan import Step


def remaining_seconds(measured: Mapping[str, tuple[float, float]], left: Mapping[str, float]) -> float | None:
    """Return the estimated time for the work that is left; None before anything is measured.

    The seconds per unit of work are those measured for the same attack or, for attacks that have not run yet, the average.

    Args:
        measured: Finished work and the seconds it took, by attack.
        left: Planned work that is left, by attack.

    >>> remaining_seconds({"LRBCD": (100.0, 10.0), "DICE": (100.0, 30.0)}, {"LRBCD": 50.0, "transfer": 10.0})
    7.0
    """
    work, seconds = (sum(values) for values in zip(*measured.values(), strict=True)) if measured else (0.0, 0.0)
    if work <= 0:
        return None
    rates = {name: spent / done for name, (done, spent) in measured.items() if done > 0}
    return sum(amount * rates.get(name, seconds / work) for name, amount in left.items())


def progress_text(number: int, total: int, name: str, seconds_left: float | None) -> str:
    """Return the text beside the progress bar.

    >>> progress_text(3, 7, "LRBCD", 250.0), progress_text(1, 7, "DICE", None)
    ('attack 3 of 7 (LRBCD), about 4 min left', 'attack 1 of 7 (DICE)')
    """
    left = "" if seconds_left is None else f", about {duration(seconds_left)} left"
    return f"attack {number} of {total} ({name}){left}"


def total_work(steps: Sequence[Step], budgets: Sequence[Budget]) -> float:
    """Return the planned work of all steps."""
    return sum(step.work(budget) for step in steps for budget in budgets)


class Meter:
    """Work and time of all searches so far, shown by one progress bar.

    Args:
        steps: All steps of the evaluation.
        budgets: All budgets.
        advance: Callback that moves the progress bar.
    """

    def __init__(self, steps: Sequence[Step], budgets: Sequence[Budget], advance: Advance) -> None:
        self._steps, self._advance = steps, advance
        self._planned = [sum(step.work(budget) for budget in budgets) for step in steps]
        self._measured: dict[str, tuple[float, float]] = {}
        self._current, self._done_in_step = 0, 0.0
        self._last = time.perf_counter()

    def start_step(self, number: int) -> None:
        """Begin step ``number``; the work of all earlier steps is done."""
        self._current, self._done_in_step = number, 0.0
        self._last = time.perf_counter()
        self._show(0.0)

    def inner(self) -> Advance:
        """Return a callback for the progress within the next attack, in steps of the attack."""
        start, cost = self._done_in_step, self._steps[self._current].cost
        return lambda done, text: self._show(start + done * cost)

    def restart_timer(self) -> float:
        """Return the seconds since the last search ended, and measure the next one from now."""
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        return seconds

    def finish_search(self, work: float, seconds: float) -> None:
        """Count the planned work of one search as done.

        Args:
            work: Planned work.
            seconds: Measured time, possibly of an earlier process.
        """
        name = self._steps[self._current].name
        done, spent = self._measured.get(name, (0.0, 0.0))
        self._measured[name] = (done + work, spent + seconds)
        self._done_in_step += work
        self._show(self._done_in_step)

    def _show(self, done_in_step: float) -> None:
        step, current = self._steps[self._current], self._current
        done_in_step = min(done_in_step, self._planned[current])
        running = done_in_step - self._done_in_step
        measured, left = dict(self._measured), {step.name: self._planned[current] - done_in_step}
        if running > 0:
            done, spent = measured.get(step.name, (0.0, 0.0))
            measured[step.name] = (done + running, spent + time.perf_counter() - self._last)
        for later, planned in zip(self._steps[current + 1 :], self._planned[current + 1 :], strict=True):
            left[later.name] = left.get(later.name, 0.0) + planned
        seconds = remaining_seconds(measured, left)
        text = progress_text(current + 1, len(self._steps), step.name, seconds)
        self._advance(sum(self._planned[:current]) + done_in_step, text)
