r"""The gradient of every pair's weight, from node quantities alone.

Let a model touch the graph through calls :math:`o_k = \hat A h_k` only, with :math:`b_k = \partial L / \partial o_k`. For an
edge weight :math:`w_{uv} = w_{vu}`, present or not,

- **plain** (:math:`\hat A = w`): :math:`\partial L / \partial w_{uv} = \sum_k b_k[u] \cdot h_k[v] + h_k[u] \cdot b_k[v]`;
- **normalised** (:math:`\hat A_{uv} = s_u w_{uv} s_v`, :math:`s = d^{-1/2}`): the same with :math:`s_u b_k[u]` and
  :math:`s_u h_k[u]` in place of :math:`b_k[u]` and :math:`h_k[u]`, plus :math:`\delta_u + \delta_v` for the two degrees, where
  :math:`\delta_u = -\tfrac{1}{2} s_u^2 \sum_k ( b_k[u] \cdot o_k[u] + (\hat A^\top b_k)[u] \cdot h_k[u] )`;
- **averaged** (:math:`\hat A_{uv} = w_{uv} / d_u`): the same with :math:`b_k[u] / d_u` in place of :math:`b_k[u]`, and
  :math:`\delta_u = -\tfrac{1}{d_u} \sum_k b_k[u] \cdot o_k[u]`;
- **attention** (:math:`\hat A_{uv} = w_{uv} e_{uv} / Z_u`): :math:`e_{uv} / Z_u \; b[u] \cdot (h[v] - o[u])`, and the same
  with :math:`u` and :math:`v` exchanged.

The first three are one bilinear form :math:`B_u \cdot H_v + H_u \cdot B_v + \delta_u + \delta_v`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor
from torch.nn import functional as F

from edgeproof.kernels import dispatch, reference
from edgeproof.propagation.message_rules import Attention, Averaged, Normalized, Plain
from edgeproof.propagation.pairs import Pairs
from edgeproof.propagation.propagate import Call


@dataclass(frozen=True, eq=False)
class Bilinear:
    r""":math:`B_u \cdot H_v + H_u \cdot B_v + \delta_u + \delta_v`.

    Args:
        b: :math:`B`, shape ``[nodes, channels]``.
        h: :math:`H`, shape ``[nodes, channels]``.
        node: :math:`\delta`, shape ``[nodes]``.
    """

    b: Tensor
    h: Tensor
    node: Tensor

    def at(self, pairs: Pairs, backend: str | None) -> Tensor:
        return dispatch.pair_scores(self.b, self.h, self.node, pairs.u, pairs.v, backend=backend)

    def at_many(self, pairs: Pairs, backend: str | None) -> Tensor:
        """As :meth:`at`, by way of a table of all pairs: faster where a good part of them is asked for."""
        return dispatch.table_at(self.b @ self.h.T, self.node, pairs.u, pairs.v, backend=backend)

    def tile(self, rows: Tensor, cols: Tensor) -> Tensor:
        return reference.score_tile(self.b, self.h, self.node, rows, cols)

    @property
    def largest(self) -> Tensor:
        """What the terms of no score exceed, added up without their signs."""
        terms: Tensor = self.b.norm(dim=1).amax() * self.h.norm(dim=1).amax() + self.node.abs().amax()
        return 2 * terms


@dataclass(frozen=True, eq=False)
class Attended:
    """One attention head: see the module's text.

    Args:
        rule: the head's scores and sums.
        b: gradient at its output, shape ``[nodes, channels]``.
        h: what it attended to, shape ``[nodes, channels]``.
        own: ``b[u] . o[u]``, shape ``[nodes]``.
    """

    rule: Attention
    b: Tensor
    h: Tensor
    own: Tensor

    def at(self, pairs: Pairs, backend: str | None) -> Tensor:
        u, v = pairs.u, pairs.v
        forth = self._attention(self.rule.receiver[u] + self.rule.sender[v], u)
        back = self._attention(self.rule.receiver[v] + self.rule.sender[u], v)
        forth = forth * (dispatch.gathered_dot(self.b, self.h, u, v, backend=backend) - self.own[u])
        return forth + back * (dispatch.gathered_dot(self.b, self.h, v, u, backend=backend) - self.own[v])

    def at_many(self, pairs: Pairs, backend: str | None) -> Tensor:
        """As :meth:`at`, by way of a table of all pairs: faster where a good part of them is asked for."""
        everyone = torch.arange(self.own.numel(), device=self.own.device)
        return self.tile(everyone, everyone)[pairs.u, pairs.v]

    def tile(self, rows: Tensor, cols: Tensor) -> Tensor:
        return self._heard(rows, cols) + self._heard(cols, rows).T

    @property
    def largest(self) -> Tensor:
        """What the terms of no score exceed, added up without their signs."""
        everyone = torch.arange(self.own.numel(), device=self.own.device)
        # Attention is largest at one of the two: between them it falls, if at all, before it grows.
        ends = (self._attention(self.rule.receiver + end, everyone) for end in self.rule.sender.aminmax())
        most = torch.maximum(*ends)
        terms: Tensor = most * (self.b.norm(dim=1) * self.h.norm(dim=1).amax() + self.own.abs())
        return 2 * terms.amax()

    def _heard(self, receivers: Tensor, senders: Tensor) -> Tensor:
        score = self.rule.receiver[receivers][:, None] + self.rule.sender[senders]
        gain = self.b[receivers] @ self.h[senders].T - self.own[receivers][:, None]
        return self._attention(score, receivers[:, None]) * gain

    def _attention(self, score: Tensor, receivers: Tensor) -> Tensor:
        shifted = F.leaky_relu(score, self.rule.slope) - self.rule.shift[receivers]
        return shifted.clamp(max=Attention.MOST).exp() / self.rule.total[receivers]


Scores = Bilinear | Attended


def assemble(calls: Sequence[Call]) -> list[Scores] | None:
    """The terms of the gradient from what a tape recorded; none if some matrix follows an unknown rule."""
    reached = [call for call in calls if call.grad_out is not None]
    if any(call.rule is None for call in reached):
        return None
    scores: list[Scores] = []
    b: list[Tensor] = []
    h: list[Tensor] = []
    node: list[Tensor] = []
    # A model that propagates over one matrix many times is scaled in one piece.
    for rule, group in groupby(reached, key=lambda call: call.rule):
        same = list(group)
        if isinstance(rule, Attention):
            scores += [_attended(rule, call) for call in same]
            continue
        one_b, one_h, one_node = _bilinear(rule, same)
        b, h, node = [*b, one_b], [*h, one_h], [*node, one_node]
    if b:
        scores.append(Bilinear(reference.join(b), reference.join(h), sum(node[1:], node[0])))
    return scores


def _bilinear(rule: object, calls: list[Call]) -> tuple[Tensor, Tensor, Tensor]:
    b, h = [_known(call.grad_out) for call in calls], [call.x for call in calls]
    if isinstance(rule, Plain):
        return reference.join(b), reference.join(h), b[0].new_zeros(b[0].size(0))
    if isinstance(rule, Averaged):
        inverse = rule.inverse.detach()
        blame = sum((one * _known(call.out)).sum(dim=1) for one, call in zip(b, calls, strict=True))
        return reference.join(b) * inverse[:, None], reference.join(h), -inverse * blame
    assert isinstance(rule, Normalized)
    scale = rule.scale.detach()
    out, grad_x = [_known(call.out) for call in calls], [_known(call.grad_x) for call in calls]
    scaled_b, scaled_h, blame = dispatch.normalized_terms(b, h, out, grad_x, scale)
    return scaled_b, scaled_h, -0.5 * scale.square() * blame


def _attended(rule: Attention, call: Call) -> Attended:
    b, out = _known(call.grad_out), _known(call.out)
    detached = Attention(
        rule.receiver.detach(), rule.sender.detach(), rule.shift.detach(), rule.total.detach(), rule.slope
    )
    return Attended(detached, b, call.x, (b * out).sum(dim=1))


def _known(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor
