r"""Personalised PageRank (graph diffusion; Gasteiger et al., NeurIPS 2019), with the gradient of every edge behind it.

The diffusion :math:`\Pi = \alpha (I - (1 - \alpha) \hat A)^{-1}` has an entry for every two nodes that a path joins, of which
each node keeps the largest. With :math:`G` the gradient at the entries kept, and 0 at all others,

.. math::
    \frac{\partial L}{\partial \hat A} = \frac{1 - \alpha}{\alpha} \, \Pi^\top G \, \Pi^\top,

which is wanted at the entries of :math:`\hat A` only. A small graph inverts the matrix. A larger one never holds all of
:math:`\Pi`: it solves for some nodes at a time, forwards and backwards.

That gradient has the form of one call of :func:`~edgeproof.propagation.propagate`, with as many channels as nodes:
:math:`\langle b_u, h_v \rangle` with :math:`h = \Pi` and :math:`b = \tfrac{1 - \alpha}{\alpha} \Pi^\top G`, and
:math:`(1 - \alpha) \hat A \Pi = \Pi - \alpha I` gives the rest of what a tape records. So small graphs have the gradient of
any pair, in the graph or not, from node quantities.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from edgeproof.kernels import dispatch
from edgeproof.propagation.adjacency import Adjacency
from edgeproof.propagation.message_rules import UnknownRuleError
from edgeproof.propagation.propagate import Call, current_tape

# Up to so many nodes the matrix is inverted.
_SMALL_GRAPH = 5_000
# Numbers of a block of columns: as many as a CPU's cache can work with.
_BLOCK = 1 << 21
# Entries count as equal if they differ by no more than so many units of rounding.
_SLACK = 4


def top_ppr(adjacency: Adjacency, alpha: float, k: int) -> tuple[Tensor, Tensor]:
    r"""The ``k`` largest entries in every row of :math:`\Pi = \alpha (I - (1 - \alpha) \hat A)^{-1}`.

    Differentiable in the weights of the adjacency, but for the choice of the entries: what is not among the largest has no
    gradient. Entries that equal the ``k``-th largest up to rounding are taken in ascending order of their nodes, and so are
    entries of 0, where a row has fewer others than ``k``. Constant weights are diffused once and remembered, as long as the
    adjacency lives; weights that need a gradient are diffused on every call.

    Args:
        adjacency: :math:`\hat A`, without negative weights and with no eigenvalue beyond 1, as normalised matrices are.
        alpha: the chance to return to the start in every step.
        k: entries per row; in a graph of fewer nodes all of them are kept.

    Returns:
        The entries, shape ``[nodes, k]``, and their columns, ascending in each row, of the same shape.

    >>> path = Adjacency.from_edge_index(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
    >>> values, index = top_ppr(path.normalized(self_loops=True), alpha=0.5, k=2)
    >>> values
    tensor([[0.7179, 0.1884],
            [0.1884, 0.6923],
            [0.1884, 0.7179]])
    >>> index
    tensor([[0, 1],
            [0, 1],
            [1, 2]])
    """
    if not isinstance(alpha, (int, float)) or not 0 < alpha < 1:
        raise ValueError(f"expected 0 < alpha < 1, got {alpha!r}")
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise ValueError(f"expected k to be a whole number >= 1, got {k!r}")
    tape = current_tape()
    if tape is not None:
        if adjacency.num_nodes > _SMALL_GRAPH:
            # As many channels as nodes are too many to keep; and better no gradient at all than one without the diffusion.
            raise UnknownRuleError(
                f"the diffusion of more than {_SMALL_GRAPH:,} nodes has no shortcut to its gradient: use path='autograd'"
            )
        return _diffuse(adjacency, alpha, k, *tape.record(adjacency.rule, adjacency.weight))
    if adjacency.weight.requires_grad:
        return _diffuse(adjacency, alpha, k)
    remembered = _REMEMBERED.setdefault(adjacency, {})
    if (alpha, k) not in remembered:
        # What is remembered must not be marked as belonging to the inference-mode block that it came up in.
        with torch.inference_mode(False):
            remembered[alpha, k] = _diffuse(adjacency, alpha, k)
    return remembered[alpha, k]


# What became of adjacencies with constant weights, by alpha and k.
_REMEMBERED: WeakKeyDictionary[Adjacency, dict[tuple[float, int], tuple[Tensor, Tensor]]] = WeakKeyDictionary()


def _diffuse(
    adjacency: Adjacency, alpha: float, k: int, call: Call | None = None, anchor: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    arguments = adjacency.weight, adjacency, alpha, min(k, adjacency.num_nodes)
    if adjacency.num_nodes <= _SMALL_GRAPH:
        values, index = _Inverse.apply(*arguments, call, anchor)  # type: ignore[no-untyped-call]
    else:
        values, index = _Blocks.apply(*arguments)  # type: ignore[no-untyped-call]
    return values, index


class _Inverse(torch.autograd.Function):
    """For small graphs: all of the matrix."""

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, adjacency: Adjacency, alpha: float, k: int, call: Call | None, _: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        dense = adjacency.with_weight(weight).dense()
        system = torch.eye(len(dense), dtype=dense.dtype, device=dense.device) - (1 - alpha) * dense
        # With no eigenvalue of the adjacency beyond 1 it is positive definite where it is symmetric, and half the work.
        pi = torch.cholesky_inverse(torch.linalg.cholesky(system)) if adjacency.symmetric else torch.linalg.inv(system)
        pi *= alpha
        values, index = _largest(pi, k)
        ctx.save_for_backward(pi, index)
        ctx.mark_non_differentiable(index)
        ctx.pattern, ctx.alpha, ctx.call = adjacency.pattern, alpha, call
        return values, index

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, None, None, None, None, None]:
        pi, index = ctx.saved_tensors
        alpha, call = ctx.alpha, ctx.call
        kept = torch.zeros_like(pi).scatter_(1, index, grad).mul_((1 - alpha) / alpha)
        blame = pi.T @ kept
        if call is not None:
            call.x, call.out = pi, (pi - alpha * torch.eye(len(pi), dtype=pi.dtype, device=pi.device)) / (1 - alpha)
            call.grad_out, call.grad_x = blame, (blame - alpha * kept) / (1 - alpha)
        gradient = (blame @ pi.T)[ctx.pattern.row, ctx.pattern.col] if ctx.needs_input_grad[0] else None
        return gradient, None, None, None, None, None


class _Blocks(torch.autograd.Function):
    """For larger graphs: some columns at a time."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, adjacency: Adjacency, alpha: float, k: int) -> tuple[Tensor, Tensor]:
        adjacency = _constant(adjacency, weight)
        # Rows of the matrix are columns of its transpose.
        turned = adjacency.transposed
        found = [_largest(_solve(turned, alpha, _unit(turned, nodes)).T, k) for nodes in _blocks(adjacency)]
        index = torch.cat([block_index for _, block_index in found])
        ctx.save_for_backward(index)
        ctx.mark_non_differentiable(index)
        ctx.adjacency, ctx.alpha = adjacency, alpha
        return torch.cat([values for values, _ in found]), index

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        (index,) = ctx.saved_tensors
        adjacency: Adjacency = ctx.adjacency
        turned, pattern = adjacency.transposed, adjacency.pattern
        gradient = torch.zeros_like(adjacency.weight)
        # Entry (u, v) is a sum over all nodes w of (transposed Pi times G) at (u, w), times Pi at (v, w).
        for nodes in _blocks(adjacency):
            row, slot = ((index >= nodes[0]) & (index <= nodes[-1])).nonzero(as_tuple=True)
            kept = torch.zeros_like(_unit(adjacency, nodes))
            kept[row, index[row, slot] - nodes[0]] = grad[row, slot]
            blame = _solve(turned, ctx.alpha, kept)
            reach = _solve(adjacency, ctx.alpha, _unit(adjacency, nodes))
            gradient += dispatch.gathered_dot(blame, reach, pattern.row, pattern.col)
        return (1 - ctx.alpha) / ctx.alpha * gradient, None, None, None


def _largest(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` largest values of every row and their columns, ascending; of equal values those in the first columns."""
    last = rows.topk(k, dim=1).values[:, -1:]
    slack = _SLACK * torch.finfo(rows.dtype).eps
    beyond = rows > last + slack
    equal = (rows >= last - slack) & ~beyond
    room = k - beyond.sum(dim=1, keepdim=True)
    kept = beyond | (equal & (equal.cumsum(dim=1) <= room))
    index = kept.nonzero()[:, 1].view(-1, k)
    return rows.gather(1, index), index


def _solve(adjacency: Adjacency, alpha: float, right: Tensor) -> Tensor:
    r"""The solution :math:`X` of :math:`(I - (1 - \alpha) \hat A) X = \alpha R` by Chebyshev's iteration, to rounding.

    With :math:`\rho = 1 - \alpha`, :math:`X_{t+1} = X_{t-1} + \omega_t (\rho \hat A X_t + \alpha R - X_{t-1})`. A symmetric
    matrix has real eigenvalues, for which :math:`\omega_{t+1} = 1 / (1 - \rho^2 \omega_t / 4)` errs by
    :math:`(\rho / (1 + \sqrt{1 - \rho^2}))^t`; otherwise :math:`\omega_t = 1`, the power iteration, errs by :math:`\rho^t`.
    """
    rho, pattern = 1 - alpha, adjacency.pattern
    rate = rho / (1 + math.sqrt(1 - rho**2)) if adjacency.symmetric else rho
    steps = math.ceil(math.log(torch.finfo(right.dtype).eps) / math.log(rate))
    source = alpha * right
    before, now, omega = torch.zeros_like(source), source, 1.0
    for step in range(steps):
        if adjacency.symmetric:
            omega = 1 / (1 - rho**2 * omega / (2 if step == 0 else 4))
        heard = dispatch.spmm(*pattern.indices, adjacency.weight, now, longest=pattern.longest)
        before, now = now, heard.mul_(rho).add_(source).sub_(before).mul_(omega).add_(before)
    return now


def _constant(adjacency: Adjacency, weight: Tensor) -> Adjacency:
    """With weights that need no gradient, and known to be symmetric if it is, whether or not anyone said so."""
    symmetric, pattern = adjacency.symmetric, adjacency.pattern
    if not symmetric:
        turned, where = pattern.transposed
        symmetric = torch.equal(turned.rowptr, pattern.rowptr) and torch.equal(turned.col, pattern.col)
        # Normalised weights are symmetric up to the order of two products.
        slack = _SLACK * torch.finfo(weight.dtype).eps
        symmetric = symmetric and bool(((weight[where] - weight).abs() <= slack * weight).all())
    return adjacency.with_weight(weight.detach(), symmetric=symmetric)


def _blocks(adjacency: Adjacency) -> Iterator[Tensor]:
    """All nodes, so many at a time that a column for each is within bounds."""
    nodes = torch.arange(adjacency.num_nodes, device=adjacency.weight.device)
    return iter(nodes.split(max(1, _BLOCK // adjacency.num_nodes)))


def _unit(adjacency: Adjacency, nodes: Tensor) -> Tensor:
    """The columns of the identity that belong to these nodes."""
    columns = adjacency.weight.new_zeros(adjacency.num_nodes, nodes.numel())
    return columns.index_put_((nodes, torch.arange(nodes.numel(), device=nodes.device)), columns.new_ones(()))
