r"""How an entry of the propagated matrix follows from the weight of its edge.

A model propagates :math:`o = \hat A h` with entries :math:`\hat A_{uv}` that depend on the edge weights :math:`w`.
Whoever knows the rule behind :math:`\hat A` knows the gradient of any edge weight, in the graph or not, from node
quantities alone (see :mod:`~edgeproof.propagation.pair_scores`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Plain:
    r"""The weight itself: :math:`\hat A_{uv} = w_{uv}`."""


@dataclass(frozen=True, eq=False)
class Normalized:
    r"""Symmetric normalisation: :math:`\hat A_{uv} = s_u w_{uv} s_v`, :math:`s = d^{-1/2}`, :math:`d = w \mathbf 1`.

    At a node of degree 0 the derivative does not exist: :math:`\hat A_{uv}` grows with the root of the first edge's weight.
    The gradient is then that of the other end's degree alone, which is also what autograd gives here.

    Args:
        scale: :math:`s`, 0 for a node of degree 0.
    """

    scale: Tensor


@dataclass(frozen=True, eq=False)
class Averaged:
    r"""Means over neighbours: :math:`\hat A_{uv} = w_{uv} / d_u`, :math:`d = w \mathbf 1`.

    A node of degree 0 hears nothing; its first edge, however light, is heard in full, so no derivative exists there, and the
    gradient is 0.

    Args:
        inverse: :math:`1 / d`, 0 for a node of degree 0.
    """

    inverse: Tensor


@dataclass(frozen=True, eq=False)
class Attention:
    r"""Attention: :math:`\hat A_{uv} = w_{uv} e^{s_{uv} - m_u} / Z_u`, :math:`s_{uv} = \mathrm{LeakyReLU}(r_u + t_v)`.

    Args:
        receiver: :math:`r`.
        sender: :math:`t`.
        shift: :math:`m`, which cancels out.
        total: :math:`Z_u = \sum_v w_{uv} e^{s_{uv} - m_u}`.
        slope: of the leaky part.
    """

    # An exponent beyond this is cut off: only a pair that is no edge can have one.
    MOST: ClassVar[float] = 60.0

    receiver: Tensor
    sender: Tensor
    shift: Tensor
    total: Tensor
    slope: float


Rule = Plain | Normalized | Averaged | Attention


class UnknownRuleError(ValueError):
    """A model propagates over a matrix that does not follow from edge weights in a known way."""
