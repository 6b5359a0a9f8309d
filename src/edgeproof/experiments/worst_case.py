"""Measurement of searches for the worst case: accuracy, number of evaluated graphs, and seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from edgeproof.evaluation import Evaluation, evaluate
from edgeproof.experiments.measurements import attack_entries, check_budgets
from edgeproof.experiments.schema import are_numbers, check_accuracies, require
from edgeproof.experiments.spec import AttackSpec
from edgeproof.experiments.sweep import Measurement, register
from edgeproof.splits import Split

# Version of the standard suite in identities: results of another suite are not mixed with these.
SUITE = 2


@register("worst_case")
@dataclass(frozen=True)
class WorstCase(Measurement):
    """Accuracy, queries and seconds of every attack of the standard suite, or of one attack.

    Args:
        epsilons: Budgets as fractions of the edges at the test nodes, ascending.
        attack: The attack; None for the standard suite.
        local: Budget of each node as a factor of its degree; None for no local budgets.
        count: Edges that an epsilon is a fraction of.
    """

    epsilons: tuple[float, ...]
    attack: AttackSpec | None = None
    local: float | None = None
    count: str = "incident"

    def __post_init__(self) -> None:
        check_budgets(self.epsilons, self.local, self.count)
        if self.attack is not None:
            self.attack.build()

    @property
    def entries(self) -> dict[str, Any]:
        # The suite has no settings; its version stands in for them.
        attack = self.attack or AttackSpec("RandomFlips")
        entries = attack_entries(self.kind, attack, self.epsilons, self.local, self.count)
        return entries if self.attack is not None else {**entries, "attack": {"suite": SUITE}}

    def measure(self, model: nn.Module, split: Split, seed: int, checkpoint: Path | None = None) -> dict[str, Any]:
        view = split.test
        attacks = "standard" if self.attack is None else [self.attack.build()]
        evaluation = evaluate(
            model, view.data, view.nodes, list(self.epsilons), attacks, local=self.local, count=self.count, seed=seed
        )
        return {
            "clean": evaluation.clean_accuracy,
            "accuracy": [[epsilon, evaluation.accuracy(epsilon)] for epsilon in self.epsilons],
            "attacks": _rows(evaluation),
            "warnings": list(evaluation.warnings),
        }

    @staticmethod
    def check(identity: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        check_accuracies([[0.0, values["clean"]]], [(0.0,)])
        check_accuracies(values["accuracy"], [(epsilon,) for epsilon in identity["epsilons"]])
        rows = values["attacks"]
        check_accuracies([row[:3] for row in rows], [(row[0], row[1]) for row in rows])
        require(values, all(are_numbers(row[3:], 2) and min(row[3:]) >= 0 for row in rows))

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(f"{epsilon:g}" for epsilon in self.epsilons)

    @staticmethod
    def accuracies(values: Mapping[str, Any]) -> dict[str, float]:
        return {f"{epsilon:g}": accuracy for epsilon, accuracy in values["accuracy"]}


def _rows(evaluation: Evaluation) -> list[list[Any]]:
    """Return name, budget, accuracy, queries and seconds of each attack."""
    return [
        [row.attack, row.epsilon, row.accuracy, evaluation.results[row.attack, row.epsilon].queries, row.seconds]
        for row in evaluation.rows
    ]
