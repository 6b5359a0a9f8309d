r"""Flips that misclassify many nodes of a one-hop model at once, within global and local budgets.

The certificate bounds the number of lost nodes by their fewest flips :math:`k_v` and counts every flip at two nodes. This
attack tries to reach that bound. In each round it computes the fewest flips of every remaining node on the current graph,
takes the cheapest nodes first, and prefers partners that are attacked themselves and that the same flip harms.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from edgeproof.budget import Budget
from edgeproof.propagation import Adjacency, Pairs
from edgeproof.propagation.one_hop import Limits, Neighbors, OneHopTerms, OneHopWorstCase

# Largest number of flips at one node that is considered in the first rounds; doubled when no cheaper node is left.
_FIRST_LIMIT = 4


def matching_flips(
    terms: OneHopTerms, edge_index: Tensor, nodes: Tensor, labels: Tensor, budget: Budget, threshold: Tensor
) -> Tensor:
    """Return flips within the budget that bring the margins of many nodes to at most ``threshold``.

    Args:
        terms: Terms of the model in float64.
        edge_index: Both directions of every edge, shape ``[2, edges]``.
        nodes: Attacked nodes, shape ``[t]``.
        labels: Class of each attacked node, shape ``[t]``.
        budget: Total, and a local budget for every node.
        threshold: Margin at which each node counts as misclassified, shape ``[t]``.
    """
    assert budget.local is not None
    num_nodes, flips, limit = terms.own.size(0), edge_index.new_empty(2, 0), _FIRST_LIMIT
    clean = Adjacency.from_edge_index(edge_index, num_nodes=num_nodes, dtype=terms.own.dtype, symmetric=True)
    largest = min(budget.total, int(budget.local.amax())) if budget.local.numel() else 0
    while flips.size(1) < budget.total:
        rest = budget.after(flips)
        assert rest.local is not None
        graph = clean.perturbed(flips, flips.new_ones(flips.size(1), dtype=terms.own.dtype)) if flips.numel() else clean
        search = OneHopWorstCase(terms, Neighbors(graph), nodes, labels, rest.local > 0)
        new = _one_round(search, rest, limit, threshold, Pairs.of(flips, num_nodes).key if flips.numel() else flips[0])
        if new.numel():
            flips = torch.cat([flips, new], dim=1)
        elif limit < largest:
            limit = min(2 * limit, largest)
        else:
            break
    return flips


def _one_round(search: OneHopWorstCase, rest: Budget, limit: int, threshold: Tensor, used: Tensor) -> Tensor:
    """Return new flips that misclassify further nodes, each node and partner used once."""
    assert rest.local is not None
    nodes, most = search.nodes, rest.local[search.nodes].clamp(max=min(limit, rest.total))
    limits = Limits.of_total(most)
    fewest = search.fewest_flips(limits, threshold)
    open_ = (fewest > 0) & (fewest <= most)
    if not bool(open_.any()):
        return nodes.new_empty(2, 0)
    worst = search.worst(Limits.of_total(torch.where(open_, fewest, 0)))
    other = worst.margin.argmin(dim=1)
    plan = _Plan(search, rest, used, open_, other, worst.margin, threshold)
    for position in torch.argsort(torch.where(open_, fewest, limit + 1), stable=True)[: int(open_.sum())].tolist():
        c = int(other[position])
        plan.add(position, int(worst.added[position, c]), int(worst.deleted[position, c]))
    return plan.flips


class _Plan:
    """Flips of one round.

    Args:
        search: Worst flips on the current graph.
        rest: Remaining budget.
        used: Keys of the pairs that are already flipped.
        is_open: Whether each attacked node can still be misclassified.
        other: Class that each attacked node is changed to.
        margin: Margins that the worst flips reach, shape ``[t, classes]``.
        threshold: Margin to reach.
    """

    def __init__(
        self,
        search: OneHopWorstCase,
        rest: Budget,
        used: Tensor,
        is_open: Tensor,
        other: Tensor,
        margin: Tensor,
        threshold: Tensor,
    ) -> None:
        assert rest.local is not None
        self.search, self.total, self.local = search, rest.total, rest.local.clone()
        self.used, self.other, self.margin, self.threshold = used, other, margin, threshold
        self.touched = torch.zeros_like(rest.local, dtype=torch.bool)
        # Position of each open node among the attacked ones, else -1.
        self.position = torch.full_like(rest.local, -1)
        self.position[search.nodes[is_open]] = is_open.nonzero().squeeze(1)
        self.pairs: list[Tensor] = []

    @property
    def flips(self) -> Tensor:
        """All flips of the round."""
        empty = self.search.nodes.new_empty(2, 0)
        return torch.cat([empty, *self.pairs], dim=1)

    def add(self, position: int, added: int, deleted: int) -> None:
        """Flip pairs at one node, unless it or a partner has changed in this round or the budget is too small."""
        node = self.search.nodes[position]
        if bool(self.touched[node]) or added + deleted > self.total:
            return
        joined, removed = self.search.partners(position, int(self.other[position]), added, deleted)
        partners = torch.cat([self._shared(position, joined, added, deleted), removed])
        if bool(self.touched[partners].any()) or bool((self.local[partners] < 1).any()):
            return
        key = torch.minimum(node, partners) * self.local.numel() + torch.maximum(node, partners)
        if bool(torch.isin(key, self.used).any()):
            return
        self.pairs.append(torch.stack([node.expand_as(partners), partners]))
        self.total -= added + deleted
        self.local[node] -= added + deleted
        self.local[partners] -= 1
        self.touched[node] = True
        self.touched[partners[self.position[partners] >= 0]] = True

    def _shared(self, position: int, joined: Tensor, added: int, deleted: int) -> Tensor:
        """Return the nodes to join, with attacked nodes in place of others as far as the margin allows."""
        if not added:
            return joined
        search, terms = self.search, self.search.terms
        node, label, other = search.nodes[position], search.labels[position], self.other[position]
        degree = max(int(search.neighbors.degree[node]) + added - deleted, terms.least)
        gate = float(terms.gate[node])
        spare = float(self.threshold[position] - self.margin[position, other]) * degree
        gain = gate * (terms.message[:, label] - terms.message[:, other])
        candidates = search.nodes[self.position[search.nodes] >= 0]
        at = self.position[candidates]
        # An edge to this node harms a candidate if the node's message is below the candidate's own margin.
        c, y = self.other[at], search.labels[at]
        gap = terms.own[candidates, y] - terms.own[candidates, c]
        harmed = terms.gate[candidates] * (terms.message[node, y] - terms.message[node, c]) + gap < 0
        usable = harmed & (candidates != node) & ~self.touched[candidates] & (self.local[candidates] > 0)
        usable &= ~search.neighbors.contain(node, candidates)
        candidates = candidates[usable]
        candidates = candidates[gain[candidates].argsort(stable=True)]
        kept, replaced = joined.tolist(), 0
        fixed = set(kept)
        # Replace the least useful nodes first.
        slots = [
            slot for slot in reversed(range(added)) if int(self.position[kept[slot]]) < 0 or self.touched[kept[slot]]
        ]
        for candidate in candidates.tolist():
            if replaced == len(slots):
                break
            if candidate in fixed:
                continue
            slot = slots[replaced]
            cost = float(gain[candidate] - gain[kept[slot]])
            if cost > spare:
                break
            spare, kept[slot], replaced = spare - cost, candidate, replaced + 1
        return joined.new_tensor(kept)


def with_local(budget: Budget, local: Tensor) -> Budget:
    """Return the budget with these local budgets and without constraints."""
    return replace(budget, local=local, constraints=None, permitted=None)
