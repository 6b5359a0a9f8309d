"""The standard suite: which attacks a fair evaluation runs, with nothing to tune."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from edgeproof.attacks.base import Attack
from edgeproof.attacks.dice import DICE, RandomFlips
from edgeproof.attacks.fgsm import FGSM
from edgeproof.attacks.greedy_rbcd import GreedyRBCD
from edgeproof.attacks.lrbcd import LRBCD
from edgeproof.attacks.prbcd import PRBCD
from edgeproof.attacks.target import num_usable_pairs
from edgeproof.budget import Budget

# Gradients that the exact greedy attack may ask for in all: beyond that it would take longer than everything else together.
_MOST_GRADIENTS = {"propagate": 10**10, "autograd": 10**8}


class Entry(NamedTuple):
    """One attack of a suite.

    Args:
        name: as it appears in results.
        attack: with its settings.
        seeds: it is run once with each, relative to the evaluation's own, and the best of them counts.
        weak: whether others are expected to beat it.
    """

    name: str
    attack: Attack
    seeds: tuple[int, ...] = (0,)
    weak: bool = False


def standard(budgets: Sequence[Budget], num_nodes: int, path: str) -> list[Entry]:
    """The attacks of the standard suite, without the final local search.

    The paper's attack (LR-BCD where nodes have budgets of their own, else PR-BCD); exact greedy and Greedy R-BCD with the log
    margin, the latter from three seeds; and, to be beaten, DICE and random flips. Exact greedy is left out where the graph and
    the budget are too large for it, and on models that need the slow path for gradients.

    Args:
        budgets: all budgets of the evaluation.
        num_nodes: of the graph.
        path: how the model's gradients are computed.
    """
    local = any(budget.local is not None for budget in budgets)
    entries = [
        Entry("RandomFlips", RandomFlips(), weak=True),
        Entry("DICE", DICE(), weak=True),
        Entry("LRBCD", LRBCD()) if local else Entry("PRBCD", PRBCD()),
        Entry("GreedyRBCD, log margin", GreedyRBCD(loss="log_margin"), seeds=(0, 1, 2)),
    ]
    gradients = sum(budget.total * num_usable_pairs(num_nodes, budget) for budget in budgets)
    if gradients <= _MOST_GRADIENTS[path]:
        entries.append(Entry("exact greedy, log margin", FGSM(loss="log_margin")))
    return entries
