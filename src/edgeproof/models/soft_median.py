"""Soft weighted medians over a diffused graph (Geisler et al., NeurIPS 2021; diffusion: Gasteiger et al., NeurIPS 2019)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from edgeproof._checks import check_fraction, check_int, is_number
from edgeproof.kernels import dispatch
from edgeproof.models.base import GraphModel
from edgeproof.propagation import Adjacency, as_adjacency, top_ppr

# Default size of the gathered neighbor features of a block of rows, in elements.
_BLOCK_SIZE = 1 << 23
# Exponents are clipped here. Only zero-weight neighbors can exceed it.
_MAX_EXPONENT = 60.0


def soft_median(
    x: Tensor, values: Tensor, index: Tensor, temperature: float, *, block_size: int = _BLOCK_SIZE
) -> Tensor:
    r"""Compute the soft weighted median of each row's neighbors.

    With :math:`\bar x_u` the weighted median of the neighbors of row :math:`u` in each dimension,

    .. math::
        o_u = \Bigl(\sum_v a_{uv}\Bigr) \frac{\sum_v s_{uv} a_{uv} x_v}{\sum_v s_{uv} a_{uv}}, \qquad
        s_{uv} = \mathrm{softmax}_v \bigl(-c_{uv} / T\bigr), \qquad
        c_{uv} = \lVert \bar x_u - x_v \rVert_2 / \sqrt d.

    A high temperature :math:`T` gives the weighted sum, a low one the neighbor nearest to the median. A neighbor of weight 0
    has no effect, and a row without neighbors gives 0. Differentiable in ``x`` and ``values``, except for the choice of the
    nodes whose values are the medians.

    Args:
        x: Features, shape ``[nodes, channels]``.
        values: Non-negative weights :math:`a`, shape ``[rows, k]``.
        index: Neighbors :math:`v` of each row, shape ``[rows, k]``.
        temperature: :math:`T`, > 0.
        block_size: Elements of gathered neighbor features at once. Larger inputs are processed in blocks of rows, which the
            backward pass computes again.

    Returns:
        :math:`o`, shape ``[rows, channels]``.

    >>> x = torch.tensor([[1.0], [2.0], [3.0], [1000.0]])
    >>> values, index = torch.full((1, 4), 0.25), torch.arange(4)[None]
    >>> [round(float(soft_median(x, values, index, temperature)), 2) for temperature in (0.1, 1.0, 1e9)]
    [2.0, 2.0, 251.5]
    """
    _check_temperature(temperature)
    if values.dim() != 2 or values.shape != index.shape:
        raise ValueError(
            f"expected values and index of one shape [rows, k], got {list(values.shape)} and {list(index.shape)}"
        )
    if values.dtype != x.dtype or index.dtype != torch.long:
        raise ValueError(f"expected {x.dtype} values and an int64 index, got {values.dtype} and {index.dtype}")
    _check_weights(values)
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < x.size(0):
        raise ValueError(
            f"expected an index between 0 and {x.size(0) - 1}, got {int(index.min())} to {int(index.max())}"
        )
    return _soft_median_blocks(x, values, index, temperature, block_size)


def _soft_median_blocks(
    x: Tensor, values: Tensor, index: Tensor, temperature: float, block_size: int = _BLOCK_SIZE
) -> Tensor:
    """Compute :func:`soft_median` without its checks, which would cause host-device syncs."""
    size = max(1, block_size // max(1, index.size(1) * x.size(1)))
    if index.size(0) <= size:
        return _soft_median(x, values, index, temperature)
    blocks = [
        checkpoint(_soft_median, x, *block, temperature, use_reentrant=False, preserve_rng_state=False)
        for block in zip(values.split(size), index.split(size), strict=True)
    ]
    return torch.cat(blocks)


def _soft_median(x: Tensor, values: Tensor, index: Tensor, temperature: float) -> Tensor:
    if not index.numel():
        return x.new_zeros(index.size(0), x.size(1))
    median = x.gather(0, dispatch.weighted_median(x.detach(), values.detach(), index))
    neighbors = F.embedding(index, x)
    distance = torch.linalg.vector_norm(median[:, None] - neighbors, dim=2) / x.size(1) ** 0.5
    # The denominator of the softmax cancels out, and so does the nearest neighbor's distance; subtracting it keeps the sum
    # above 0. Zero-weight neighbors do not count for it; their exponent, which only their gradient uses, is clipped.
    nearest = torch.where(values > 0, distance.detach(), torch.inf).amin(dim=1, keepdim=True)
    nearest = torch.where(nearest.isinf(), 0.0, nearest)
    weight = values * ((nearest - distance) / temperature).clamp(max=_MAX_EXPONENT).exp()
    total = weight.sum(dim=1, keepdim=True)
    # Rows without neighbors are 0 / 1.
    scale = values.sum(dim=1, keepdim=True) / torch.where(total > 0, total, 1.0)
    return scale * torch.einsum("rk,rkc->rc", weight, neighbors)


class SoftMedianConv(nn.Module):
    r"""Graph convolution that aggregates by :func:`soft_median`.

    .. math::
        o_u = b + \mathrm{softmedian}_v \bigl(A_{uv}, x_v W\bigr)

    Edge weights are not normalized. Pass ``adjacency.normalized(self_loops=True)`` for those of a GCN.

    Args:
        in_channels: Number of input features.
        out_channels: Number of output features.
        temperature: Temperature :math:`T` of the soft median.

    >>> x, edge_index = torch.ones(3, 10), torch.tensor([[0, 1], [1, 0]])
    >>> SoftMedianConv(10, 4)(x, edge_index).shape
    torch.Size([3, 4])
    """

    def __init__(self, in_channels: int, out_channels: int, *, temperature: float = 0.2) -> None:
        super().__init__()
        check_int(1, in_channels=in_channels, out_channels=out_channels)
        _check_temperature(temperature)
        self.in_channels, self.out_channels, self.temperature = in_channels, out_channels, temperature
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(in_channels, out_channels)))
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(self, x: Tensor, edge_index: Tensor | Adjacency, edge_weight: Tensor | None = None) -> Tensor:
        """Map shape ``[nodes, in_channels]`` to ``[nodes, out_channels]``; see :meth:`GraphModel.forward`."""
        _check_weights(edge_weight)
        adjacency = as_adjacency(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype)
        h = x @ self.weight
        out = torch.zeros_like(h)
        for nodes, values, index in _neighborhoods(adjacency):
            out = out.index_copy(0, nodes, _soft_median_blocks(h, values, index, self.temperature))
        return out + self.bias


class SoftMedianGDC(GraphModel):
    r"""Graph convolutional network that aggregates by :func:`soft_median` over a diffused graph.

    .. math::
        H^{(l)} = \mathrm{ReLU}\bigl(\mathrm{softmedian}(S, H^{(l-1)} W_l) + b_l\bigr), \qquad
        S_{uv} = \frac{\Pi^k_{uv}}{\sum_w \Pi^k_{uw}}, \qquad
        \Pi = \alpha \bigl(I - (1 - \alpha) \hat A\bigr)^{-1}, \qquad
        \hat A = D^{-1/2} (A + I) D^{-1/2},

    where :math:`\Pi^k` has the ``k`` largest entries in each row of :math:`\Pi`; without ReLU in the last layer, and with
    dropout between layers. Every input graph is diffused again, so attacks differentiate through the diffusion. Its cost grows
    with the square of the number of nodes, so certificates do not batch graphs. The choices of :func:`soft_median` and
    :func:`~edgeproof.propagation.top_ppr` are not differentiated.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        hidden_channels: Width of the hidden layers.
        num_layers: Number of convolutions.
        alpha: Teleport probability of the diffusion.
        k: Number of neighbors of each node after the diffusion.
        temperature: Temperature of the soft median.
        dropout: Dropout probability after every ReLU.

    >>> x, edge_index = torch.ones(3, 10), torch.tensor([[0, 1], [1, 0]])
    >>> SoftMedianGDC(10, 4)(x, edge_index).shape
    torch.Size([3, 4])
    """

    side_by_side = False
    takes_sparse = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden_channels: int = 64,
        num_layers: int = 2,
        alpha: float = 0.15,
        k: int = 64,
        temperature: float = 0.2,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(in_channels, out_channels, hidden_channels, num_layers, dropout)
        check_int(1, k=k)
        check_fraction(alpha=alpha)
        if not alpha:
            raise ValueError(f"expected alpha > 0, got {alpha!r}")
        _check_temperature(temperature)
        self.alpha, self.k, self.temperature = alpha, k, temperature
        self.weights = nn.ParameterList(nn.init.xavier_uniform_(torch.empty(size)) for size in self.layer_sizes)
        self.biases = nn.ParameterList(torch.zeros(width) for _, width in self.layer_sizes)

    def forward(self, x: Tensor, edge_index: Tensor | Adjacency, edge_weight: Tensor | None = None) -> Tensor:
        """Return the logits of every node; see :meth:`GraphModel.forward`. Edge weights must be >= 0."""
        _check_weights(edge_weight)
        return super().forward(x, edge_index, edge_weight)

    def input_weights(self) -> list[Tensor]:
        return [self.weights[0]]

    def encode(self, x: Tensor) -> Tensor:
        h: Tensor = x @ self.weights[0]
        return h

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        values, index = top_ppr(adjacency.normalized(self_loops=True), self.alpha, self.k)
        return self.convolve(h, values / values.sum(dim=1, keepdim=True), index)

    def convolve(self, h: Tensor, values: Tensor, index: Tensor) -> Tensor:
        """Map hidden states to logits, with neighbors in the form of :func:`soft_median`."""
        h = _soft_median_blocks(h, values, index, self.temperature) + self.biases[0]
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            h = F.dropout(h.relu(), self.dropout, self.training)
            h = _soft_median_blocks(h @ weight, values, index, self.temperature) + bias
        return h


def _neighborhoods(adjacency: Adjacency) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return groups of rows of similar length: their nodes, and the weights and columns of their entries.

    Rows are padded with weight 0 to the longest of their group, which is less than twice the length of the shortest.
    """
    pattern = adjacency.pattern
    length = pattern.rowptr.diff()
    # Groups of 1 entry, of 2 to 3, of 4 to 7, ...
    level = torch.frexp(length.double()).exponent
    groups = []
    for group in level.unique():
        nodes = (level == group).nonzero().squeeze(1)
        slot = torch.arange(int(length[nodes].max()), device=nodes.device)
        is_entry = slot < length[nodes][:, None]
        position = torch.where(is_entry, pattern.rowptr[nodes][:, None] + slot, 0)
        groups.append((nodes, torch.where(is_entry, adjacency.weight[position], 0.0), pattern.col[position]))
    return groups


def _check_weights(weight: Tensor | None) -> None:
    """Raise for negative weights and NaN, for which no weighted median is defined."""
    if weight is not None and not bool((weight >= 0).all()):
        raise ValueError(f"expected weights >= 0, got {float(weight[~(weight >= 0)][0])}")


def _check_temperature(temperature: float) -> None:
    if not is_number(temperature) or not temperature > 0:
        raise ValueError(f"expected temperature > 0, got {temperature!r}")
