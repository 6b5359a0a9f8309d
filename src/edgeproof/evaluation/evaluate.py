"""Robustness evaluation: the lowest accuracy over a suite of attacks, with self-checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof import losses
from edgeproof._checks import Nodes, check_int, check_seed
from edgeproof._names import unknown_name
from edgeproof._progress import progress_bar
from edgeproof._tensors import fingerprint
from edgeproof._version import __version__
from edgeproof._warnings import warn, with_code
from edgeproof.attacks.base import Attack, AttackResult, Target, make_target
from edgeproof.attacks.dice import DICE
from edgeproof.budget import Budget, check_epsilon
from edgeproof.constraints import Constraints
from edgeproof.evaluation import checks
from edgeproof.evaluation.baselines import baseline_accuracies
from edgeproof.evaluation.checkpoint import Checkpoint
from edgeproof.evaluation.estimate import Meter, total_work
from edgeproof.evaluation.evaluation import AttackScore, Evaluation
from edgeproof.evaluation.fragility import fragility as search_fragility
from edgeproof.evaluation.fragility_result import Fragility
from edgeproof.evaluation.plan import (
    EXACT_SEARCH,
    TRANSFER,
    Step,
    attack_steps,
    custom_entries,
    suite_plan,
    transfer_step,
)
from edgeproof.evaluation.run import accuracy_of, combine_worst, run_steps
from edgeproof.models.base import predict
from edgeproof.propagation.incremental import incremental_evaluator
from edgeproof.splits import Split

# Results of each attack by its name: one list per restart, each with one result per budget.
Runs = dict[str, list[list[AttackResult]]]


def evaluate(
    model: nn.Module,
    data: Data,
    nodes: Nodes,
    epsilons: Sequence[float],
    attacks: str | Sequence[str | Attack] = "standard",
    *,
    effort: str = "standard",
    local: float | Tensor | None = None,
    count: str = "incident",
    constraints: Constraints | None = None,
    labels: Tensor | None = None,
    surrogate: nn.Module | None = None,
    baselines: Split | None = None,
    seed: int = 0,
    backend: str | None = None,
    fragility: int | None = None,
    checkpoint: str | Path | None = None,
    progress: bool = False,
) -> Evaluation:
    """Attack a model with a suite of attacks and keep the worst result per budget.

    The standard suite (:func:`edgeproof.attacks.suite.standard` and :func:`edgeproof.attacks.suite.exact`) needs no tuning. On
    models without edge gradients it consists of attacks that need only predictions
    (:func:`edgeproof.attacks.suite.black_box`). It also applies flips found on a surrogate fitted to the model's predictions,
    and improves the best flips of all attacks by local search, with gradients and with exact gains. Results at a smaller
    budget also count at larger ones. Signs that the result overestimates robustness are issued as
    :class:`~edgeproof.evaluation.EvaluationWarning`.

    Args:
        model: Module called as ``model(x, edge_index, edge_weight=None)``.
        data: Graph, on the model's device.
        nodes: Target nodes: ids, or a boolean mask.
        epsilons: Budgets as fractions of the edges; see :meth:`edgeproof.Budget.from_epsilon`.
        attacks: ``"standard"``, or a list of attacks or their names. A list runs without surrogate and local search.
        effort: Effort of the suite. ``"quick"``: random flips, DICE, one greedy attack and the surrogate, about a tenth of the
            time of ``"standard"``. ``"thorough"``: also more seeds, surrogates and local searches, several times its time.
            With the same seed, more effort never gives a higher accuracy.
        local: Local budgets: a factor of the degree, or one number per node.
        count: Edges that epsilon is a fraction of.
        constraints: Pairs that may be flipped, and the costs of flips. Default: all pairs at cost 1.
        labels: Correct labels of ``nodes``; by default the labels of ``data``.
        surrogate: Model to transfer flips from; by default the standard suite fits one to the predictions of ``model``.
        baselines: Split whose labelled nodes train the baselines that use no edges, a constant prediction and an MLP; None for
            no baselines.
        seed: Seed of all random choices.
        backend: Kernel backend. Default: the fastest that supports the inputs.
        fragility: Largest number of flips of a search for the fewest flips that misclassify each target node on its own, see
            :func:`edgeproof.evaluation.fragility`; None for no search.
        checkpoint: File for the flips of all finished searches, written after each of them. If it exists, the evaluation
            resumes from it, with the same result as an uninterrupted one: bit for bit on a CPU.
        progress: Whether to draw a progress bar with the remaining time (on terminals only).

    Raises:
        ValueError: For invalid arguments, or a checkpoint that is damaged or belongs to another evaluation.

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> scores = evaluate(models.build("GCN", 21, 2, seed=0), data, nodes, [0.05, 0.1], ["FGSM", "DICE"])
    >>> scores.accuracy(0.1) <= scores.accuracy(0.05) <= scores.clean_accuracy
    True
    """
    epsilons = _check_epsilons(epsilons)
    seed = check_seed(seed)
    if fragility is not None:
        check_int(1, fragility=fragility)
    target = make_target(model, data, nodes, labels, backend)
    budgets = Budget.from_epsilons(data, target.nodes, epsilons, local=local, count=count, constraints=constraints)
    steps = _plan(attacks, effort, target, budgets, with_surrogate=surrogate is not None)
    # Errors in the file come before any long work.
    run = {} if checkpoint is None else _identity(target, budgets, steps, surrogate, baselines, seed)
    saved = Checkpoint.open(checkpoint, run)
    problems = [*checks.budget_problems(budgets, epsilons), *_check_model(target, steps, seed)]

    with progress_bar("", total_work(steps, budgets), show=progress, counts=False) as advance:
        if baselines is not None and saved.baselines is None:
            advance(0, "training of the baselines")
            saved.baselines = baseline_accuracies(baselines, data, target.nodes, target.labels, seed=seed)
            saved.save()
        meter = Meter(steps, budgets, advance)
        results = run_steps(target, steps, budgets, checkpoint=saved, meter=meter, surrogate=surrogate, seed=seed)
    worst = combine_worst(steps, results, epsilons)
    runs: Runs = {}
    for step, found in zip(steps, results, strict=True):
        runs.setdefault(step.name, []).append(found)
    best = {name: [min(results, key=accuracy_of) for results in zip(*runs[name], strict=True)] for name in runs}

    searched = None if fragility is None else _search_nodes(target, constraints, fragility, progress=progress)
    problems += _check_order(best, steps, epsilons)
    for code, message in problems:
        warn(code, message, checks.EvaluationWarning, stacklevel=2)
    return Evaluation(
        clean_accuracy=worst[0].clean_accuracy,
        rows=tuple(
            AttackScore(
                name, epsilon, budget.total, result.flips.size(1), result.accuracy, *_effort(runs[name], number)
            )
            for name, results in best.items()
            for number, (epsilon, budget, result) in enumerate(zip(epsilons, budgets, results, strict=True))
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
        tier=target.tier,
        effort=effort if isinstance(attacks, str) else None,
        baselines=saved.baselines or {},
        constraints=constraints,
        fragility=searched,
    )


def _search_nodes(target: Target, constraints: Constraints | None, max_flips: int, *, progress: bool) -> Fragility:
    """Search for the fewest permitted flips at each node; costs do not count."""
    allowed, forbidden = ((), ()) if constraints is None else (constraints.allowed, constraints.forbidden)
    return search_fragility(
        target.model,
        target.data,
        target.nodes,
        max_flips=max_flips,
        allowed=allowed or None,
        forbidden=forbidden or None,
        labels=target.labels,
        backend=target.backend,
        progress=progress,
    )


def _check_epsilons(epsilons: Sequence[float]) -> list[float]:
    if isinstance(epsilons, (int, float)):
        raise TypeError(f"expected a list of epsilons, such as [0.05, 0.1], got {epsilons!r}")
    for epsilon in epsilons:
        check_epsilon(epsilon)
    values = [float(epsilon) for epsilon in epsilons]
    if not values or len(set(values)) != len(values):
        raise ValueError(f"expected distinct epsilons, at least one, got {list(epsilons)}")
    return values


def _plan(
    attacks: str | Sequence[str | Attack],
    effort: str,
    target: Target,
    budgets: Sequence[Budget],
    *,
    with_surrogate: bool,
) -> list[Step]:
    if not isinstance(attacks, str):
        if effort != "standard":
            raise ValueError(f"expected effort {effort!r} without a list of attacks: it selects a suite")
        entries = custom_entries(attacks)
        for entry in entries:
            entry.attack.check_tier(target)
        return [*attack_steps(entries), *([transfer_step(0)] if with_surrogate else [])]
    if attacks != "standard":
        raise unknown_name("suite", attacks, ["standard"])
    with_gains = effort != "quick" and target.tier != "black_box"
    evaluator = incremental_evaluator(target.engine("log_margin")).name if with_gains else "full"
    steps = suite_plan(effort, budgets, target.num_nodes, target.tier, evaluator)
    # DICE needs labels of all nodes.
    return [step for step in steps if target.data.y is not None or not isinstance(step.attack, DICE)]


def _identity(
    target: Target,
    budgets: Sequence[Budget],
    steps: Sequence[Step],
    surrogate: nn.Module | None,
    baselines: Split | None,
    seed: int,
) -> dict[str, Any]:
    """Return everything that the result depends on; a checkpoint is valid for one identity."""
    data = target.data
    return {
        "version of edgeproof": __version__,
        "model": [type(target.model).__name__, _parameters(target.model)],
        "graph": fingerprint([data.x, data.edge_index, data.y]),
        "nodes": fingerprint([target.nodes]),
        "labels": fingerprint([target.labels]),
        "budgets": [[budget.total, fingerprint([budget.local])] for budget in budgets],
        "constraints": None if budgets[0].permitted is None else budgets[0].permitted.fingerprint,
        "attacks": [[step.kind, step.name, step.seed, step.starts, *_settings(step.attack)] for step in steps],
        "surrogate": None if surrogate is None else _parameters(surrogate),
        "baselines": None if baselines is None else baselines.fingerprint,
        "seed": seed,
    }


def _parameters(model: nn.Module) -> str:
    return fingerprint(value for value in model.state_dict().values() if isinstance(value, Tensor))


def _settings(attack: Attack) -> list[str]:
    """Return an attack's settings; tensors, which its repr may leave out, are hashed."""
    values = [getattr(attack, entry.name) for entry in fields(attack)]
    return [repr(attack), *(fingerprint([value]) for value in values if isinstance(value, Tensor))]


