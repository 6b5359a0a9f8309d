"""Summary tables of sweeps: means and standard errors over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgeproof._tables import Layout, Record, TabularResult
from edgeproof.experiments.store import Store
from edgeproof.experiments.sweep import Job, Measurement, Run, Sweep


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
class SweepTable(TabularResult):
    """Accuracies of a sweep in percent, one line per dataset, split, model and training.

    Args:
        titles: Titles of the columns.
        lines: Cells, line by line; ``"-"`` where no seed has been run, and ``(n/m)`` where only n of m seeds have been
            run.
        num_names: Number of columns that name a line.
    """

    titles: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    num_names: int

    def summary(self) -> Record:
        """Return the values that occur once, as numbers, text, lists and dictionaries."""
        return {}

    def _records(self) -> list[Record]:
        return [dict(zip(self.titles, line, strict=True)) for line in self.lines]

    def _layout(self) -> Layout:
        return Layout("accuracy in percent", self.titles, self.lines, left=self.num_names)


def summarize(sweep: Sweep, store: Store) -> SweepTable:
    """Return the table of a sweep with all stored results."""
    prefixes = _prefixes(sweep.measurements)
    groups: dict[tuple[str, ...], list[Job]] = {}
    for job in sweep.jobs():
        groups.setdefault(_line_name(job.run, sweep), []).append(job)
    means = {name: _means(jobs, store, prefixes) for name, jobs in groups.items()}
    columns = [
        f"{prefixes[measurement]} {name}".strip() for measurement in sweep.measurements for name in measurement.columns
    ]
    total = len(sweep.seeds) * len(sweep.restarts)
    lines = tuple((*name, *(_cell(cells.get(title), total) for title in columns)) for name, cells in means.items())
    names = ("dataset", *(["split"] if len(sweep.splits) > 1 else []), "model", "training")
    return SweepTable((*names, *columns), lines, len(names))


def _prefixes(measurements: Sequence[Measurement]) -> dict[Measurement, str]:
    """Return titles of measurements: the name of the attack or the kind, and settings only where names repeat."""
    short = [measurement.entries.get("attack", {}).get("name", measurement.kind) for measurement in measurements]
    return {
        measurement: name if short.count(name) == 1 else measurement.label
        for measurement, name in zip(measurements, short, strict=True)
    }


def _line_name(run: Run, sweep: Sweep) -> tuple[str, ...]:
    split = [run.split.title] if len(sweep.splits) > 1 else []
    return (run.dataset.label, *split, run.model.label, run.training.label)


def _means(jobs: Sequence[Job], store: Store, prefixes: Mapping[Measurement, str]) -> dict[str, SeedMean]:
    """Return the mean of each column over the runs of one line, which differ in their seeds and restarts only."""
    found: dict[str, list[float]] = {}
    for task in (task for job in jobs for task in job.tasks):
        record = store.get(task.identity)
        if record is not None:
            for name, accuracy in task.measurement.accuracies(record.values).items():
                found.setdefault(f"{prefixes[task.measurement]} {name}".strip(), []).append(100 * accuracy)
    return {title: SeedMean(tuple(values)) for title, values in found.items()}


def _cell(mean: SeedMean | None, total: int) -> str:
    if mean is None:
        return "-"
    return str(mean) if len(mean.values) == total else f"{mean} ({len(mean.values)}/{total})"
