"""Groups of runs that differ only in their seed, with means and error bars."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from edgeproof.report.filters import Filter
from edgeproof.report.runs import AttackTable, CertificateSummary, Run, ThreatModel, is_self_trained
from edgeproof.training.history import OUTCOME_KEYS

WORST = "worst case"
# Normal quantile of a 95 % interval.
_Z = 1.96


class Estimate(NamedTuple):
    """Mean with an interval: one standard error over runs or, for a single run, the 95 % interval of a proportion.

    Args:
        mean: Mean over the runs.
        low: Lower end of the interval.
        high: Upper end of the interval.
        runs: Number of runs.
    """

    mean: float
    low: float
    high: float
    runs: int = 1


@dataclass(frozen=True)
class Group:
    """A model, tested with one or several seeds.

    Args:
        name: Name, unique within a report.
        runs: At least one run.
    """

    name: str
    runs: tuple[Run, ...]

    @property
    def dataset(self) -> str:
        return self.runs[0].dataset

    @property
    def clean(self) -> Estimate | None:
        return self._estimate(lambda run: run.clean)

    def attack_tables(self, threat_model: ThreatModel) -> list[tuple[Run, AttackTable]]:
        """Return the runs attacked under this threat model, each with its table."""
        return [(run, table) for run in self.runs for table in run.attacks if table.threat_model == threat_model]

    def largest_epsilon(self, threat_model: ThreatModel) -> float:
        """Return the largest budget that all runs share or, if there is none, that most runs share."""
        counts = Counter(epsilon for _, table in self.attack_tables(threat_model) for epsilon in table.epsilons)
        return max(epsilon for epsilon, count in counts.items() if count == max(counts.values()))

    def attacked_at(self, threat_model: ThreatModel, epsilon: float) -> Group:
        """Return the group of runs that were attacked at this budget."""
        tables = self.attack_tables(threat_model)
        return Group(self.name, tuple(run for run, table in tables if epsilon in table.epsilons))

    def accuracy(self, threat_model: ThreatModel, attack: str, epsilon: float) -> Estimate | None:
        """Return the accuracy under an attack, or under all attacks (:data:`WORST`), over the runs that have it."""

        def accuracy_of(run: Run) -> float | None:
            for table in run.attacks:
                if table.threat_model == threat_model and epsilon in table.epsilons:
                    row = table.worst(epsilon) if attack == WORST else table.row(attack, epsilon)
                    return None if row is None else row.accuracy
            return None

        return self._estimate(accuracy_of)

    def baseline(self, name: str) -> Estimate | None:
        """Return the accuracy of a baseline over the runs that have it."""
        return self._estimate(lambda run: run.baselines.get(name))

    @property
    def proven_budgets(self) -> list[str]:
        """Budgets with a computed worst case, as text."""
        return list(dict.fromkeys(row.budget for run in self.runs for row in run.proven))

    def proven(self, budget: str, bound: str) -> Estimate | None:
        """Return the ``"guaranteed"`` or ``"attained"`` accuracy within a budget over the runs that have it."""

        def accuracy_of(run: Run) -> float | None:
            row = next((row for row in run.proven if row.budget == budget), None)
            return None if row is None else row.guaranteed if bound == "guaranteed" else row.attained

        return self._estimate(accuracy_of)

    @property
    def certificate(self) -> CertificateSummary | None:
        """Mean over the runs with a certificate, for the radii that all of them have."""
        found = [run.certificate for run in self.runs if run.certificate is not None]
        if not found:
            return None
        radii = set.intersection(*(set(certificate.fractions) for certificate in found))
        fractions = {radius: statistics.fmean(each.fractions[radius] for each in found) for radius in sorted(radii)}
        abstained = statistics.fmean(certificate.abstained for certificate in found)
        return CertificateSummary(fractions, found[0].labelled, found[0].settings, abstained)

    @property
    def filter(self) -> Filter | None:
        """Mean over the runs with a filter. Filters have a fixed sign and scale, so they can be averaged."""
        found = [run.filter for run in self.runs if run.filter is not None]
        if not found:
            return None
        own_shares = [each.own_share for each in found if each.own_share is not None]
        return Filter(
            gamma=_means([each.gamma for each in found]),
            self_loops=found[0].self_loops,
            own_share=statistics.fmean(own_shares) if len(own_shares) == len(found) else None,
            mean_frequency=statistics.fmean(each.mean_frequency for each in found),
            density=_means([each.density for each in found]),
        )

    def _estimate(self, value_of: Callable[[Run], float | None]) -> Estimate | None:
        found = [(value, run) for run in self.runs if (value := value_of(run)) is not None]
        if not found:
            return None
        if len(found) == 1:
            return wilson(found[0][0], found[0][1].split.get("test"))
        values = [value for value, _ in found]
        mean, error = statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))
        return Estimate(mean, max(0.0, mean - error), min(1.0, mean + error), len(values))


def wilson(fraction: float, number: int | None) -> Estimate:
    """Return Wilson's 95 % interval of a proportion.

    Args:
        fraction: Observed proportion.
        number: Number of nodes. None gives an empty interval.

    >>> tuple(round(value, 3) for value in wilson(0.5, 100)[:3])
    (0.5, 0.404, 0.596)
    """
    if not number:
        return Estimate(fraction, fraction, fraction)
    weight = _Z**2 / number
    centre = (fraction + weight / 2) / (1 + weight)
    half = math.sqrt(fraction * (1 - fraction) * weight + weight**2 / 4) / (1 + weight)
    # Rounding must not put the proportion outside its interval.
    return Estimate(fraction, min(fraction, centre - half), max(fraction, centre + half))


def group(runs: Sequence[Run]) -> list[Group]:
    """Group runs that differ only in their seed, in order of first appearance, and give each group a unique name.

    Raises:
        ValueError: If certificates of one group have different settings.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(_group_key(run), []).append(run)
    names = _unique_names([members[0] for members in groups.values()])
    for name, members in zip(names, groups.values(), strict=True):
        certificates = [run.certificate for run in members if run.certificate is not None]
        if len({(tuple(sorted(each.settings.items())), each.labelled) for each in certificates}) > 1:
            raise ValueError(
                f"expected certificates of {name} with the same settings, got different ones: write a separate report for "
                "each"
            )
    return [Group(name, tuple(members)) for name, members in zip(names, groups.values(), strict=True)]


