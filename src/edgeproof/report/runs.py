"""Run: one trained model with all its measurements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch_geometric.data import Data

from edgeproof._checks import Nodes, check_data, node_ids
from edgeproof._tables import Layout, Record, TabularResult
from edgeproof.certificates import Certificate, WorstCaseCertificate
from edgeproof.evaluation import Evaluation, Explanation, Fragility
from edgeproof.evaluation.result import describe_environment, describe_model, describe_split
from edgeproof.report.filters import Filter
from edgeproof.report.outcomes import Outcomes
from edgeproof.splits import Split
from edgeproof.training import History


@dataclass(frozen=True)
class ThreatModel:
    """Local budget and counting rule. Accuracies are comparable only under the same threat model.

    Args:
        local: Local budget as a factor of the degree, ``"given"`` for individual budgets, ``"None"`` for no local budget.
        count: Edges that epsilon is a fraction of, see :meth:`edgeproof.Budget.from_epsilon`.
        constraints: Description of the constraints on flips; empty without constraints.
    """

    local: str
    count: str
    constraints: str = ""


class AttackRow(NamedTuple):
    """Result of one attack at one budget. Optional values are None if unknown.

    Args:
        attack: Name of the attack.
        epsilon: Budget as a fraction of the edges.
        accuracy: Accuracy on the perturbed graph.
        total: Budget in edge flips.
        flips: Number of edge flips used.
        seconds: Runtime.
    """

    attack: str
    epsilon: float
    accuracy: float
    total: int | None = None
    flips: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class AttackTable:
    """Results of all attacks on a model under one threat model.

    Args:
        local: Local budget as a factor of the degree, ``"given"`` for individual budgets, None for no local budget.
        count: Edges that epsilon is a fraction of, see :meth:`edgeproof.Budget.from_epsilon`.
        rows: One row per attack and epsilon.
        outcomes: Per-node outcomes, one entry per evaluation that stored them.
        warnings: Warnings of the self-checks.
        checked: Whether the self-checks of an evaluation were run on all rows.
        efforts: Efforts of the suites that were run; see :func:`edgeproof.evaluate`.
        constraints: Description of the constraints on flips; empty without constraints.
        tiers: Tiers of the model, as used by the attacks; see :data:`edgeproof.propagation.Tier`.
    """

    local: float | str | None
    count: str
    rows: tuple[AttackRow, ...]
    outcomes: tuple[Outcomes, ...] = ()
    warnings: tuple[str, ...] = ()
    checked: bool = False
    efforts: tuple[str, ...] = ()
    constraints: str = ""
    tiers: tuple[str, ...] = ()

    @property
    def threat_model(self) -> ThreatModel:
        return ThreatModel(str(self.local), self.count, self.constraints)

    @property
    def epsilons(self) -> list[float]:
        return sorted({row.epsilon for row in self.rows})

    def worst(self, epsilon: float) -> AttackRow:
        """Return the row with the lowest accuracy of all budgets up to ``epsilon``."""
        return min((row for row in self.rows if row.epsilon <= epsilon), key=lambda row: row.accuracy)

    def row(self, attack: str, epsilon: float) -> AttackRow | None:
        """Return the row of an attack at a budget; None if it was not run."""
        return next((row for row in self.rows if (row.attack, row.epsilon) == (attack, epsilon)), None)


class ProvenRow(NamedTuple):
    """Computed worst case within one budget.

    Args:
        budget: Budget as text.
        guaranteed: Accuracy that no perturbation within the budget falls below.
        attained: Accuracy that known flips reach; None if none were searched.
    """

    budget: str
    guaranteed: float
    attained: float | None = None

    @classmethod
    def of(cls, certificate: WorstCaseCertificate) -> tuple[ProvenRow, ...]:
        """Return one row per budget of a certificate, and one for any edges."""
        rows = [cls(part.name, part.guaranteed, part.attained) for part in certificate.budgets]
        return (*rows, cls("any edges", certificate.any_edges_accuracy))


@dataclass(frozen=True)
class CertificateSummary:
    """Certified accuracy over all nodes.

    Args:
        fractions: Certified accuracy by number of added and deleted edges, for the known radii.
        labelled: Whether ``fractions`` are accuracies (True) or, without labels, fractions of certified nodes (False).
        settings: Settings of the certificate.
        abstained: Fraction of nodes on which the smoothed model abstains.
    """

    fractions: Mapping[tuple[int, int], float]
    labelled: bool
    settings: Mapping[str, float]
    abstained: float

    @classmethod
    def of(cls, certificate: Certificate) -> CertificateSummary:
        """Summarize a certificate."""
        labelled = certificate.labels is not None
        certified = certificate.grid
        if certificate.labels is not None:
            certified = certified & (certificate.prediction == certificate.labels)[:, None, None]
        # Nothing is certified beyond the grid.
        fractions = pad(certified.double().mean(dim=0), (0, 1, 0, 1)).tolist()
        return cls(
            fractions={(a, d): fraction for a, row in enumerate(fractions) for d, fraction in enumerate(row)},
            labelled=labelled,
            settings={name: getattr(certificate, name) for name in ("p_add", "p_del", "samples", "alpha")},
            abstained=float(certificate.abstained.double().mean()),
        )


@dataclass(frozen=True)
class FragilityCounts:
    """Number of test nodes by the fewest flips found that misclassify each of them.

    Args:
        histogram: Number of nodes by number of flips.
        exact: Number of these for which fewer flips provably do not suffice.
        surviving: Number of nodes that no set of flips found misclassifies.
        max_flips: Largest number of flips of the search.
        scope: Pairs that may be flipped: ``"direct"`` or ``"influence"``.
        constraints: Description of the permitted pairs; empty if all are.
    """

    histogram: Mapping[int, int]
    exact: Mapping[int, int]
    surviving: int
    max_flips: int
    scope: str
    constraints: str

    @classmethod
    def of(cls, result: Fragility) -> FragilityCounts:
        """Summarize a search."""
        return cls.read(result.summary())

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> FragilityCounts:
        """Return the counts of a summary; see :meth:`edgeproof.evaluation.Fragility.summary`.

        Raises:
            KeyError, TypeError, ValueError: If the values are not those of a summary.
        """
        histogram, exact = ({int(k): int(n) for k, n in values[name].items()} for name in ("histogram", "exact"))
        max_flips = int(values["max_flips"])
        if sorted(histogram) != list(range(max_flips + 1)) or any(exact[k] > histogram[k] for k in histogram):
            raise ValueError(f"expected counts for 0 to {max_flips} flips, got {histogram}")
        return cls(
            histogram, exact, int(values["surviving"]), max_flips, str(values["scope"]), str(values["constraints"])
        )


@dataclass(frozen=True)
class Run(TabularResult):
    """One trained model with all its measurements.

    Args:
        name: Name of the model. Runs with the same name, dataset and kind of model are repetitions with different seeds.
        dataset: Name of the graph.
        model: See :func:`edgeproof.evaluation.result.describe_model`.
        split: See :func:`edgeproof.evaluation.result.describe_split`. Needs at least ``test``, the number of test nodes.
        training: See :meth:`edgeproof.training.History.summary`. Empty if unknown.
        seed: Training seed. None if unknown.
        clean: Accuracy on the clean graph. None if not measured.
        attacks: One table per threat model.
        certificate: Certified accuracy. None if not certified.
        proven: Computed worst cases. Empty if not computed.
        filter: Learned filter. None for models without one.
        fragility: Test nodes by the flips that misclassify them. None if not searched.
        explanations: Explanations of single nodes.
        baselines: Accuracies of the baselines that use no edges, by name. Empty if not measured.
        warnings: Warnings about the model, independent of the attacks.
        commands: Commands that reproduce the run.
        environment: Versions and machine.
    """

    name: str
    dataset: str
    model: Mapping[str, Any]
    split: Mapping[str, Any]
    training: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    clean: float | None = None
    attacks: tuple[AttackTable, ...] = ()
    certificate: CertificateSummary | None = None
    proven: tuple[ProvenRow, ...] = ()
    filter: Filter | None = None
    fragility: FragilityCounts | None = None
    explanations: tuple[Explanation, ...] = ()
    baselines: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        name: str,
        model: nn.Module,
        data: Data,
        nodes: Nodes,
        *,
        evaluation: Evaluation | None = None,
        certificate: Certificate | WorstCaseCertificate | None = None,
        history: History | None = None,
        split: Split | None = None,
        dataset: str = "own graph",
        seed: int | None = None,
        explanations: Iterable[Explanation] = (),
        command: str = "",
    ) -> Run:
        """Create a run from results in memory, for a model of the library or any other module.

        Args:
            name: Name of the model. Several runs with the same name are shown as one line with error bars.
            model: Evaluated model.
            data: Test graph.
            nodes: Target nodes: ids, or a boolean mask.
            evaluation: Result of :func:`edgeproof.evaluate` for these nodes.
            certificate: Result of :class:`edgeproof.certificates.SparseSmoothing` or
                :class:`~edgeproof.certificates.WorstCase` for these nodes.
            history: Result of :func:`edgeproof.train`.
            split: Split that the test nodes belong to. The report then states whether training has seen them.
            dataset: Name of the graph.
            seed: Training seed.
            explanations: Results of :func:`edgeproof.evaluation.explain` for this model.
            command: Command that reproduces the run.

        Raises:
            ValueError: If there is neither an evaluation nor a certificate, or one of them is of other nodes.

        >>> import edgeproof as ep, torch
        >>> data, nodes, model = ep.datasets.load("csbm"), torch.arange(50), ep.models.GCN(21, 2)
        >>> scores = ep.evaluate(model, data, nodes, [0.1], ["FGSM"])
        >>> run = Run.of("my GCN", model, data, nodes, evaluation=scores, dataset="my graph")
        >>> run.attacks[0].worst(0.1).attack
        'FGSM'
        """
        check_data(data, labels=False)
        nodes = node_ids(nodes, data)
        if not isinstance(name, str):
            raise TypeError(f"expected name as a str, got {name!r}")
        if evaluation is None and certificate is None:
            raise ValueError("expected an evaluation or a certificate to report, got neither")
        for result in [] if evaluation is None else evaluation.results.values():
            if not torch.equal(result.nodes.cpu(), nodes.cpu()):
                raise ValueError(f"expected the evaluation of these {nodes.numel()} nodes, got one of other nodes")
        number = nodes.numel() if certificate is None else _num_nodes(certificate)
        if number != nodes.numel():
            raise ValueError(f"expected the certificate of these {nodes.numel()} nodes, got one of {number} nodes")
        return cls(
            name=name,
            dataset=dataset,
            model=describe_model(model),
            split={**({} if split is None else describe_split(split)), "test": nodes.numel()},
            training={} if history is None else history.summary(),
            seed=seed,
            clean=None if evaluation is None else evaluation.clean_accuracy,
            attacks=() if evaluation is None else (_attack_table(evaluation, data, nodes),),
            certificate=CertificateSummary.of(certificate) if isinstance(certificate, Certificate) else None,
            proven=ProvenRow.of(certificate) if isinstance(certificate, WorstCaseCertificate) else (),
            filter=Filter.of(model, data),
            fragility=None
            if evaluation is None or evaluation.fragility is None
            else FragilityCounts.of(evaluation.fragility),
            explanations=tuple(explanations),
            baselines={} if evaluation is None else evaluation.baselines,
            commands=(command,) if command else (),
            environment=describe_environment(data.x.device),
        )

    def summary(self) -> Record:
        """Return name, dataset, model, split, training and clean accuracy."""
        names = ("name", "dataset", "seed", "clean")
        mappings = ("model", "split", "training", "baselines", "environment")
        return {
            **{name: getattr(self, name) for name in names},
            **{name: dict(getattr(self, name)) for name in mappings},
            "warnings": list(self.warnings),
            "commands": list(self.commands),
        }

    def _records(self) -> list[Record]:
        return [
            {"local": table.local, "count": table.count, "constraints": table.constraints, **row._asdict()}
            for table in self.attacks
            for row in table.rows
        ]

    def _layout(self) -> Layout:
        lines = [("clean", "0", "", "" if self.clean is None else f"{self.clean:.1%}")]
        lines += [(name, "0", "", f"{accuracy:.1%}") for name, accuracy in self.baselines.items()]
        lines += [
            (row.attack, f"{row.epsilon:g}", "" if table.local is None else str(table.local), f"{row.accuracy:.1%}")
            for table in self.attacks
            for row in table.rows
        ]
        certificate = self.certificate
        certified = [] if certificate is None else [f"certified without flips: {certificate.fractions[0, 0]:.1%}"]
        return Layout(
            title=f"{self.name}, {self.dataset}",
            header=("attack", "epsilon", "local", "accuracy"),
            lines=lines,
            notes=[*certified, *(f"warning: {warning}" for warning in self.warnings)],
        )

    def merge(self, other: Run) -> Run:
        """Combine the measurements of two runs of the same model; where both have a value, this run's is kept.

        Raises:
            ValueError: If both have a certificate and the certificates differ.
        """
        if self.certificate is not None and other.certificate not in (None, self.certificate):
            raise ValueError(
                f"expected one certificate of {self.name}, got two different ones: write a separate report for each"
            )
        return replace(
            self,
            name=self.name or other.name,
            split={**self.split, **other.split},
            seed=other.seed if self.seed is None else self.seed,
            clean=other.clean if self.clean is None else self.clean,
            attacks=_merge_by_threat_model([*self.attacks, *other.attacks]),
            certificate=self.certificate or other.certificate,
            proven=self.proven or other.proven,
            filter=self.filter or other.filter,
            fragility=self.fragility or other.fragility,
            explanations=(*self.explanations, *other.explanations),
            baselines={**other.baselines, **self.baselines},
            warnings=_unique([*self.warnings, *other.warnings]),
            commands=_unique([*self.commands, *other.commands]),
            environment=self.environment or other.environment,
        )


def is_self_trained(training: Mapping[str, Any]) -> bool:
    """Whether the model was trained on pseudo-labels."""
    return bool(training.get("self_training")) or "label_val_accuracy" in training


def _num_nodes(certificate: Certificate | WorstCaseCertificate) -> int:
    return (certificate.nodes if isinstance(certificate, WorstCaseCertificate) else certificate.prediction).numel()


def _attack_table(evaluation: Evaluation, data: Data, nodes: Tensor) -> AttackTable:
    return AttackTable(
        local="given" if isinstance(evaluation.local, Tensor) else evaluation.local,
        count=evaluation.count,
        rows=tuple(
            AttackRow(row.attack, row.epsilon, row.accuracy, row.total, row.flips, row.seconds)
            for row in evaluation.rows
        ),
        outcomes=(Outcomes.of(evaluation.results, data, nodes),),
        warnings=evaluation.warnings,
        checked=True,
        efforts=() if evaluation.effort is None else (evaluation.effort,),
        tiers=(evaluation.tier,),
        constraints="" if evaluation.constraints is None else evaluation.constraints.description,
    )


def _merge_by_threat_model(tables: list[AttackTable]) -> tuple[AttackTable, ...]:
    groups: dict[ThreatModel, list[AttackTable]] = {}
    for table in tables:
        groups.setdefault(table.threat_model, []).append(table)
    return tuple(map(_merge_tables, groups.values()))


def _merge_tables(tables: list[AttackTable]) -> AttackTable:
    """Merge tables of one threat model; of repeated attacks, keep the row with the lower accuracy."""
    best: dict[tuple[str, float], AttackRow] = {}
    for row in (row for table in tables for row in table.rows):
        key = row.attack, row.epsilon
        if key not in best or row.accuracy < best[key].accuracy:
            best[key] = row
    return replace(
        tables[0],
        rows=tuple(best.values()),
        outcomes=tuple(outcomes for table in tables for outcomes in table.outcomes),
        warnings=_unique(warning for table in tables for warning in table.warnings),
        checked=all(table.checked for table in tables),
        efforts=_unique(effort for table in tables for effort in table.efforts),
        tiers=_unique(tier for table in tables for tier in table.tiers),
    )


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
