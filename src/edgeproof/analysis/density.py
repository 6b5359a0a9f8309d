"""Eigenvalue densities of large graphs by the kernel polynomial method (Weiße et al., Rev. Mod. Phys. 2006)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from edgeproof.propagation import Adjacency, spmm


def chebyshev_moments(matrix: Adjacency, num_moments: int, *, num_vectors: int, generator: torch.Generator) -> Tensor:
    r"""Estimate :math:`m_k = \frac 1 n \operatorname{tr} T_k(\hat A)` for :math:`k < N`.

    Hutchinson's estimator with random signs :math:`z`, :math:`E[z^\top T_k(\hat A) z] = \operatorname{tr} T_k(\hat A)`. By
    :math:`2 T_k T_l = T_{k+l} + T_{|k-l|}` the moments :math:`2k - 1` and :math:`2k` follow from :math:`T_k(\hat A) z` and
    :math:`T_{k-1}(\hat A) z`, which halves the number of products. Memory: three times ``num_vectors`` vectors.

    Args:
        matrix: Symmetric matrix with eigenvalues between -1 and 1.
        num_moments: Number of moments :math:`N`.
        num_vectors: Number of random vectors to average over.
        generator: Random generator on the device of the matrix.

    Returns:
        The moments, shape ``[num_moments]``; :math:`m_0 = 1` exactly.

    >>> pair = Adjacency.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=2, dtype=torch.float64, symmetric=True)
    >>> chebyshev_moments(pair, 5, num_vectors=1, generator=torch.Generator().manual_seed(0))[::2]
    tensor([1., 1., 1.], dtype=torch.float64)
    """
    shape, device = (matrix.num_nodes, num_vectors), matrix.weight.device
    # T_{k-1}(A) z and T_k(A) z.
    previous = 2.0 * torch.randint(2, shape, generator=generator, device=device).to(matrix.weight) - 1
    current = spmm(matrix, previous)
    moments = [previous.new_ones(()), (previous * current).mean()]
    while len(moments) < num_moments:
        moments.append(2 * (current * current).mean() - moments[0])
        previous, current = current, 2 * spmm(matrix, current) - previous
        moments.append(2 * (current * previous).mean() - moments[1])
    return torch.stack(moments[:num_moments])


def jackson_kernel(num_moments: int) -> Tensor:
    r"""Return the Jackson damping factors, which keep the density positive: with :math:`q = \pi / (N + 1)`,

    .. math::
        J_k = \frac{(N - k + 1) \cos(k q) + \sin(k q) \cot q}{N + 1}.

    >>> jackson_kernel(3)
    tensor([1.0000, 0.7071, 0.2500], dtype=torch.float64)
    """
    k = torch.arange(num_moments, dtype=torch.float64)
    q = math.pi / (num_moments + 1)
    return ((num_moments - k + 1) * torch.cos(k * q) + torch.sin(k * q) / math.tan(q)) / (num_moments + 1)


def bin_fractions(moments: Tensor, num_bins: int) -> Tensor:
    r"""Return the fraction of the eigenvalues of :math:`I - \hat A` in each of equal bins of [0, 2].

    With :math:`\lambda = 1 - \cos \theta` the damped density in :math:`\theta` is

    .. math::
        \frac 1 \pi \Bigl(1 + 2 \sum_{k \ge 1} J_k m_k \cos k \theta\Bigr),

    and bins are integrated in closed form. The fractions are non-negative and sum to 1. Each eigenvalue is smeared over
    :math:`\theta \pm \pi / N`.

    >>> bin_fractions(torch.tensor([1.0, 0.0]), 2)
    tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    k = torch.arange(1, moments.numel(), dtype=torch.float64)
    theta = torch.arccos(1 - torch.linspace(0, 2, num_bins + 1, dtype=torch.float64))
    damped = (jackson_kernel(moments.numel()) * moments.double().cpu())[1:]
    integral = (theta + 2 * torch.sin(theta[:, None] * k) @ (damped / k)) / math.pi
    return integral.diff()
