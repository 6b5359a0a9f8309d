"""Explanation of the prediction for one node: its neighborhood before and after the flips that change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof._checks import check_int, is_int
from edgeproof._names import unknown_name
from edgeproof._tables import Layout, Record, TabularResult
from edgeproof.budget import Budget
from edgeproof.constraints import Constraints, Selection
from edgeproof.evaluation.fragility import describe_states, node_target
from edgeproof.evaluation.fragility_result import NodeFragility
from edgeproof.evaluation.node_candidates import SCOPES
from edgeproof.evaluation.node_search import NodeSearch
from edgeproof.graph import UNKNOWN, flip_pairs
from edgeproof.models.base import predict

Status = Literal["kept", "added", "removed"]


@dataclass(frozen=True)
class Neighbor:
    """Neighbor of the explained node, or end of a flip near it.

    Args:
        node: Node id.
        status: Whether the edge to the explained node is kept, added or removed by the flips.
        predicted_before: Predicted class on the clean graph.
        predicted_after: Predicted class after the flips.
        true_class: Class in the data; None if unknown.
        before: Change of the margin due to the edge on the clean graph: the margin minus that without this edge. None without
            the edge.
        after: The same after the flips.
    """

    node: int
    status: Status
    predicted_before: int
    predicted_after: int
    true_class: int | None
    before: float | None
    after: float | None


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(TabularResult):
    """Result of :func:`explain`.

    Args:
        fragility: The smallest set of flips found, with the margins after each.
        neighbors: Neighbors of the node before or after the flips: added, removed, then kept ones by their contribution.
        true_class: Class of the node in the data; None if unknown.
        edges: Edges among the node, its neighbors and all ends of flips, before the flips, as pairs of node ids.
        classes: Predicted class before and after the flips of all nodes in ``edges``, ``neighbors`` and the flips.
        scope: Pairs that may be flipped: ``"direct"`` or ``"influence"``.
        constraints: Description of the permitted pairs; empty if all are.
    """

    fragility: NodeFragility
    neighbors: tuple[Neighbor, ...]
    true_class: int | None
    edges: tuple[tuple[int, int], ...]
    classes: dict[int, tuple[int, int]]
    scope: str
    constraints: str

    @property
    def flips(self) -> list[tuple[int, int, str]]:
        """Ends of each flip in the order of the search, and ``"add"`` or ``"remove"``."""
        present = {frozenset(edge) for edge in self.edges}
        pairs = self.fragility.flips.T.tolist()
        return [(u, v, "remove" if frozenset((u, v)) in present else "add") for u, v in pairs]

    @property
    def text(self) -> str:
        """The explanation in words."""
        entry, count = self.fragility, self.fragility.flips.size(1)
        truth = "" if self.true_class is None else f", true class {self.true_class}"
        start = f"node {entry.node}: predicted class {entry.class_before}, margin {entry.margins[0]:.3g}{truth}"
        if not count:
            return f"{start}; " + ("no flip is needed" if entry.falls else "no flip is permitted")
        flips = f"{count} flip{'s' if count > 1 else ''}"
        if not entry.falls:
            return f"{start}; no set of up to {flips} found changes it, the margin falls to {entry.margins[-1]:.3g}"
        fewest = "the fewest, proven by exhaustive search" if entry.exact else f"at least {entry.at_least} needed"
        return f"{start}; {flips} ({fewest}) change{'s' if count == 1 else ''} it to class {entry.class_after}"

    def __repr__(self) -> str:
        return f"Explanation({self.text})"

    def with_ids(self, ids: Tensor) -> Explanation:
        """Return the explanation with node ``i`` called ``ids[i]``, such as the id in the dataset of a split's node."""
        names = ids.tolist()
        fragility = replace(self.fragility, node=names[self.fragility.node], flips=ids.cpu()[self.fragility.flips])
        return replace(
            self,
            fragility=fragility,
            neighbors=tuple(replace(neighbor, node=names[neighbor.node]) for neighbor in self.neighbors),
            edges=tuple((names[u], names[v]) for u, v in self.edges),
            classes={names[node]: classes for node, classes in self.classes.items()},
        )

    def summary(self) -> Record:
        """Return the values that occur once, as numbers, text, lists and dictionaries."""
        entry = self.fragility
        return {
            "node": entry.node,
            "label": entry.label,
            "class_before": entry.class_before,
            "class_after": entry.class_after,
            "true_class": self.true_class,
            "num_flips": entry.num_flips,
            "exact": entry.exact,
            "at_least": entry.at_least,
            "flips": [list(flip) for flip in self.flips],
            "margins": list(entry.margins),
            "scope": self.scope,
            "constraints": self.constraints,
            "edges": [list(edge) for edge in self.edges],
            "classes": {str(node): list(classes) for node, classes in self.classes.items()},
        }

    def _records(self) -> list[Record]:
        return [
            {
                "node": each.node,
                "status": each.status,
                "predicted_before": each.predicted_before,
                "predicted_after": each.predicted_after,
                "true_class": each.true_class,
                "before": each.before,
                "after": each.after,
            }
            for each in self.neighbors
        ]

    @classmethod
    def of_dict(cls, values: dict[str, Any]) -> Explanation:
        """Return the explanation of :meth:`to_dict`.

        Raises:
            KeyError, TypeError, ValueError: If the dictionary does not describe an explanation.
        """
        pairs = torch.tensor([flip[:2] for flip in values["flips"]], dtype=torch.long).view(-1, 2).T
        counts = {name: int(values[name]) for name in ("node", "label", "class_before", "class_after", "at_least")}
        margins = tuple(float(margin) for margin in values["margins"])
        if len(margins) != pairs.size(1) + 1:
            raise ValueError(
                f"expected one margin per flip and one before, got {len(margins)} for {pairs.size(1)} flips"
            )
        return cls(
            fragility=NodeFragility(flips=pairs.contiguous(), margins=margins, **counts),
            neighbors=tuple(Neighbor(**row) for row in values["rows"]),
            true_class=values["true_class"],
            edges=tuple((int(u), int(v)) for u, v in values["edges"]),
            classes={int(node): (int(a), int(b)) for node, (a, b) in values["classes"].items()},
            scope=str(values["scope"]),
            constraints=str(values["constraints"]),
        )

    def _layout(self) -> Layout:
        lines = [
            (
                str(each.node),
                each.status,
                str(each.predicted_before),
                str(each.predicted_after),
                "" if each.true_class is None else str(each.true_class),
                _signed(each.before),
                _signed(each.after),
            )
            for each in self.neighbors
        ]
        margins = self.fragility.margins[1:]
        steps = [f"{kind} {u} - {v}: margin {m:.3g}" for (u, v, kind), m in zip(self.flips, margins, strict=True)]
        return Layout(
            title="\n".join([self.text, *steps]),
            header=("neighbor", "edge", "predicted", "after", "true", "contribution", "after"),
            lines=lines,
            left=2,
            notes=["contribution: the margin minus the margin without the edge"],
        )


