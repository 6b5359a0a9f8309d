"""Result of a robustness evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from edgeproof._tables import Layout, Record, TabularResult
from edgeproof.attacks.base import AttackResult
from edgeproof.constraints import Constraints
from edgeproof.evaluation.fragility_result import Fragility
from edgeproof.evaluation.result import Score
from edgeproof.propagation import Tier


class AttackScore(NamedTuple):
    """Outcome of one attack at one budget.

    Args:
        attack: Name of the attack in the suite.
        epsilon: Budget as a fraction of the edges.
        total: Budget as a number of flips.
        flips: Number of flips used.
        accuracy: Accuracy of the target nodes on the perturbed graph.
        seconds: Runtime, summed over all restarts.
        queries: Number of perturbed graphs that the attack evaluated exactly, summed over all restarts; 0 if it does not count
            them.
    """

    attack: str
    epsilon: float
    total: int
    flips: int
    accuracy: float
    seconds: float
    queries: int = 0


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(TabularResult):
    """Result of :func:`evaluate`.

    Args:
        clean_accuracy: Accuracy of the target nodes on the clean graph.
        rows: Score of the best restart of every attack at every budget.
        worst: Result of lowest accuracy by epsilon.
        warnings: Warnings of the self-checks, with their codes.
        results: Results behind ``rows``, by attack and epsilon.
        local: Local budgets as passed to :func:`evaluate`.
        count: Edges that epsilon is a fraction of.
        tier: Tier of the model; see :data:`edgeproof.propagation.Tier`.
        effort: Effort of the suite; None for a list of attacks.
        baselines: Accuracies of the baselines, which do not depend on edges, by name; empty if not requested.
        constraints: Constraints on flips; None for all pairs at cost 1.
        fragility: Fewest flips that misclassify each target node on its own; None if not requested.
    """

    clean_accuracy: float
    rows: tuple[AttackScore, ...]
    worst: dict[float, AttackResult]
    warnings: tuple[str, ...]
    results: dict[tuple[str, float], AttackResult]
    local: float | Tensor | None
    count: str
    tier: Tier
    effort: str | None = None
    baselines: Mapping[str, float] = field(default_factory=dict)
    constraints: Constraints | None = None
    fragility: Fragility | None = None

    @property
    def epsilons(self) -> list[float]:
        """Budgets in the order of the call."""
        return list(self.worst)

    def accuracy(self, epsilon: float) -> float:
        """Return the lowest accuracy over all attacks within this budget."""
        return self.worst[epsilon].accuracy

    def scores(self, nodes: str = "test") -> tuple[Score, ...]:
        """Return all accuracies as entries of a result file; the minimum over all attacks is named ``"worst"``."""
        clean = Score(nodes, "clean", 0.0, self.clean_accuracy)
        baselines = [Score(nodes, name, 0.0, accuracy) for name, accuracy in self.baselines.items()]
        attacked = [Score(nodes, row.attack, row.epsilon, row.accuracy) for row in self.rows]
        worst = [Score(nodes, "worst", epsilon, self.accuracy(epsilon)) for epsilon in self.epsilons]
        return (clean, *baselines, *attacked, *worst)

    def __repr__(self) -> str:
        worst = ", ".join(f"{self.accuracy(epsilon):.1%} at epsilon {epsilon:g}" for epsilon in self.epsilons)
        return f"Evaluation(clean {self.clean_accuracy:.1%}, worst {worst})"

    def summary(self) -> Record:
        """Return the values that occur once, as numbers, text, lists and dictionaries."""
        return {
            "clean_accuracy": self.clean_accuracy,
            "worst": {str(epsilon): self.accuracy(epsilon) for epsilon in self.epsilons},
            "baselines": dict(self.baselines),
            "tier": self.tier,
            "effort": self.effort,
            "local": self.local.tolist() if isinstance(self.local, Tensor) else self.local,
            "count": self.count,
            "constraints": None if self.constraints is None else self.constraints.description,
            "fragility": None if self.fragility is None else self.fragility.summary(),
            "warnings": list(self.warnings),
        }

    def _records(self) -> list[Record]:
        return [row._asdict() for row in self.rows]

    def _layout(self) -> Layout:
        accuracy = {(row.attack, row.epsilon): row.accuracy for row in self.rows}
        attacks = dict.fromkeys(row.attack for row in self.rows)
        worst = "worst" if self.effort is None else f"worst ({self.effort} effort)"
        values = {
            "clean": [self.clean_accuracy] * len(self.epsilons),
            **{name: [value] * len(self.epsilons) for name, value in self.baselines.items()},
            **{name: [accuracy[name, epsilon] for epsilon in self.epsilons] for name in attacks},
            worst: [self.accuracy(epsilon) for epsilon in self.epsilons],
        }
        return Layout(
            title="",
            header=("accuracy, %", *(f"epsilon {epsilon:g}" for epsilon in self.epsilons)),
            lines=[(name, *(f"{100 * value:.1f}" for value in row)) for name, row in values.items()],
            notes=[
                *self._fragility_notes(),
                f"tier: {self.tier}",
                *(f"warning: {warning}" for warning in self.warnings),
            ],
        )

    def _fragility_notes(self) -> list[str]:
        if self.fragility is None:
            return []
        counts = ", ".join(f"{count} to {k}" for k, count in self.fragility.histogram.items())
        return [f"single nodes: misclassified by flips: {counts}; {self.fragility.num_surviving} by none found"]
