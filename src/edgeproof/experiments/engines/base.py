"""What every engine does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgeproof.experiments.plan import Job
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
