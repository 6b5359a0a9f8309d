r"""Polynomials of the normalized adjacency matrix."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgeproof.propagation import Adjacency, spmm


def normalized_adjacency(data: Data, *, self_loops: bool) -> Adjacency:
    r"""Return :math:`\hat A` of a graph in double precision, whatever the dtype of its features.

    >>> pair = Data(x=torch.zeros(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
    >>> normalized_adjacency(pair, self_loops=True).dense()
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]], dtype=torch.float64)
    """
    num_nodes = data.x.size(0)
    adjacency = Adjacency.from_edge_index(data.edge_index, num_nodes=num_nodes, dtype=torch.float64, symmetric=True)
    return adjacency.normalized(self_loops=self_loops)


def apply(gamma: Tensor, matrix: Adjacency, x: Tensor) -> Tensor:
    r"""Return :math:`\sum_k \gamma_k \hat A^k x`, computed with :math:`K` sparse products.

    Args:
        gamma: Coefficients :math:`\gamma`, shape ``[K + 1]``.
        matrix: Normalized adjacency matrix :math:`\hat A`.
        x: Columns to multiply, shape ``[nodes, columns]``.

    >>> pair = Data(x=torch.zeros(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
    >>> matrix = normalized_adjacency(pair, self_loops=False)
    >>> apply(torch.tensor([1.0, 10.0]), matrix, torch.tensor([[1.0], [0.0]]).double()).flatten()
    tensor([ 1., 10.], dtype=torch.float64)
    """
    gamma = gamma.to(x)
    total = gamma[0] * x
    for weight in gamma[1:]:
        x = spmm(matrix, x)
        total = total.addcmul_(weight, x)
    return total


def evaluate(gamma: Tensor, points: Tensor) -> Tensor:
    r"""Return :math:`\sum_k \gamma_k x^k` at each of ``points``, by Horner's rule.

    >>> evaluate(torch.tensor([1.0, 0.0, 2.0]), torch.tensor([0.0, 3.0]))
    tensor([ 1., 19.])
    """
    value = torch.zeros_like(points)
    for weight in gamma.flip(0):
        value = value * points + weight
    return value
