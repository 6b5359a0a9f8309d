"""Total diffusion matrix of a model: how strongly each node's output depends on each node's hidden state."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof._checks import Nodes, as_ids, check_data, node_ids
from edgeproof.analysis import polynomial
from edgeproof.analysis.coefficients import Coefficients, coefficients

# The full matrix of a larger graph takes more than a gigabyte.
_MAX_NODES = 10_000


def diffusion(model: nn.Module | Coefficients, data: Data, nodes: Nodes | None = None) -> Tensor:
    r"""Return rows of the total diffusion matrix :math:`T = \sum_k \gamma_k \hat A^k`.

    :math:`T_{uv}` is the weight of the hidden state of :math:`v` in the logits of :math:`u`. The coefficients are normalized as
    by :func:`coefficients`, so matrices of different models are comparable. :math:`T` is symmetric, so its rows equal its
    columns, which are computed with :math:`K` sparse products.

    Args:
        model: Model or coefficients, see :func:`coefficients`.
        data: Graph.
        nodes: Nodes of the rows: ids in the order to return, or a boolean mask. Default: all nodes, for graphs of at most
            10,000 nodes.

    Returns:
        Rows in double precision on the device of the graph, shape ``[rows, nodes]``. Memory is a small multiple of that.

    >>> data = Data(x=torch.zeros(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
    >>> diffusion(Coefficients.of([2.0, 1.0, 1.0], self_loops=False), data)
    tensor([[0.7500, 0.2500],
            [0.2500, 0.7500]], dtype=torch.float64)
    """
    check_data(data, labels=False)
    num_nodes = data.x.size(0)
    if nodes is not None:
        nodes = node_ids(nodes, data)
    elif num_nodes > _MAX_NODES:
        raise ValueError(f"expected nodes (the rows to compute) for a graph of more than {_MAX_NODES} nodes, got None")
    else:
        nodes = torch.arange(num_nodes)
    model_filter = coefficients(model)
    matrix = polynomial.normalized_adjacency(data, self_loops=model_filter.self_loops)
    unit = matrix.weight.new_zeros(num_nodes, nodes.numel())
    unit[nodes.to(unit.device), torch.arange(nodes.numel(), device=unit.device)] = 1
    return polynomial.apply(model_filter.gamma, matrix, unit).T


def self_influence(rows: Tensor, nodes: Nodes | None = None) -> float:
    r"""Return the mean over rows of :math:`|T_{uu}| / \sum_v |T_{uv}|`, the weight of a node's own hidden state.

    It is 1 for a model that ignores the graph. An all-zero row counts as 1.

    Args:
        rows: Rows from :func:`diffusion`.
        nodes: Nodes of the rows: ids, or a boolean mask. Default: all nodes.

    >>> self_influence(torch.tensor([[0.75, 0.25], [-0.5, 0.5]]))
    0.625
    """
    nodes = torch.arange(rows.size(0)) if nodes is None else as_ids(nodes, rows.size(1))
    if nodes.numel() != rows.size(0):
        raise ValueError(f"expected one node per row, {rows.size(0)} in total, got {nodes.numel()} nodes")
    magnitude = rows.abs()
    diagonal = magnitude.gather(1, nodes.to(rows.device)[:, None]).squeeze(1)
    total = magnitude.sum(dim=1)
    # Rows of isolated nodes can be all zero.
    return float(torch.where(total > 0, diagonal / total, 1.0).mean())
