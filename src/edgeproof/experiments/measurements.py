"""Measurements of trained models: clean accuracy, attacks, the evaluation suite and randomized smoothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from edgeproof._checks import check_int, check_positive
from edgeproof._names import unknown_name
from edgeproof.attacks import available
from edgeproof.attacks.base import AttackResult
from edgeproof.budget import Budget, check_count, check_epsilon, check_factor
from edgeproof.certificates import Certificate, ClassCounts, CountsPart, SparseSmoothing, join_parts
from edgeproof.certificates.sparse_smoothing import check_alpha, node_labels
from edgeproof.evaluation import clean_accuracy, evaluate
from edgeproof.experiments.identity import non_default
from edgeproof.experiments.schema import are_numbers, check_accuracies, require
from edgeproof.experiments.spec import AttackSpec
from edgeproof.experiments.sweep import Measurement, register
from edgeproof.splits import Split, View

# Largest certified radii to store; they cover all radii that the paper prints.
MAX_ADDED, MAX_DELETED = 4, 7
# Radii shown in tables of sweeps.
SHOWN_RADII = ((0, 0), (3, 0), (0, 5))
# Names of the measurable sets of nodes.
VIEWS = ("test", "val")
# Attacks of the standard suite since its version 2.
ADDED_ATTACKS = ("EvA", "ExactGain", "NodeSelection", "exact search")
# Maximum number of tasks per certificate.
MAX_PARTS = 10


@register("clean")
@dataclass(frozen=True)
class CleanAccuracy(Measurement):
    """Accuracy on the unperturbed graph.

    Args:
        nodes: ``"test"`` or ``"val"``.
    """

    nodes: str = "test"

    def __post_init__(self) -> None:
        check_view(self.nodes)

    def measure(self, model: nn.Module, split: Split, seed: int, checkpoint: Path | None = None) -> dict[str, Any]:
        view = view_of(split, self.nodes)
        return {"accuracy": [[0.0, clean_accuracy(model, view.data, view.nodes)]]}

    @staticmethod
    def check(identity: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        check_accuracies(values["accuracy"], [(0.0,)])

    @property
    def columns(self) -> tuple[str, ...]:
        return ("",)

    @staticmethod
    def accuracies(values: Mapping[str, Any]) -> dict[str, float]:
        return {"": values["accuracy"][0][1]}


@register("attack")
@dataclass(frozen=True)
class RobustAccuracy(Measurement):
    """Accuracy under one attack.

    Args:
        attack: The attack.
        epsilons: Budgets as fractions of the edges at the test nodes, ascending.
        local: Budget of each node as a factor of its degree; None for no local budgets.
        count: Edges that an epsilon is a fraction of; see :meth:`edgeproof.Budget.from_epsilon`.
        nodes: ``"test"`` or ``"val"``: the attacked nodes.
    """

    attack: AttackSpec
    epsilons: tuple[float, ...]
    local: float | None = None
    count: str = "incident"
    nodes: str = "test"

    def __post_init__(self) -> None:
        check_budgets(self.epsilons, self.local, self.count)
        check_view(self.nodes)
        self.attack.build()

    @property
    def entries(self) -> dict[str, Any]:
        entries = attack_entries(self.kind, self.attack, self.epsilons, self.local, self.count)
        return {**entries, **non_default(self.kind, {"nodes": self.nodes}, {})}

    def measure(self, model: nn.Module, split: Split, seed: int, checkpoint: Path | None = None) -> dict[str, Any]:
        view = view_of(split, self.nodes)
        results = run_attack(self.attack, model, view, self.epsilons, self.local, self.count, seed)
        pairs = zip(self.epsilons, results, strict=True)
        return {"accuracy": [[epsilon, result.accuracy] for epsilon, result in pairs]}

    @staticmethod
    def check(identity: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        check_accuracies(values["accuracy"], [(epsilon,) for epsilon in identity["epsilons"]])

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(f"{epsilon:g}" for epsilon in self.epsilons)

    @staticmethod
    def accuracies(values: Mapping[str, Any]) -> dict[str, float]:
        return {f"{epsilon:g}": accuracy for epsilon, accuracy in values["accuracy"]}


@register("evaluate")
@dataclass(frozen=True)
class Evaluated(Measurement):
    """Worst accuracy over several attacks, by :func:`edgeproof.evaluate`.

    Args:
        epsilons: Budgets as fractions of the edges at the test nodes, ascending.
        attacks: Names of attacks; empty for the standard suite.
        local: Budget of each node as a factor of its degree; None for no local budgets.
        count: Edges that an epsilon is a fraction of.
        suite: Version of the standard suite: 1 without attacks by exact gains, 2 with them.
    """

    epsilons: tuple[float, ...]
    attacks: tuple[str, ...] = ()
    local: float | None = None
    count: str = "incident"
    suite: int = 2

    def __post_init__(self) -> None:
        check_budgets(self.epsilons, self.local, self.count)
        if self.suite not in (1, 2):
            raise ValueError(f"expected suite as 1 or 2, got {self.suite!r}")
        for name in self.attacks:
            if name not in available():
                raise unknown_name("attack", name, available())

    def measure(self, model: nn.Module, split: Split, seed: int, checkpoint: Path | None = None) -> dict[str, Any]:
        evaluation = evaluate(
            model,
            split.test.data,
            split.test.nodes,
            list(self.epsilons),
            list(self.attacks) or "standard",
            local=self.local,
            count=self.count,
            seed=seed,
        )
        # The attacks of the first version run before the others and do not depend on them.
        rows = [row for row in evaluation.rows if self.attacks or self.suite > 1 or row.attack not in ADDED_ATTACKS]
        return {
            "clean": evaluation.clean_accuracy,
            "accuracy": [
                [epsilon, min(row.accuracy for row in rows if row.epsilon <= epsilon)] for epsilon in self.epsilons
            ],
            "attacks": [[row.attack, row.epsilon, row.accuracy] for row in rows],
            "warnings": list(evaluation.warnings),
        }

    @staticmethod
    def check(identity: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        check_accuracies([[0.0, values["clean"]]], [(0.0,)])
        check_accuracies(values["accuracy"], [(epsilon,) for epsilon in identity["epsilons"]])
        check_accuracies(values["attacks"], [(name, epsilon) for name, epsilon, _ in values["attacks"]])

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(f"{epsilon:g}" for epsilon in self.epsilons)

    @staticmethod
    def accuracies(values: Mapping[str, Any]) -> dict[str, float]:
        return {f"{epsilon:g}": accuracy for epsilon, accuracy in values["accuracy"]}


@register("smoothing")
@dataclass(frozen=True)
class CertifiedAccuracy(Measurement):
    """Certified accuracy by sparse randomized smoothing.

    Args:
        p_add: Probability of adding a pair that is not an edge.
        p_del: Probability of deleting an edge.
        samples: Number of random graphs that bound probabilities.
        choosing_samples: Number of random graphs that select the class of each node.
        alpha: Significance level of each node's certificate.
    """

    p_add: float = 0.01
    p_del: float = 0.6
    samples: int = 100_000
    choosing_samples: int = 1_000
    alpha: float = 0.05

    def __post_init__(self) -> None:
        check_int(1, samples=self.samples, choosing_samples=self.choosing_samples)
        check_alpha(self.alpha)
        self.smoothing  # noqa: B018 - checks the probabilities

    @property
    def smoothing(self) -> SparseSmoothing:
        """The smoothing distribution."""
        return SparseSmoothing(p_add=self.p_add, p_del=self.p_del)

    def measure(self, model: nn.Module, split: Split, seed: int, checkpoint: Path | None = None) -> dict[str, Any]:
        certificate = self.smoothing.certify(
            *(model, split.test.data, split.test.nodes, self.samples, self.alpha, seed),
            choosing_samples=self.choosing_samples,
            checkpoint=checkpoint,
            progress=False,
        )
        return _certified(certificate)

    def num_parts(self, min_samples: int) -> int:
        """Number of tasks among which the samples are divided, with at least ``min_samples`` each."""
        return max(1, min(MAX_PARTS, self.samples // min_samples))

    def count_part(self, model: nn.Module, split: Split, seed: int, part: int, parts: int) -> CountsPart:
        """Count classes over one part of the samples."""
        given = (model, split.test.data, split.test.nodes, part, parts, self.samples, seed)
        return self.smoothing.sample_part(*given, choosing_samples=self.choosing_samples)

    def combine(self, parts: Sequence[CountsPart], split: Split) -> dict[str, Any]:
        """Combine the counts of all parts into the result of :meth:`measure`."""
        labels = node_labels(split.test.data, split.test.nodes)
        return _certified(self.smoothing.certify_counts(join_parts(parts), self.alpha, labels=labels))

    @staticmethod
    def check_checkpoint(path: Path) -> None:
        """Raise ``ValueError`` unless the file contains counts of this certificate."""
        ClassCounts.load(path)

    @staticmethod
    def check(identity: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        check_accuracies(values["certified_accuracy"], radii())
        radius, abstained = values["average_certifiable_radius"], values["abstained"]
        require(values, are_numbers(radius, 2) and min(radius) >= 0)
        require(values, are_numbers([abstained], 1) and 0 <= abstained <= 1)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(f"+{added} -{deleted}" for added, deleted in SHOWN_RADII)

    @staticmethod
    def accuracies(values: Mapping[str, Any]) -> dict[str, float]:
        rows = values["certified_accuracy"]
        return {f"+{added} -{deleted}": share for added, deleted, share in rows if (added, deleted) in SHOWN_RADII}


def radii() -> list[tuple[int, int]]:
    """Return the radii (added and deleted edges) of the stored certified accuracies."""
    return [(added, deleted) for added in range(MAX_ADDED + 1) for deleted in range(MAX_DELETED + 1)]


def _certified(certificate: Certificate) -> dict[str, Any]:
    added, deleted = certificate.average_certifiable_radius
    return {
        "certified_accuracy": [[*radius, certificate.accuracy(*radius)] for radius in radii()],
        "average_certifiable_radius": [added, deleted],
        "abstained": float(certificate.abstained.double().mean()),
    }


def view_of(split: Split, nodes: str) -> View:
    """Return the view of a split with the test or the validation nodes."""
    return split.val if nodes == "val" else split.test


def check_view(nodes: str) -> None:
    """Raise for names that :func:`view_of` does not support."""
    if nodes not in VIEWS:
        raise unknown_name("nodes", nodes, VIEWS)


def check_budgets(epsilons: Sequence[float], local: float | None, count: str) -> None:
    """Raise unless budgets are distinct, ascending and positive."""
    for epsilon in epsilons:
        check_positive(epsilon=epsilon)
        check_epsilon(epsilon)
    if not epsilons or list(epsilons) != sorted(set(epsilons)):
        raise ValueError(f"expected distinct epsilons in ascending order, at least one, got {list(epsilons)}")
    if local is not None:
        check_factor(local)
    check_count(count)


def attack_entries(
    kind: str, attack: AttackSpec, epsilons: Sequence[float], local: float | None, count: str
) -> dict[str, Any]:
    """Return the entries of an identity for measurements by an attack."""
    budgets = non_default(kind, {"local": local, "count": count}, {})
    return {"attack": attack.identity, "epsilons": [float(epsilon) for epsilon in epsilons], **budgets}


def run_attack(
    attack: AttackSpec,
    model: nn.Module,
    view: View,
    epsilons: Sequence[float],
    local: float | None,
    count: str,
    seed: int,
) -> list[AttackResult]:
    """Attack the nodes of a view once per budget."""
    graph, nodes = view.data, view.nodes
    budgets = Budget.from_epsilons(graph, nodes, list(epsilons), local=local, count=count)
    return attack.build()(model, graph, nodes, budgets, seed=seed)