def _check_model(target: Target, steps: Sequence[Step], seed: int) -> list[tuple[str, str]]:
    """Return codes and messages of the checks that need no attack."""
    margins = losses.margin(predict(target.model, target.data)[target.nodes], target.labels)
    attack_losses = {step.name: getattr(step.attack, "loss", None) for step in steps if step.kind == "attack"}
    messages = {
        "EP001": checks.random_output(target.model, target.data),
        "EP002": None if target.tier == "black_box" else checks.vanishing_gradient(target, seed=seed),
        "EP003": checks.unusual_scale(margins, attack_losses),
    }
    return [(code, message) for code, message in messages.items() if message is not None]


def _check_order(
    best: Mapping[str, Sequence[AttackResult]], steps: Sequence[Step], epsilons: Sequence[float]
) -> list[tuple[str, str]]:
    """Return codes and messages of the checks that compare the accuracies under different attacks.

    Transfer and local search do not count as attacks that use the model's gradients.
    """
    accuracies = {name: torch.tensor([result.accuracy for result in results]) for name, results in best.items()}
    attacks = [step for step in steps if step.kind == "attack"]
    strong = {step.name: accuracies[step.name] for step in attacks if not step.weak}
    weak = {step.name: accuracies[step.name] for step in attacks if step.weak}
    problems = [("EP004", message) for message in checks.weak_beats_strong(weak, strong, epsilons)]
    problems += [("EP005", message) for message in checks.rising_accuracy(strong, epsilons)]
    if TRANSFER in accuracies and strong:
        adaptive = torch.stack(list(strong.values())).amin(dim=0)
        messages = checks.transfer_beats_adaptive(accuracies[TRANSFER], adaptive, epsilons)
        problems += [("EP006", message) for message in messages]
    traces = [result.trace for result in best.get(EXACT_SEARCH, [])]
    problems += [("EP009", message) for message in checks.still_improving(traces, epsilons)]
    return problems


def _effort(restarts: Sequence[Sequence[AttackResult]], number: int) -> tuple[float, int]:
    """Return the seconds and queries of all restarts at one budget."""
    results = [restart[number] for restart in restarts]
    return sum(result.seconds["total"] for result in results), sum(result.queries for result in results)
