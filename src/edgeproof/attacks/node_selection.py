"""NodeSelection: which target nodes to misclassify, as a covering problem with the budget as its constraint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from edgeproof._checks import check_int
from edgeproof.attacks.base import Attack, AttackTrace, Target
from edgeproof.attacks.exact_gain import ExactGain
from edgeproof.attacks.exact_state import ExactState
from edgeproof.budget import Budget

# Candidates kept of those that misclassify the same target nodes: any of them is as good, up to local budgets and costs.
_ALTERNATIVES = 4
# Limits of the solver: nodes of its search tree, and distance from the optimum at which it stops.
_MAX_TREE_NODES, _GAP = 2_000, 0.002


class Options(NamedTuple):
    """Sets of flips that misclassify target nodes together.

    Args:
        flips: All flips that occur, shape ``[2, flips]``.
        members: Positions of the flips of each option.
        nodes: Positions of the target nodes that each option misclassifies.
    """

    flips: Tensor
    members: list[list[int]]
    nodes: list[list[int]]


@dataclass(frozen=True, kw_only=True)
class NodeSelection(Attack):
    r"""Find the fewest flips for each target node, then choose the nodes that the budget suffices for.

    Every candidate flip that misclassifies target nodes by itself is an option, with the exact set of nodes. Each of the
    other nodes gets one option of several flips, those that lower its own margin most. With :math:`x_f = 1` for a chosen flip
    and :math:`w_o = 1` for a chosen option, a mixed-integer solver maximizes the number of nodes,

    .. math::
        \max \sum_t y_t \quad\text{s.t.}\quad y_t \le \sum_{o \ni t} w_o, \quad w_o \le x_f \; (f \in o), \quad
        \sum_f c_f x_f \le \Delta, \quad \sum_{f \ni u} c_f x_f \le \Delta_u,

    so a flip that serves several nodes counts once. Flips can weaken each other, which the problem ignores: the chosen flips
    that do not misclassify a node in the end are taken back, and :class:`ExactGain` spends what is left.

    Args:
        candidates: Number of candidates; see :class:`ExactGain`.
        max_flips: Largest number of flips for one node.

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> result = NodeSelection(candidates=500)(models.build("GCN", 21, 2, seed=0), data, nodes, Budget(5))
    >>> result.flips.size(1) <= 5, result.accuracy < result.clean_accuracy
    (True, True)
    """

    candidates: int = 100_000
    max_flips: int = 3

    def __post_init__(self) -> None:
        check_int(1, candidates=self.candidates, max_flips=self.max_flips)

    def num_steps(self, budget: Budget) -> int:
        return budget.total

    def run(self, target: Target, budget: Budget, *, generator: torch.Generator, trace: AttackTrace) -> Tensor:
        state = ExactState(target, budget, generator=generator, trace=trace, num_candidates=self.candidates)
        state.refresh(budget)
        options = self._options(state, target, budget)
        if options.members:
            flips = options.flips[:, select(options, budget, target.nodes.numel())]
            trace.phase("selection")
            if flips.size(1):
                state.apply(flips)
            _take_back_useless(state)
        ExactGain().extend(state)
        return state.flips

    def _options(self, state: ExactState, target: Target, budget: Budget) -> Options:
        flips: list[tuple[int, int]] = []
        members: list[list[int]] = []
        nodes: list[list[int]] = []
        for pair, lost in _single_flips(state):
            members.append([len(flips)])
            nodes.append(lost)
            flips.append(pair)
        vulnerable = {node for lost in nodes for node in lost}
        number = {pair: i for i, pair in enumerate(flips)}
        for position in (state.evaluator.margins > 0).nonzero().squeeze(1).tolist():
            if position in vulnerable:
                continue
            chosen, lost = self._at_node(state, position, int(target.nodes[position]), budget)
            if position in lost:
                for pair in chosen:
                    number.setdefault(pair, len(number))
                members.append([number[pair] for pair in chosen])
                nodes.append(lost)
        return Options(torch.tensor(list(number), dtype=torch.long, device=target.device).view(-1, 2).T, members, nodes)

    def _at_node(
        self, state: ExactState, position: int, node: int, budget: Budget
    ) -> tuple[list[tuple[int, int]], list[int]]:
        """Return flips at a target node, each of which lowers its margin most, and the target nodes that they misclassify."""
        saved = state.flips
        chosen: list[tuple[int, int]] = []
        at_node = state.pairs[:, (state.pairs == node).any(dim=0)]
        before = state.evaluator.margins > 0
        while len(chosen) < self.max_flips and bool(state.evaluator.margins[position] > 0):
            allowed = at_node[:, state.left.permits(at_node) & ~state.in_flips(at_node)]
            if not allowed.size(1):
                break
            margins = state.margins_at(allowed, position)
            best = allowed[:, int(margins.argmin())]
            state.evaluator.apply(best[:, None])
            chosen.append((int(best[0]), int(best[1])))
        lost = (before & ~(state.evaluator.margins > 0)).nonzero().squeeze(1).tolist()
        state.return_to(saved)
        return chosen, lost


def _single_flips(state: ExactState) -> Iterator[tuple[tuple[int, int], list[int]]]:
    """Yield the candidates that misclassify target nodes by themselves, and these nodes; few for the same nodes."""
    seen: dict[tuple[int, ...], int] = {}
    permitted = state.left.permits(state.pairs)
    gaining = (permitted & (state.known_losses > 0)).nonzero().squeeze(1)
    order = gaining[state.known_changes[gaining].argsort(descending=True, stable=True)]
    for pair, lost in zip(state.pairs[:, order].T.tolist(), state.lost_nodes(state.pairs[:, order]), strict=True):
        key = tuple(lost)
        seen[key] = seen.get(key, 0) + 1
        if lost and seen[key] <= _ALTERNATIVES:
            yield (pair[0], pair[1]), lost


def select(options: Options, budget: Budget, num_targets: int) -> Tensor:
    """Return the positions of the flips of the best selection."""
    # Importing scipy.optimize takes a third of a second.
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_matrix

    num_flips, num_options = options.flips.size(1), len(options.members)
    size = num_flips + num_options + num_targets
    cost = budget.cost(options.flips).cpu().numpy()
    rows: list[tuple[int, int, float]] = []
    upper: list[float] = []
    for o, members in enumerate(options.members):
        for flip in members:
            rows += [(len(upper), num_flips + o, 1.0), (len(upper), flip, -1.0)]
            upper.append(0.0)
    covered: dict[int, list[int]] = {}
    for o, nodes in enumerate(options.nodes):
        for node in nodes:
            covered.setdefault(node, []).append(o)
    for node, covering in covered.items():
        rows.append((len(upper), num_flips + num_options + node, 1.0))
        rows += [(len(upper), num_flips + o, -1.0) for o in covering]
        upper.append(0.0)
    rows += [(len(upper), flip, float(cost[flip])) for flip in range(num_flips)]
    upper.append(float(budget.total))
    if budget.local is not None:
        first = len(upper)
        ends, place = np.unique(options.flips.cpu().numpy(), return_inverse=True)
        for end in place.reshape(2, -1):
            rows += [(first + int(row), flip, float(cost[flip])) for flip, row in enumerate(end)]
        upper += budget.local.cpu().numpy()[ends].astype(float).tolist()
    row, column, value = zip(*rows, strict=True)
    matrix = coo_matrix((value, (row, column)), shape=(len(upper), size)).tocsr()
    objective = np.zeros(size)
    objective[[num_flips + num_options + node for node in covered]] = -1
    # Of equally good selections, one of few flips.
    objective[:num_flips] = 1e-4 * cost
    limits = np.zeros(size)
    limits[: num_flips + num_options] = 1
    limits[[num_flips + num_options + node for node in covered]] = 1
    integral = np.zeros(size)
    integral[:num_flips] = 1
    found = milp(
        objective,
        constraints=LinearConstraint(matrix, ub=upper),
        bounds=Bounds(0, limits),
        integrality=integral,
        options={"node_limit": _MAX_TREE_NODES, "mip_rel_gap": _GAP},
    )
    chosen = np.zeros(0, dtype=np.int64) if found.x is None else (found.x[:num_flips] > 0.5).nonzero()[0]
    return torch.from_numpy(chosen).to(options.flips.device)


def _take_back_useless(state: ExactState) -> None:
    """Take back, one after another, the flips without which as many target nodes are misclassified."""
    while state.flips.size(1):
        flips = state.flips
        lost, change = state.scan(flips)
        useless = (lost >= 0).nonzero().squeeze(1)
        if not useless.numel():
            return
        state.apply(flips[:, useless[change[useless].argmax()]][:, None])
