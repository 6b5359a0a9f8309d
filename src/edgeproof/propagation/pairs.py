r"""Unordered pairs of nodes, and the gradient of the loss with respect to their edge weights.

**Order.** A pair is ``(u, v)`` with ``u < v``, and its key is ``u * nodes + v``. Pairs are sorted by key, and numbered in this
order from 0 to ``nodes * (nodes - 1) / 2 - 1``.

**Gradient.** Let a model use the graph only through :math:`o_k = \hat A h_k`, with :math:`b_k = \partial L / \partial o_k`. For
an edge weight :math:`w_{uv} = w_{vu}`, present or not, the gradient depends on the rule behind :math:`\hat A`
(:mod:`~edgeproof.propagation.message_rules`):

- **plain** (:math:`\hat A = w`): :math:`\partial L / \partial w_{uv} = \sum_k b_k[u] \cdot h_k[v] + h_k[u] \cdot b_k[v]`;
- **normalized** (:math:`\hat A_{uv} = s_u w_{uv} s_v`, :math:`s = d^{-1/2}`): the same with :math:`s_u b_k[u]` and
  :math:`s_u h_k[u]` in place of :math:`b_k[u]` and :math:`h_k[u]`, plus :math:`\delta_u + \delta_v` for the two degrees, where
  :math:`\delta_u = -\tfrac{1}{2} s_u^2 \sum_k ( b_k[u] \cdot o_k[u] + (\hat A^\top b_k)[u] \cdot h_k[u] )`;
- **averaged** (:math:`\hat A_{uv} = w_{uv} / \max(d_u, k)`): the same with :math:`b_k[u] / \max(d_u, k)` in place of
  :math:`b_k[u]`, and :math:`\delta_u = -\tfrac{1}{d_u} \sum_k b_k[u] \cdot o_k[u]` where :math:`d_u \ge k`, else 0;
- **attention** (:math:`\hat A_{uv} = w_{uv} e_{uv} / Z_u`): :math:`e_{uv} / Z_u \; b[u] \cdot (h[v] - o[u])`, and the same
  with :math:`u` and :math:`v` exchanged.

The first three are one bilinear form :math:`B_u \cdot H_v + H_u \cdot B_v + \delta_u + \delta_v`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import torch
from torch import Tensor
from torch.nn import functional as F

from edgeproof._checks import check_pairs
from edgeproof.kernels import dispatch, reference
from edgeproof.propagation.message_rules import Attention, Averaged, Normalized, Plain
from edgeproof.propagation.propagate import Call


@dataclass(frozen=True, eq=False)
class Pairs:
    """Distinct pairs in ascending order.

    The constructor does not check the order; :meth:`of` sorts and checks.

    Args:
        u: Smaller node id of each pair, shape ``[pairs]``.
        v: Larger node id of each pair, shape ``[pairs]``.
        num_nodes: Number of nodes of the graph.
    """

    u: Tensor
    v: Tensor
    num_nodes: int

    @classmethod
    def of(cls, pairs: Tensor, num_nodes: int) -> Pairs:
        """Check and sort pairs of shape ``[2, pairs]``, each in either direction."""
        check_pairs(pairs, num_nodes)
        key = (pairs.amin(dim=0) * num_nodes + pairs.amax(dim=0)).sort().values
        if bool((key[1:] == key[:-1]).any()):
            raise ValueError(f"expected distinct pairs, got {int((key[1:] == key[:-1]).sum())} repeated")
        return cls.from_key(key, num_nodes)

    @classmethod
    def from_key(cls, key: Tensor, num_nodes: int) -> Pairs:
        """Return the pairs with these ascending keys."""
        return cls(key // num_nodes, key % num_nodes, num_nodes)

    @classmethod
    def from_number(cls, number: Tensor, num_nodes: int) -> Pairs:
        """Return the pairs with these ascending numbers. The tensor is kept, so it must not be modified afterwards.

        >>> Pairs.from_number(torch.arange(6), 4).both
        tensor([[0, 0, 0, 1, 1, 2],
                [1, 2, 3, 2, 3, 3]])
        """
        pairs = cls(*dispatch.unrank_pairs(number, num_nodes), num_nodes)
        pairs.__dict__["number"] = number
        return pairs

    @property
    def both(self) -> Tensor:
        """Pairs as one tensor of shape ``[2, pairs]``."""
        return torch.stack([self.u, self.v])

    @property
    def key(self) -> Tensor:
        """``u * nodes + v`` of each pair, ascending."""
        return self.u * self.num_nodes + self.v

    @cached_property
    def number(self) -> Tensor:
        """Number of each pair, ascending; cached."""
        return self.u * (2 * self.num_nodes - self.u - 1) // 2 + self.v - self.u - 1

    def check_graph(self, num_nodes: int) -> None:
        """Raise unless the graph of the pairs has this number of nodes."""
        if self.num_nodes != num_nodes:
            raise ValueError(f"expected pairs of a graph of {num_nodes} nodes, got {self.num_nodes}")

    def __len__(self) -> int:
        return self.u.numel()

    def __getitem__(self, selection: Tensor) -> Pairs:
        """Select pairs by a mask or by ascending positions."""
        return Pairs(self.u[selection], self.v[selection], self.num_nodes)


def contained(key: Tensor, ascending: Tensor) -> Tensor:
    """Return a mask of the keys that occur in ``ascending``, a sorted tensor."""
    if not ascending.numel():
        return torch.zeros_like(key, dtype=torch.bool)
    return ascending[torch.searchsorted(ascending, key).clamp_(max=ascending.numel() - 1)] == key


class EdgeSet:
    """Undirected edges of a graph as pairs.

    Args:
        edge_index: Both directions of every edge, shape ``[2, edges]``.
        num_nodes: Number of nodes.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        row, col = edge_index
        self.num_nodes = num_nodes
        self.key: Tensor = (row * num_nodes + col)[row < col].sort().values
        self._last: tuple[Pairs, Tensor, Tensor] | None = None

    @cached_property
    def number(self) -> Tensor:
        """Number of every edge, ascending."""
        return Pairs.from_key(self.key, self.num_nodes).number

    def apply_sign(self, values: Tensor, pairs: Pairs, *, ascending: bool) -> Tensor:
        """Negate the values of pairs that are edges; may modify ``values`` in place.

        For ascending pairs the positions of the edges are cached until the method is called for others.
        """
        if not self.key.numel() or not len(pairs):
            return values
        if not ascending or len(pairs) <= self.key.numel():
            return torch.where(contained(pairs.key, self.key), values.neg(), values)
        # Fewer edges than pairs: search the edges among the pairs.
        if self._last is None or self._last[0] is not pairs:
            number = pairs.number
            position = torch.searchsorted(number, self.number).clamp_(max=number.numel() - 1)
            sign = torch.where(number[position] == self.number, -1.0, 1.0).to(values.dtype)
            self._last = pairs, position, sign
        # Edges that are not among the pairs have an arbitrary position and factor 1.
        return values.scatter_reduce_(0, *self._last[1:], "prod")


