"""How long things will take, from how long such things took."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from edgeproof.experiments.measure import Measure
from edgeproof.experiments.plan import Job
from edgeproof.experiments.recipe import Recipe
from edgeproof.experiments.store import Store

# Seconds where nothing alike has been run yet: a guess, by what is done.
_GUESS = {"training": 300.0, "clean": 1.0, "smoothing": 200.0, "filter": 10.0, "diffusion": 1.0}
_GUESS_ATTACK = 60.0

# What is done, against which attack, on which graph, with which model: what comes first has most to do with the time.
Likeness = tuple[str, ...]


class Times:
    """How long what is in a store took.

    Args:
        store: the store. Where it has nothing of the model, other models on that graph count, and then other graphs.
        device: only what was computed on such a device, ``"cpu"`` or ``"cuda"``, counts.
    """

    def __init__(self, store: Store, device: str) -> None:
        self._took: dict[Likeness, list[float]] = defaultdict(list)
        for record in store.records():
            if record.environment.get("device", "").startswith(device):
                likeness = _likeness(record.identity)
                for known in range(2, len(likeness) + 1):
                    self._took[likeness[:known]].append(record.seconds)

    def estimate(self, jobs: Iterable[Job]) -> tuple[float, int]:
        """Seconds of work, one job after the other; and how many jobs' trainings have a precedent on such a device."""
        total, known = 0.0, 0
        for job in jobs:
            parts: list[Recipe | Measure] = [job.recipe, *job.measures]
            for part in parts:
                likeness = _likeness(part.identity)
                total += self._expected(likeness)
                known += likeness in self._took and isinstance(part, Recipe)
        return total, known

    def _expected(self, likeness: Likeness) -> float:
        """Seconds, from what is most alike."""
        for known in range(len(likeness), 1, -1):
            if likeness[:known] in self._took:
                return statistics.mean(self._took[likeness[:known]])
        return _GUESS.get(likeness[0], _GUESS_ATTACK)


def _likeness(identity: dict[str, Any]) -> Likeness:
    kind = str(identity["kind"])
    training = identity if kind == "training" else identity["training"]
    against = str(training["attack"]) if kind == "training" else ""
    return kind, against, str(training["dataset"]), str(training["model"])
