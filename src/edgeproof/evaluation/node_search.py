"""Greedy and exhaustive search for the smallest set of flips at each of several nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from edgeproof import losses
from edgeproof._progress import Advance
from edgeproof.attacks.base import Target
from edgeproof.attacks.predictions import Predictions
from edgeproof.attacks.surrogate import fit_surrogate
from edgeproof.budget import Budget
from edgeproof.evaluation.node_candidates import NodeCandidates
from edgeproof.propagation import EdgeGradientEngine, NoEdgeGradientError
from edgeproof.propagation.incremental import FlippedLogits, FullEvaluator, IncrementalEvaluator, incremental_evaluator
from edgeproof.propagation.incremental.base import toggled

# Default number of evaluations of exhaustive searches: some seconds with an incremental evaluator, and of full evaluation.
_MAX_EVALUATIONS, _MAX_FULL_EVALUATIONS = 1 << 22, 1 << 13
# Candidates evaluated at once for one node, and margins computed at once for all nodes.
_CHUNK, _MAX_MARGINS = 1 << 16, 1 << 23


@dataclass(frozen=True)
class OneNodeLoss:
    """Negative margin of one target node, selected by a weight of 1."""

    weight: Tensor

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        return -(self.weight * losses.margin(logits, labels)).sum()

    def select(self, position: int) -> None:
        """Select a target node, in place: recorded runs keep the tensor."""
        self.weight.zero_()
        self.weight[position] = 1


@dataclass
class NodeState:
    """State of the search at one node.

    Args:
        flips: Flips so far.
        margins: Margin on the clean graph, and after each flip.
        at_least: Proven lower bound on the number of flips.
        stuck: Whether no further flip is permitted.
    """

    flips: Tensor
    margins: list[float]
    at_least: int
    stuck: bool = False

    @property
    def falls(self) -> bool:
        return self.margins[-1] <= 0

    def extend(self, pair: Tensor, margin: float) -> None:
        """Append a flip."""
        self.flips = torch.cat([self.flips, pair[:, None]], dim=1)
        self.margins.append(margin)

    def prove(self, at_least: int) -> None:
        """Raise the lower bound, unless the prediction falls to fewer flips."""
        if not self.falls:
            self.at_least = max(self.at_least, at_least)


class NodeSearch:
    """Greedy search at every target node, exhaustive where affordable; see :func:`~edgeproof.evaluation.fragility`.

    Models without edge gradients are evaluated by their predictions, and the gradients that rank candidates are those of a
    surrogate fitted to them.

    Args:
        target: Model, graph and target nodes, with the labels that flips should change.
        scope: Pairs that may be flipped; see :class:`NodeCandidates`.
        budget: Permitted flips and local budgets at each node's search.
        max_evaluations: Number of evaluations of exhaustive searches. Default: by the evaluator.
        num_candidates: Number of flips evaluated per step where the search is not exhaustive.
    """

    def __init__(
        self, target: Target, scope: str, budget: Budget, *, max_evaluations: int | None, num_candidates: int
    ) -> None:
        data, nodes, labels = target.data, target.nodes, target.labels
        self._loss = OneNodeLoss(torch.zeros(nodes.numel(), dtype=data.x.dtype, device=data.x.device))
        self.source: FlippedLogits
        self.evaluator: IncrementalEvaluator
        try:
            self._engine = EdgeGradientEngine(
                target.model, data, nodes, labels=labels, loss=self._loss, backend=target.backend
            )
            self.source, self.evaluator = self._engine, incremental_evaluator(self._engine)
        except NoEdgeGradientError:
            surrogate = fit_surrogate(target.model, data, seed=0)
            self._engine = EdgeGradientEngine(
                surrogate, data, nodes, labels=labels, loss=self._loss, backend=target.backend
            )
            self.source = Predictions(target)
            self.evaluator = FullEvaluator(self.source)
        if max_evaluations is None:
            max_evaluations = _MAX_FULL_EVALUATIONS if self.evaluator.name == "full" else _MAX_EVALUATIONS
        self._flippable = NodeCandidates(data, scope, budget, self.evaluator.num_hops)
        # Local budgets tell apart flips of equal effect.
        self._repeats = budget.local is not None
        self._left, self._num_candidates, self.num_evaluations = max_evaluations, num_candidates, 0
        self._nodes: list[int] = nodes.tolist()
        self._empty: Tensor = data.edge_index.new_empty(2, 0)
        margins = _ranked(self.evaluator.margins).tolist()
        self.states = [NodeState(self._empty, [margin], int(margin > 0)) for margin in margins]

    def run(self, max_flips: int, *, advance: Advance) -> None:
        """Search for up to ``max_flips`` flips per node.

        Args:
            max_flips: Largest number of flips.
            advance: Receives the progress, in steps over all nodes.
        """
        for step in range(max_flips):
            open_nodes = [i for i, state in enumerate(self.states) if not (state.falls or state.stuck)]
            if step == 0 and self._flippable.shared and open_nodes and self._scan_shared(open_nodes):
                continue
            affordable = self._affordable(open_nodes)
            for number, i in enumerate(open_nodes):
                self._extend(i, exhaustive=i in affordable)
                advance(step * len(self._nodes) + number, f"{step + 1} flips")
        if max_flips > 1:
            self._search_twos()

    def margins_after(self, flips: Tensor, pairs: Tensor, i: int) -> Tensor:
        """Return the margin of a target node after some flips and each of the given ones, shape ``[pairs]``."""
        self._go_to(flips)
        return self._scan(pairs, i)

    def _affordable(self, positions: Sequence[int]) -> set[int]:
        """Return the target nodes whose candidates can all be evaluated, those with few candidates first."""
        counts = {i: self._flippable.count(self._nodes[i], self.states[i].flips) for i in positions}
        chosen, total = set[int](), 0
        for i in sorted(counts, key=counts.__getitem__):
            total += counts[i]
            if total > self._left:
                break
            chosen.add(i)
        return chosen

    def _scan_shared(self, positions: Sequence[int]) -> bool:
        """Take the best first flip of every target node, from one evaluation per pair; False if it is not affordable."""
        if self._flippable.count(0, self._empty) > self._left:
            return False
        pairs = self._flippable.complete(0, self._empty)
        if not pairs.size(1):
            return False
        self._count(pairs.size(1))
        size = max(1, _MAX_MARGINS // len(self._nodes))
        lowest = [_ranked(self.evaluator.scan(chunk).margins()).min(dim=0) for chunk in pairs.split(size, dim=1)]
        for i in positions:
            k = min(range(len(lowest)), key=lambda k: float(lowest[k].values[i]))
            self.states[i].extend(pairs[:, k * size + int(lowest[k].indices[i])], float(lowest[k].values[i]))
            self.states[i].prove(2)
        return True

    def _extend(self, i: int, *, exhaustive: bool) -> None:
        """Take the flip with the lowest margin of a target node: of all, or of those of largest gradient."""
        state, node = self.states[i], self._nodes[i]
        is_first = not state.flips.numel()
        pairs = (self._flippable.complete if exhaustive else self._flippable.near)(node, state.flips)
        if not exhaustive and pairs.size(1) > self._num_candidates:
            self._loss.select(i)
            gradient = self._engine(state.flips, pairs.new_ones(state.flips.size(1), dtype=self._engine.data.x.dtype))
            pairs = pairs[:, gradient.at(pairs).topk(self._num_candidates).indices.sort().values]
        if pairs.size(1):
            self._go_to(state.flips)
            margins = self._scan(pairs, i)
            best = int(margins.argmin())
            state.extend(pairs[:, best], float(margins[best]))
        else:
            state.stuck = True
        if exhaustive and is_first:
            state.prove(2)

    def _search_twos(self) -> None:
        """Search all sets of two flips of the nodes that need more than two so far, with equal shares of the evaluations."""
        positions = [
            i
            for i, state in enumerate(self.states)
            if state.at_least == 2 and not (state.falls and state.flips.size(1) == 2)
        ]
        share = self._left // max(1, len(positions))
        for i in positions:
            state, node = self.states[i], self._nodes[i]
            num_first = self._flippable.count(node, self._empty)
            if num_first * (num_first + 1) // 2 > share:
                continue
            self._left = share
            first = self._flippable.complete(node, self._empty, repeats=self._repeats)
            self._go_to(self._empty)
            margins = self._scan(first, i)
            order = margins.argsort(stable=True)
            found = self._search_second(i, first[:, order], margins[order].tolist())
            if found is not None:
                self.states[i] = found
            elif self._left >= 0:
                state.at_least = 3

    def _search_second(self, i: int, first: Tensor, margins: list[float]) -> NodeState | None:
        """Return two flips that change the prediction for a target node; None if there are none, or no evaluations left."""
        n = self._engine.num_nodes
        first_key = first[0] * n + first[1]
        for number in range(first.size(1)):
            flip = first[:, number : number + 1]
            second = self._flippable.complete(self._nodes[i], flip, repeats=self._repeats)
            # Sets with an earlier first flip have been evaluated.
            second = second[:, ~torch.isin(second[0] * n + second[1], first_key[:number])]
            if not second.size(1):
                continue
            if second.size(1) > self._left:
                self._left = -1
                return None
            self._go_to(flip)
            after = self._scan(second, i)
            best = int(after.argmin())
            if after[best] <= 0:
                both = torch.cat([flip, second[:, best : best + 1]], dim=1)
                return NodeState(both, [self.states[i].margins[0], margins[number], float(after[best])], at_least=2)
        return None

    def _scan(self, pairs: Tensor, i: int) -> Tensor:
        """Return the margin of a target node after each flip."""
        self._count(pairs.size(1))
        chunks = [self.evaluator.scan(chunk, i).margins_at(i) for chunk in pairs.split(_CHUNK, dim=1)]
        return _ranked(torch.cat(chunks))

    def _count(self, num_evaluations: int) -> None:
        self.num_evaluations += num_evaluations
        self._left -= num_evaluations

    def _go_to(self, flips: Tensor) -> None:
        """Change the state of the evaluator to the given flips."""
        change = toggled(self.evaluator.flips, flips, self._engine.num_nodes)
        if change.numel():
            self.evaluator.apply(change)


def _ranked(margins: Tensor) -> Tensor:
    """Return the margins, with those of non-finite logits below all others."""
    return margins.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
