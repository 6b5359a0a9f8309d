r"""Certificates by computation: the exact worst case of models with bounded messages of one hop.

For :class:`~edgeproof.models.OneHop` a flip changes only its two ends, and the worst flips at one node follow from sorting
(:mod:`edgeproof.propagation.one_hop`). No sampling, no probability of error.

**Per node, exact.** The smallest margin within given numbers of additions and deletions, the fewest flips that misclassify
the node, and the smallest margin over all sets of edges. Partners are the other nodes of the graph; with local budgets those
whose own budget allows a flip.

**All nodes together, an interval.** Let :math:`k_v` be the fewest flips for node :math:`v` within its own budget. A flip
touches two nodes, so the nodes of a set :math:`S` can only be misclassified together if

.. math::
    \sum_{v \in S} k_v \le 2 \Delta.

The largest such set, which takes the smallest :math:`k_v` first, is an upper bound on the number of lost nodes: the
**guaranteed** accuracy. Flips found by :func:`~edgeproof.certificates.matching_attack.matching_flips`, which respect all
budgets at once, give a lower bound: the **attained** accuracy. The exact worst case lies between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof import losses
from edgeproof._checks import Nodes, check_data, check_int, check_non_negative, node_ids
from edgeproof._features import for_model
from edgeproof._names import unknown_name
from edgeproof.budget import Budget
from edgeproof.certificates.matching_attack import matching_flips
from edgeproof.certificates.shared_flips import most_lost_by_count, most_lost_by_program
from edgeproof.certificates.sparse_smoothing import node_labels
from edgeproof.certificates.worst_case_certificate import BudgetCertificate, WorstCaseCertificate
from edgeproof.graph import flip_pairs
from edgeproof.models.base import predict
from edgeproof.propagation import Adjacency
from edgeproof.propagation.autograd_path import eval_mode
from edgeproof.propagation.one_hop import Limits, Neighbors, OneHopTerms, OneHopWorstCase, any_edges_margins

# Number of flips that the search for the fewest flips starts with; doubled as long as more could matter.
_FIRST_LIMIT = 8
COLLECTIVE = ("count", "lp")


@runtime_checkable
class WithOneHopTerms(Protocol):
    """Model whose worst case is exact: :class:`edgeproof.models.OneHop`."""

    influence: float

    def terms(self, x: Tensor) -> OneHopTerms:
        """Return own logits, messages and gates of every node."""


@runtime_checkable
class WithBoundedInfluence(Protocol):
    """Model whose logits are within ``influence`` of its own logits: :class:`edgeproof.models.BoundedInfluence`."""

    influence: float

    def own_logits(self, x: Tensor) -> Tensor:
        """Return the logits of the features alone."""


@dataclass(frozen=True)
class WorstCase:
    """Exact worst case of a one-hop model, or of any model with bounded influence against any edges.

    Args:
        attack: Whether to search for flips that attain a low accuracy within each budget.
        collective: Upper bound on the number of nodes that one budget misclassifies together: ``"count"``, by their fewest
            flips, each counted at both ends; or ``"lp"``, by a linear program in which a flip between two nodes counts at an
            end only as much as it helps there. The second is tighter, and slow for more than a few hundred nodes.
        tolerance: Margins below this fraction of a node's largest possible logit count as misclassified, because the model
            itself computes with rounding errors.

    >>> from edgeproof import Budget, datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(40)
    >>> model = models.build("OneHop", data.num_features, 2, {"bound": 0.1}, seed=0)
    >>> budget = Budget.from_epsilon(data, nodes, 0.1, local=0.5)
    >>> certificate = WorstCase().certify(model, data, nodes, budget)
    >>> bound = certificate.budgets[0]
    >>> certificate.any_edges_accuracy <= bound.guaranteed <= bound.attained <= certificate.clean_accuracy
    True
    """

    attack: bool = True
    collective: str = "count"
    tolerance: float = 1e-5

    def __post_init__(self) -> None:
        check_non_negative(tolerance=self.tolerance)
        if self.collective not in COLLECTIVE:
            raise unknown_name("collective bound", self.collective, COLLECTIVE)

    @torch.no_grad()
    def certify(
        self, model: nn.Module, data: Data, nodes: Nodes, budgets: Budget | Sequence[Budget] = ()
    ) -> WorstCaseCertificate:
        """Certify the predictions of a model.

        With labels in ``data`` a node counts if it is classified correctly; without labels if its prediction does not change.

        Args:
            model: :class:`~edgeproof.models.OneHop`, :class:`~edgeproof.models.BoundedInfluence`, or a model with the methods
                of :class:`WithOneHopTerms` or :class:`WithBoundedInfluence`, on the device of the graph.
            data: Graph.
            nodes: Nodes to certify: ids, or a boolean mask.
            budgets: Budgets, each certified on its own. Constraints and costs of flips are not used: what is guaranteed
                without them also holds with them. No attack is searched for such budgets.

        Raises:
            TypeError: If the worst case of the model cannot be computed.
        """
        task = _Task.of(model, data, nodes, self.tolerance)
        budgets = [budgets] if isinstance(budgets, Budget) else list(budgets)
        unbounded = losses.margin(task.own, task.classes) - 2 * task.influence * task.gate - task.slack
        any_edges = unbounded.clone()
        if task.terms is not None:
            among = any_edges_margins(task.terms, task.nodes, task.classes) - task.slack
            # Rounding must not put one bound on the wrong side of the other.
            any_edges = torch.maximum(among, unbounded)
        parts = [self._certify_budget(task, budget, any_edges <= 0) for budget in budgets]
        return WorstCaseCertificate(
            nodes=task.nodes,
            classes=task.classes,
            has_labels=task.has_labels,
            exact=task.terms is not None,
            margin=task.margin,
            any_edges_margin=any_edges,
            any_nodes_margin=unbounded,
            budgets=tuple(parts),
        )

    @torch.no_grad()
    def worst_margins(
        self, model: nn.Module, data: Data, nodes: Nodes, *, added: int, deleted: int, total: int | None = None
    ) -> Tensor:
        """Return the smallest margin of each node within separate limits on added and deleted edges, shape ``[nodes]``.

        The value is exact up to rounding, for flips at this node alone with any other node of the graph.

        Args:
            model: :class:`~edgeproof.models.OneHop`, or a model with the methods of :class:`WithOneHopTerms`.
            data: Graph with labels, or without for the margins of the predicted classes.
            nodes: Nodes: ids, or a boolean mask.
            added: Largest number of added edges at the node.
            deleted: Largest number of deleted edges at the node.
            total: Largest number of both together. Default: no further limit.
        """
        check_int(0, added=added, deleted=deleted, total=added + deleted if total is None else total)
        task = _Task.of(model, data, nodes, self.tolerance)
        if task.terms is None:
            raise TypeError(f"expected a one-hop model, such as edgeproof.models.OneHop, got {type(model).__name__}")
        search = OneHopWorstCase(task.terms, task.neighbors, task.nodes, task.classes)
        parts = (added + deleted if total is None else total, added, deleted)
        limits = Limits(*(torch.full_like(task.nodes, part) for part in parts))
        return search.worst(limits).margin.amin(dim=1)

    def _certify_budget(self, task: _Task, budget: Budget, can_change: Tensor) -> BudgetCertificate:
        """Certify one budget.

        Args:
            task: Model, graph and nodes.
            budget: Budget.
            can_change: Mask of the nodes that some set of edges may misclassify.
        """
        num_nodes, device = int(task.data.x.size(0)), task.nodes.device
        local = budget.local
        local = torch.full((num_nodes,), num_nodes) if local is None else local
        most = local.to(device).clamp(max=min(budget.total, num_nodes))
        if task.terms is None:
            # A single flip may reach many nodes, so every node that is not proven correct may be lost.
            is_lost = (task.margin > 0) & can_change & bool(budget.allows_flips)
            fewest = torch.where(task.margin > 0, torch.where(is_lost, 1, most[task.nodes] + 1), 0)
            lost = int(is_lost.sum())
        else:
            search = OneHopWorstCase(task.terms, task.neighbors, task.nodes, task.classes, most > 0)
            fewest = _fewest_flips(search, most[task.nodes], 2 * budget.total, task.slack, can_change)
            can_be_lost = (fewest > 0) & (fewest <= most[task.nodes])
            lost = most_lost_by_count(fewest[can_be_lost], budget.total)
            if self.collective == "lp":
                part = search.subset(can_be_lost.nonzero().squeeze(1))
                lost = most_lost_by_program(
                    part, fewest[can_be_lost], most[part.nodes], budget.total, task.slack[can_be_lost]
                )
        flips, attained = task.nodes.new_empty(2, 0), None
        if self.attack and task.terms is not None and budget.constraints is None:
            chosen = Budget(budget.total, most)
            targets = (can_change & (fewest > 0)).nonzero().squeeze(1)
            flips = matching_flips(
                task.terms,
                task.data.edge_index,
                task.nodes[targets],
                task.classes[targets],
                chosen,
                threshold=-task.slack[targets],
            )
            chosen.check(flips)
            attained = task.accuracy_after(flips)
        return BudgetCertificate(
            name=_describe(budget),
            total=budget.total,
            fewest_flips=fewest,
            most_flips=most[task.nodes],
            lost=lost,
            guaranteed=(int((fewest > 0).sum()) - lost) / task.nodes.numel(),
            attained=attained,
            flips=flips,
        )


@dataclass(frozen=True, eq=False)
class _Task:
    """Model, graph and nodes of a certificate.

    Args:
        model: Model.
        data: Graph.
        nodes: Certified nodes.
        classes: Class that each node has to keep.
        has_labels: Whether these are labels.
        margin: Margin of each node on the graph.
        own: Logits of the features alone of each node.
        gate: Factor of each node's bound.
        influence: Bound on the change of a logit.
        slack: Rounding error of each node.
        terms: Terms of a one-hop model; None for other models.
        neighbors: Neighbors of every node.
    """

    model: nn.Module
    data: Data
    nodes: Tensor
    classes: Tensor
    has_labels: bool
    margin: Tensor
    own: Tensor
    gate: Tensor
    influence: float
    slack: Tensor
    terms: OneHopTerms | None
    neighbors: Neighbors

    @classmethod
    def of(cls, model: nn.Module, data: Data, nodes: Nodes, tolerance: float) -> _Task:
        check_data(data, labels=False)
        nodes, data = node_ids(nodes, data), for_model(data, model)
        labels, logits = node_labels(data, nodes), predict(model, data)[nodes].double()
        classes = logits.argmax(dim=1) if labels is None else labels.to(nodes.device)
        if int(classes.max()) >= logits.size(1):
            raise ValueError(
                f"expected labels from 0 to {logits.size(1) - 1}, the model's classes, got {int(classes.max())}"
            )
        terms = None
        with eval_mode(model):
            if isinstance(model, WithOneHopTerms):
                terms = model.terms(data.x).double()
                own, gate = terms.own[nodes], terms.gate[nodes]
            elif isinstance(model, WithBoundedInfluence):
                own = model.own_logits(data.x).double()[nodes]
                gate = own.new_ones(nodes.numel())
            else:
                raise TypeError(
                    f"expected a model whose worst case can be computed, edgeproof.models.OneHop or BoundedInfluence, got "
                    f"{type(model).__name__}: use SparseSmoothing for other models"
                )
        return cls(
            model=model,
            data=data,
            nodes=nodes,
            classes=classes,
            has_labels=labels is not None,
            margin=losses.margin(logits, classes),
            own=own,
            gate=gate,
            influence=model.influence,
            slack=tolerance * (own.abs().amax(dim=1) + model.influence),
            terms=terms,
            neighbors=Neighbors(Adjacency.from_data(data)),
        )

    def accuracy_after(self, flips: Tensor) -> float:
        """Return the fraction of nodes that keep their class in the model's own prediction after flips."""
        logits = predict(self.model, flip_pairs(self.data, flips))[self.nodes]
        return float(losses.accuracy(logits.double(), self.classes))


def _fewest_flips(search: OneHopWorstCase, most: Tensor, capacity: int, slack: Tensor, can_change: Tensor) -> Tensor:
    """Return the fewest flips of each node, ``most + 1`` where there are none, exactly as far as the capacity matters.

    The limit on flips is doubled until the cheapest nodes alone use up the capacity: more expensive nodes are then not lost,
    and get the limit plus 1 as a lower bound.

    Args:
        search: Search on the graph.
        most: Largest number of flips at each node.
        capacity: Largest sum of flips.
        slack: Margin at which a node counts as misclassified.
        can_change: Mask of the nodes that some set of edges misclassifies; the others are not searched.
    """
    fewest, limit = most + 1, _FIRST_LIMIT
    rest, spent = can_change.nonzero().squeeze(1), 0
    while rest.numel() and spent <= capacity:
        within = most[rest].clamp(max=limit)
        found = search.subset(rest).fewest_flips(Limits.of_total(within), slack[rest])
        fewest[rest] = found
        spent += int(found[found <= within].sum())
        rest = rest[(found > within) & (within < most[rest])]
        limit *= 2
    return fewest


def _describe(budget: Budget) -> str:
    kind = "" if budget.local is None else ", local budgets"
    return f"{budget.total:,} flips{kind}"
