r"""Weighted graphs as sparse matrices, built once and reused for every propagation.

Rows are receivers and columns senders: entry :math:`A_{uv}` is the weight of the message from :math:`v` to :math:`u`, so PyG's
edge ``edge_index[:, e] = (v, u)`` is stored in row :math:`u`. Undirected graphs are symmetric.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgeproof.kernels import dispatch, reference
from edgeproof.propagation.message_rules import Averaged, Normalized, Plain, Rule
from edgeproof.propagation.propagate import spmm


@dataclass(frozen=True, eq=False)
class Pattern:
    """Sparsity pattern of a square matrix in CSR form, with columns sorted within each row.

    Every pattern contains the whole diagonal, so adding self-loops only changes weights.

    Args:
        rowptr: Row pointers: row ``u`` has the entries ``rowptr[u]`` to ``rowptr[u + 1]``, shape ``[nodes + 1]``.
        col: Column of each entry, shape ``[entries]``.
        diagonal: Index of each diagonal entry, shape ``[nodes]``.
        longest: Approximate number of entries in the longest row, if known. Some kernels need short rows.
        complete: Whether all ``nodes * nodes`` entries are present in order, so that the weights form a dense matrix.
    """

    rowptr: Tensor
    col: Tensor
    diagonal: Tensor
    longest: int | None = None
    complete: bool = False

    @property
    def num_nodes(self) -> int:
        """Number of rows."""
        return self.rowptr.numel() - 1

    @cached_property
    def row(self) -> Tensor:
        """Row of each entry."""
        with _normal_mode():
            nodes = torch.arange(self.num_nodes, device=self.col.device)
            return nodes.repeat_interleave(self.rowptr.diff(), output_size=self.col.numel())

    @cached_property
    def key(self) -> Tensor:
        """``row * nodes + col`` of each entry, ascending."""
        with _normal_mode():
            return self.row * self.num_nodes + self.col

    @cached_property
    def indices(self) -> tuple[Tensor, Tensor]:
        """``rowptr`` and ``col`` for sparse products, as int32 for large matrices on a GPU (half the memory traffic)."""
        if not self.col.is_cuda or not reference.FEW_ENTRIES < self.col.numel() < 2**31:
            return self.rowptr, self.col
        with _normal_mode():
            return self.rowptr.int(), self.col.int()

    @cached_property
    def transposed(self) -> tuple[Pattern, Tensor]:
        """Transposed pattern, and the permutation of its entries: ``weight_T = weight[order]``."""
        with _normal_mode():
            order = (self.col * self.num_nodes + self.row).argsort(stable=True)
            position = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=order.device))
            # searchsorted instead of bincount, which would cause a host-device sync.
            rowptr = torch.searchsorted(self.col[order], torch.arange(self.num_nodes + 1, device=order.device))
            # Exact for undirected graphs. Otherwise a wrong value of `longest` only costs time.
            return Pattern(rowptr, self.row[order], position[self.diagonal], self.longest), order


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Sparse square matrix: a :class:`Pattern` and one weight per entry.

    Matrices that share a pattern also share everything cached on it.

    Args:
        pattern: Sparsity pattern.
        weight: Value of each entry, shape ``[entries]``.
        symmetric: Whether the matrix is known to be symmetric.
        rule: How the values follow from edge weights. None if unknown.

    >>> adjacency = Adjacency.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=3)
    >>> adjacency.dense()
    tensor([[0., 1., 0.],
            [1., 0., 0.],
            [0., 0., 0.]])
    >>> adjacency.normalized(self_loops=True).dense()
    tensor([[0.5000, 0.5000, 0.0000],
            [0.5000, 0.5000, 0.0000],
            [0.0000, 0.0000, 1.0000]])
    """

    pattern: Pattern
    weight: Tensor
    symmetric: bool = False
    rule: Rule | None = None

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        *,
        num_nodes: int,
        dtype: torch.dtype = torch.float32,
        symmetric: bool = False,
    ) -> Adjacency:
        """Build the matrix from PyG's edge list, differentiable in ``edge_weight``. Repeated edges add up.

        Args:
            edge_index: Edges, shape ``[2, edges]``.
            edge_weight: Weight of each edge, shape ``[edges]``. Default: 1.
            num_nodes: Number of nodes.
            dtype: Dtype of the weights.
            symmetric: Whether every edge is present in both directions with equal weight; not checked. Gradients then need no
                transposed copy.
        """
        if edge_index.dim() != 2 or edge_index.size(0) != 2:
            raise ValueError(f"expected edge_index of shape [2, edges], got {list(edge_index.shape)}")
        if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < num_nodes:
            raise ValueError(
                f"expected node ids between 0 and {num_nodes - 1}, "
                f"got {int(edge_index.min())} to {int(edge_index.max())}"
            )
        if edge_weight is None:
            edge_weight = torch.ones(edge_index.size(1), dtype=dtype, device=edge_index.device)
        elif tuple(edge_weight.shape) != (edge_index.size(1),):
            raise ValueError(
                f"expected one weight per edge, shape [{edge_index.size(1)}], got {list(edge_weight.shape)}"
            )
        diagonal = torch.arange(num_nodes, device=edge_index.device)
        sender, receiver = torch.cat([edge_index, diagonal.expand(2, -1)], dim=1)
        order = (receiver * num_nodes + sender).argsort(stable=True)
        position = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=order.device))
        rowptr = _row_pointers(receiver, num_nodes)
        longest = int(rowptr.diff().max()) if num_nodes else None
        pattern = Pattern(rowptr, sender[order], position[edge_index.size(1) :], longest)
        weight = torch.cat([edge_weight.to(dtype), edge_weight.new_zeros(num_nodes, dtype=dtype)])[order]
        return cls(pattern, weight, symmetric, Plain())

    @classmethod
    def from_data(cls, data: Data, copies: int = 1) -> Adjacency:
        """Return the unweighted adjacency matrix of an undirected graph, in the dtype of its features.

        Args:
            data: Graph.
            copies: Number of disjoint copies in one block-diagonal matrix of ``copies * nodes`` rows.
        """
        n, edge_index = int(data.x.size(0)), data.edge_index
        if copies > 1:
            offset = torch.arange(copies, device=edge_index.device).repeat_interleave(edge_index.size(1)) * n
            edge_index = edge_index.repeat(1, copies) + offset
        return cls.from_edge_index(edge_index, num_nodes=copies * n, dtype=data.x.dtype, symmetric=True)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.pattern.num_nodes

    @property
    def transposed(self) -> Adjacency:
        """Transposed matrix; the matrix itself if it is known to be symmetric."""
        if self.symmetric:
            return self
        pattern, order = self.pattern.transposed
        return Adjacency(pattern, self.weight[order])

    def with_weight(self, weight: Tensor, *, symmetric: bool = False, rule: Rule | None = None) -> Adjacency:
        """Return a matrix of the same pattern with other weights."""
        return Adjacency(self.pattern, weight, symmetric, rule)

    @property
    def with_self_loops(self) -> Adjacency:
        """:math:`A + I`."""
        weight = self.weight.index_add(0, self.pattern.diagonal, self.weight.new_ones(self.num_nodes))
        return self.with_weight(
            weight, symmetric=self.symmetric, rule=self.rule if isinstance(self.rule, Plain) else None
        )

    @property
    def degree(self) -> Tensor:
        r"""Row sums :math:`d = A \mathbf 1`, shape ``[nodes]``."""
        return spmm(self, self.weight.new_ones(self.num_nodes, 1)).squeeze(1)

    def normalized(self, *, self_loops: bool) -> Adjacency:
        r"""Normalize symmetrically: :math:`\hat A_{uv} = \tilde A_{uv} / \sqrt{d_u d_v}`.

        Here :math:`\tilde A = A + I` with self-loops and :math:`\tilde A = A` without, and :math:`d` its row sums. Rows of
        degree 0 stay 0. The result is cached, except for weights that require a gradient.
        """
        if self.weight.requires_grad:
            return self._normalize(self_loops)
        if self_loops not in self._normalized:
            with _normal_mode():
                self._normalized[self_loops] = self._normalize(self_loops)
        return self._normalized[self_loops]

    @property
    def averaged(self) -> Adjacency:
        r"""Mean over neighbors, :math:`\hat A_{uv} = A_{uv} / d_u`. Rows of degree 0 stay 0."""
        degree = self.degree
        connected = degree > 0
        inverse = torch.where(connected, torch.where(connected, degree, 1.0).reciprocal(), 0.0)
        rule = Averaged(inverse, inverse) if isinstance(self.rule, Plain) else None
        return self.with_weight(inverse[self.pattern.row] * self.weight, rule=rule)

    def averaged_over(self, least: int) -> Adjacency:
        r"""Mean over neighbors with at least ``least`` terms, :math:`\hat A_{uv} = A_{uv} / \max(d_u, k)`.

        Missing neighbors count as messages of 0, so nodes of low degree get a scaled sum. With ``least=1`` the matrix equals
        :attr:`averaged` on unweighted graphs, and is continuous in the weights of a node's first edge.

        >>> pair = Adjacency.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> pair.averaged_over(4).dense()
        tensor([[0.0000, 0.2500],
                [0.2500, 0.0000]])
        """
        degree = self.degree
        inverse = degree.clamp(min=least).reciprocal()
        slope = torch.where(degree >= least, inverse, 0.0)
        rule = Averaged(inverse, slope) if isinstance(self.rule, Plain) else None
        return self.with_weight(inverse[self.pattern.row] * self.weight, rule=rule)

    def perturbed(self, pairs: Tensor, flip: Tensor) -> Adjacency:
        r"""Flip pairs fractionally: :math:`\tilde A_{uv} = A_{uv} + (1 - 2 A_{uv}) p_{uv}`.

        The pairs are merged into the sorted rows without sorting the edges again. A pair that is an edge gets a second entry
        of weight 0, so that no size depends on which pairs are edges.

        Args:
            pairs: Distinct pairs of different nodes, one direction each, shape ``[2, m]``.
            flip: Flip weight :math:`p` in [0, 1] of each pair, shape ``[m]``.
        """
        if not (self.symmetric and isinstance(self.rule, Plain)):
            raise ValueError(
                "expected the plain adjacency matrix of an undirected graph, got a normalized or directed one: perturb the "
                "graph first"
            )
        base, (u, v) = self.pattern, pairs
        rowptr, col, weight, diagonal = dispatch.insert_pairs(
            base.rowptr, base.col, base.key, self.weight, base.diagonal, u, v, flip
        )
        # `longest` stays a good estimate: hardly any row becomes much longer.
        return Adjacency(Pattern(rowptr, col, diagonal, base.longest), weight, symmetric=True, rule=Plain())

    @cached_property
    def dense_graph(self) -> DenseGraph:
        """Dense form of the graph; cached."""
        with _normal_mode():
            return DenseGraph(self)

    def dense(self) -> Tensor:
        """Return the matrix as a dense tensor, shape ``[nodes, nodes]``."""
        matrix = self.weight.new_zeros(self.num_nodes, self.num_nodes)
        return matrix.index_put((self.pattern.row, self.pattern.col), self.weight, accumulate=True)

    @cached_property
    def _normalized(self) -> dict[bool, Adjacency]:
        return {}

    def _normalize(self, self_loops: bool) -> Adjacency:
        pattern = self.pattern
        if pattern.complete:
            weight, scale = self._normalize_dense(self_loops)
        else:
            weight, scale = dispatch.normalize(
                pattern.rowptr,
                pattern.col,
                self.weight,
                pattern.diagonal,
                self_loops=self_loops,
                longest=pattern.longest,
            )
        return self.with_weight(
            weight, symmetric=self.symmetric, rule=Normalized(scale) if isinstance(self.rule, Plain) else None
        )

    def _normalize_dense(self, self_loops: bool) -> tuple[Tensor, Tensor]:
        matrix = self.weight.view(self.num_nodes, self.num_nodes)
        degree = matrix.sum(dim=1) + float(self_loops)
        scale = torch.where(degree > 0, degree, torch.inf).rsqrt()
        scaled = scale[:, None] * matrix * scale
        if self_loops:
            scaled.diagonal().add_(scale.square())
        return scaled.view(-1), scale


