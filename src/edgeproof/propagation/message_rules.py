r"""Rules that map edge weights to the entries of the propagated matrix.

A model propagates :math:`o = \hat A h`, where the entries :math:`\hat A_{uv}` depend on the edge weights :math:`w`. If the rule
is known, the gradient with respect to any edge weight, present or not, follows from node quantities alone (see
:mod:`edgeproof.propagation.pairs`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from edgeproof.propagation.propagate import spmm

if TYPE_CHECKING:
    from edgeproof.propagation.adjacency import Adjacency


@dataclass(frozen=True, eq=False)
class Plain:
    r"""Unchanged edge weights: :math:`\hat A_{uv} = w_{uv}`."""


@dataclass(frozen=True, eq=False)
class Normalized:
    r"""Symmetric normalization: :math:`\hat A_{uv} = s_u w_{uv} s_v`, :math:`s = d^{-1/2}`, :math:`d = w \mathbf 1`.

    At a node of degree 0 the derivative does not exist: :math:`\hat A_{uv}` grows with the square root of the first edge's
    weight. There the gradient contains only the term of the other node's degree, as in autograd.

    Args:
        scale: :math:`s`, 0 at nodes of degree 0.
    """

    scale: Tensor


@dataclass(frozen=True, eq=False)
class Averaged:
    r"""Mean over neighbors: :math:`\hat A_{uv} = w_{uv} / \max(d_u, k)`, :math:`d = w \mathbf 1`.

    With :math:`k = 0` the derivative does not exist at a node of degree 0: the first edge has the same effect whatever its
    weight. There the gradient is 0. At :math:`d_u = k > 0` the gradient is that of a growing degree, as in autograd.

    Args:
        inverse: :math:`1 / \max(d, k)`, 0 where this is infinite.
        slope: :math:`1 / d` where :math:`d \ge k`, else 0: minus the relative change of ``inverse`` with the degree.
    """

    inverse: Tensor
    slope: Tensor


@dataclass(frozen=True, eq=False)
class Attention:
    r"""Attention: :math:`\hat A_{uv} = w_{uv} e^{s_{uv} - m_u} / Z_u`, :math:`s_{uv} = \mathrm{LeakyReLU}(r_u + t_v)`.

    Args:
        receiver: :math:`r`.
        sender: :math:`t`.
        shift: :math:`m`, which cancels out.
        total: :math:`Z_u = \sum_v w_{uv} e^{s_{uv} - m_u}`.
        slope: Negative slope of the LeakyReLU.
    """

    # Exponents are clipped here. Only pairs without an edge can exceed it.
    MAX_EXPONENT: ClassVar[float] = 60.0

    receiver: Tensor
    sender: Tensor
    shift: Tensor
    total: Tensor
    slope: float


Rule = Plain | Normalized | Averaged | Attention


class UnknownRuleError(ValueError):
    """The propagated matrix does not follow from the edge weights by a known rule."""


def attention(adjacency: Adjacency, receiver: Tensor, sender: Tensor, slope: float) -> Adjacency:
    r"""Return the attention weights :math:`\alpha_{uv} = A_{uv} e^{s_{uv}} / \sum_w A_{uw} e^{s_{uw}}`.

    Here :math:`s_{uv} = \mathrm{LeakyReLU}(r_u + t_v)`. An edge weight acts as an additive logarithm: weight 1 has no effect,
    weight 0 equals no edge.

    Args:
        adjacency: Edge weights. Every node needs at least one entry, such as a self-loop.
        receiver: :math:`r`, shape ``[nodes]``.
        sender: :math:`t`, shape ``[nodes]``.
        slope: Negative slope of the LeakyReLU.
    """
    row, col = adjacency.pattern.row, adjacency.pattern.col
    score = F.leaky_relu(receiver[row] + sender[col], slope)
    # Subtracting the largest score of a row cancels out and avoids overflow. Zero-weight entries do not count for the maximum;
    # their exponent, which only their gradient uses, is clipped to stay finite.
    masked = torch.where(adjacency.weight > 0, score.detach(), -torch.inf)
    largest = torch.full_like(receiver, -torch.inf).scatter_reduce(0, row, masked, "amax")
    raw = adjacency.with_weight(adjacency.weight * (score - largest[row]).clamp(max=Attention.MAX_EXPONENT).exp())
    total = spmm(raw, torch.ones_like(receiver)[:, None]).squeeze(1)
    rule = Attention(receiver, sender, largest, total, slope) if isinstance(adjacency.rule, Plain) else None
    return adjacency.with_weight(raw.weight / total[row], rule=rule)
