"""Fragility of single nodes: the smallest set of flips that changes the prediction for a node."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof import losses
from edgeproof._checks import Nodes, check_data, check_int, check_not_caching, node_ids
from edgeproof._names import unknown_name
from edgeproof._progress import Advance, progress_bar
from edgeproof.attacks.base import make_target
from edgeproof.budget import Budget
from edgeproof.constraints import Constraints, Selection
from edgeproof.evaluation.fragility_result import Fragility, NodeFragility
from edgeproof.evaluation.node_candidates import SCOPES, NodeCandidates
from edgeproof.models.base import predict
from edgeproof.propagation import EdgeGradientEngine
from edgeproof.propagation.incremental import FullEvaluator, IncrementalEvaluator, incremental_evaluator
from edgeproof.propagation.incremental.base import toggled

# Default number of evaluations of exhaustive searches: some seconds with an incremental evaluator, and of full evaluation.
_MAX_EVALUATIONS, _MAX_FULL_EVALUATIONS = 1 << 22, 1 << 13
# Candidates evaluated at once for one node, and margins computed at once for all nodes.
_CHUNK, _MAX_MARGINS = 1 << 16, 1 << 23


def fragility(
    model: nn.Module,
    data: Data,
    nodes: Nodes,
    *,
    max_flips: int = 5,
    scope: str = "influence",
    allowed: Selection | tuple[Selection, ...] | None = None,
    forbidden: Selection | tuple[Selection, ...] | None = None,
    local: float | Tensor | None = None,
    labels: Tensor | None = None,
    max_evaluations: int | None = None,
    candidates: int = 64,
    backend: str | None = None,
    progress: bool = False,
) -> Fragility:
    r"""Search, for each node on its own, for the fewest flips that change its prediction.

    The search is greedy on exact margins: of all single flips, it takes the one with the lowest margin
    :math:`z_{vy} - \max_{c \ne y} z_{vc}`, and continues from there until the margin is not positive. While
    ``max_evaluations`` lasts, every flip that can change the node's logits is evaluated: then no smaller set exists if one
    flip is found, and one flip does not suffice if none is found. Nodes that need more than two flips are then searched for
    all sets of two. Otherwise, only the ``candidates`` flips of largest gradient are evaluated, and nothing is proven.
    :attr:`NodeFragility.at_least` and :attr:`NodeFragility.exact` say what is proven.

    Args:
        model: Module called as ``model(x, edge_index, edge_weight=None)``.
        data: Graph, on the model's device.
        nodes: Nodes: ids, or a boolean mask.
        max_flips: Largest number of flips per node.
        scope: ``"influence"`` for pairs anywhere in the graph, ``"direct"`` for pairs with the node itself.
        allowed: Pairs that may be flipped; see :class:`edgeproof.Constraints`.
        forbidden: Pairs that may not be flipped.
        local: Largest number of flips at each node: a factor of its degree, or one number per node. Default: no limit.
        labels: Class of each node that the flips should change; a node of another predicted class needs 0 flips. Default: the
            predicted classes.
        max_evaluations: Number of evaluations of exhaustive searches, over all nodes. Default: 2^22 with an incremental
            evaluator, 2^13 for models without one.
        candidates: Number of flips evaluated per step where the search is not exhaustive.
        backend: Kernel backend. Default: the fastest that supports the inputs.
        progress: Whether to draw a progress bar (on terminals only).

    Raises:
        ValueError: For invalid arguments.

    >>> from edgeproof import datasets, models
    >>> data = datasets.load("karate")
    >>> result = fragility(models.build("GCN", data.num_features, 2, seed=0), data, [0, 5, 9], max_flips=2)
    >>> result.nodes[0].at_least <= result.nodes[0].flips.size(1) + 1, sum(result.histogram.values()) <= 3
    (True, True)
    """
    start = time.perf_counter()
    if scope not in SCOPES:
        raise unknown_name("scope", scope, SCOPES)
    check_int(1, max_flips=max_flips, candidates=candidates)
    check_int(0, max_evaluations=0 if max_evaluations is None else max_evaluations)
    check_not_caching(model)
    check_data(data, labels=False)
    ids = node_ids(nodes, data)
    constraints = None if allowed is None and forbidden is None else Constraints(allowed, forbidden)
    budget = Budget.from_epsilon(data, ids, 0, local=local, constraints=constraints)
    logits = predict(model, data)[ids]
    target = make_target(model, data, ids, logits.argmax(dim=1) if labels is None else labels, backend)
    if int(target.labels.max()) >= logits.size(1):
        raise ValueError(f"expected labels of the model's {logits.size(1)} classes, got {int(target.labels.max())}")
    loss = _OneNodeLoss(torch.zeros(ids.numel(), dtype=data.x.dtype, device=data.x.device))
    engine = EdgeGradientEngine(model, data, ids, labels=target.labels, loss=loss, backend=backend)
    evaluator = incremental_evaluator(engine)
    if max_evaluations is None:
        max_evaluations = _MAX_FULL_EVALUATIONS if isinstance(evaluator, FullEvaluator) else _MAX_EVALUATIONS
    flippable = NodeCandidates(engine.data, scope, replace(budget, total=max_flips), evaluator.num_hops)
    search = _Search(engine, loss, evaluator, flippable, max_evaluations, candidates)
    with progress_bar("fragility", max_flips * ids.numel(), show=progress, counts=False) as advance:
        search.run(max_flips, repeats=local is not None, advance=advance)
    after = [z[position] for position, z in enumerate(search.final_logits())]
    return Fragility(
        nodes=tuple(
            NodeFragility(
                node=int(ids[position]),
                label=int(target.labels[position]),
                class_before=int(logits[position].argmax()),
                class_after=_class_after(after[position], int(target.labels[position]), state.margins[-1]),
                flips=state.flips.cpu(),
                margins=tuple(state.margins),
                at_least=state.at_least,
            )
            for position, state in enumerate(search.states)
        ),
        max_flips=max_flips,
        scope=scope,
        evaluator=evaluator.name,
        num_evaluations=search.num_evaluations,
        constraints="" if constraints is None else constraints.description,
        seconds=time.perf_counter() - start,
    )


@dataclass(frozen=True)
class _OneNodeLoss:
    """Negative margin of one target node, selected by a weight of 1."""

    weight: Tensor

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        return -(self.weight * losses.margin(logits, labels)).sum()

    def select(self, position: int) -> None:
        """Select a target node, in place: recorded runs keep the tensor."""
        self.weight.zero_()
        self.weight[position] = 1


@dataclass
class _State:
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


class _Search:
    """Greedy search at every target node, exhaustive where affordable; see :func:`fragility`."""

    def __init__(
        self,
        engine: EdgeGradientEngine,
        loss: _OneNodeLoss,
        evaluator: IncrementalEvaluator,
        flippable: NodeCandidates,
        max_evaluations: int,
        num_candidates: int,
    ) -> None:
        self._engine, self._loss, self._evaluator, self._flippable = engine, loss, evaluator, flippable
        self._left, self._num_candidates, self.num_evaluations = max_evaluations, num_candidates, 0
        self._nodes: list[int] = engine.nodes.tolist()
        self._empty: Tensor = engine.data.edge_index.new_empty(2, 0)
        self.states = [_State(self._empty, [margin], int(margin > 0)) for margin in _ranked(evaluator.margins).tolist()]

    def run(self, max_flips: int, *, repeats: bool, advance: Advance) -> None:
        """Search for up to ``max_flips`` flips per node.

        Args:
            max_flips: Largest number of flips.
            repeats: Whether sets of two need all flips of equal effect, because local budgets tell them apart.
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
            self._search_twos(repeats=repeats)

    def final_logits(self) -> Iterator[Tensor]:
        """Yield the logits of the target nodes under the flips of each of them."""
        for batch in self._engine.logits_of([state.flips for state in self.states]):
            yield from batch[:, self._engine.nodes]

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
        lowest = [_ranked(self._evaluator.scan(chunk).margins()).min(dim=0) for chunk in pairs.split(size, dim=1)]
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

    def _search_twos(self, *, repeats: bool) -> None:
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
            first = self._flippable.complete(node, self._empty, repeats=repeats)
            self._go_to(self._empty)
            margins = self._scan(first, i)
            order = margins.argsort(stable=True)
            found = self._search_second(i, first[:, order], margins[order].tolist(), repeats=repeats)
            if found is not None:
                self.states[i] = found
            elif self._left >= 0:
                state.at_least = 3

    def _search_second(self, i: int, first: Tensor, margins: list[float], *, repeats: bool) -> _State | None:
        """Return two flips that change the prediction for a target node; None if there are none, or no evaluations left."""
        n = self._engine.num_nodes
        first_key = first[0] * n + first[1]
        for number in range(first.size(1)):
            flip = first[:, number : number + 1]
            second = self._flippable.complete(self._nodes[i], flip, repeats=repeats)
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
                return _State(both, [self.states[i].margins[0], margins[number], float(after[best])], at_least=2)
        return None

    def _scan(self, pairs: Tensor, i: int) -> Tensor:
        """Return the margin of a target node after each flip."""
        self._count(pairs.size(1))
        chunks = [self._evaluator.scan(chunk, i).margins_at(i) for chunk in pairs.split(_CHUNK, dim=1)]
        return _ranked(torch.cat(chunks))

    def _count(self, num_evaluations: int) -> None:
        self.num_evaluations += num_evaluations
        self._left -= num_evaluations

    def _go_to(self, flips: Tensor) -> None:
        """Change the state of the evaluator to the given flips."""
        change = toggled(self._evaluator.flips, flips, self._engine.num_nodes)
        if change.numel():
            self._evaluator.apply(change)


def _ranked(margins: Tensor) -> Tensor:
    """Return the margins, with those of non-finite logits below all others."""
    return margins.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)


def _class_after(logits: Tensor, label: int, margin: float) -> int:
    """Return the predicted class; without ``label`` if its margin is not positive, for ties and differences of rounding."""
    if margin <= 0:
        logits = logits.index_fill(0, torch.tensor([label], device=logits.device), -torch.inf)
    return int(logits.argmax())
