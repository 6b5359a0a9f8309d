"""Plan of an evaluation: all searches in the order of their runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from edgeproof._catalog import EFFORTS
from edgeproof._names import unknown_name
from edgeproof.attacks.base import Attack, Refining
from edgeproof.attacks.eva import EvA
from edgeproof.attacks.exact_gain import ExactGain
from edgeproof.attacks.exact_search import ExactSearch
from edgeproof.attacks.fgsm import FGSM
from edgeproof.attacks.greedy_rbcd import GreedyRBCD
from edgeproof.attacks.local_search import LocalSearch
from edgeproof.attacks.node_selection import NodeSelection
from edgeproof.attacks.registry import available, build
from edgeproof.attacks.suite import Entry, black_box, exact, quick, standard, thorough
from edgeproof.budget import Budget
from edgeproof.propagation import Tier

TRANSFER, LOCAL_SEARCH, EXACT_SEARCH = "transfer", "local search", "exact search"
# Rough runtimes of one step, relative to a step of PR-BCD on Citeseer. They only affect estimates of the remaining time.
_COSTS: dict[type[Attack], float] = {
    FGSM: 4.0,
    LocalSearch: 2.5,
    EvA: 6.0,
    ExactGain: 3.0,
    NodeSelection: 6.0,
    ExactSearch: 5.0,
}


class Step(NamedTuple):
    """One attack with one seed at all budgets.

    Args:
        kind: ``"attack"``; ``"transfer"`` for flips found on a surrogate; ``"search"`` for a local search that starts at the
            best results of all earlier steps.
        name: Name of the attack in results. Steps with the same name are restarts of one attack.
        attack: Attack with its settings; the one on the surrogate; or the local search.
        seed: Seed relative to the evaluation's seed.
        starts: Maximum number of local searches per budget, each from a different result.
        weak: Whether the attack is a baseline that others are expected to beat.
    """

    kind: Literal["attack", "transfer", "search"]
    name: str
    attack: Attack
    seed: int = 0
    starts: int = 1
    weak: bool = False

    def work(self, budget: Budget) -> float:
        """Return the planned work at one budget, in steps of PR-BCD."""
        num_steps = self.attack.own_steps if isinstance(self.attack, Refining) else self.attack.num_steps(budget)
        return self.starts * max(1, num_steps) * self.cost

    @property
    def cost(self) -> float:
        """Rough runtime of one step of the attack, in steps of PR-BCD."""
        return _COSTS.get(type(self.attack), 1.0)


def suite_plan(effort: str, budgets: Sequence[Budget], num_nodes: int, tier: Tier, evaluator: str) -> list[Step]:
    """Return the steps of the suite of an effort.

    Each suite contains all steps of the next weaker one, so it is at least as strong.

    Args:
        effort: ``"quick"``, ``"standard"`` or ``"thorough"``.
        budgets: All budgets of the evaluation.
        num_nodes: Number of nodes of the graph.
        tier: Tier of the model.
        evaluator: Name of the model's evaluator of flips; see :func:`edgeproof.attacks.suite.exact`.
    """
    if effort not in EFFORTS:
        raise unknown_name("effort", effort, EFFORTS)
    if tier == "black_box":
        return _black_box_plan(effort)
    if effort == "quick":
        return [*attack_steps(quick()), transfer_step(0)]
    steps = [
        *attack_steps(standard(budgets, num_nodes, tier)),
        transfer_step(0),
        Step("search", LOCAL_SEARCH, LocalSearch(), starts=4),
        # The steps above are those of earlier versions, so that results can only become lower.
        *attack_steps(exact(evaluator)),
    ]
    if evaluator != "full":
        steps.append(Step("search", EXACT_SEARCH, ExactSearch(), starts=2))
    if effort == "standard":
        return steps
    return [
        *steps,
        *attack_steps(thorough(budgets)),
        transfer_step(1),
        transfer_step(2),
        Step("search", LOCAL_SEARCH, LocalSearch(candidates=64, patience=24, swaps=300), starts=8),
        *([] if evaluator == "full" else [Step("search", EXACT_SEARCH, ExactSearch(moves=1000), seed=1, starts=4)]),
    ]


def _black_box_plan(effort: str) -> list[Step]:
    """Return the steps on models of which only predictions are used: each effort extends the next weaker one."""
    steps = [*attack_steps(black_box("quick")), transfer_step(0)]
    if effort == "quick":
        return steps
    steps += [
        *attack_steps(black_box("standard")),
        # The surrogate itself has gradients and exact gains.
        Step("transfer", TRANSFER, ExactGain()),
        Step("search", LOCAL_SEARCH, LocalSearch(), starts=2),
    ]
    if effort == "standard":
        return steps
    return [*steps, *attack_steps(black_box("thorough")), Step("transfer", TRANSFER, ExactGain(), 1)]


def attack_steps(entries: Sequence[Entry]) -> list[Step]:
    """Return one step per attack and seed."""
    return [
        Step("attack", entry.name, entry.attack, seed, weak=entry.weak) for entry in entries for seed in entry.seeds
    ]


def transfer_step(seed: int) -> Step:
    """Return the step that transfers flips from a surrogate."""
    return Step("transfer", TRANSFER, GreedyRBCD(loss="log_margin"), seed)


def custom_entries(attacks: Sequence[str | Attack]) -> list[Entry]:
    """Return the given attacks, with their settings in the names of attacks that occur more than once."""
    built = [build(attack) if isinstance(attack, str) else attack for attack in attacks]
    if not built or not all(isinstance(attack, Attack) for attack in built):
        raise ValueError(f"expected attacks, or names among {', '.join(available())}, got {attacks!r}")
    names = [type(attack).__name__ for attack in built]
    return [
        Entry(name if names.count(name) == 1 else repr(attack), attack, weak=name in ("DICE", "RandomFlips"))
        for name, attack in zip(names, built, strict=True)
    ]
