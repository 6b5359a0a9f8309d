r"""Messages along weighted edges, differentiable in the messages and in the weights.

With :math:`O = A H` and an upstream gradient :math:`G = \partial L / \partial O`,

.. math::
    \frac{\partial L}{\partial H} = A^\top G, \qquad
    \frac{\partial L}{\partial A_{uv}} = \langle G_u, H_v \rangle,

so two kernels are all it takes: a sparse-dense product and a gathered dot product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgeproof.propagation.kernels import dispatch

if TYPE_CHECKING:
    from edgeproof.propagation.adjacency import Adjacency, Pattern


def propagate(adjacency: Adjacency, x: Tensor, *, backend: str | None = None) -> Tensor:
    r"""One step of message passing, :math:`o_u = \sum_v A_{uv} x_v`.

    Args:
        adjacency: the weighted graph over ``n`` nodes.
        x: what each node says, shape ``[n, channels]``.
        backend: the kernels to use; by default the fastest that this machine and these inputs allow.

    Returns:
        What each node hears, shape ``[n, channels]``.

    >>> from edgeproof.propagation import Adjacency
    >>> path = Adjacency.from_edge_index(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
    >>> propagate(path, torch.tensor([[1.0], [10.0], [100.0]]))
    tensor([[ 10.],
            [101.],
            [ 10.]])
    """
    return spmm(adjacency, x, backend=backend)


def spmm(adjacency: Adjacency, x: Tensor, *, backend: str | None = None) -> Tensor:
    """The product behind :func:`propagate`, for sums that are no messages (such as degrees)."""
    if x.dim() != 2 or x.size(0) != adjacency.num_nodes:
        raise ValueError(f"expected x of shape [{adjacency.num_nodes}, channels], got {list(x.shape)}")
    out: Tensor = _SpMM.apply(adjacency.weight, x, adjacency.pattern, backend)  # type: ignore[no-untyped-call]
    return out


class _SpMM(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: Tensor, pattern: Pattern, backend: str | None) -> Tensor:
        ctx.save_for_backward(weight, x)
        ctx.pattern, ctx.backend = pattern, backend
        return dispatch.spmm(pattern.rowptr, pattern.col, weight, x, backend=backend)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        weight, x = ctx.saved_tensors
        pattern: Pattern = ctx.pattern
        grad_weight = grad_x = None
        if ctx.needs_input_grad[0]:
            grad_weight = dispatch.gathered_dot(grad, x, pattern.row, pattern.col, backend=ctx.backend)
        if ctx.needs_input_grad[1]:
            flipped, where = pattern.transposed
            grad_x = dispatch.spmm(flipped.rowptr, flipped.col, weight[where], grad, backend=ctx.backend)
        return grad_weight, grad_x, None, None
