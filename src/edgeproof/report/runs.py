"""One trained model and everything that was measured about it, as numbers and texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch_geometric.data import Data

from edgeproof._checks import check_data, check_nodes
from edgeproof.certificates import Certificate
from edgeproof.evaluation import Evaluation
from edgeproof.evaluation.result import describe_environment, describe_model, describe_split
from edgeproof.report.filters import Filter
from edgeproof.report.outcomes import Outcomes
from edgeproof.splits import Split
from edgeproof.training import History


class Row(NamedTuple):
    """What one attack did at one budget; what a file does not say is none.

    Args:
        attack: its name.
        epsilon: the budget as a share of the edges.
        accuracy: on the perturbed graph.
        total: the budget in flips.
        flips: how many of them were used.
        seconds: how long it took.
    """

    attack: str
    epsilon: float
    accuracy: float
    total: int | None = None
    flips: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Attacked:
    """All attacks on a model under one kind of budget.

    Args:
        local: budget of a node as a factor of its degree; ``"given"`` where each had its own; none without.
        count: which edges epsilon is a share of.
        rows: every attack at every epsilon, once.
        outcomes: what became of the nodes, one for each evaluation that kept them.
        warnings: of the self-checks.
        checked: whether self-checks were run on all rows, as an evaluation does.
    """

    local: float | str | None
    count: str
    rows: tuple[Row, ...]
    outcomes: tuple[Outcomes, ...] = ()
    warnings: tuple[str, ...] = ()
    checked: bool = False

    @property
    def kind(self) -> tuple[str, str]:
        """The same for what may be compared."""
        return str(self.local), self.count

    @property
    def epsilons(self) -> list[float]:
        return sorted({row.epsilon for row in self.rows})

    def worst(self, epsilon: float) -> Row:
        """The row of lowest accuracy; what a smaller budget achieved, a larger one can, too."""
        return min((row for row in self.rows if row.epsilon <= epsilon), key=lambda row: row.accuracy)

    def at(self, attack: str, epsilon: float) -> Row | None:
        """The row of this attack, if it was run."""
        return next((row for row in self.rows if (row.attack, row.epsilon) == (attack, epsilon)), None)


@dataclass(frozen=True)
class Certified:
    """What a certificate says of all nodes together.

    Args:
        shares: certified accuracy by edges added and edges deleted, as far as it is known.
        labelled: whether it is an accuracy, or, without labels, a share of all nodes.
        settings: of the certificate, for people to read.
        abstained: share of nodes without an answer.
    """

    shares: Mapping[tuple[int, int], float]
    labelled: bool
    settings: Mapping[str, float]
    abstained: float

    @classmethod
    def of(cls, certificate: Certificate) -> Certified:
        """The numbers that a page shows."""
        labelled = certificate.labels is not None
        counted = certificate.grid
        if certificate.labels is not None:
            counted = counted & (certificate.prediction == certificate.labels)[:, None, None]
        # Beyond the grid nothing is certified.
        shares = pad(counted.double().mean(dim=0), (0, 1, 0, 1)).tolist()
        return cls(
            shares={(a, d): share for a, row in enumerate(shares) for d, share in enumerate(row)},
            labelled=labelled,
            settings={name: getattr(certificate, name) for name in ("p_add", "p_del", "samples", "alpha")},
            abstained=float(certificate.abstained.double().mean()),
        )


@dataclass(frozen=True)
class Run:
    """One trained model and everything that was measured about it.

    Args:
        name: what to call it; runs of one name, one data set and one kind of model are repetitions of each other.
        dataset: the graph's name.
        model: see :func:`edgeproof.evaluation.result.describe_model`.
        split: see :func:`edgeproof.evaluation.result.describe_split`; at least ``test``, the number of target nodes.
        training: see :meth:`edgeproof.training.History.summary`; empty where it is not known.
        seed: of the training, where it is known.
        clean: accuracy on the graph as it is; none if only certified.
        attacked: one entry for each kind of budget.
        certified: what no change can alter.
        filter: what was learned, for models that have a filter.
        warnings: reasons not to trust the model's figures, whatever the attack.
        commands: what to type to get all this again.
        environment: versions and machine.
    """

    name: str
    dataset: str
    model: Mapping[str, Any]
    split: Mapping[str, Any]
    training: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    clean: float | None = None
    attacked: tuple[Attacked, ...] = ()
    certified: Certified | None = None
    filter: Filter | None = None
    warnings: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        name: str,
        model: nn.Module,
        data: Data,
        nodes: Tensor,
        *,
        evaluation: Evaluation | None = None,
        certificate: Certificate | None = None,
        history: History | None = None,
        split: Split | None = None,
        dataset: str = "own graph",
        seed: int | None = None,
        command: str = "",
    ) -> Run:
        """From what was measured in Python, about a model of the library or of your own.

        Args:
            name: what to call the model; several runs of one name become one line with error bars.
            model: the model.
            data: the graph that it was tested on.
            nodes: the target nodes.
            evaluation: what :func:`edgeproof.evaluate` found there.
            certificate: what :class:`edgeproof.certificates.SparseSmoothing` found there.
            history: how the model was trained, as :func:`edgeproof.train` says.
            split: whose test nodes these are; the page then says whether training has seen them.
            dataset: what to call the graph.
            seed: of the training, to tell runs of one name apart.
            command: how to get all this again.

        >>> import edgeproof as ep, torch
        >>> data, nodes, model = ep.datasets.load("csbm"), torch.arange(50), ep.models.GCN(21, 2)
        >>> scores = ep.evaluate(model, data, nodes, [0.1], ["FGSM"])
        >>> run = Run.of("my GCN", model, data, nodes, evaluation=scores, dataset="my graph")
        >>> run.attacked[0].worst(0.1).attack
        'FGSM'
        """
        check_data(data, labels=False)
        check_nodes(nodes, data)
        if not isinstance(name, str):
            raise TypeError(f"expected a name as text, got {name!r}")
        if evaluation is None and certificate is None:
            raise ValueError("expected an evaluation or a certificate to report, got none")
        for result in [] if evaluation is None else evaluation.results.values():
            if not torch.equal(result.nodes.cpu(), nodes.cpu()):
                raise ValueError(f"expected the evaluation of these {nodes.numel()} nodes, got one of other nodes")
        if certificate is not None and certificate.prediction.numel() != nodes.numel():
            number = certificate.prediction.numel()
            raise ValueError(f"expected the certificate of these {nodes.numel()} nodes, got one of {number} nodes")
        return cls(
            name=name,
            dataset=dataset,
            model=describe_model(model),
            split={**({} if split is None else describe_split(split)), "test": nodes.numel()},
            training={} if history is None else history.summary(),
            seed=seed,
            clean=None if evaluation is None else evaluation.clean_accuracy,
            attacked=() if evaluation is None else (_attacked(evaluation, data, nodes),),
            certified=None if certificate is None else Certified.of(certificate),
            filter=Filter.of(model, data),
            commands=(command,) if command else (),
            environment=describe_environment(data.x.device),
        )

    def joined(self, other: Run) -> Run:
        """What two files say about the same model."""
        if self.certified is not None and other.certified not in (None, self.certified):
            raise ValueError(f"expected one certificate of {self.name}, got two that differ: report them on two pages")
        return replace(
            self,
            name=self.name or other.name,
            split={**self.split, **other.split},
            seed=other.seed if self.seed is None else self.seed,
            clean=other.clean if self.clean is None else self.clean,
            attacked=_merged([*self.attacked, *other.attacked]),
            certified=self.certified or other.certified,
            filter=self.filter or other.filter,
            warnings=_once([*self.warnings, *other.warnings]),
            commands=_once([*self.commands, *other.commands]),
            environment=self.environment or other.environment,
        )


def self_trained(training: Mapping[str, Any]) -> bool:
    """Whether other models labelled nodes for this one."""
    return bool(training.get("self_training")) or "label_val_accuracy" in training


def _attacked(found: Evaluation, data: Data, nodes: Tensor) -> Attacked:
    return Attacked(
        local="given" if isinstance(found.local, Tensor) else found.local,
        count=found.count,
        rows=tuple(Row(row.attack, row.epsilon, row.accuracy, row.total, row.flips, row.seconds) for row in found.rows),
        outcomes=(Outcomes.of(found.results, data, nodes),),
        warnings=found.warnings,
        checked=True,
    )


def _merged(parts: list[Attacked]) -> tuple[Attacked, ...]:
    kinds: dict[tuple[str, str], list[Attacked]] = {}
    for part in parts:
        kinds.setdefault(part.kind, []).append(part)
    return tuple(_one(same) for same in kinds.values())


def _one(parts: list[Attacked]) -> Attacked:
    """Several evaluations under one kind of budget as one: of an attack that was run twice the better one counts."""
    best: dict[tuple[str, float], Row] = {}
    for row in (row for part in parts for row in part.rows):
        key = row.attack, row.epsilon
        if key not in best or row.accuracy < best[key].accuracy:
            best[key] = row
    return replace(
        parts[0],
        rows=tuple(best.values()),
        outcomes=tuple(one for part in parts for one in part.outcomes),
        warnings=_once([warning for part in parts for warning in part.warnings]),
        checked=all(part.checked for part in parts),
    )


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