class DenseGraph:
    """Small graph as a dense matrix, in which many pairs can be flipped without merging them into sorted rows.

    Args:
        adjacency: Plain adjacency matrix of an undirected graph.
    """

    def __init__(self, adjacency: Adjacency) -> None:
        n, device = adjacency.num_nodes, adjacency.weight.device
        nodes = torch.arange(n, device=device)
        rowptr = torch.arange(n + 1, device=device) * n
        self.pattern = Pattern(rowptr, nodes.repeat(n), nodes * (n + 1), n, complete=True)
        self.clean = adjacency.dense().view(-1)

    def perturbed(self, pairs: Tensor, flip: Tensor) -> Adjacency:
        """Flip pairs as :meth:`Adjacency.perturbed` does. Pairs of weight 0 may be repeated."""
        position = self.positions(*pairs)
        weight = self.clean.scatter_add(0, position, (1 - 2 * self.clean[position]) * flip.repeat(2))
        return self.with_weight(weight)

    def positions(self, u: Tensor, v: Tensor) -> Tensor:
        """Return the positions of pairs in the flat matrix: first all ``(u, v)``, then all ``(v, u)``."""
        n = self.pattern.num_nodes
        return torch.cat([u * n + v, v * n + u])

    def with_weight(self, weight: Tensor) -> Adjacency:
        """Return a matrix of the same pattern with these weights, shape ``[nodes * nodes]``."""
        return Adjacency(self.pattern, weight, symmetric=True, rule=Plain())


