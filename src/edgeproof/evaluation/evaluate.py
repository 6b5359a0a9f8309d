"""Robustness evaluation: the lowest accuracy over a suite of attacks, with self-checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof import losses
from edgeproof._names import unknown_name
from edgeproof._warnings import warn, with_code
from edgeproof.attacks.base import Attack, AttackResult, Target, make_target
from edgeproof.attacks.dice import DICE
from edgeproof.attacks.fixed import FixedFlips
from edgeproof.attacks.greedy_rbcd import GreedyRBCD
from edgeproof.attacks.local_search import LocalSearch
from edgeproof.attacks.registry import available, build
from edgeproof.attacks.suite import Entry, standard
from edgeproof.budget import Budget, check_epsilon
from edgeproof.evaluation import checks
from edgeproof.evaluation.result import Score
from edgeproof.evaluation.surrogate import fit_surrogate
from edgeproof.models.base import predict

# Local searches per budget, each from a different result of the lowest accuracy.
_MAX_STARTS = 4

# Results of each attack by its name: one list per restart, each with one result per budget.
Runs = dict[str, list[list[AttackResult]]]


class AttackScore(NamedTuple):
    """Outcome of one attack at one budget.

    Args:
        attack: Name of the attack in the suite.
        epsilon: Budget as a fraction of the edges.
        total: Budget as a number of flips.
        flips: Number of flips used.
        accuracy: Accuracy of the target nodes on the perturbed graph.
        seconds: Runtime, summed over all restarts.
    """

    attack: str
    epsilon: float
    total: int
    flips: int
    accuracy: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Result of :func:`evaluate`.

    Args:
        clean_accuracy: Accuracy of the target nodes on the clean graph.
        rows: Score of the best restart of every attack at every budget.
        worst: Result of lowest accuracy by epsilon.
        warnings: Warnings of the self-checks, with their codes.
        results: Results behind ``rows``, by attack and epsilon.
        local: Local budgets as passed to :func:`evaluate`.
        count: Edges that epsilon is a fraction of.
    """

    clean_accuracy: float
    rows: tuple[AttackScore, ...]
    worst: dict[float, AttackResult]
    warnings: tuple[str, ...]
    results: dict[tuple[str, float], AttackResult]
    local: float | Tensor | None
    count: str

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
        attacked = [Score(nodes, row.attack, row.epsilon, row.accuracy) for row in self.rows]
        worst = [Score(nodes, "worst", epsilon, self.accuracy(epsilon)) for epsilon in self.epsilons]
        return (clean, *attacked, *worst)

    def __str__(self) -> str:
        head = f"{'accuracy, %':28}" + "".join(f"{epsilon:>9g}" for epsilon in self.epsilons)
        names = dict.fromkeys(row.attack for row in self.rows)
        cells = {(row.attack, row.epsilon): f"{100 * row.accuracy:9.1f}" for row in self.rows}
        lines = [f"{name:28}" + "".join(cells[name, epsilon] for epsilon in self.epsilons) for name in names]
        worst = f"{'worst':28}" + "".join(f"{100 * self.accuracy(epsilon):9.1f}" for epsilon in self.epsilons)
        clean = f"{'clean':28}{100 * self.clean_accuracy:9.1f}"
        return "\n".join([head, clean, *lines, worst, *(f"warning: {warning}" for warning in self.warnings)])


