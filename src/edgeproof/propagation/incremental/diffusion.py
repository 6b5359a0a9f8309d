r"""Linear diffusion of node predictions: the effect of a flip to all orders, from two columns of each power of the matrix.

The model is :math:`Z = \sum_{k=0}^K \gamma_k \hat A^k H` with :math:`\hat A = D^{-1/2} (A [+ I]) D^{-1/2}`. A flip of
:math:`(u, v)` with sign :math:`\sigma = 1 - 2 A_{uv}` changes degrees :math:`d` to :math:`d'` at two nodes. With
:math:`S = I + \alpha_u e_u e_u^\top + \alpha_v e_v e_v^\top`, :math:`1 + \alpha_u = \sqrt{d_u / d'_u}`, the new matrix is
:math:`\hat A' = S (\hat A + F) S^{-1}` with :math:`F` of rank two,

.. math::
    F = f_u e_u^\top + f_v e_v^\top, \qquad f_u = \beta_u \hat A e_u + \tau (1 + \beta_u) e_v, \qquad
    \beta_u = d_u / d'_u - 1, \qquad \tau = \sigma / \sqrt{d_u d_v},

and :math:`f_v` likewise. So :math:`\hat A'^k H = S y_k` with

.. math::
    y_k = \hat A^k S^{-1} H + \sum_{j<k} \hat A^{k-1-j} \bigl( f_u \, y_j[u] + f_v \, y_j[v] \bigr),

a recursion in the rows :math:`u` and :math:`v` alone, and :math:`Z'` at all target nodes is :math:`Z` plus columns :math:`u`
and :math:`v` of the powers :math:`\hat A^0, \dots, \hat A^K` times small matrices. Nothing is neglected.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from edgeproof.kernels import dispatch
from edgeproof.kernels._numba_diffusion import diffusion_margins
from edgeproof.propagation.incremental.base import Scan, is_exact, margins_of, toggled
from edgeproof.propagation.pairs import contained

if TYPE_CHECKING:
    from edgeproof.propagation.edge_gradient import EdgeGradientEngine

# Elements of the largest intermediate tensors.
_MAX_ELEMENTS = 1 << 24
# Nodes whose columns of all powers, at all target nodes, are stored at once: 2 GiB in float64.
_MAX_STORED = 1 << 28


class Polynomial(NamedTuple):
    """Polynomial of the normalized adjacency matrix.

    Args:
        coefficients: :math:`\\gamma_0, \\dots, \\gamma_K` in float64.
        self_loops: Whether the matrix has self-loops.
    """

    coefficients: Tensor
    self_loops: bool


@runtime_checkable
class WithPolynomial(Protocol):
    """Model whose logits are a polynomial of the normalized adjacency matrix times ``encode(x)``."""

    def polynomial(self) -> Polynomial:
        """Return the polynomial."""


class DiffusionEvaluator:
    """Compute the logits after a flip by the formula above, in float64. See :class:`IncrementalEvaluator`.

    Args:
        engine: Model, graph, target nodes and labels.
        polynomial: Polynomial of the model.
        compiled: Whether to use the compiled loops for CPUs. Default: on a CPU.
    """

    name = "diffusion"
    num_hops: int | None = None

    @torch.no_grad()
    def __init__(self, engine: EdgeGradientEngine, polynomial: Polynomial, *, compiled: bool | None = None) -> None:
        self._compiled = not engine.adjacency.weight.is_cuda if compiled is None else compiled
        self._engine, self._nodes, self._labels = engine, engine.nodes, engine.labels
        self._gamma = polynomial.coefficients.double().to(engine.adjacency.weight.device)
        self._self_loops, self._n = polynomial.self_loops, engine.num_nodes
        self._input = engine.encoded.detach().double()
        self._target = torch.full((self._n,), -1, device=self._nodes.device)
        self._target[self._nodes] = torch.arange(self._nodes.numel(), device=self._nodes.device)
        row, col = engine.data.edge_index
        self._keys = (row * self._n + col).sort().values
        self.flips = engine.data.edge_index.new_empty(2, 0)
        self._compute()

    @torch.no_grad()
    def scan(self, candidates: Tensor, only: int | None = None) -> Scan:
        if only is not None:
            scan = self._with_target(only).scan(candidates)
            return Scan(scan.rowptr, scan.position + only, scan.margin, self.margins)
        targets, count = self._nodes.numel(), candidates.size(1)
        margins = self._input.new_empty(count, targets)
        u, v = candidates.contiguous()
        ends = candidates.unique()
        # Endpoints are stored a part at a time; a candidate belongs to the part of its first node, with all partners.
        size = max(2, _MAX_STORED // (targets * self._gamma.numel()))
        if ends.numel() <= size:
            self._scan_part(u, v, ends, margins, torch.arange(count, device=u.device))
        else:
            order = (torch.minimum(u, v) * self._n + torch.maximum(u, v)).argsort()
            for part in order.split(max(1, size // 2)):
                self._scan_part(u[part], v[part], candidates[:, part].unique(), margins, part)
        rowptr = targets * torch.arange(count + 1, device=u.device)
        positions = torch.arange(targets, device=u.device).repeat(count)
        return Scan(rowptr, positions, margins.flatten(), self.margins)

    @torch.no_grad()
    def apply(self, flips: Tensor) -> None:
        n = self._n
        self.flips = toggled(self.flips, flips, n)
        both = torch.cat([flips[0] * n + flips[1], flips[1] * n + flips[0]])
        keys, count = torch.cat([self._keys, both]).unique(return_counts=True)
        self._keys = keys[count == 1]
        self._compute()

    def _with_target(self, position: int) -> DiffusionEvaluator:
        """Return an evaluator of one target node in the same state."""
        one = copy(self)
        one._nodes, one._labels = self._nodes[position : position + 1], self._labels[position : position + 1]
        one._target = torch.full_like(self._target, -1).index_fill_(0, one._nodes, 0)
        one.margins = self.margins[position : position + 1]
        return one

    def _compute(self) -> None:
        """Run the model in the current state, and keep the rows of every power times the input."""
        n, device = self._n, self._keys.device
        keys = self._keys
        if self._self_loops:
            keys = torch.cat([keys, torch.arange(n, device=device) * (n + 1)]).sort().values
        row, self._col = keys // n, keys % n
        self._rowptr = torch.searchsorted(row, torch.arange(n + 1, device=device))
        self._degree = self._rowptr.diff().double()
        scale = torch.where(self._degree > 0, self._degree.clamp(min=1).rsqrt(), 0.0)
        self._weight = scale[row] * scale[self._col]
        terms = [self._input]
        for _ in self._gamma[1:]:
            terms.append(self._multiply(terms[-1]))
        self._terms = torch.stack(terms, dim=1)
        self.logits = torch.einsum("k,nkc->nc", self._gamma, self._terms)
        self.margins = margins_of(self.logits[self._nodes], self._labels)

    def _multiply(self, x: Tensor) -> Tensor:
        return dispatch.spmm(self._rowptr, self._col, self._weight, x)

    def _scan_part(self, u: Tensor, v: Tensor, ends: Tensor, margins: Tensor, rows: Tensor) -> None:
        """Fill rows of the margins for candidates ``(u, v)`` among the nodes ``ends``."""
        at_targets, diagonal, off_diagonal = self._powers(u, v, ends)
        iu, iv = torch.searchsorted(ends, u), torch.searchsorted(ends, v)
        is_edge = self._is_edge(u, v)
        changed = torch.where(is_edge, -1.0, 1.0)
        d_u, d_v = self._degree[u], self._degree[v]
        # A node without neighbors has no scale to change.
        regular = (d_u > 0) & (d_v > 0) & (d_u + changed > 0) & (d_v + changed > 0)
        chosen = regular.nonzero().squeeze(1)
        if self._compiled:
            part = (u[chosen], v[chosen], iu[chosen], iv[chosen], changed[chosen])
            margins[rows[chosen]] = self._margins_compiled(at_targets, diagonal, off_diagonal[chosen], *part)
        else:
            for some in chosen.split(max(1, _MAX_ELEMENTS // (self._nodes.numel() * self._gamma.numel()))):
                part = (u[some], v[some], iu[some], iv[some], changed[some])
                margins[rows[some]] = self._margins(at_targets, diagonal, off_diagonal[some], *part)
        left_out = (~regular).nonzero().squeeze(1)
        sets = [toggled(self.flips, torch.stack([u[i], v[i]])[:, None], self._n) for i in left_out]
        found = [logits for batch in self._engine.logits_of(sets) for logits in batch]
        for i, logits in zip(left_out.tolist(), found, strict=True):
            margins[rows[i]] = margins_of(logits[self._nodes].double(), self._labels)

    def _margins(
        self,
        columns: Tensor,
        diagonal: Tensor,
        off_diagonal: Tensor,
        u: Tensor,
        v: Tensor,
        iu: Tensor,
        iv: Tensor,
        sign: Tensor,
    ) -> Tensor:
        left, right, at_ends = self._update(u, v, sign, diagonal[iu], diagonal[iv], off_diagonal)
        z = self.logits[self._nodes].T + left.transpose(1, 2) @ columns[iu] + right.transpose(1, 2) @ columns[iv]
        for node, values in zip((u, v), at_ends, strict=True):
            z = torch.where((node[:, None] == self._nodes)[:, None], values[:, :, None], z)
        flat = margins_of(z.transpose(1, 2).flatten(0, 1), self._labels.repeat(u.numel()))
        return flat.view(u.numel(), self._nodes.numel())

    def _margins_compiled(
        self,
        columns: Tensor,
        diagonal: Tensor,
        off_diagonal: Tensor,
        u: Tensor,
        v: Tensor,
        iu: Tensor,
        iv: Tensor,
        sign: Tensor,
    ) -> Tensor:
        margins = self._input.new_empty(u.numel(), self._nodes.numel())
        shared = [
            x.numpy()
            for x in (
                self._gamma,
                self._terms,
                self._degree,
                self.logits[self._nodes].T.contiguous(),
                columns,
                diagonal,
            )
        ]
        own = [off_diagonal, u, v, iu, iv, sign]
        threads = torch.get_num_threads()
        parts = [[x.contiguous() for x in part] for part in zip(*(x.tensor_split(threads) for x in own), strict=True)]
        outs = margins.tensor_split(threads)

        def run(part: list[Tensor], out: Tensor) -> None:
            arrays = [*shared, *(x.numpy() for x in (*part, self._target, self._labels, out))]
            diffusion_margins(*arrays)

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(run, parts, outs))
        return margins

    def _powers(self, u: Tensor, v: Tensor, ends: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return entries of all powers: columns at target nodes ``[ends, K + 1, targets]``, the diagonal at the ends
        ``[ends, K + 1]``, and the entries of the pairs ``[pairs, K + 1]``."""
        count = self._gamma.numel()
        at_targets = self._input.new_empty(ends.numel(), count, self._nodes.numel())
        diagonal, pairs = self._input.new_empty(ends.numel(), count), self._input.new_empty(u.numel(), count)
        column = torch.searchsorted(ends, v)
        size = max(1, _MAX_ELEMENTS // self._n)
        for start in range(0, ends.numel(), size):
            part = ends[start : start + size]
            end, index = start + part.numel(), torch.arange(part.numel(), device=part.device)
            inside = ((column >= start) & (column < end)).nonzero().squeeze(1)
            power = self._input.new_zeros(self._n, part.numel())
            power[part, index] = 1
            for k in range(count):
                at_targets[start:end, k] = power[self._nodes].T
                diagonal[start:end, k] = power[part, index]
                pairs[inside, k] = power[u[inside], column[inside] - start]
                power = self._multiply(power) if k + 1 < count else power
        return at_targets, diagonal, pairs

    def _update(
        self, u: Tensor, v: Tensor, sign: Tensor, p_uu: Tensor, p_vv: Tensor, p_uv: Tensor
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        """Return the factors of columns ``u`` and ``v`` of all powers, ``[pairs, K + 1, classes]``, and the logits at both."""
        gamma, count = self._gamma, self._gamma.numel()
        d_u, d_v = self._degree[u], self._degree[v]
        beta_u, beta_v = d_u / (d_u + sign) - 1, d_v / (d_v + sign) - 1
        tau = sign / (d_u * d_v).sqrt()
        # Column coefficients of f_u and f_v: powers of e_u and e_v shifted by one where the matrix is applied once more.
        own_u, own_v, cross_u, cross_v = beta_u, beta_v, tau * (1 + beta_u), tau * (1 + beta_v)
        start_u = ((1 + beta_u).rsqrt() - 1)[:, None] * self._input[u]
        start_v = ((1 + beta_v).rsqrt() - 1)[:, None] * self._input[v]
        left, right = (self._input.new_zeros(u.numel(), count, self._input.size(1)) for _ in range(2))
        left += gamma[:, None] * start_u[:, None]
        right += gamma[:, None] * start_v[:, None]
        y_u: list[Tensor] = []
        y_v: list[Tensor] = []
        for k in range(count):
            at_u = self._terms[u, k] + p_uu[:, k, None] * start_u + p_uv[:, k, None] * start_v
            at_v = self._terms[v, k] + p_uv[:, k, None] * start_u + p_vv[:, k, None] * start_v
            for j in range(k):
                i = k - j
                from_u, from_v = y_u[j], y_v[j]
                # Powers i and i - 1 of the matrix times f_u and f_v.
                at_u = at_u + (own_u * p_uu[:, i] + cross_u * p_uv[:, i - 1])[:, None] * from_u
                at_u = at_u + (own_v * p_uv[:, i] + cross_v * p_uu[:, i - 1])[:, None] * from_v
                at_v = at_v + (own_u * p_uv[:, i] + cross_u * p_vv[:, i - 1])[:, None] * from_u
                at_v = at_v + (own_v * p_vv[:, i] + cross_v * p_uv[:, i - 1])[:, None] * from_v
                left[:, i] += gamma[k] * own_u[:, None] * from_u
                left[:, i - 1] += gamma[k] * cross_v[:, None] * from_v
                right[:, i] += gamma[k] * own_v[:, None] * from_v
                right[:, i - 1] += gamma[k] * cross_u[:, None] * from_u
            y_u.append(at_u)
            y_v.append(at_v)
        scale_u, scale_v = (1 + beta_u).sqrt()[:, None], (1 + beta_v).sqrt()[:, None]
        z_u, z_v = (sum(g * y for g, y in zip(gamma, ys, strict=True)) for ys in (y_u, y_v))
        return left, right, (scale_u * z_u, scale_v * z_v)

    def _is_edge(self, u: Tensor, v: Tensor) -> Tensor:
        return contained(u * self._n + v, self._keys)


def diffusion_evaluator(engine: EdgeGradientEngine) -> DiffusionEvaluator | None:
    """Return the evaluator if the model is a linear diffusion, which its logits with and without flips confirm."""
    known = isinstance(engine.model, WithPolynomial) and engine.path == "propagate" and engine.num_nodes >= 2
    if not known or engine.data.x.dtype not in (torch.float32, torch.float64):
        return None
    assert isinstance(engine.model, WithPolynomial)
    evaluator = DiffusionEvaluator(engine, engine.model.polynomial())
    return evaluator if is_exact(evaluator, engine) else None
