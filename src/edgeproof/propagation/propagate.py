r"""Message passing along weighted edges, differentiable in the features and in the weights.

With :math:`O = A H` and an upstream gradient :math:`G = \partial L / \partial O`,

.. math::
    \frac{\partial L}{\partial H} = A^\top G, \qquad
    \frac{\partial L}{\partial A_{uv}} = \langle G_u, H_v \rangle,

so forward and backward need two kernels: a sparse-dense product and a gathered dot product.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgeproof.kernels import dispatch

if TYPE_CHECKING:
    from edgeproof.propagation.adjacency import Adjacency, Pattern
    from edgeproof.propagation.message_rules import Rule


def propagate(adjacency: Adjacency, x: Tensor, *, backend: str | None = None) -> Tensor:
    r"""Run one step of message passing, :math:`o_u = \sum_v A_{uv} x_v`.

    Args:
        adjacency: Weighted graph of ``n`` nodes.
        x: Features, shape ``[n, channels]``.
        backend: Kernel backend. Default: the fastest that supports the inputs.

    Returns:
        Aggregated messages, shape ``[n, channels]``.

    >>> from edgeproof.propagation import Adjacency
    >>> path = Adjacency.from_edge_index(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
    >>> propagate(path, torch.tensor([[1.0], [10.0], [100.0]]))
    tensor([[ 10.],
            [101.],
            [ 10.]])
    """
    tape = _tape.get()
    return _spmm(adjacency, x, backend, None if tape is None else tape.record(adjacency.rule, x))


def spmm(adjacency: Adjacency, x: Tensor, *, backend: str | None = None) -> Tensor:
    """Compute the product of :func:`propagate` without recording it, for sums that are not messages (such as degrees)."""
    return _spmm(adjacency, x, backend, None)


@dataclass
class Call:
    """Inputs, outputs and gradients of one call of :func:`propagate`.

    Args:
        rule: How the matrix follows from edge weights. None if unknown.
        x: Input :math:`h`.
        out: Output :math:`o = A h`.
        grad_out: Gradient :math:`b = \\partial L / \\partial o`. None if the loss does not depend on the output.
        grad_x: Gradient :math:`A^\\top b` with respect to the input.
    """

    rule: Rule | None
    x: Tensor
    out: Tensor | None = None
    grad_out: Tensor | None = None
    grad_x: Tensor | None = None


class Tape:
    """Context manager that records every call of :func:`propagate`, and its gradients once the loss is differentiated.

    >>> from edgeproof.propagation import Adjacency
    >>> pair = Adjacency.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=2, symmetric=True)
    >>> with Tape() as tape:
    ...     loss = propagate(pair, torch.tensor([[1.0], [2.0]])).square().sum()
    >>> tape.differentiate(loss)
    >>> tape.calls[0].grad_out
    tensor([[4.],
            [2.]])
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        # Input of every recorded call: differentiating with respect to it visits all calls, even those on constants.
        self.anchor = torch.zeros((), requires_grad=True)

    def record(self, rule: Rule | None, x: Tensor) -> tuple[Call, Tensor]:
        """Append a call and return it with the anchor, which its autograd function must take as an input."""
        call = Call(rule, x.detach())
        self.calls.append(call)
        return call, self.anchor

    def differentiate(self, loss: Tensor) -> None:
        """Fill in the gradients of all calls."""
        if loss.requires_grad:
            torch.autograd.grad(loss, self.anchor, allow_unused=True)

    def __enter__(self) -> Tape:
        self._token = _tape.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _tape.reset(self._token)


_tape: ContextVar[Tape | None] = ContextVar("tape", default=None)


def current_tape() -> Tape | None:
    """Return the active tape, or None. For operations whose gradient has the form of a call of :func:`propagate`."""
    return _tape.get()


def _spmm(adjacency: Adjacency, x: Tensor, backend: str | None, recorded: tuple[Call, Tensor] | None) -> Tensor:
    if x.dim() != 2 or x.size(0) != adjacency.num_nodes:
        raise ValueError(f"expected x of shape [{adjacency.num_nodes}, channels], got {list(x.shape)}")
    call, anchor = (None, None) if recorded is None else recorded
    out: Tensor = _SpMM.apply(adjacency.weight, x, anchor, adjacency, backend, call)  # type: ignore[no-untyped-call]
    return out


class _SpMM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        x: Tensor,
        anchor: Tensor | None,
        adjacency: Adjacency,
        backend: str | None,
        call: Call | None,
    ) -> Tensor:
        ctx.save_for_backward(weight, x)
        ctx.adjacency, ctx.backend, ctx.call = adjacency, backend, call
        out = _product(adjacency.pattern, weight, x, backend)
        if call is not None:
            call.out = out.detach()
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None, None]:
        weight, x = ctx.saved_tensors
        adjacency: Adjacency = ctx.adjacency
        call: Call | None = ctx.call
        pattern = adjacency.pattern
        grad_weight = grad_x = None
        if ctx.needs_input_grad[0]:
            grad_weight = dispatch.gathered_dot(grad, x, pattern.row, pattern.col, backend=ctx.backend)
        if ctx.needs_input_grad[1] or call is not None:
            if pattern.complete:
                grad_x = weight.view(pattern.num_nodes, pattern.num_nodes).T @ grad
            else:
                if not adjacency.symmetric:
                    pattern, order = pattern.transposed
                    weight = weight[order]
                grad_x = _product(pattern, weight, grad, ctx.backend)
        if call is not None:
            call.grad_out, call.grad_x = grad, grad_x
        return grad_weight, grad_x, None, None, None, None


def _product(pattern: Pattern, weight: Tensor, x: Tensor, backend: str | None) -> Tensor:
    if pattern.complete:
        return weight.view(pattern.num_nodes, pattern.num_nodes) @ x
    return dispatch.spmm(*pattern.indices, weight, x, longest=pattern.longest, backend=backend)