def evaluate(
    model: nn.Module,
    data: Data,
    nodes: Tensor,
    epsilons: Sequence[float],
    attacks: str | Sequence[str | Attack] = "standard",
    *,
    local: float | Tensor | None = None,
    count: str = "incident",
    labels: Tensor | None = None,
    surrogate: nn.Module | None = None,
    seed: int = 0,
    backend: str | None = None,
    progress: bool = False,
) -> Evaluation:
    """Attack a model with a suite of attacks and keep the worst result per budget.

    The standard suite (:func:`edgeproof.attacks.suite.standard`) needs no tuning. It also applies flips found on a
    surrogate fitted to the model's predictions, and improves the best flips of all attacks by local search. Results at a
    smaller budget also count at larger ones. Signs that the result overestimates robustness are issued as
    :class:`~edgeproof.evaluation.EvaluationWarning`.

    Args:
        model: Module called as ``model(x, edge_index, edge_weight=None)``.
        data: Graph, on the model's device.
        nodes: Target nodes.
        epsilons: Budgets as fractions of the edges; see :meth:`edgeproof.Budget.from_epsilon`.
        attacks: ``"standard"``, or a list of attacks or their names. A list runs without surrogate and local search.
        local: Local budgets: a factor of the degree, or one number per node.
        count: Edges that epsilon is a fraction of.
        labels: Correct labels of ``nodes``; by default the labels of ``data``.
        surrogate: Model to transfer flips from; by default the standard suite fits one to the predictions of ``model``.
        seed: Seed of all random choices.
        backend: Kernel backend. Default: the fastest that supports the inputs.
        progress: Whether to draw progress bars (on terminals only).

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> scores = evaluate(models.build("GCN", 21, 2, seed=0), data, nodes, [0.05, 0.1], ["FGSM", "DICE"])
    >>> scores.accuracy(0.1) <= scores.accuracy(0.05) <= scores.clean_accuracy
    True
    """
    epsilons = _check_epsilons(epsilons)
    target = make_target(model, data, nodes, labels, backend)
    budgets = Budget.from_epsilons(data, nodes, epsilons, local=local, count=count)
    is_standard = isinstance(attacks, str)
    entries = _standard_entries(attacks, target, budgets) if isinstance(attacks, str) else _custom_entries(attacks)
    problems = _check_model(target, entries, seed)

    runs = run_suite(target, entries, budgets, seed=seed, progress=progress)
    if is_standard or surrogate is not None:
        source = surrogate if surrogate is not None else fit_surrogate(model, data, seed=seed)
        runs["transfer"] = [_transfer(source, target, budgets, seed, progress)]
    worst = cumulative_worst([results for restarts in runs.values() for results in restarts], epsilons)
    if is_standard:
        runs["local search"] = [_search_locally(target, runs, budgets, seed, progress)]
        worst = cumulative_worst([worst, *runs["local search"]], epsilons)
    best = {name: [min(results, key=_accuracy) for results in zip(*runs[name], strict=True)] for name in runs}

    problems += _check_order(best, entries, epsilons)
    for code, message in problems:
        warn(code, message, checks.EvaluationWarning, stacklevel=2)
    return Evaluation(
        clean_accuracy=worst[0].clean_accuracy,
        rows=tuple(
            AttackScore(name, epsilon, budget.total, result.flips.size(1), result.accuracy, seconds)
            for name, results in best.items()
            for epsilon, budget, result, seconds in zip(epsilons, budgets, results, _seconds(runs[name]), strict=True)
        ),
        worst=dict(zip(epsilons, worst, strict=True)),
        warnings=tuple(with_code(code, message) for code, message in problems),
        results={
            (name, epsilon): result
            for name, results in best.items()
            for epsilon, result in zip(epsilons, results, strict=True)
        },
        local=local,
        count=count,
    )


def run_suite(
    target: Target, entries: Sequence[Entry], budgets: Sequence[Budget], *, seed: int = 0, progress: bool = False
) -> Runs:
    """Run every attack of a suite on one target, each restart with a seed of its own."""
    return {
        entry.name: [
            entry.attack.on_target(target, budgets, seed=seed + restart, progress=progress) for restart in entry.seeds
        ]
        for entry in entries
    }


def cumulative_worst(runs: Sequence[Sequence[AttackResult]], epsilons: Sequence[float]) -> list[AttackResult]:
    """Return the worst result within each budget; results of smaller budgets count.

    Args:
        runs: Results of each run, one per epsilon.
        epsilons: Budgets, in the same order.
    """
    return [
        min((run[j] for run in runs for j in range(len(epsilons)) if epsilons[j] <= epsilon), key=_accuracy)
        for epsilon in epsilons
    ]


def _check_epsilons(epsilons: Sequence[float]) -> list[float]:
    if isinstance(epsilons, (int, float)):
        raise TypeError(f"expected a list of epsilons, such as [0.05, 0.1], got {epsilons!r}")
    for epsilon in epsilons:
        check_epsilon(epsilon)
    values = [float(epsilon) for epsilon in epsilons]
    if not values or len(set(values)) != len(values):
        raise ValueError(f"expected distinct epsilons, at least one, got {list(epsilons)}")
    return values


