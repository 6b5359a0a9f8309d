"""Fragility of single nodes: the smallest set of flips that changes the prediction for a node."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof._checks import Nodes, check_data, check_int, check_not_caching, node_ids
from edgeproof._names import unknown_name
from edgeproof._progress import progress_bar
from edgeproof.attacks.base import Target, make_target
from edgeproof.budget import Budget
from edgeproof.constraints import Constraints, Selection
from edgeproof.evaluation.fragility_result import Fragility, NodeFragility
from edgeproof.evaluation.node_candidates import SCOPES
from edgeproof.evaluation.node_search import NodeSearch
from edgeproof.models.base import predict


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
    constraints = None if allowed is None and forbidden is None else Constraints(allowed, forbidden)
    target = node_target(model, data, nodes, labels, backend)
    budget = replace(Budget.from_epsilon(data, target.nodes, 0, local=local, constraints=constraints), total=max_flips)
    search = NodeSearch(target, scope, budget, max_evaluations=max_evaluations, num_candidates=candidates)
    with progress_bar("fragility", max_flips * target.nodes.numel(), show=progress, counts=False) as advance:
        search.run(max_flips, advance=advance)
    return Fragility(
        nodes=tuple(describe_states(target, search)),
        max_flips=max_flips,
        scope=scope,
        evaluator=search.evaluator.name,
        num_evaluations=search.num_evaluations,
        constraints="" if constraints is None else constraints.description,
        seconds=time.perf_counter() - start,
    )


def node_target(model: nn.Module, data: Data, nodes: Nodes, labels: Tensor | None, backend: str | None) -> Target:
    """Check the inputs of a search, and return them with the labels that flips should change: by default, the predictions."""
    check_not_caching(model)
    check_data(data, labels=False)
    ids = node_ids(nodes, data)
    logits = predict(model, data)[ids]
    target = make_target(model, data, ids, logits.argmax(dim=1) if labels is None else labels, backend)
    if int(target.labels.max()) >= logits.size(1):
        raise ValueError(f"expected labels of the model's {logits.size(1)} classes, got {int(target.labels.max())}")
    return target


def describe_states(target: Target, search: NodeSearch) -> Iterator[NodeFragility]:
    """Yield the outcome at every target node, with the classes that the model itself predicts."""
    before = target.clean_logits
    final = (z for batch in search.source.logits_of([s.flips for s in search.states]) for z in batch[:, target.nodes])
    for i, (state, after) in enumerate(zip(search.states, final, strict=True)):
        label = int(target.labels[i])
        yield NodeFragility(
            node=int(target.nodes[i]),
            label=label,
            class_before=int(before[i].argmax()),
            class_after=_class_after(after[i], label, state.margins[-1]),
            flips=state.flips.cpu(),
            margins=tuple(state.margins),
            at_least=state.at_least,
        )


def _class_after(logits: Tensor, label: int, margin: float) -> int:
    """Return the predicted class; without ``label`` if its margin is not positive, for ties and differences of rounding."""
    if margin <= 0:
        logits = logits.index_fill(0, torch.tensor([label], device=logits.device), -torch.inf)
    return int(logits.argmax())
