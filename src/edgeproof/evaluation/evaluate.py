"""How robust a model is: the worst that a suite of attacks can do, and whether to believe it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof import losses
from edgeproof._names import unknown_name
from edgeproof.attacks.base import Attack, AttackResult, make_target
from edgeproof.attacks.dice import DICE
from edgeproof.attacks.fixed import FixedFlips
from edgeproof.attacks.greedy_rbcd import GreedyRBCD
from edgeproof.attacks.local_search import LocalSearch
from edgeproof.attacks.registry import available, build
from edgeproof.attacks.suite import Entry, standard
from edgeproof.budget import Budget, check_epsilon
from edgeproof.evaluation import checks
from edgeproof.evaluation.result import Score
from edgeproof.evaluation.surrogate import imitate
from edgeproof.models.base import predict

# Results that a local search begins with.
_STARTS = 4


class Row(NamedTuple):
    """What one attack did at one budget.

    Args:
        attack: its name in the suite.
        epsilon: the budget as a share of the edges.
        total: the budget.
        flips: how many of them it used.
        accuracy: of the target nodes on the perturbed graph.
        seconds: how long it took, all restarts together.
    """

    attack: str
    epsilon: float
    total: int
    flips: int
    accuracy: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The outcome of :func:`evaluate`.

    Args:
        clean_accuracy: of the target nodes on the graph as it is.
        rows: every attack at every budget, best restart each.
        worst: by epsilon, the result of lowest accuracy.
        warnings: reasons not to trust the figures.
        results: what is behind the rows, by attack and epsilon.
        local: budgets of single nodes, as they were given.
        count: which edges epsilon was a share of.
    """

    clean_accuracy: float
    rows: tuple[Row, ...]
    worst: dict[float, AttackResult]
    warnings: tuple[str, ...]
    results: dict[tuple[str, float], AttackResult]
    local: float | Tensor | None
    count: str

    @property
    def epsilons(self) -> list[float]:
        return list(self.worst)

    def accuracy(self, epsilon: float) -> float:
        """The lowest accuracy over all attacks within this budget."""
        return self.worst[epsilon].accuracy

    def scores(self, nodes: str = "test") -> tuple[Score, ...]:
        """As entries of a result file; the minimum over all attacks is called ``"worst"``."""
        clean = Score(nodes, "clean", 0.0, self.clean_accuracy)
        rows = [Score(nodes, row.attack, row.epsilon, row.accuracy) for row in self.rows]
        return (clean, *rows, *(Score(nodes, "worst", epsilon, self.accuracy(epsilon)) for epsilon in self.epsilons))

    def __str__(self) -> str:
        head = f"{'accuracy, %':28}" + "".join(f"{epsilon:>9g}" for epsilon in self.epsilons)
        names = dict.fromkeys(row.attack for row in self.rows)
        found = {(row.attack, row.epsilon): f"{100 * row.accuracy:9.1f}" for row in self.rows}
        lines = [f"{name:28}" + "".join(found[name, epsilon] for epsilon in self.epsilons) for name in names]
        least = f"{'worst':28}" + "".join(f"{100 * self.accuracy(epsilon):9.1f}" for epsilon in self.epsilons)
        clean = f"{'clean':28}{100 * self.clean_accuracy:9.1f}"
        return "\n".join([head, clean, *lines, least, *(f"warning: {warning}" for warning in self.warnings)])


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
    """Attack a model in every way known, and keep the worst.

    The standard suite (:func:`edgeproof.attacks.suite.standard`) has nothing to tune. A local search improves the best flips
    of all attacks, and flips found on an imitation of the model are tried on it. What was found within a smaller budget counts
    for the larger ones, too. Signs that the figures are too good become :class:`~edgeproof.evaluation.EvaluationWarning`.

    Args:
        model: any module called as ``model(x, edge_index, edge_weight=None)``.
        data: the graph, on the model's device.
        nodes: the target nodes.
        epsilons: budgets, as shares of the edges; see :meth:`edgeproof.Budget.from_epsilon`.
        attacks: ``"standard"``, or attacks and names of attacks to run instead, without imitation and local search.
        local: budgets of single nodes, as a factor of their degree or one number each.
        count: which edges epsilon is a share of.
        labels: what the nodes should be classified as; by default the labels of ``data``.
        surrogate: another model to carry flips over from; by default the standard suite trains one that imitates ``model``.
        seed: decides all that is random.
        backend: the kernels to use; by default the fastest that fit.
        progress: whether to draw progress bars (on terminals only).

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> scores = evaluate(models.build("GCN", 21, 2, seed=0), data, nodes, [0.05, 0.1], ["FGSM", "DICE"])
    >>> scores.accuracy(0.1) <= scores.accuracy(0.05) <= scores.clean_accuracy
    True
    """
    epsilons = _checked(epsilons)
    target = make_target(model, data, nodes, labels, backend)
    budgets = Budget.from_epsilons(data, nodes, epsilons, local=local, count=count)
    is_standard = isinstance(attacks, str)
    entries = _entries(attacks)
    if is_standard:
        entries = standard(budgets, target.num_nodes, target.engine("tanh_margin").path)
        if data.y is None:
            # DICE goes by labels.
            entries = [entry for entry in entries if not isinstance(entry.attack, DICE)]
    margins = losses.margin(predict(model, data)[nodes], target.labels)
    found = [
        checks.random_output(model, data),
        checks.vanishing_gradient(target, seed=seed),
        checks.unusual_scale(margins, {entry.name: getattr(entry.attack, "loss", None) for entry in entries}),
    ]
    problems = [problem for problem in found if problem]

    def run(attack: Attack, budget: Sequence[Budget], restart: int = 0) -> list[AttackResult]:
        return attack(
            model, data, nodes, budget, labels=target.labels, seed=seed + restart, backend=backend, progress=progress
        )

    table: dict[str, list[list[AttackResult]]] = {
        entry.name: [run(entry.attack, budgets, restart) for restart in entry.seeds] for entry in entries
    }
    if is_standard or surrogate is not None:
        other = surrogate if surrogate is not None else imitate(model, data, seed=seed)
        on_other = GreedyRBCD(loss="log_margin")(
            other, data, nodes, budgets, labels=target.labels, seed=seed, backend=backend, progress=progress
        )
        carried = (FixedFlips(flips=result.flips, origin="another model") for result in on_other)
        table["transfer"] = [[run(attack, [budget])[0] for attack, budget in zip(carried, budgets, strict=True)]]
    worst = _cumulative_worst([result for runs in table.values() for result in runs], epsilons)
    if is_standard:
        found_so_far = [result for runs in table.values() for results in runs for result in results]
        table["local search"] = _search(run, found_so_far, budgets)
        worst = _cumulative_worst([worst, *table["local search"]], epsilons)

    best = {name: [min(each, key=_accuracy) for each in zip(*runs, strict=True)] for name, runs in table.items()}
    problems += _suspicious(best, {entry.name: entry.weak for entry in entries}, epsilons)
    for problem in problems:
        warnings.warn(problem, checks.EvaluationWarning, stacklevel=2)
    rows = [
        Row(name, epsilon, budget.total, result.flips.size(1), result.accuracy, seconds)
        for name, results in best.items()
        for epsilon, budget, result, seconds in zip(epsilons, budgets, results, _seconds(table[name]), strict=True)
    ]
    return Evaluation(
        clean_accuracy=worst[0].clean_accuracy,
        rows=tuple(rows),
        worst=dict(zip(epsilons, worst, strict=True)),
        warnings=tuple(problems),
        results={
            (name, epsilon): result
            for name, results in best.items()
            for epsilon, result in zip(epsilons, results, strict=True)
        },
        local=local,
        count=count,
    )