def explain(
    model: nn.Module,
    data: Data,
    node: int,
    *,
    max_flips: int = 5,
    scope: str = "influence",
    allowed: Selection | tuple[Selection, ...] | None = None,
    forbidden: Selection | tuple[Selection, ...] | None = None,
    local: float | Tensor | None = None,
    label: int | None = None,
    max_evaluations: int | None = None,
    candidates: int = 64,
    backend: str | None = None,
) -> Explanation:
    """Explain which smallest change of edges changes the prediction for a node, and what each neighbor contributes.

    The search is that of :func:`fragility`. The contribution of a neighbor is exact: the margin minus the margin without the
    edge to this neighbor. A positive contribution supports the class.

    Args:
        model: Module called as ``model(x, edge_index, edge_weight=None)``.
        data: Graph, on the model's device.
        node: Node id.
        max_flips: Largest number of flips.
        scope: ``"influence"`` for pairs anywhere in the graph, ``"direct"`` for pairs with the node itself.
        allowed: Pairs that may be flipped; see :class:`edgeproof.Constraints`.
        forbidden: Pairs that may not be flipped.
        local: Largest number of flips at each node: a factor of its degree, or one number per node. Default: no limit.
        label: Class that the flips should change. Default: the predicted class.
        max_evaluations: Number of evaluations of exhaustive searches; see :func:`fragility`.
        candidates: Number of flips evaluated per step where the search is not exhaustive.
        backend: Kernel backend. Default: the fastest that supports the inputs.

    Raises:
        ValueError: For invalid arguments.

    >>> from edgeproof import datasets, models
    >>> data = datasets.load("karate")
    >>> explanation = explain(models.build("GCN", data.num_features, 2, seed=0), data, 5, max_flips=2)
    >>> {each.node for each in explanation.neighbors if each.status != "added"} == {0, 6, 10, 16}
    True
    """
    if not is_int(node):
        raise ValueError(f"expected node as an integer node id, got {node!r}")
    if scope not in SCOPES:
        raise unknown_name("scope", scope, SCOPES)
    check_int(1, max_flips=max_flips, candidates=candidates)
    constraints = None if allowed is None and forbidden is None else Constraints(allowed, forbidden)
    target = node_target(
        model, data, [node], None if label is None else torch.tensor([label], device=data.x.device), backend
    )
    budget = replace(Budget.from_epsilon(data, target.nodes, 0, local=local, constraints=constraints), total=max_flips)
    search = NodeSearch(target, scope, budget, max_evaluations=max_evaluations, num_candidates=candidates)
    search.run(max_flips, advance=lambda done, text: None)
    (entry,) = describe_states(target, search)
    flips = entry.flips.to(data.edge_index.device)
    before, after = _neighbors(data, node), _neighbors(flip_pairs(data, flips), node)
    contributions = [
        _contributions(search, node, around, state, margin)
        for around, state, margin in ((before, flips[:, :0], entry.margins[0]), (after, flips, entry.margins[-1]))
    ]
    predicted = [predict(model, data).argmax(dim=1), predict(model, flip_pairs(data, flips)).argmax(dim=1)]
    nodes = sorted({node, *before, *after, *flips.flatten().tolist()})
    truth = data.y if isinstance(data.get("y"), Tensor) else None

    def true_class(other: int) -> int | None:
        return None if truth is None or int(truth[other]) == UNKNOWN else int(truth[other])

    found = [
        Neighbor(
            other,
            "kept" if other in before and other in after else "added" if other in after else "removed",
            int(predicted[0][other]),
            int(predicted[1][other]),
            true_class(other),
            contributions[0].get(other),
            contributions[1].get(other),
        )
        for other in sorted({*before, *after})
    ]
    order = {"added": 0, "removed": 1, "kept": 2}
    found.sort(key=lambda each: (order[each.status], -(each.before or 0.0), each.node))
    return Explanation(
        fragility=entry,
        neighbors=tuple(found),
        true_class=true_class(node),
        edges=_edges_among(data, nodes),
        classes={other: (int(predicted[0][other]), int(predicted[1][other])) for other in nodes},
        scope=scope,
        constraints="" if constraints is None else constraints.description,
    )


def _contributions(
    search: NodeSearch, node: int, neighbors: Sequence[int], flips: Tensor, margin: float
) -> dict[int, float]:
    """Return the margin minus the margin without the edge, by neighbor."""
    if not neighbors:
        return {}
    others = torch.tensor(neighbors, device=flips.device)
    edges = torch.stack([others.clamp(max=node), others.clamp(min=node)])
    without = search.margins_after(flips, edges, 0)
    return dict(zip(neighbors, (margin - without).tolist(), strict=True))


def _neighbors(data: Data, node: int) -> list[int]:
    row, col = data.edge_index
    found: list[int] = col[row == node].sort().values.tolist()
    return found


def _edges_among(data: Data, nodes: Sequence[int]) -> tuple[tuple[int, int], ...]:
    row, col = data.edge_index
    chosen = torch.zeros(data.x.size(0), dtype=torch.bool, device=row.device)
    chosen[list(nodes)] = True
    among = chosen[row] & chosen[col] & (row < col)
    return tuple((u, v) for u, v in data.edge_index[:, among].T.tolist())


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.3g}"