class FixedPairsGraph:
    """:class:`DenseGraph` with a fixed set of flipped pairs.

    Args:
        adjacency: Plain adjacency matrix of an undirected graph.
        u: First node of each pair.
        v: Second node of each pair.
    """

    def __init__(self, adjacency: Adjacency, u: Tensor, v: Tensor) -> None:
        self.graph = adjacency.dense_graph
        clean, both = self.graph.clean, self.graph.positions(u, v)
        # Index and sign of the pair at each position. Positions without a pair have index 0 and sign 0.
        self.pair = torch.zeros_like(clean, dtype=torch.int32)
        self.pair[both] = torch.arange(u.numel(), dtype=torch.int32, device=clean.device).repeat(2)
        self.sign = torch.zeros_like(clean)
        self.sign[both] = 1 - 2 * clean[both]

    def perturbed(self, flip: Tensor) -> Adjacency:
        """Flip each pair by its weight in ``flip``."""
        return self.graph.with_weight(torch.addcmul(self.graph.clean, self.sign, flip.index_select(0, self.pair)))


def as_adjacency(
    edge_index: Tensor | Adjacency, edge_weight: Tensor | None, *, num_nodes: int, dtype: torch.dtype
) -> Adjacency:
    """Convert the graph arguments of a model's ``forward`` to an :class:`Adjacency`."""
    if not isinstance(edge_index, Adjacency):
        return Adjacency.from_edge_index(edge_index, edge_weight, num_nodes=num_nodes, dtype=dtype)
    if edge_weight is not None:
        raise ValueError("expected edge_weight=None with an Adjacency, which contains its own weights")
    if edge_index.num_nodes != num_nodes:
        raise ValueError(f"expected an Adjacency of {num_nodes} nodes, got {edge_index.num_nodes}")
    if edge_index.weight.dtype != dtype:
        raise ValueError(f"expected an Adjacency of dtype {dtype}, as the features, got {edge_index.weight.dtype}")
    return edge_index


def _normal_mode() -> torch.inference_mode:
    """Leave inference mode while computing cached tensors, which outlive the caller's block and may need autograd later."""
    return torch.inference_mode(False)


def _row_pointers(row: Tensor, num_nodes: int) -> Tensor:
    pointers = torch.zeros(num_nodes + 1, dtype=torch.long, device=row.device)
    torch.cumsum(torch.bincount(row, minlength=num_nodes), dim=0, out=pointers[1:])
    return pointers
