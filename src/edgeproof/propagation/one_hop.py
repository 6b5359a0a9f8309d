r"""Exact worst case of models whose logits are own logits plus a mean of messages from neighbors.

The model is

.. math::
    z_v = f_v + \frac{g_v}{\max(d_v, k)} \sum_{u \in N(v)} m_u,

where :math:`f`, :math:`m` and the gate :math:`g \ge 0` depend on features alone. A flip at :math:`v` therefore changes only the
sum and the degree of :math:`v`. For a node of class :math:`y` and another class :math:`c`, let
:math:`t_u = m_{uy} - m_{uc}` and :math:`T = \sum_{u \in N(v)} t_u`. After :math:`d` deletions and :math:`a` additions at
:math:`v`, the smallest possible margin is

.. math::
    f_{vy} - f_{vc} + g_v \frac{T - P_d + Q_a}{\max(d_v + a - d, k)},

where :math:`P_d` is the sum of the :math:`d` largest :math:`t_u` of the neighbors and :math:`Q_a` the sum of the :math:`a`
smallest :math:`t_u` of the other nodes: the degree is fixed, and each sum can be minimized on its own. The worst case is the
minimum over :math:`a`, :math:`d` and :math:`c`. All nodes of class :math:`y` share one list of smallest :math:`t_u` per
:math:`c`, without their own neighbors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from edgeproof.propagation.adjacency import Adjacency

# Largest number of entries of an intermediate tensor.
_MAX_ENTRIES = 1 << 22


class OneHopTerms(NamedTuple):
    """Parts of a one-hop model that depend on features alone.

    Args:
        own: Own logits :math:`f`, shape ``[nodes, classes]``.
        message: Messages :math:`m`, shape ``[nodes, classes]``.
        gate: Gates :math:`g` of the receivers, at least 0, shape ``[nodes]``.
        least: Smallest denominator :math:`k`, at least 1.
    """

    own: Tensor
    message: Tensor
    gate: Tensor
    least: int

    def double(self) -> OneHopTerms:
        """Return the terms in float64, without gradients."""
        own, message, gate = (part.detach().double() for part in (self.own, self.message, self.gate))
        return OneHopTerms(own, message, gate, self.least)


class Limits(NamedTuple):
    """Largest numbers of flips at each of several nodes.

    Args:
        total: Additions and deletions together, shape ``[nodes]``.
        added: Additions, shape ``[nodes]``.
        deleted: Deletions, shape ``[nodes]``.
    """

    total: Tensor
    added: Tensor
    deleted: Tensor

    @classmethod
    def of_total(cls, total: Tensor) -> Limits:
        """Return limits on the total alone."""
        return cls(total, total, total)


class WorstFlips(NamedTuple):
    """Worst case of several nodes for each class that they could be changed to.

    Args:
        margin: Smallest margin, infinite for the node's own class, shape ``[nodes, classes]``.
        added: Number of additions that reach it, shape ``[nodes, classes]``.
        deleted: Number of deletions that reach it, shape ``[nodes, classes]``.
    """

    margin: Tensor
    added: Tensor
    deleted: Tensor


class Neighbors:
    """Neighbors of every node, in ascending order.

    Args:
        adjacency: Adjacency matrix; entries of weight 0 are not edges.
    """

    def __init__(self, adjacency: Adjacency) -> None:
        pattern, self.num_nodes = adjacency.pattern, adjacency.num_nodes
        is_edge = adjacency.weight > 0
        self.col, self.key = pattern.col[is_edge], pattern.key[is_edge]
        self.degree = torch.bincount(pattern.row[is_edge], minlength=self.num_nodes)
        self.start = self.degree.cumsum(0) - self.degree

    def padded(self, nodes: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Return the neighbors of nodes, shape ``[nodes, width]``, and a mask of the entries that exist."""
        slot = torch.arange(width, device=nodes.device)
        exists = slot < self.degree[nodes][:, None]
        return self.col[torch.where(exists, self.start[nodes][:, None] + slot, 0)], exists

    def contain(self, nodes: Tensor, others: Tensor) -> Tensor:
        """Return which pairs of a node and another one are edges; the shapes are broadcast together."""
        wanted = nodes * self.num_nodes + others
        if not self.key.numel():
            return torch.zeros_like(wanted, dtype=torch.bool)
        return self.key[torch.searchsorted(self.key, wanted).clamp_(max=self.key.numel() - 1)] == wanted