def _suspicious(best: dict[str, list[AttackResult]], weak: dict[str, bool], epsilons: Sequence[float]) -> list[str]:
    """What the order of the attacks' accuracies gives away.

    Args:
        best: the results of every attack, one per epsilon.
        weak: for the attacks of the suite, whether others should beat them. What is not listed here, the transfer and the local
            search, which begins with the best of all others, does not count as an attack that uses the model's gradients.
        epsilons: in the same order.
    """
    accuracies = {name: torch.tensor([result.accuracy for result in results]) for name, results in best.items()}
    strong = {name: accuracies[name] for name, is_weak in weak.items() if not is_weak}
    others = {name: accuracies[name] for name, is_weak in weak.items() if is_weak}
    problems = checks.weak_beats_strong(others, strong, epsilons) + checks.rising_accuracy(strong, epsilons)
    if "transfer" in accuracies and strong:
        adaptive = torch.stack(list(strong.values())).amin(dim=0)
        problems += checks.transfer_beats_adaptive(accuracies["transfer"], adaptive, epsilons)
    return problems


def _checked(epsilons: Sequence[float]) -> list[float]:
    if isinstance(epsilons, (int, float)):
        raise TypeError(f"expected a list of epsilons, such as [0.05, 0.1], got {epsilons!r}")
    for epsilon in epsilons:
        check_epsilon(epsilon)
    found = [float(epsilon) for epsilon in epsilons]
    if not found or len(set(found)) != len(found):
        raise ValueError(f"expected distinct epsilons, at least one, got {list(epsilons)}")
    return found


def _entries(attacks: str | Sequence[str | Attack]) -> list[Entry]:
    if isinstance(attacks, str):
        if attacks != "standard":
            raise unknown_name("suite", attacks, ["standard"])
        return []
    chosen = [build(attack) if isinstance(attack, str) else attack for attack in attacks]
    if not chosen or not all(isinstance(attack, Attack) for attack in chosen):
        raise ValueError(f"expected attacks, or names among {', '.join(available())}, got {attacks!r}")
    names = [type(attack).__name__ for attack in chosen]
    return [
        Entry(name if names.count(name) == 1 else repr(attack), attack, weak=name in ("DICE", "RandomFlips"))
        for name, attack in zip(names, chosen, strict=True)
    ]


def _cumulative_worst(runs: list[list[AttackResult]], epsilons: Sequence[float]) -> list[AttackResult]:
    """For every budget the worst result within it: what was found with less counts, too."""
    return [
        min((run[j] for run in runs for j in range(len(epsilons)) if epsilons[j] <= epsilon), key=_accuracy)
        for epsilon in epsilons
    ]


def _search(
    run: Callable[[Attack, Sequence[Budget]], list[AttackResult]], found: list[AttackResult], budgets: list[Budget]
) -> list[list[AttackResult]]:
    """Budget by budget, the best of local searches from the results of lowest accuracy, a few of them where they are equal."""
    results = []
    for budget in budgets:
        allowed = [result for result in found if result.budget.total <= budget.total]
        least = min(result.accuracy for result in allowed)
        starts = {tuple(result.flips.flatten().tolist()): result for result in allowed if result.accuracy == least}
        chosen = list(starts.values())[:_STARTS]
        searches = [LocalSearch(start=FixedFlips(flips=start.flips, origin=repr(start.attack))) for start in chosen]
        results.append(min((run(search, [budget])[0] for search in searches), key=_accuracy))
    return [results]


def _accuracy(result: AttackResult) -> float:
    return result.accuracy


def _seconds(runs: list[list[AttackResult]]) -> list[float]:
    return [sum(result.seconds["total"] for result in each) for each in zip(*runs, strict=True)]
