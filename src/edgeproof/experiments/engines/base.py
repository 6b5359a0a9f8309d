"""What every engine does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgeproof.experiments.plan import Job
from edgeproof.experiments.recipe import GRAPHS, at_hand
from edgeproof.experiments.store import Store


@dataclass(frozen=True)
class Report:
    """What became of a job.

    Args:
        job: the job.
        failure: why it failed; none if it did not.
    """

    job: Job
    failure: str | None = None


class JobFailedError(RuntimeError):
    """Some jobs could not be done; what the others found is in the store."""


class EngineWarning(UserWarning):
    """Work that may never be done."""


class Engine(Protocol):
    """Does jobs, several at once, and puts what they find into a store as soon as it is found.

    Args:
        device: where they compute.
    """

    device: str

    def run(self, jobs: Sequence[Job], store: Store, command: str, report: Callable[[Report], None]) -> None:
        """Do all jobs. Each is reported once, done or failed; whatever was found before a failure or an interruption is kept.

        Raises:
            JobFailedError: in the end, if some failed.
        """


def unusable_graphs(jobs: Sequence[Job], store: Store) -> dict[str, Exception]:
    """Graphs of these jobs that cannot be had, or are others than those that the results are of, and why.

    Each is looked for once, however many jobs need it, and so it is downloaded once. One that is at hand and has a known
    fingerprint is only checked where it is used.

    Args:
        jobs: what is to be done.
        store: where results of the same graphs may be.
    """
    recipes = {job.row.dataset: job.recipe for job in jobs}
    unusable: dict[str, Exception] = {}
    for name, recipe in recipes.items():
        if name in GRAPHS and at_hand(name):
            continue
        try:
            found = recipe.fingerprint(recipe.data())
            known = set() if name in GRAPHS else _graphs_of(store, name)
            if known - {found}:
                raise ValueError(
                    f"expected {name} to be the graph that the results in {store.root} are of, with the fingerprint "
                    f"{', '.join(sorted(known))}, got {found}; keep results of this one in another store (--store)"
                )
        except (OSError, ValueError, ImportError) as error:
            unusable[name] = error
    return unusable


def _graphs_of(store: Store, dataset: str) -> set[str]:
    """Fingerprints of the graphs by this name that models in the store were trained on."""
    trainings = (record for record in store.records() if record.identity["kind"] == "training")
    found = (record.notes.get("graph") for record in trainings if record.identity["dataset"] == dataset)
    return {graph for graph in found if graph is not None}


def raise_if_failed(failures: Sequence[Report], total: int) -> None:
    """Say what failed, once everything else is done."""
    if failures:
        named: dict[str, list[str]] = {}
        for one in failures:
            named.setdefault(str(one.failure), []).append(one.job.name)
        shown = (
            f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {reason}"
            for reason, names in list(named.items())[:3]
        )
        raise JobFailedError(f"{len(failures)} of {total} jobs failed: {'; '.join(shown)}")
