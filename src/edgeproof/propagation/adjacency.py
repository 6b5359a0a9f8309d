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

from edgeproof.propagation.propagate import spmm


@dataclass(frozen=True, eq=False)
class Pattern:
    """Where a sparse square matrix has entries: compressed rows, columns sorted within each row.

    Args:
        rowptr: entries of row ``u`` are ``rowptr[u]`` to ``rowptr[u + 1]``, shape ``[nodes + 1]``.
        col: the column of each entry, shape ``[entries]``.
    """

    rowptr: Tensor
    col: Tensor

    @property
    def num_nodes(self) -> int:
        return self.rowptr.numel() - 1

    @cached_property
    def row(self) -> Tensor:
        """The row of each entry."""
        nodes = torch.arange(self.num_nodes, device=self.col.device)
        return nodes.repeat_interleave(self.rowptr.diff(), output_size=self.col.numel())

    @cached_property
    def transposed(self) -> tuple[Pattern, Tensor]:
        """The transposed pattern, and where each of its entries stood here: ``weight_T = weight[where]``."""
        return _sorted_pattern(self.col, self.row, self.num_nodes)

    @cached_property
    def with_self_loops(self) -> tuple[Pattern, Tensor]:
        """The pattern plus its diagonal, and where each entry stood in ``[entries here..., diagonal...]``."""
        diagonal = torch.arange(self.num_nodes, device=self.col.device)
        return _sorted_pattern(torch.cat([self.row, diagonal]), torch.cat([self.col, diagonal]), self.num_nodes)


@dataclass(frozen=True, eq=False)
class Adjacency:
    """A sparse square matrix: a :class:`Pattern` and one weight per entry.

    Changing the weights keeps the pattern, and with it everything that was derived from it.

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

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        *,
        num_nodes: int,
        dtype: torch.dtype = torch.float32,
    ) -> Adjacency:
        """From PyG's edge list; weights default to 1 and repeated edges add up.

        The result is differentiable in ``edge_weight``.
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
        sender, receiver = edge_index
        pattern, where = _sorted_pattern(receiver, sender, num_nodes)
        return cls(pattern, edge_weight.to(dtype)[where])

    @classmethod
    def from_data(cls, data: Data) -> Adjacency:
        """The unweighted adjacency matrix of a graph, in the dtype of its features."""
        return cls.from_edge_index(data.edge_index, num_nodes=data.x.size(0), dtype=data.x.dtype)

    @property
    def num_nodes(self) -> int:
        return self.pattern.num_nodes

    @property
    def transposed(self) -> Adjacency:
        pattern, where = self.pattern.transposed
        return Adjacency(pattern, self.weight[where])

    def with_weight(self, weight: Tensor) -> Adjacency:
        """The same pattern with other weights."""
        return Adjacency(self.pattern, weight)

    @property
    def with_self_loops(self) -> Adjacency:
        """:math:`A + I`."""
        pattern, where = self.pattern.with_self_loops
        return Adjacency(pattern, torch.cat([self.weight, self.weight.new_ones(self.num_nodes)])[where])

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
            # The value outlives the call, so it must not be marked as belonging to an inference-mode block.
            with torch.inference_mode(False):
                self._normalized[self_loops] = self._normalize(self_loops)
        return self._normalized[self_loops]

    def dense(self) -> Tensor:
        """As an ordinary matrix: for small graphs, tests and pictures."""
        matrix = self.weight.new_zeros(self.num_nodes, self.num_nodes)
        return matrix.index_put((self.pattern.row, self.pattern.col), self.weight, accumulate=True)

    @cached_property
    def _normalized(self) -> dict[bool, Adjacency]:
        return {}

    def _normalize(self, self_loops: bool) -> Adjacency:
        loops = self.with_self_loops if self_loops else self
        degree = loops.degree
        connected = degree > 0
        # The inner where keeps the gradient of 1/sqrt finite at degree 0, where the outer one discards it.
        inverse_root = torch.where(connected, torch.where(connected, degree, 1.0).rsqrt(), 0.0)
        pattern = loops.pattern
        return loops.with_weight(inverse_root[pattern.row] * loops.weight * inverse_root[pattern.col])


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
    return edge_index


def _sorted_pattern(row: Tensor, col: Tensor, num_nodes: int) -> tuple[Pattern, Tensor]:
    """Compress (row, col) entries; also return the position that each sorted entry came from."""
    where = (row * num_nodes + col).argsort(stable=True)
    rowptr = torch.zeros(num_nodes + 1, dtype=torch.long, device=row.device)
    torch.cumsum(torch.bincount(row, minlength=num_nodes), dim=0, out=rowptr[1:])
    return Pattern(rowptr, col[where]), where
