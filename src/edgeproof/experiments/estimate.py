"""How long things will take, from how long such things took."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from edgeproof.experiments.measure import Measure
from edgeproof.experiments.origins import Origin
from edgeproof.experiments.paper import is_large
from edgeproof.experiments.plan import Job
from edgeproof.experiments.recipe import Recipe
from edgeproof.experiments.store import Store
from edgeproof.experiments.work import known_model

# Seconds on two cores where nothing alike has been run yet: a guess, by what is done, and for training against what.
_GUESS = {"clean": 1.0, "smoothing": 600.0, "filter": 10.0, "diffusion": 1.0}
_GUESS_ATTACK = 120.0
_GUESS_TRAINING = {"None": 60.0, "LRBCD": 600.0}
_GUESS_TRAINING_ELSE = 2400.0
# A GPU takes about this share of it.
_GPU = 0.1

# The smaller version takes about this share of the time, and a graph of arXiv's size so many times as long as others.
_FAST, _LARGE = 0.05, 10.0

# What is done, whether in the smaller version, against which attack, on which graph, with which model: what comes first has
# most to do with the time.
Likeness = tuple[str, bool, str, str, str]
# As much of it as two things have to have in common at least.
_COMMON = 3


class Times:
    """How long what is in a store took.

    Args:
        store: the store. Where it has nothing of the model, other models on that graph count, and then other graphs.
        device: only what was computed on such a device, ``"cpu"`` or ``"cuda"``, counts.
    """

    def __init__(self, store: Store, device: str) -> None:
        self._took: dict[tuple[object, ...], list[float]] = defaultdict(list)
        self._store, self._device = store, device.partition(":")[0]
        for record in store.records():
            if record.environment.get("device", "").startswith(self._device):
                likeness = _likeness(record.identity)
                for known in range(_COMMON, len(likeness) + 1):
                    self._took[likeness[:known]].append(record.seconds)

    def estimate(self, jobs: Iterable[Job], *, anew: bool = False) -> tuple[float, int]:
        """Seconds of work, one job after the other; and for how many jobs all of that is from such work on such a device.

        Args:
            jobs: what would be done.
            anew: whether models that are kept would be trained again.
        """
        total, known = 0.0, 0
        for job in jobs:
            there = not anew and known_model(job, self._store) is not None
            parts: list[Recipe | Measure] = [*([] if there else [job.recipe]), *job.measures]
            likenesses = [_likeness(part.identity) for part in parts]
            total += sum(map(self._expected, likenesses))
            known += all(likeness in self._took for likeness in likenesses)
        return total, known

    def _expected(self, likeness: Likeness) -> float:
        """Seconds, from what is most alike."""
        for known in range(len(likeness), _COMMON - 1, -1):
            if likeness[:known] in self._took:
                return statistics.mean(self._took[likeness[:known]])
        kind, fast, against, dataset, _ = likeness
        if kind == "training":
            guess = _GUESS_TRAINING.get(against.partition("(")[0], _GUESS_TRAINING_ELSE)
        else:
            guess = _GUESS.get(kind, _GUESS_ATTACK)
        scales = (_FAST if fast else 1, _LARGE if is_large(dataset) else 1, 1 if self._device == "cpu" else _GPU)
        return guess * math.prod(scales)


def _likeness(identity: dict[str, Any]) -> Likeness:
    kind = str(identity["kind"])
    training = identity if kind == "training" else identity["training"]
    against = str(training["attack"]) if kind == "training" else ""
    return kind, Origin.of(training).fast, against, str(training["dataset"]), str(training["model"])