def _group_key(run: Run) -> str:
    """Return a key that is equal for runs that differ only in their seed."""
    model = {name: value for name, value in run.model.items() if name != "fingerprint"}
    split = {name: run.split.get(name) for name in ("setting", "rule", "protocol")}
    training = {name: value for name, value in run.training.items() if name not in OUTCOME_KEYS}
    training["self_training"] = is_self_trained(run.training)
    return json.dumps([run.name, run.dataset, model, split, training], sort_keys=True)


def _unique_names(runs: Sequence[Run]) -> list[str]:
    """Return the names of the runs; equal names get the architecture, the dataset or a number appended."""
    names = [run.name for run in runs]
    for name in [name for name, count in Counter(names).items() if count > 1]:
        same = [k for k, run in enumerate(runs) if run.name == name]
        candidates = [
            [f"{name}, {runs[k].model['name']}" for k in same],
            [f"{name}, {runs[k].dataset}" for k in same],
            [f"{name} ({number})" for number in range(1, len(same) + 1)],
        ]
        chosen = next(c for c in candidates if len(set(c)) == len(c) and not set(c) & set(names))
        for k, unique in zip(same, chosen, strict=True):
            names[k] = unique
    return names


def _means(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return the mean of each column; shorter rows are padded with zeros."""
    longest = max(map(len, rows))
    padded = [[*row, *[0.0] * (longest - len(row))] for row in rows]
    return tuple(statistics.fmean(column) for column in zip(*padded, strict=True))
