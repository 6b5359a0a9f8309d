"""Attention over weighted edges."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from edgeproof.propagation.adjacency import Adjacency
from edgeproof.propagation.message_rules import Attention, Plain
from edgeproof.propagation.propagate import spmm


def attention(adjacency: Adjacency, receiver: Tensor, sender: Tensor, slope: float) -> Adjacency:
    r"""The weights :math:`\alpha_{uv} = A_{uv} e^{s_{uv}} / \sum_w A_{uw} e^{s_{uw}}` from each node's two scores.

    Here :math:`s_{uv} = \mathrm{LeakyReLU}(r_u + t_v)`. A weight enters as its logarithm: 1 changes nothing, 0 is no edge.

    Args:
        adjacency: the edges' weights; every node needs one, such as a self-loop.
        receiver: :math:`r`, shape ``[nodes]``.
        sender: :math:`t`, shape ``[nodes]``.
        slope: of the leaky part.
    """
    row, col = adjacency.pattern.row, adjacency.pattern.col
    score = F.leaky_relu(receiver[row] + sender[col], slope)
    # The largest score of a row's edges cancels out; subtracting it keeps exp from overflowing. Entries of weight 0 are no
    # edges: they have no say in it, and their own exp, which only their gradient sees, is kept finite.
    counted = torch.where(adjacency.weight > 0, score.detach(), -torch.inf)
    largest = torch.full_like(receiver, -torch.inf).scatter_reduce(0, row, counted, "amax")
    raw = adjacency.with_weight(adjacency.weight * (score - largest[row]).clamp(max=Attention.MOST).exp())
    total = spmm(raw, torch.ones_like(receiver)[:, None]).squeeze(1)
    rule = Attention(receiver, sender, largest, total, slope) if isinstance(adjacency.rule, Plain) else None
    return adjacency.with_weight(raw.weight / total[row], rule=rule)
