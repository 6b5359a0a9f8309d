"""Summary tables of sweeps: means and standard errors over seeds."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from edgeproof.experiments.spec import Job, Measurement, Run, Sweep
from edgeproof.experiments.store import Store


@dataclass(frozen=True)
class SeedMean:
    """A mean over seeds, in percent.

    Args:
        values: One value per seed.
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean."""
        return statistics.mean(self.values)

    @property
    def error(self) -> float:
        """The standard error of the mean; 0 for a single seed."""
        return statistics.stdev(self.values) / len(self.values) ** 0.5 if len(self.values) > 1 else 0.0

    def __str__(self) -> str:
        return f"{self.mean:.1f} ± {self.error:.1f}" if len(self.values) > 1 else f"{self.mean:.1f}"


@dataclass(frozen=True)
class SweepTable:
    """Accuracies of a sweep in percent, one line per dataset, split, model and training.

    Args:
        titles: Titles of the columns.
        lines: Cells, line by line; ``"-"`` where no seed has been run, and ``(n/m)`` where only n of m have.
    """

    titles: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


def summarize(sweep: Sweep, store: Store) -> SweepTable:
    """Return the table of a sweep as far as the store has its results."""
    groups: dict[tuple[str, ...], list[Job]] = {}
    for job in sweep.jobs():
        groups.setdefault(_line_name(job.run, sweep), []).append(job)
    means = {name: _means(jobs, store) for name, jobs in groups.items()}
    columns = list(dict.fromkeys(title for cells in means.values() for title in cells))
    total = len(sweep.seeds)
    lines = tuple((*name, *(_cell(cells.get(title), total) for title in columns)) for name, cells in means.items())
    names = ("dataset", *(["split"] if len(sweep.splits) > 1 else []), "model", "training")
    return SweepTable((*names, *columns), lines)


def _line_name(run: Run, sweep: Sweep) -> tuple[str, ...]:
    split = [run.split.title] if len(sweep.splits) > 1 else []
    return (run.dataset.label, *split, run.model.label, run.training.label)


def _means(jobs: list[Job], store: Store) -> dict[str, SeedMean | None]:
    """Return the mean of each column over the runs of one line, which differ in their seeds only."""
    found: dict[str, list[float]] = {}
    for job in jobs:
        for task in job.tasks:
            record = store.get(task.identity)
            for title in _column_titles(task.measurement):
                found.setdefault(title, [])
            if record is not None:
                for name, accuracy in task.measurement.accuracies(record.values).items():
                    found.setdefault(_title(task.measurement, name), []).append(100 * accuracy)
    return {title: SeedMean(tuple(values)) if values else None for title, values in found.items()}


def _column_titles(measurement: Measurement) -> list[str]:
    return [_title(measurement, name) for name in measurement.columns]


def _title(measurement: Measurement, name: str) -> str:
    return f"{measurement.label} {name}".strip()


def _cell(mean: SeedMean | None, total: int) -> str:
    if mean is None:
        return "-"
    return str(mean) if len(mean.values) == total else f"{mean} ({len(mean.values)}/{total})"