@dataclass(frozen=True, eq=False)
class BestPartners:
    """Nodes in ascending order of :math:`t_u`, for pairs of classes.

    Args:
        index: Node ids, shape ``[classes, classes, length]``: first the own class, then the other one.
    """

    index: Tensor

    @classmethod
    def of(cls, message: Tensor, permitted: Tensor, length: int, classes: Tensor) -> BestPartners:
        """Sort the permitted nodes.

        Args:
            message: Messages, shape ``[nodes, classes]``.
            permitted: Mask of the nodes that may get a new edge, shape ``[nodes]``.
            length: Number of nodes to keep.
            classes: Classes that occur as own class.
        """
        nodes = permitted.nonzero().squeeze(1)
        among, length = message.detach()[nodes], min(length, nodes.numel())
        index = nodes.new_zeros(message.size(1), message.size(1), length)
        for y in classes.tolist():
            gain = (among[:, y, None] - among).T
            index[y] = nodes[gain.topk(length, dim=1, largest=False).indices]
        return cls(index)


class _Group(NamedTuple):
    """Nodes of similar degree and budget.

    Args:
        position: Positions among the examined nodes, shape ``[group]``.
        nodes: Node ids, shape ``[group]``.
        labels: Own class of each node, shape ``[group]``.
        limits: Limits that fit the number of possible flips.
        gap: :math:`f_{vy} - f_{vc}`, infinite for the own class, shape ``[group, classes]``.
        sum: :math:`T`, shape ``[group, classes]``.
        removed: Neighbors in descending order of :math:`t_u`, shape ``[group, classes, deletions]``.
        joined: Other nodes in ascending order of :math:`t_u`, shape ``[group, classes, additions]``.
    """

    position: Tensor
    nodes: Tensor
    labels: Tensor
    limits: Limits
    gap: Tensor
    sum: Tensor
    removed: Tensor
    joined: Tensor


