"""Attack suites of three efforts, without parameters to tune."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from edgeproof.attacks.base import Attack, num_usable_pairs
from edgeproof.attacks.dice import DICE, RandomFlips
from edgeproof.attacks.eva import EvA
from edgeproof.attacks.exact_gain import ExactGain
from edgeproof.attacks.fgsm import FGSM
from edgeproof.attacks.greedy_rbcd import GreedyRBCD
from edgeproof.attacks.node_selection import NodeSelection
from edgeproof.attacks.query_gain import QueryGain
from edgeproof.attacks.rbcd import LRBCD, PRBCD
from edgeproof.budget import Budget
from edgeproof.propagation import Tier

# Maximum number of pair gradients of the exact greedy attack; beyond it, that attack takes longer than all others together.
_MAX_GRADIENTS: dict[Tier, int] = {"propagate": 10**10, "autograd": 10**8}

_GREEDY = GreedyRBCD(loss="log_margin")


class Entry(NamedTuple):
    """Attack of a suite.

    Args:
        name: Name of the attack in results.
        attack: The attack with its settings.
        seeds: Seeds relative to the evaluation's seed. The attack runs once per seed, and the lowest accuracy counts.
        weak: Whether the attack is a baseline that others are expected to beat.
    """

    name: str
    attack: Attack
    seeds: tuple[int, ...] = (0,)
    weak: bool = False


def quick() -> list[Entry]:
    """Return the attacks of the quick suite, a part of :func:`standard`: two baselines and one run of GR-BCD."""
    return [
        Entry("RandomFlips", RandomFlips(), weak=True),
        Entry("DICE", DICE(), weak=True),
        Entry("GreedyRBCD, log margin", _GREEDY),
    ]


def black_box(effort: str) -> list[Entry]:
    """Return the attacks that an effort adds on models of the tier ``"black_box"``: they need only predictions.

    Args:
        effort: ``"quick"`` for two baselines and QueryGain without rounds; ``"standard"`` for its rounds, and EvA, an
            evolutionary search; ``"thorough"`` for more seeds and rounds.
    """
    if effort == "quick":
        return [
            Entry("RandomFlips", RandomFlips(), weak=True),
            Entry("DICE", DICE(), weak=True),
            Entry("QueryGain, greedy", QueryGain(rounds=0)),
        ]
    if effort == "standard":
        return [Entry("QueryGain", QueryGain()), Entry("EvA", EvA(population=64, generations=100), weak=True)]
    return [Entry("QueryGain", QueryGain(rounds=60), seeds=(1, 2))]


def standard(budgets: Sequence[Budget], num_nodes: int, tier: Tier) -> list[Entry]:
    """Return the attacks of the standard suite, without the final local search.

    The suite contains the paper's attack (LR-BCD with local budgets, otherwise PR-BCD), exact greedy and GR-BCD with the log
    margin, the latter with three seeds, and two baselines, DICE and random flips. Exact greedy is left out if graph, budget
    and tier make it too slow.

    Args:
        budgets: All budgets of the evaluation.
        num_nodes: Number of nodes of the graph.
        tier: Tier of the model, ``"propagate"`` or ``"autograd"``.
    """
    entries = [
        Entry("RandomFlips", RandomFlips(), weak=True),
        Entry("DICE", DICE(), weak=True),
        _paper_attack(budgets, seeds=(0,)),
        Entry("GreedyRBCD, log margin", _GREEDY, seeds=(0, 1, 2)),
    ]
    num_gradients = sum(budget.total * num_usable_pairs(num_nodes, budget) for budget in budgets)
    if num_gradients <= _MAX_GRADIENTS[tier]:
        entries.append(Entry("exact greedy, log margin", FGSM(loss="log_margin")))
    return entries


def exact(evaluator: str) -> list[Entry]:
    """Return the attacks by exact gains that the standard suite runs after those of :func:`standard`.

    EvA, which uses neither gradients nor exact gains, is among them as a check: if it beats the other attacks, these are weak.

    Args:
        evaluator: Name of the model's :class:`~edgeproof.propagation.incremental.IncrementalEvaluator`. With ``"full"``, every
            candidate costs a run of the model, so that there are few candidates.
    """
    if evaluator == "full":
        return [Entry("ExactGain", ExactGain(candidates=256, batch=16))]
    return [
        Entry("EvA", EvA(population=64, generations=40), weak=True),
        Entry("ExactGain", ExactGain()),
        Entry("NodeSelection", NodeSelection(candidates=40_000)),
    ]


def thorough(budgets: Sequence[Budget]) -> list[Entry]:
    """Return the attacks that the thorough suite runs after those of :func:`standard`: more seeds of its random attacks.

    Args:
        budgets: All budgets of the evaluation.
    """
    return [
        _paper_attack(budgets, seeds=(1, 2)),
        Entry("GreedyRBCD, log margin", _GREEDY, seeds=tuple(range(3, 10))),
    ]


def _paper_attack(budgets: Sequence[Budget], seeds: tuple[int, ...]) -> Entry:
    local = any(budget.local is not None for budget in budgets)
    return Entry("LRBCD", LRBCD(), seeds) if local else Entry("PRBCD", PRBCD(), seeds)
