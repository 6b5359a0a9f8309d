"""Interface of engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgeproof._warnings import EdgeproofWarning
from edgeproof.experiments.graphs import graph_fingerprint, is_local, load_graph
from edgeproof.experiments.spec import DatasetSpec
from edgeproof.experiments.store import Store
from edgeproof.experiments.sweep import Job


@dataclass(frozen=True)
class Report:
    """Outcome of a job.

    Args:
        job: The job.
        failure: Reason of the failure; None if the job succeeded.
    """

    job: Job
    failure: str | None = None


class JobFailedError(RuntimeError):
    """Raised after all jobs have run if some of them failed; the results of the others are stored."""


class EngineWarning(EdgeproofWarning):
    """Warning about jobs that cannot be scheduled."""


class Engine(Protocol):
    """Base class of engines, which run jobs in parallel and store every result as soon as it is computed.

    Args:
        device: Device of the computations.
    """

    device: str

    def run(self, jobs: Sequence[Job], store: Store, command: str, report: Callable[[Report], None]) -> None:
        """Run all jobs and report each once. Results computed before a failure or an interrupt are kept.

        Args:
            jobs: The jobs.
            store: The store.
            command: Command to record in results.
            report: Called with the outcome of every job.

        Raises:
            JobFailedError: If some jobs failed, after all others have run.
        """


Graph = tuple[DatasetSpec, bool]


def unusable_graphs(jobs: Sequence[Job], store: Store) -> dict[Graph, Exception]:
    """Return reasons by graph: it cannot be loaded, or it differs from that of the stored results.

    Each graph is loaded (and downloaded if missing) once. A local graph with a known fingerprint is checked when it is used.

    Args:
        jobs: The jobs.
        store: Store whose results may be of the same graphs.
    """
    unusable: dict[Graph, Exception] = {}
    for graph in dict.fromkeys(job.run.graph for job in jobs):
        dataset, masks = graph
        if dataset.fingerprint is not None and is_local(dataset):
            continue
        try:
            found = graph_fingerprint(load_graph(dataset, masks), masks)
            known = _stored_fingerprints(store, dataset) if dataset.fingerprint is None else set()
            if known - {found}:
                raise ValueError(
                    f"expected {dataset.name} to be the graph of the results in {store.root}, with the fingerprint "
                    f"{', '.join(sorted(known))}, got {found}; keep results of this graph in another store (--store)"
                )
        except (OSError, ValueError, ImportError) as error:
            unusable[graph] = error
    return unusable


def _stored_fingerprints(store: Store, dataset: DatasetSpec) -> set[str]:
    """Return the fingerprints of all graphs of this name in stored training results."""
    trainings = (record for record in store.records() if record.kind == "training")
    found = (record.notes.get("graph") for record in trainings if record.run["dataset"] == dataset.identity)
    return {graph for graph in found if graph is not None}


def raise_if_failed(failures: Sequence[Report], total: int) -> None:
    """Raise :class:`JobFailedError` with the first reasons."""
    if failures:
        named: dict[str, list[str]] = {}
        for failed in failures:
            named.setdefault(str(failed.failure), []).append(failed.job.name)
        shown = (
            f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {reason}"
            for reason, names in list(named.items())[:3]
        )
        raise JobFailedError(f"{len(failures)} of {total} jobs failed: {'; '.join(shown)}")


def describe_error(error: BaseException) -> str:
    """Return the type and message of an error."""
    return f"{type(error).__name__}: {error}"