def _standard_entries(name: str, target: Target, budgets: Sequence[Budget]) -> list[Entry]:
    if name != "standard":
        raise unknown_name("suite", name, ["standard"])
    entries = standard(budgets, target.num_nodes, target.engine("tanh_margin").path)
    # DICE needs labels of all nodes.
    return [entry for entry in entries if target.data.y is not None or not isinstance(entry.attack, DICE)]


def _custom_entries(attacks: Sequence[str | Attack]) -> list[Entry]:
    built = [build(attack) if isinstance(attack, str) else attack for attack in attacks]
    if not built or not all(isinstance(attack, Attack) for attack in built):
        raise ValueError(f"expected attacks, or names among {', '.join(available())}, got {attacks!r}")
    names = [type(attack).__name__ for attack in built]
    return [
        Entry(name if names.count(name) == 1 else repr(attack), attack, weak=name in ("DICE", "RandomFlips"))
        for name, attack in zip(names, built, strict=True)
    ]


def _check_model(target: Target, entries: Sequence[Entry], seed: int) -> list[tuple[str, str]]:
    """Return codes and messages of the checks that need no attack."""
    margins = losses.margin(predict(target.model, target.data)[target.nodes], target.labels)
    attack_losses = {entry.name: getattr(entry.attack, "loss", None) for entry in entries}
    messages = {
        "EP001": checks.random_output(target.model, target.data),
        "EP002": checks.vanishing_gradient(target, seed=seed),
        "EP003": checks.unusual_scale(margins, attack_losses),
    }
    return [(code, message) for code, message in messages.items() if message is not None]


def _check_order(
    best: Mapping[str, Sequence[AttackResult]], entries: Sequence[Entry], epsilons: Sequence[float]
) -> list[tuple[str, str]]:
    """Return codes and messages of the checks that compare the accuracies under different attacks.

    Transfer and local search, which are not in ``entries``, do not count as attacks that use the model's gradients.
    """
    accuracies = {name: torch.tensor([result.accuracy for result in results]) for name, results in best.items()}
    strong = {entry.name: accuracies[entry.name] for entry in entries if not entry.weak}
    weak = {entry.name: accuracies[entry.name] for entry in entries if entry.weak}
    problems = [("EP004", message) for message in checks.weak_beats_strong(weak, strong, epsilons)]
    problems += [("EP005", message) for message in checks.rising_accuracy(strong, epsilons)]
    if "transfer" in accuracies and strong:
        adaptive = torch.stack(list(strong.values())).amin(dim=0)
        messages = checks.transfer_beats_adaptive(accuracies["transfer"], adaptive, epsilons)
        problems += [("EP006", message) for message in messages]
    return problems


def _transfer(
    surrogate: nn.Module, target: Target, budgets: Sequence[Budget], seed: int, progress: bool
) -> list[AttackResult]:
    """Find flips on the surrogate, and apply them to the target."""
    source = make_target(surrogate, target.data, target.nodes, target.labels, target.backend)
    found = GreedyRBCD(loss="log_margin").on_target(source, budgets, seed=seed, progress=progress)
    results = []
    for budget, result in zip(budgets, found, strict=True):
        attack = FixedFlips(flips=result.flips, origin="another model")
        results += attack.on_target(target, [budget], seed=seed, progress=progress)
    return results


def _search_locally(
    target: Target, runs: Runs, budgets: Sequence[Budget], seed: int, progress: bool
) -> list[AttackResult]:
    """Return the best local search per budget, started at the results of lowest accuracy, at most a few of them."""
    known = [result for restarts in runs.values() for results in restarts for result in results]
    best = []
    for budget in budgets:
        allowed = [result for result in known if result.budget.total <= budget.total]
        lowest = min(result.accuracy for result in allowed)
        starts = {tuple(result.flips.flatten().tolist()): result for result in allowed if result.accuracy == lowest}
        searches = []
        for start in list(starts.values())[:_MAX_STARTS]:
            attack = LocalSearch(start=FixedFlips(flips=start.flips, origin=repr(start.attack)))
            searches += attack.on_target(target, [budget], seed=seed, progress=progress)
        best.append(min(searches, key=_accuracy))
    return best


def _accuracy(result: AttackResult) -> float:
    return result.accuracy


def _seconds(restarts: Sequence[Sequence[AttackResult]]) -> list[float]:
    return [sum(result.seconds["total"] for result in results) for results in zip(*restarts, strict=True)]
