"""Run time estimates from the run times of stored results."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from edgeproof.experiments.graphs import STAND_IN
from edgeproof.experiments.identity import canonical
from edgeproof.experiments.store import Store
from edgeproof.experiments.sweep import Job
from edgeproof.experiments.worker import stored_model

# Default estimates in seconds on two cores, used without stored run times: by kind, and for training by attack.
_GUESSES = {
    "clean": 1.0,
    "attack": 120.0,
    "degrees": 120.0,
    "memorizing": 120.0,
    "pyg_prbcd": 300.0,
    "evaluate": 600.0,
    "worst_case": 200.0,
    "smoothing": 600.0,
    "filter": 10.0,
}
_GUESS_OTHER = 1.0
_GUESS_TRAINING = {None: 60.0, "LRBCD": 600.0}
_GUESS_OTHER_ATTACK = 2400.0
# Factors for a GPU and for graphs of the size of ogbn-arxiv.
_GPU, _LARGE = 0.1, 10.0
_LARGE_GRAPHS = ("ogbn-arxiv", STAND_IN)
# Typical number of epochs of a training and of steps of an attack; default estimates are scaled down below it.
_USUAL_EPOCHS, _USUAL_STEPS = 1000, 400

# Kind, its settings, the number of epochs, the attack in training, the dataset and the model: the first entries have the
# largest effect on the run time.
Signature = tuple[str, str, str, str, str, str]
# Entries that must be equal for a stored run time to be used.
_REQUIRED = 4


class Times:
    """Run times of stored results.

    Args:
        store: The results. Those of the same model are used first, then other models on the graph, then other graphs.
        device: Only results from this type of device, ``"cpu"`` or ``"cuda"``, are used.
    """

    def __init__(self, store: Store, device: str) -> None:
        self._seconds: dict[tuple[str, ...], list[float]] = defaultdict(list)
        self._store, self._device = store, device.partition(":")[0]
        for record in store.records():
            # A run time of 0 means that it is unknown.
            if record.seconds > 0 and record.environment.get("device", "").startswith(self._device):
                signature = _signature(record.identity)
                for length in range(_REQUIRED, len(signature) + 1):
                    self._seconds[signature[:length]].append(record.seconds)

    def estimate(self, jobs: Iterable[Job], *, retrain: bool = False) -> tuple[float, int]:
        """Estimate the run time of jobs if they run one after the other.

        Args:
            jobs: The jobs.
            retrain: Whether stored models are retrained.

        Returns:
            Seconds, and the number of jobs that are estimated from the same kind of work on the same type of device only.
        """
        total, known = 0.0, 0
        for job in jobs:
            trained = not retrain and stored_model(job.run, self._store) is not None
            identities = [*([] if trained else [job.run.identity]), *(task.identity for task in job.tasks)]
            total += sum(map(self._expected, identities))
            known += all(_signature(identity) in self._seconds for identity in identities)
        return total, known

    def _expected(self, identity: Mapping[str, Any]) -> float:
        """Return the mean run time of the most similar results, or the default estimate."""
        signature = _signature(identity)
        for length in range(len(signature), _REQUIRED - 1, -1):
            if signature[:length] in self._seconds:
                return statistics.mean(self._seconds[signature[:length]])
        run = identity["run"]
        large = _LARGE if run["dataset"]["name"] in _LARGE_GRAPHS else 1.0
        return math.prod((_guess(identity), large, 1.0 if self._device == "cpu" else _GPU))


def _guess(identity: Mapping[str, Any]) -> float:
    kind, training = identity["kind"], identity["run"].get("training", {})
    if kind == "training":
        attack = training.get("attack", {}).get("name")
        epochs = float(training.get("config", {}).get("max_epochs", _USUAL_EPOCHS))
        return _GUESS_TRAINING.get(attack, _GUESS_OTHER_ATTACK) * min(1.0, epochs / _USUAL_EPOCHS)
    steps = float(identity.get("attack", {}).get("settings", {}).get("steps", _USUAL_STEPS))
    return _GUESSES.get(kind, _GUESS_OTHER) * min(1.0, steps / _USUAL_STEPS)


def _signature(identity: Mapping[str, Any]) -> Signature:
    run, kind = identity["run"], str(identity["kind"])
    training = run.get("training", {})
    settings = {name: value for name, value in identity.items() if name not in ("version", "kind", "run", "epsilons")}
    epochs = str(training.get("config", {}).get("max_epochs", ""))
    attack = canonical(training.get("attack", {})) if kind == "training" else ""
    return kind, canonical(settings), epochs, attack, str(run["dataset"]["name"]), str(run["model"]["name"])
