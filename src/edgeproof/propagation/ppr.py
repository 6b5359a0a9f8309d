r"""Personalized PageRank (graph diffusion; Gasteiger et al., NeurIPS 2019), differentiable in the edge weights.

The diffusion :math:`\Pi = \alpha (I - (1 - \alpha) \hat A)^{-1}` has an entry for every two connected nodes; only the
largest entries of each row are kept. With :math:`G` the gradient with respect to the kept entries, and 0 elsewhere,

.. math::
    \frac{\partial L}{\partial \hat A} = \frac{1 - \alpha}{\alpha} \, \Pi^\top G \, \Pi^\top,

which is needed at the entries of :math:`\hat A` only. For a small graph the matrix is inverted. For a larger graph :math:`\Pi`
is never stored as a whole: forward and backward solve for a block of columns at a time.

The gradient has the form of one call of :func:`~edgeproof.propagation.propagate` with as many channels as nodes,
:math:`\langle b_u, h_v \rangle` with :math:`h = \Pi` and :math:`b = \tfrac{1 - \alpha}{\alpha} \Pi^\top G`, and
:math:`(1 - \alpha) \hat A \Pi = \Pi - \alpha I` gives the remaining quantities of a tape. For small graphs the gradient of any
pair, present or not, therefore follows from node quantities.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from edgeproof._checks import check_int, is_number
from edgeproof.kernels import dispatch
from edgeproof.propagation.adjacency import Adjacency
from edgeproof.propagation.message_rules import UnknownRuleError
from edgeproof.propagation.propagate import Call, current_tape

# Entries are equal if they differ by at most this many units of rounding.
_SLACK = 4


def top_ppr(
    adjacency: Adjacency, alpha: float, k: int, *, dense_limit: int = 5_000, block_size: int = 1 << 21
) -> tuple[Tensor, Tensor]:
    r"""Return the ``k`` largest entries in every row of :math:`\Pi = \alpha (I - (1 - \alpha) \hat A)^{-1}`.

    Differentiable in the weights of the adjacency, except for the choice of the entries: entries that are not among the
    largest have no gradient. Ties with the ``k``-th largest entry (up to rounding), and zeros in rows with fewer than ``k``
    other entries, are taken in ascending order of node ids. For constant weights the result is cached as long as the adjacency
    exists.

    Args:
        adjacency: :math:`\hat A`, with non-negative weights and no eigenvalue above 1, as normalized matrices have.
        alpha: Teleport probability, in (0, 1).
        k: Entries per row. Smaller graphs keep all entries.
        dense_limit: Largest number of nodes for which the matrix is inverted.
        block_size: Elements of a block of columns, for larger graphs. The default fits into a CPU's cache.

    Returns:
        Entries, shape ``[nodes, k]``, and their columns, ascending in each row, same shape.

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
    if not is_number(alpha) or not 0 < alpha < 1:
        raise ValueError(f"expected 0 < alpha < 1, got {alpha!r}")
    check_int(1, k=k)
    num_columns = None if adjacency.num_nodes <= dense_limit else max(1, block_size // adjacency.num_nodes)
    tape = current_tape()
    if tape is not None:
        if num_columns is not None:
            # The tape would store as many channels as nodes.
            raise UnknownRuleError(
                f"the diffusion of a graph of more than {dense_limit:,} nodes has no fast edge gradient: use path='autograd'"
            )
        return _diffuse(adjacency, alpha, k, None, *tape.record(adjacency.rule, adjacency.weight))
    if adjacency.weight.requires_grad:
        return _diffuse(adjacency, alpha, k, num_columns)
    cache = _CACHE.setdefault(adjacency, {})
    key = (alpha, k, num_columns)
    if key not in cache:
        # Cached tensors must not be inference tensors.
        with torch.inference_mode(False):
            cache[key] = _diffuse(adjacency, alpha, k, num_columns)
    return cache[key]


# Results for constant weights, by alpha, k and columns per block.
_CACHE: WeakKeyDictionary[Adjacency, dict[tuple[float, int, int | None], tuple[Tensor, Tensor]]] = WeakKeyDictionary()


def _diffuse(
    adjacency: Adjacency,
    alpha: float,
    k: int,
    num_columns: int | None,
    call: Call | None = None,
    anchor: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    arguments = adjacency.weight, adjacency, alpha, min(k, adjacency.num_nodes)
    if num_columns is None:
        values, index = _Inverse.apply(*arguments, call, anchor)  # type: ignore[no-untyped-call]
    else:
        values, index = _Blocks.apply(*arguments, num_columns)  # type: ignore[no-untyped-call]
    return values, index


class _Inverse(torch.autograd.Function):
    """Diffusion by inverting the whole matrix, for small graphs."""

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, adjacency: Adjacency, alpha: float, k: int, call: Call | None, _: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        dense = adjacency.with_weight(weight).dense()
        system = torch.eye(len(dense), dtype=dense.dtype, device=dense.device) - (1 - alpha) * dense
        # With no eigenvalue of the adjacency above 1, a symmetric system is positive definite: Cholesky is half the work.
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
        b = pi.T @ kept
        if call is not None:
            call.x, call.out = pi, (pi - alpha * torch.eye(len(pi), dtype=pi.dtype, device=pi.device)) / (1 - alpha)
            call.grad_out, call.grad_x = b, (b - alpha * kept) / (1 - alpha)
        gradient = (b @ pi.T)[ctx.pattern.row, ctx.pattern.col] if ctx.needs_input_grad[0] else None
        return gradient, None, None, None, None, None


class _Blocks(torch.autograd.Function):
    """Diffusion by solving for blocks of columns, for large graphs."""

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, adjacency: Adjacency, alpha: float, k: int, num_columns: int
    ) -> tuple[Tensor, Tensor]:
        adjacency = constant_adjacency(adjacency, weight)
        # Rows of the matrix are columns of its transpose.
        transposed, blocks = adjacency.transposed, _blocks(adjacency, num_columns)
        largest = [_largest(_solve(transposed, alpha, _unit(transposed, nodes)).T, k) for nodes in blocks]
        index = torch.cat([block_index for _, block_index in largest])
        ctx.save_for_backward(index)
        ctx.mark_non_differentiable(index)
        ctx.adjacency, ctx.alpha, ctx.num_columns = adjacency, alpha, num_columns
        return torch.cat([values for values, _ in largest]), index

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None, None, None]:
        (index,) = ctx.saved_tensors
        adjacency: Adjacency = ctx.adjacency
        transposed, pattern = adjacency.transposed, adjacency.pattern
        gradient = torch.zeros_like(adjacency.weight)
        # Entry (u, v) is the sum over all nodes w of (Pi^T G)[u, w] * Pi[v, w].
        for nodes in _blocks(adjacency, ctx.num_columns):
            row, slot = ((index >= nodes[0]) & (index <= nodes[-1])).nonzero(as_tuple=True)
            kept = torch.zeros_like(_unit(adjacency, nodes))
            kept[row, index[row, slot] - nodes[0]] = grad[row, slot]
            b = _solve(transposed, ctx.alpha, kept)
            pi = _solve(adjacency, ctx.alpha, _unit(adjacency, nodes))
            gradient += dispatch.gathered_dot(b, pi, pattern.row, pattern.col)
        return (1 - ctx.alpha) / ctx.alpha * gradient, None, None, None, None


