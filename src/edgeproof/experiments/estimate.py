"""How long things will take, from how long such things took."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable

from edgeproof.experiments.measure import Measure
from edgeproof.experiments.plan import Job
from edgeproof.experiments.recipe import Recipe
from edgeproof.experiments.store import Store

# Seconds where nothing alike has been run yet: a guess, by what is done.
_GUESS = {"training": 300.0, "clean": 1.0, "smoothing": 200.0, "filter": 10.0, "diffusion": 1.0}
_GUESS_ATTACK = 60.0

Likeness = tuple[str, str, str, str]


class Times:
    """How long what is in a store took.

    Args:
        store: the store.
        device: only what was computed on such a device, ``"cpu"`` or ``"cuda"``, counts.
    """

    def __init__(self, store: Store, device: str) -> None:
        self._took: dict[Likeness, list[float]] = defaultdict(list)
        for record in store.records():
            if record.environment.get("device", "").startswith(device):
                self._took[_likeness(record.identity)].append(record.seconds)

    def estimate(self, jobs: Iterable[Job]) -> tuple[float, int]:
        """Seconds of work, one job after the other; and how many jobs' trainings have a precedent on such a device."""
        total, known = 0.0, 0
        for job in jobs:
            parts: list[Recipe | Measure] = [job.recipe, *job.measures]
            for part in parts:
                kind = "training" if isinstance(part, Recipe) else part.kind
                alike = self._took.get((kind, job.recipe.row.dataset, job.recipe.row.model, _against(kind, job.recipe)))
                total += statistics.mean(alike) if alike else _GUESS.get(kind, _GUESS_ATTACK)
                known += bool(alike) and isinstance(part, Recipe)
        return total, known


def _against(kind: str, recipe: Recipe) -> str:
    return str(recipe.attack and repr(recipe.attack)) if kind == "training" else ""


def _likeness(identity: dict[str, object]) -> Likeness:
    """What has most to do with how long it takes: the graph, the model, what is done, and against which attack."""
    kind = str(identity["kind"])
    training = identity if kind == "training" else identity["training"]
    assert isinstance(training, dict)
    return kind, str(training["dataset"]), str(training["model"]), str(training["attack"]) if kind == "training" else ""