class OneHopWorstCase:
    """Search for worst flips at single nodes of one graph.

    A flip needs a partner: additions any permitted node that is not a neighbor, deletions any permitted neighbor.

    Args:
        terms: Terms of the model.
        neighbors: Graph.
        nodes: Examined nodes, shape ``[t]``.
        labels: Own class of each examined node, shape ``[t]``.
        permitted: Mask of the nodes that may be partners, shape ``[nodes]``. Default: all.
    """

    def __init__(
        self,
        terms: OneHopTerms,
        neighbors: Neighbors,
        nodes: Tensor,
        labels: Tensor,
        permitted: Tensor | None = None,
    ) -> None:
        self.terms, self.neighbors, self.nodes, self.labels = terms, neighbors, nodes, labels
        ones = torch.ones(neighbors.num_nodes, dtype=torch.bool, device=nodes.device)
        self.permitted = ones if permitted is None else permitted
        self._partners: BestPartners | None = None

    def worst(self, limits: Limits) -> WorstFlips:
        """Return the smallest margin of each node within the limits, and how many flips reach it.

        The margin is differentiable in the terms: by Danskin's theorem its gradient is that at the worst flips, wherever these
        are unique.
        """
        shape = (self.nodes.numel(), self.terms.own.size(1))
        added, deleted = self.nodes.new_zeros(shape), self.nodes.new_zeros(shape)
        margins, positions = [], []
        for group in self._groups(limits):
            with torch.no_grad():
                a, d = self._search(group)
            added[group.position], deleted[group.position] = a, d
            margins.append(self._margin(group, a, d))
            positions.append(group.position)
        return WorstFlips(torch.cat(margins)[torch.cat(positions).argsort()], added, deleted)

    @torch.no_grad()
    def fewest_flips(self, limits: Limits, threshold: Tensor) -> Tensor:
        """Return the smallest number of flips after which the margin of each node is at most its threshold.

        Args:
            limits: Limits on flips.
            threshold: Threshold of each node, shape ``[t]``.

        Returns:
            Number of flips, shape ``[t]``; ``limits.total + 1`` for nodes that keep a larger margin.
        """
        fewest = limits.total + 1
        for group in self._groups(limits):
            found, least = fewest[group.position], threshold[group.position][:, None, None]
            for first, values in self._tables(group):
                # Entries beyond the limits are infinite, so the number of flips is at most the limit.
                reached = (values.amin(dim=1) <= least).flatten(1)
                d, a = (torch.arange(size, device=found.device) for size in values.shape[2:])
                flips = (first + d[:, None] + a).flatten().expand_as(reached)
                found = torch.minimum(found, torch.where(reached, flips, found[:, None]).amin(dim=1))
            fewest[group.position] = found
        return fewest

    def subset(self, positions: Tensor) -> OneHopWorstCase:
        """Return the search for some of the examined nodes, given by their positions."""
        part = OneHopWorstCase(
            self.terms, self.neighbors, self.nodes[positions], self.labels[positions], self.permitted
        )
        part._partners = self._partners
        return part

    @torch.no_grad()
    def partners(self, position: int, other: int, added: int, deleted: int) -> tuple[Tensor, Tensor]:
        """Return the nodes that worst flips of one node join and remove, best first.

        Args:
            position: Position of the node among the examined ones.
            other: Class that it is changed to.
            added: Number of additions.
            deleted: Number of deletions.
        """
        single = self.subset(self.nodes.new_tensor([position]))
        total, a, d = self.nodes.new_tensor([[added + deleted], [added], [deleted]])
        (group,) = single._groups(Limits(total, a, d))
        return group.joined[0, other, :added], group.removed[0, other, :deleted]

    def _groups(self, limits: Limits) -> Iterator[_Group]:
        """Yield the examined nodes in groups of similar degree and limits, with their possible flips."""
        neighbors, degree = self.neighbors, self.neighbors.degree[self.nodes]
        deletions = torch.minimum(torch.minimum(limits.deleted, limits.total), degree)
        additions = torch.minimum(limits.added, limits.total).clamp(max=neighbors.num_nodes)
        classes = self.terms.own.size(1)
        longest = int((additions + torch.where(additions > 0, degree + 1, 0)).amax()) if self.nodes.numel() else 0
        if longest and (self._partners is None or self._partners.index.size(2) < min(longest, self._num_permitted)):
            self._partners = BestPartners.of(self.terms.message, self.permitted, longest, self.labels.unique())
        # Powers of two, so that padding at most doubles each dimension.
        levels = [torch.frexp(part.double()).exponent.long() for part in (degree, additions, deletions)]
        level = (levels[0] * 64 + levels[1]) * 64 + levels[2]
        for key in level.unique():
            members = (level == key).nonzero().squeeze(1)
            sizes = (int(part[members].amax()) for part in (degree, additions, deletions))
            width, most_added, most_deleted = sizes
            entries = classes * (width + 2 * most_added + width + most_deleted + 2)
            for position in members.split(max(1, _MAX_ENTRIES // entries)):
                yield self._group(position, limits, width, most_added, most_deleted)

    @property
    def _num_permitted(self) -> int:
        return int(self.permitted.sum())

    def _group(self, position: Tensor, limits: Limits, width: int, most_added: int, most_deleted: int) -> _Group:
        nodes, labels = self.nodes[position], self.labels[position]
        own, message = self.terms.own[nodes], self.terms.message
        index = labels[:, None]
        gap = (own.gather(1, index) - own).scatter(1, index, torch.inf)
        adjacent, exists = self.neighbors.padded(nodes, width)
        received = (message[adjacent] * exists[:, :, None]).sum(dim=1)
        total = received.gather(1, index) - received
        removed, num_removable = self._removable(adjacent, exists, labels, most_deleted)
        joined, num_joinable = self._joinable(nodes, labels, width, most_added)
        bounded = Limits(
            limits.total[position],
            torch.minimum(limits.added[position], num_joinable),
            torch.minimum(limits.deleted[position], num_removable),
        )
        return _Group(position, nodes, labels, bounded, gap, total, removed, joined)

    def _removable(self, adjacent: Tensor, exists: Tensor, labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return the neighbors with the largest gains, best first, and the number that may be removed."""
        may_remove = exists & self.permitted[adjacent]
        gain = _gains(self.terms.message.detach(), adjacent[:, None, :], labels)
        gain = gain.masked_fill(~may_remove[:, None, :], -torch.inf)
        order = gain.topk(count, dim=2).indices
        return adjacent[:, None, :].expand_as(gain).gather(2, order), may_remove.sum(dim=1)

    def _joinable(self, nodes: Tensor, labels: Tensor, width: int, count: int) -> tuple[Tensor, Tensor]:
        """Return the other nodes with the smallest gains, best first, and the number that may be joined."""
        if not count:
            return nodes.new_empty(nodes.numel(), self.terms.own.size(1), 0), torch.zeros_like(nodes)
        assert self._partners is not None
        listed = self._partners.index[:, :, : count + width + 1][labels]
        me = nodes[:, None, None]
        usable = (listed != me) & ~self.neighbors.contain(me, listed)
        rank = usable.cumsum(dim=2) - 1
        # Unusable nodes and those beyond the count go to a last column, which is dropped.
        slot = torch.where(usable & (rank < count), rank, count)
        joined = listed.new_zeros(*listed.shape[:2], count + 1).scatter(2, slot, listed)
        return joined[:, :, :count], usable.sum(dim=2).amin(dim=1)

    def _search(self, group: _Group) -> tuple[Tensor, Tensor]:
        """Return the numbers of additions and deletions that minimize the margin, shape ``[group, classes]``."""
        least = torch.full_like(group.gap, torch.inf)
        best_a = best_d = torch.zeros_like(group.gap, dtype=torch.long)
        for first, values in self._tables(group):
            smallest, index = values.flatten(2).min(dim=2)
            better = smallest < least
            least, best_a = torch.where(better, smallest, least), torch.where(better, index % values.size(3), best_a)
            best_d = torch.where(better, first + index // values.size(3), best_d)
        return best_a, best_d

    def _tables(self, group: _Group) -> Iterator[tuple[int, Tensor]]:
        """Yield the margins by numbers of deletions and additions, for some numbers of deletions at a time.

        Yields:
            Smallest number of deletions, and margins of shape ``[group, classes, deletions, additions + 1]``.
        """
        message, terms = self.terms.message, self.terms
        added = _prefix_sums(_gains(message, group.joined, group.labels))
        deleted = _prefix_sums(_gains(message, group.removed, group.labels))
        degree, gate = self.neighbors.degree[group.nodes], terms.gate[group.nodes][:, None, None, None]
        a, most = torch.arange(added.size(2), device=degree.device), [part[:, None, None] for part in group.limits]
        for d in torch.arange(deleted.size(2), device=degree.device).split(max(1, _MAX_ENTRIES // added.numel())):
            flips = d[:, None] + a
            possible = (flips <= most[0]) & (a <= most[1]) & (d[:, None] <= most[2])
            denominator = (degree[:, None, None] + a - d[:, None]).clamp(min=terms.least)[:, None]
            sums = (group.sum[:, :, None] - deleted[:, :, d])[:, :, :, None] + added[:, :, None, :]
            values = group.gap[:, :, None, None] + gate * sums / denominator
            yield int(d[0]), values.masked_fill(~possible[:, None], torch.inf)

    def _margin(self, group: _Group, a: Tensor, d: Tensor) -> Tensor:
        """Return the margins after ``a`` additions and ``d`` deletions, shape ``[group, classes]``."""
        total = group.sum
        for chosen, count, sign in ((group.removed, d, -1), (group.joined, a, 1)):
            if chosen.size(2):
                is_taken = torch.arange(chosen.size(2), device=a.device) < count[:, :, None]
                total = total + sign * (_gains(self.terms.message, chosen, group.labels) * is_taken).sum(dim=2)
        degree = self.neighbors.degree[group.nodes][:, None] + a - d
        gate = self.terms.gate[group.nodes][:, None]
        return group.gap + gate * total / degree.clamp(min=self.terms.least)


def any_edges_margins(terms: OneHopTerms, nodes: Tensor, labels: Tensor) -> Tensor:
    r"""Return the smallest margin of each node over all sets of neighbors, existing nodes other than itself.

    .. math::
        f_{vy} - f_{vc} + \frac{g_v}{k} \sum_{i \le k} \min(0, t_{(i)}),

    minimized over :math:`c`, with :math:`t_{(i)}` in ascending order: more than :math:`k` neighbors only add larger terms.

    Args:
        terms: Terms of the model.
        nodes: Examined nodes, shape ``[t]``.
        labels: Own class of each node, shape ``[t]``.
    """
    everyone = torch.ones(terms.own.size(0), dtype=torch.bool, device=nodes.device)
    listed = BestPartners.of(terms.message, everyone, terms.least + 1, labels.unique()).index[labels]
    gain = _gains(terms.message, listed, labels).clamp(max=0).masked_fill(listed == nodes[:, None, None], 0.0)
    # One more than k nodes are listed, because one may be the node itself.
    smallest = gain.sort(dim=2).values[:, :, : terms.least].sum(dim=2)
    index = labels[:, None]
    gap = (terms.own[nodes].gather(1, index) - terms.own[nodes]).scatter(1, index, torch.inf)
    return (gap + terms.gate[nodes][:, None] * smallest / terms.least).amin(dim=1)


def _gains(message: Tensor, partners: Tensor, labels: Tensor) -> Tensor:
    """Return :math:`t_u` of partners, shape ``[group, classes, partners]`` (a dimension of 1 is broadcast over classes)."""
    classes = message.size(1)
    partners = partners.expand(-1, classes, -1)
    other = torch.arange(classes, device=labels.device)[:, None]
    return message[partners, labels[:, None, None]] - message[partners, other]


def _prefix_sums(values: Tensor) -> Tensor:
    """Return the sums of the first 0, 1, 2, ... entries along the last dimension."""
    return torch.cat([values.new_zeros(*values.shape[:2], 1), values.cumsum(dim=2)], dim=2)