def _largest(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the ``k`` largest values of every row and their columns, ascending; of equal values those in the first columns."""
    last = rows.topk(k, dim=1).values[:, -1:]
    slack = _SLACK * torch.finfo(rows.dtype).eps
    larger = rows > last + slack
    equal = (rows >= last - slack) & ~larger
    num_equal = k - larger.sum(dim=1, keepdim=True)
    kept = larger | (equal & (equal.cumsum(dim=1) <= num_equal))
    index = kept.nonzero()[:, 1].view(-1, k)
    return rows.gather(1, index), index


def _solve(adjacency: Adjacency, alpha: float, right: Tensor) -> Tensor:
    r"""Solve :math:`(I - (1 - \alpha) \hat A) X = \alpha R` for :math:`X` by Chebyshev iteration, up to rounding.

    With :math:`\rho = 1 - \alpha`, :math:`X_{t+1} = X_{t-1} + \omega_t (\rho \hat A X_t + \alpha R - X_{t-1})`. A symmetric
    matrix has real eigenvalues, for which :math:`\omega_{t+1} = 1 / (1 - \rho^2 \omega_t / 4)` has error
    :math:`(\rho / (1 + \sqrt{1 - \rho^2}))^t`. Otherwise :math:`\omega_t = 1` (power iteration) has error :math:`\rho^t`.
    """
    rho, pattern = 1 - alpha, adjacency.pattern
    rate = rho / (1 + math.sqrt(1 - rho**2)) if adjacency.symmetric else rho
    steps = math.ceil(math.log(torch.finfo(right.dtype).eps) / math.log(rate))
    source = alpha * right
    previous, current, omega = torch.zeros_like(source), source, 1.0
    for step in range(steps):
        if adjacency.symmetric:
            omega = 1 / (1 - rho**2 * omega / (2 if step == 0 else 4))
        product = dispatch.spmm(*pattern.indices, adjacency.weight, current, longest=pattern.longest)
        previous, current = current, product.mul_(rho).add_(source).sub_(previous).mul_(omega).add_(previous)
    return current


def constant_adjacency(adjacency: Adjacency, weight: Tensor) -> Adjacency:
    """Return the matrix with detached weights, marked as symmetric if its values are."""
    symmetric, pattern = adjacency.symmetric, adjacency.pattern
    if not symmetric:
        transposed, order = pattern.transposed
        symmetric = torch.equal(transposed.rowptr, pattern.rowptr) and torch.equal(transposed.col, pattern.col)
        # Normalized weights are symmetric up to the order of two products.
        slack = _SLACK * torch.finfo(weight.dtype).eps
        symmetric = symmetric and bool(((weight[order] - weight).abs() <= slack * weight).all())
    return adjacency.with_weight(weight.detach(), symmetric=symmetric)


def _blocks(adjacency: Adjacency, num_columns: int) -> Iterator[Tensor]:
    """Yield all node ids in blocks."""
    nodes = torch.arange(adjacency.num_nodes, device=adjacency.weight.device)
    return iter(nodes.split(num_columns))


def _unit(adjacency: Adjacency, nodes: Tensor) -> Tensor:
    """Return the columns ``nodes`` of the identity."""
    columns = adjacency.weight.new_zeros(adjacency.num_nodes, nodes.numel())
    return columns.index_put_((nodes, torch.arange(nodes.numel(), device=nodes.device)), columns.new_ones(()))
