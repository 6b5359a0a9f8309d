"""The spatial view of a model: how much each node hears from each other."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof._checks import check_data, check_nodes
from edgeproof.analysis import polynomial
from edgeproof.analysis.coefficients import Coefficients, coefficients

# The whole matrix of more nodes than these takes a gigabyte and is nothing to look at.
_MAX_WHOLE = 10_000


def diffusion(model: nn.Module | Coefficients, data: Data, nodes: Tensor | None = None) -> Tensor:
    r"""Rows of the total diffusion matrix :math:`T = \sum_k \gamma_k \hat A^k`.

    :math:`T_{uv}` says how strongly the logits of :math:`u` depend on the hidden states of :math:`v`. The coefficients have the
    sign and size of :func:`coefficients`, so that matrices of different models compare. :math:`T` is symmetric: its rows are
    its columns, which :math:`K` sparse products give.

    Args:
        model: see :func:`coefficients`.
        data: the graph.
        nodes: which rows, in this order; all by default, on graphs of up to 10,000 nodes.

    Returns:
        Shape ``[rows, nodes]``, double precision, on the graph's device. Memory is a few times that, never its square.

    >>> data = Data(x=torch.zeros(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
    >>> diffusion(Coefficients.of([2.0, 1.0, 1.0], self_loops=False), data)
    tensor([[0.7500, 0.2500],
            [0.2500, 0.7500]], dtype=torch.float64)
    """
    check_data(data, labels=False)
    num_nodes = data.x.size(0)
    if nodes is not None:
        check_nodes(nodes, data)
    elif num_nodes > _MAX_WHOLE:
        raise ValueError(f"expected nodes, the rows to compute, for a graph of more than {_MAX_WHOLE} nodes, got none")
    else:
        nodes = torch.arange(num_nodes)
    found = coefficients(model)
    matrix = polynomial.normalized_adjacency(data, self_loops=found.self_loops)
    unit = matrix.weight.new_zeros(num_nodes, nodes.numel())
    unit[nodes.to(unit.device), torch.arange(nodes.numel(), device=unit.device)] = 1
    return polynomial.times(found.gamma, matrix, unit).T


def own_share(rows: Tensor, nodes: Tensor | None = None) -> float:
    r"""How much nodes listen to themselves: the mean over rows of :math:`|T_{uu}| / \sum_v |T_{uv}|`.

    It is 1 for a model that ignores the graph.

    Args:
        rows: from :func:`diffusion`.
        nodes: the nodes that the rows belong to, by default all.

    >>> own_share(torch.tensor([[0.75, 0.25], [-0.5, 0.5]]))
    0.625
    """
    nodes = torch.arange(rows.size(0)) if nodes is None else nodes
    if nodes.numel() != rows.size(0):
        raise ValueError(f"expected the node of each of {rows.size(0)} rows, got {nodes.numel()} nodes")
    sizes = rows.abs()
    own = sizes.gather(1, nodes.to(rows.device)[:, None]).squeeze(1)
    total = sizes.sum(dim=1)
    # A node that hears nothing at all, which an isolated one can, hears nothing from others.
    return float(torch.where(total > 0, own / total, 1.0).mean())
