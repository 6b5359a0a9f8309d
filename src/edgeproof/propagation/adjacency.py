r"""A weighted graph in the form that propagation needs, built once and reused.

Rows are receivers and columns senders: entry :math:`A_{uv}` weighs what :math:`u` hears from :math:`v`, so an
edge ``edge_index[:, e] = (v, u)`` of PyG stands in row :math:`u`. For undirected graphs it makes no difference.
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
    """Where a sparse square matrix has entries: compressed rows, columns sorted within each row.

    Every pattern holds its whole diagonal, so that self-loops come and go without moving anything.

    Args:
        rowptr: entries of row ``u`` are ``rowptr[u]`` to ``rowptr[u + 1]``, shape ``[nodes + 1]``.
        col: the column of each entry, shape ``[entries]``.
        diagonal: where the diagonal's entries stand, shape ``[nodes]``.
        longest: about how many entries the longest row has, where that is known: kernels that take rows side by side want
            them short.
        complete: whether there is an entry at every place, in order, so that weights are a dense matrix.
    """

    rowptr: Tensor
    col: Tensor
    diagonal: Tensor
    longest: int | None = None
    complete: bool = False

    @property
    def num_nodes(self) -> int:
        return self.rowptr.numel() - 1

    @cached_property
    def row(self) -> Tensor:
        """The row of each entry."""
        with _outliving():
            nodes = torch.arange(self.num_nodes, device=self.col.device)
            return nodes.repeat_interleave(self.rowptr.diff(), output_size=self.col.numel())

    @cached_property
    def key(self) -> Tensor:
        """``row * nodes + col`` of each entry: ascending."""
        with _outliving():
            return self.row * self.num_nodes + self.col

    @cached_property
    def indices(self) -> tuple[Tensor, Tensor]:
        """``rowptr`` and ``col`` as products read them: of a large matrix on a GPU, half the bytes.

        With fewer entries a GPU would take longer to make them shorter.
        """
        if not self.col.is_cuda or not reference.FEW_ENTRIES < self.col.numel() < 2**31:
            return self.rowptr, self.col
        with _outliving():
            return self.rowptr.int(), self.col.int()

    @cached_property
    def transposed(self) -> tuple[Pattern, Tensor]:
        """The transposed pattern, and where each of its entries stood here: ``weight_T = weight[where]``."""
        with _outliving():
            where = (self.col * self.num_nodes + self.row).argsort(stable=True)
            place = torch.empty_like(where).scatter_(0, where, torch.arange(where.numel(), device=where.device))
            # Searched for, not counted: to count, a GPU would ask the host.
            rowptr = torch.searchsorted(self.col[where], torch.arange(self.num_nodes + 1, device=where.device))
            # Of undirected graphs the rows are as long as the columns; where they are not, it costs time only.
            return Pattern(rowptr, self.row[where], place[self.diagonal], self.longest), where


@dataclass(frozen=True, eq=False)
class Adjacency:
    """A sparse square matrix: a :class:`Pattern` and one weight per entry.

    Changing the weights keeps the pattern, and with it everything that was derived from it.

    Args:
        pattern: where the entries are.
        weight: their values, shape ``[entries]``.
        symmetric: whether the matrix is known to equal its transpose.
        rule: how the values follow from edge weights; none if that is unknown.

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
        """From PyG's edge list; weights default to 1 and repeated edges add up.

        The result is differentiable in ``edge_weight``. ``symmetric`` is the caller's word that every edge is there in
        both directions with the same weight; gradients then need no transposed copy.
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
        where = (receiver * num_nodes + sender).argsort(stable=True)
        place = torch.empty_like(where).scatter_(0, where, torch.arange(where.numel(), device=where.device))
        rowptr = _row_pointers(receiver, num_nodes)
        longest = int(rowptr.diff().max()) if num_nodes else None
        pattern = Pattern(rowptr, sender[where], place[edge_index.size(1) :], longest)
        weight = torch.cat([edge_weight.to(dtype), edge_weight.new_zeros(num_nodes, dtype=dtype)])[where]
        return cls(pattern, weight, symmetric, Plain())

    @classmethod
    def from_data(cls, data: Data) -> Adjacency:
        """The unweighted adjacency matrix of an undirected graph, in the dtype of its features."""
        return cls.from_edge_index(data.edge_index, num_nodes=data.x.size(0), dtype=data.x.dtype, symmetric=True)

    @property
    def num_nodes(self) -> int:
        return self.pattern.num_nodes

    @property
    def transposed(self) -> Adjacency:
        if self.symmetric:
            return self
        pattern, where = self.pattern.transposed
        return Adjacency(pattern, self.weight[where])

    def with_weight(self, weight: Tensor, *, symmetric: bool = False, rule: Rule | None = None) -> Adjacency:
        """The same pattern with other weights."""
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
        r"""Symmetric normalisation :math:`\hat A_{uv} = \tilde A_{uv} / \sqrt{d_u d_v}`.

        Here :math:`\tilde A = A + I` with self-loops and :math:`\tilde A = A` without, and :math:`d` its row
        sums. A node without entries has degree 0 and stays without entries. Constant weights are normalised
        once and remembered; weights that need a gradient are normalised on every call.
        """
        if self.weight.requires_grad:
            return self._normalize(self_loops)
        if self_loops not in self._normalized:
            with _outliving():
                self._normalized[self_loops] = self._normalize(self_loops)
        return self._normalized[self_loops]

    @property
    def averaged(self) -> Adjacency:
        r"""Means over neighbours, :math:`\hat A_{uv} = A_{uv} / d_u`; a node without any has no entries."""
        degree = self.degree
        connected = degree > 0
        inverse = torch.where(connected, torch.where(connected, degree, 1.0).reciprocal(), 0.0)
        rule = Averaged(inverse) if isinstance(self.rule, Plain) else None
        return self.with_weight(inverse[self.pattern.row] * self.weight, rule=rule)

    def perturbed(self, pairs: Tensor, flip: Tensor) -> Adjacency:
        r"""The graph with pairs flipped in part, :math:`\tilde A_{uv} = A_{uv} + (1 - 2 A_{uv}) p_{uv}`.

        The pairs are merged into the sorted rows; nothing else is sorted again. Pairs that already are edges appear
        twice, the second time with weight 0, so that no size depends on what the pairs are.

        Args:
            pairs: distinct pairs of different nodes, each in one direction, shape ``[2, m]``.
            flip: :math:`p` between 0 and 1 of each pair, shape ``[m]``.
        """
        if not (self.symmetric and isinstance(self.rule, Plain)):
            raise ValueError("expected the plain adjacency matrix of an undirected graph to perturb")
        known, (u, v) = self.pattern, pairs
        rowptr, col, weight, diagonal = dispatch.insert_pairs(
            known.rowptr, known.col, known.key, self.weight, known.diagonal, u, v, flip
        )
        # Hardly any row becomes much longer.
        merged = Pattern(rowptr, col, diagonal, known.longest)
        return Adjacency(merged, weight, symmetric=True, rule=Plain())

    @cached_property
    def filled(self) -> Filled:
        """As a dense matrix in which pairs are flipped; remembered."""
        with _outliving():
            return Filled(self)

    def dense(self) -> Tensor:
        """As an ordinary matrix: for small graphs, tests and pictures."""
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
            # In place: of a matrix, only the diagonal changes.
            scaled.diagonal().add_(scale.square())
        return scaled.view(-1), scale


class Filled:
    """A small graph as a dense matrix, in which very many flips need not be merged.

    Args:
        adjacency: the plain adjacency matrix of an undirected graph.
    """

    def __init__(self, adjacency: Adjacency) -> None:
        n, device = adjacency.num_nodes, adjacency.weight.device
        nodes = torch.arange(n, device=device)
        rowptr = torch.arange(n + 1, device=device) * n
        self.pattern = Pattern(rowptr, nodes.repeat(n), nodes * (n + 1), n, complete=True)
        self.known = adjacency.dense().view(-1)

    def perturbed(self, pairs: Tensor, flip: Tensor) -> Adjacency:
        """As :meth:`Adjacency.perturbed`; pairs of weight 0 may come several times."""
        place = self.places(*pairs)
        weight = self.known.scatter_add(0, place, (1 - 2 * self.known[place]) * flip.repeat(2))
        return self.with_weight(weight)

    def places(self, u: Tensor, v: Tensor) -> Tensor:
        """Where pairs stand in the matrix: in one direction, and then in the other."""
        n = self.pattern.num_nodes
        return torch.cat([u * n + v, v * n + u])

    def with_weight(self, weight: Tensor) -> Adjacency:
        return Adjacency(self.pattern, weight, symmetric=True, rule=Plain())


class FilledAt:
    """:class:`Filled`, flipped always at the same pairs.

    Args:
        adjacency: the plain adjacency matrix of an undirected graph.
        u: one end of each pair.
        v: its other end.
    """

    def __init__(self, adjacency: Adjacency, u: Tensor, v: Tensor) -> None:
        self.filled = adjacency.filled
        known, both = self.filled.known, self.filled.places(u, v)
        # Which pair is flipped at each place, and in which direction; the first in none where there is no pair.
        self.pair = torch.zeros_like(known, dtype=torch.int32)
        self.pair[both] = torch.arange(u.numel(), dtype=torch.int32, device=known.device).repeat(2)
        self.sign = torch.zeros_like(known)
        self.sign[both] = 1 - 2 * known[both]

    def perturbed(self, flip: Tensor) -> Adjacency:
        """The graph with each pair flipped by so much."""
        return self.filled.with_weight(
            torch.addcmul(self.filled.known, self.sign, flip.index_select(0, self.pair)),
        )


def as_adjacency(
    edge_index: Tensor | Adjacency, edge_weight: Tensor | None, *, num_nodes: int, dtype: torch.dtype
) -> Adjacency:
    """What a model's ``forward`` was given as its graph, as an :class:`Adjacency`."""
    if not isinstance(edge_index, Adjacency):
        return Adjacency.from_edge_index(edge_index, edge_weight, num_nodes=num_nodes, dtype=dtype)
    if edge_weight is not None:
        raise ValueError("expected edge_weight=None beside an Adjacency, which has weights of its own")
    if edge_index.num_nodes != num_nodes:
        raise ValueError(f"expected an Adjacency over {num_nodes} nodes, got {edge_index.num_nodes}")
    if edge_index.weight.dtype != dtype:
        raise ValueError(
            f"expected an Adjacency of {dtype} beside features of that type, got {edge_index.weight.dtype}"
        )
    return edge_index


def _outliving() -> torch.inference_mode:
    """For values that are remembered: they must not be marked as belonging to the inference-mode block they came up in."""
    return torch.inference_mode(False)


def _row_pointers(row: Tensor, num_nodes: int) -> Tensor:
    pointers = torch.zeros(num_nodes + 1, dtype=torch.long, device=row.device)
    torch.cumsum(torch.bincount(row, minlength=num_nodes), dim=0, out=pointers[1:])
    return pointers