def num_pairs(num_nodes: int) -> int:
    """Return the number of pairs of ``num_nodes`` nodes."""
    return num_nodes * (num_nodes - 1) // 2


@dataclass(frozen=True, eq=False)
class Bilinear:
    r"""Bilinear form :math:`B_u \cdot H_v + H_u \cdot B_v + \delta_u + \delta_v`.

    Args:
        b: :math:`B`, shape ``[nodes, channels]``.
        h: :math:`H`, shape ``[nodes, channels]``.
        node: :math:`\delta`, shape ``[nodes]``.
    """

    b: Tensor
    h: Tensor
    node: Tensor

    def at(self, pairs: Pairs, backend: str | None) -> Tensor:
        """Return the score of each pair."""
        return dispatch.pair_scores(self.b, self.h, self.node, pairs.u, pairs.v, backend=backend)

    def at_many(self, pairs: Pairs, backend: str | None) -> Tensor:
        """Return the scores of :meth:`at`, gathered from a table of all pairs: faster for a large fraction of them."""
        return dispatch.table_at(self.b @ self.h.T, self.node, pairs.u, pairs.v, backend=backend)

    def tile(self, rows: Tensor, cols: Tensor) -> Tensor:
        """Return the scores of all pairs of ``rows`` and ``cols`` as a matrix."""
        return reference.score_tile(self.b, self.h, self.node, rows, cols)

    @property
    def upper_bound(self) -> Tensor:
        """Upper bound on the sum of the absolute values of a score's terms."""
        terms: Tensor = self.b.norm(dim=1).amax() * self.h.norm(dim=1).amax() + self.node.abs().amax()
        return 2 * terms


