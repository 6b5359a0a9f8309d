"""Runs that repeat each other as one line of a picture, with its error bars."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from edgeproof.experiments.store import key_of
from edgeproof.report.filters import Filter
from edgeproof.report.runs import Attacked, Certified, Run, self_trained
from edgeproof.training.history import OUTCOME_KEYS

WORST = "worst case"
# The normal quantile of a 95 % interval.
_Z = 1.96


class Estimate(NamedTuple):
    """A mean, how far it may be off, and of how many runs it is.

    The interval is one standard error over runs, or of a single run the 95 % interval of a share of nodes.
    """

    mean: float
    low: float
    high: float
    runs: int = 1


@dataclass(frozen=True)
class Group:
    """A model, tested once or with several seeds.

    Args:
        name: unique within a page.
        runs: at least one.
    """

    name: str
    runs: tuple[Run, ...]

    @property
    def dataset(self) -> str:
        return self.runs[0].dataset

    @property
    def clean(self) -> Estimate | None:
        return self._estimate(lambda run: run.clean)

    def attacked(self, kind: tuple[str, str]) -> list[tuple[Run, Attacked]]:
        """The runs that were attacked with budgets of this kind."""
        return [(run, one) for run in self.runs for one in run.attacked if one.kind == kind]

    def largest(self, kind: tuple[str, str]) -> float:
        """The largest budget of this kind that all runs have, or, if they share none, that most of them have."""
        times = Counter(epsilon for _, one in self.attacked(kind) for epsilon in one.epsilons)
        return max(epsilon for epsilon, number in times.items() if number == max(times.values()))

    def at(self, kind: tuple[str, str], epsilon: float) -> Group:
        """Only the runs that were attacked at this budget."""
        return Group(self.name, tuple(run for run, one in self.attacked(kind) if epsilon in one.epsilons))

    def accuracy(self, kind: tuple[str, str], attack: str, epsilon: float) -> Estimate | None:
        """Of all runs that this attack, or with :data:`WORST` any attack, was run on at this budget."""

        def find(run: Run) -> float | None:
            for one in run.attacked:
                if one.kind == kind and epsilon in one.epsilons:
                    row = one.worst(epsilon) if attack == WORST else one.at(attack, epsilon)
                    return None if row is None else row.accuracy
            return None

        return self._estimate(find)

    @property
    def certified(self) -> Certified | None:
        """The mean over the runs that have a certificate."""
        found = [run.certified for run in self.runs if run.certified is not None]
        if not found:
            return None
        keys = {key for one in found for key in one.shares if all(key in other.shares for other in found)}
        shares = {key: statistics.fmean(one.shares[key] for one in found) for key in sorted(keys)}
        abstained = statistics.fmean(one.abstained for one in found)
        return Certified(shares, found[0].labelled, found[0].settings, abstained)

    @property
    def filter(self) -> Filter | None:
        """The mean over the runs that have one; filters are sign-fixed and of one size, so that a mean means something."""
        found = [run.filter for run in self.runs if run.filter is not None]
        if not found:
            return None
        shares = [one.own_share for one in found if one.own_share is not None]
        return Filter(
            gamma=_means([one.gamma for one in found]),
            self_loops=found[0].self_loops,
            own_share=statistics.fmean(shares) if len(shares) == len(found) else None,
            mean_frequency=statistics.fmean(one.mean_frequency for one in found),
            density=_means([one.density for one in found]),
        )

    def _estimate(self, find: Callable[[Run], float | None]) -> Estimate | None:
        found = [(value, run) for run in self.runs if (value := find(run)) is not None]
        if not found:
            return None
        if len(found) == 1:
            return wilson(found[0][0], found[0][1].split.get("test"))
        values = [value for value, _ in found]
        mean, error = statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))
        return Estimate(mean, max(0.0, mean - error), min(1.0, mean + error), len(values))


def wilson(share: float, number: int | None) -> Estimate:
    """Wilson's 95 % interval of a share of so many nodes; without their number, no interval.

    >>> tuple(round(one, 3) for one in wilson(0.5, 100)[:3])
    (0.5, 0.404, 0.596)
    """
    if not number:
        return Estimate(share, share, share)
    weight = _Z**2 / number
    centre = (share + weight / 2) / (1 + weight)
    half = math.sqrt(share * (1 - share) * weight + weight**2 / 4) / (1 + weight)
    # Rounding must not put the share outside of its interval.
    return Estimate(share, min(share, centre - half), max(share, centre + half))


def group(runs: Sequence[Run]) -> list[Group]:
    """Runs that differ in nothing but their seed together, in the order they came in, each group with a name of its own.

    Raises:
        ValueError: if they have certificates that cannot be averaged.
    """
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(_meant(run), []).append(run)
    names = _distinct([same[0] for same in found.values()])
    for name, same in zip(names, found.values(), strict=True):
        certified = [run.certified for run in same if run.certified is not None]
        if len({(tuple(sorted(one.settings.items())), one.labelled) for one in certified}) > 1:
            raise ValueError(
                f"expected certificates of {name} with the same settings, got others: report them on two pages"
            )
    return [Group(name, tuple(same)) for name, same in zip(names, found.values(), strict=True)]


def _meant(run: Run) -> str:
    """The same for runs that differ in nothing but their seed."""
    model = {name: value for name, value in run.model.items() if name != "fingerprint"}
    split = {name: run.split.get(name) for name in ("setting", "rule", "protocol")}
    training = {name: value for name, value in run.training.items() if name not in OUTCOME_KEYS}
    training["self_training"] = self_trained(run.training)
    return key_of({"name": run.name, "data": run.dataset, "model": model, "split": split, "training": training})


def _distinct(runs: Sequence[Run]) -> list[str]:
    """A name for each: the one that it has, where several have it with what tells them apart, in the end a number."""
    names = [run.name for run in runs]
    for name in [name for name, times in Counter(names).items() if times > 1]:
        same = [k for k, run in enumerate(runs) if run.name == name]
        longer = [
            [f"{name}, {runs[k].model['name']}" for k in same],
            [f"{name}, {runs[k].dataset}" for k in same],
            [f"{name} ({number})" for number in range(1, len(same) + 1)],
        ]
        found = next(one for one in longer if len(set(one)) == len(one) and not set(one) & set(names))
        for k, one in zip(same, found, strict=True):
            names[k] = one
    return names


def _means(lists: Sequence[Sequence[float]]) -> tuple[float, ...]:
    longest = max(map(len, lists))
    padded = [[*one, *[0.0] * (longest - len(one))] for one in lists]
    return tuple(statistics.fmean(column) for column in zip(*padded, strict=True))