@dataclass(frozen=True, eq=False)
class Attended:
    """Score of one attention head; see the formula above.

    Args:
        rule: Attention scores and sums of the head.
        b: Gradient at the output, shape ``[nodes, channels]``.
        h: Input, shape ``[nodes, channels]``.
        own: ``b[u] . o[u]`` of each node, shape ``[nodes]``.
    """

    rule: Attention
    b: Tensor
    h: Tensor
    own: Tensor

    def at(self, pairs: Pairs, backend: str | None) -> Tensor:
        """Return the score of each pair."""
        u, v = pairs.u, pairs.v
        forth = self._attention(self.rule.receiver[u] + self.rule.sender[v], u)
        back = self._attention(self.rule.receiver[v] + self.rule.sender[u], v)
        forth = forth * (dispatch.gathered_dot(self.b, self.h, u, v, backend=backend) - self.own[u])
        return forth + back * (dispatch.gathered_dot(self.b, self.h, v, u, backend=backend) - self.own[v])

    def at_many(self, pairs: Pairs, backend: str | None) -> Tensor:
        """Return the scores of :meth:`at`, gathered from a table of all pairs: faster for a large fraction of them."""
        nodes = torch.arange(self.own.numel(), device=self.own.device)
        return self.tile(nodes, nodes)[pairs.u, pairs.v]

    def tile(self, rows: Tensor, cols: Tensor) -> Tensor:
        """Return the scores of all pairs of ``rows`` and ``cols`` as a matrix."""
        return self._one_direction(rows, cols) + self._one_direction(cols, rows).T

    @property
    def upper_bound(self) -> Tensor:
        """Upper bound on the sum of the absolute values of a score's terms."""
        nodes = torch.arange(self.own.numel(), device=self.own.device)
        # Attention as a function of the sender is largest at the smallest or largest sender: if it falls, it does so before
        # it grows.
        ends = (self._attention(self.rule.receiver + end, nodes) for end in self.rule.sender.aminmax())
        largest = torch.maximum(*ends)
        terms: Tensor = largest * (self.b.norm(dim=1) * self.h.norm(dim=1).amax() + self.own.abs())
        return 2 * terms.amax()

    def _one_direction(self, receivers: Tensor, senders: Tensor) -> Tensor:
        score = self.rule.receiver[receivers][:, None] + self.rule.sender[senders]
        gain = self.b[receivers] @ self.h[senders].T - self.own[receivers][:, None]
        return self._attention(score, receivers[:, None]) * gain

    def _attention(self, score: Tensor, receivers: Tensor) -> Tensor:
        shifted = F.leaky_relu(score, self.rule.slope) - self.rule.shift[receivers]
        return shifted.clamp(max=Attention.MAX_EXPONENT).exp() / self.rule.total[receivers]


Scores = Bilinear | Attended


def assemble(calls: Sequence[Call]) -> list[Scores] | None:
    """Return the terms of the gradient from the calls of a differentiated tape, or None if a matrix has no known rule."""
    reached = [call for call in calls if call.grad_out is not None]
    if any(call.rule is None for call in reached):
        return None
    scores: list[Scores] = []
    b: list[Tensor] = []
    h: list[Tensor] = []
    node: list[Tensor] = []
    # Consecutive calls over the same matrix are scaled together.
    for rule, group in groupby(reached, key=lambda call: call.rule):
        same_rule = list(group)
        if isinstance(rule, Attention):
            scores += [_attended(rule, call) for call in same_rule]
            continue
        rule_b, rule_h, rule_node = _bilinear(rule, same_rule)
        b, h, node = [*b, rule_b], [*h, rule_h], [*node, rule_node]
    if b:
        scores.append(Bilinear(reference.join(b), reference.join(h), sum(node[1:], node[0])))
    return scores


def _bilinear(rule: object, calls: list[Call]) -> tuple[Tensor, Tensor, Tensor]:
    b, h = [_present(call.grad_out) for call in calls], [call.x for call in calls]
    if isinstance(rule, Plain):
        return reference.join(b), reference.join(h), b[0].new_zeros(b[0].size(0))
    if isinstance(rule, Averaged):
        inverse = rule.inverse.detach()
        products = sum((grad * _present(call.out)).sum(dim=1) for grad, call in zip(b, calls, strict=True))
        return reference.join(b) * inverse[:, None], reference.join(h), -rule.slope.detach() * products
    assert isinstance(rule, Normalized)
    scale = rule.scale.detach()
    out, grad_x = [_present(call.out) for call in calls], [_present(call.grad_x) for call in calls]
    scaled_b, scaled_h, products = dispatch.normalized_terms(b, h, out, grad_x, scale)
    return scaled_b, scaled_h, -0.5 * scale.square() * products


def _attended(rule: Attention, call: Call) -> Attended:
    b, out = _present(call.grad_out), _present(call.out)
    detached = Attention(
        rule.receiver.detach(), rule.sender.detach(), rule.shift.detach(), rule.total.detach(), rule.slope
    )
    return Attended(detached, b, call.x, (b * out).sum(dim=1))


def _present(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor


def pairs_among(number: Tensor, num_nodes: int, nodes: Tensor | None) -> Pairs:
    """Convert ascending linear indices to pairs; among ``nodes`` (ascending) if given, else among all nodes."""
    if nodes is None:
        return Pairs.from_number(number, num_nodes)
    local = Pairs.from_number(number, nodes.numel())
    return Pairs(nodes[local.u], nodes[local.v], num_nodes)


def numbers_among(pairs: Pairs, nodes: Tensor | None) -> Tensor:
    """Convert pairs to ascending linear indices; among ``nodes`` (ascending) if given, else among all nodes."""
    if nodes is None:
        return pairs.number
    return Pairs(torch.searchsorted(nodes, pairs.u), torch.searchsorted(nodes, pairs.v), nodes.numel()).number
