"""Soft weighted medians over a diffused graph (Geisler et al., NeurIPS 2021; diffusion: Gasteiger et al., NeurIPS 2019)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from edgeproof.kernels import dispatch
from edgeproof.models.base import GraphModel, check_positive, check_share
from edgeproof.propagation import Adjacency, as_adjacency, top_ppr

# Numbers that the neighbours of some rows say together: beyond it the rows are taken in parts.
_BLOCK = 1 << 23
# An exponent beyond this is cut off: only a neighbour of weight 0 can have one.
_MOST = 60.0


def soft_median(x: Tensor, values: Tensor, index: Tensor, temperature: float) -> Tensor:
    r"""The soft weighted median of each row's neighbours.

    With :math:`\bar x_u` the weighted median of the neighbours of row :math:`u`, dimension by dimension,

    .. math::
        o_u = \Bigl(\sum_v a_{uv}\Bigr) \frac{\sum_v s_{uv} a_{uv} x_v}{\sum_v s_{uv} a_{uv}}, \qquad
        s_{uv} = \mathrm{softmax}_v \bigl(-c_{uv} / T\bigr), \qquad
        c_{uv} = \lVert \bar x_u - x_v \rVert_2 / \sqrt d.

    A high temperature :math:`T` gives the weighted sum, a low one the neighbour that is nearest to the median. Weight 0 is no
    neighbour, and a row without neighbours gives 0. Differentiable in ``x`` and ``values``, but for the choice of whose values
    the medians are.

    Args:
        x: what each node says, shape ``[nodes, channels]``.
        values: :math:`a`, not negative, shape ``[rows, k]``.
        index: the neighbours :math:`v` of each row, shape ``[rows, k]``.
        temperature: :math:`T`.

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
    return _in_parts(x, values, index, temperature)


def _in_parts(x: Tensor, values: Tensor, index: Tensor, temperature: float) -> Tensor:
    """The same without questions, which a GPU would have to wait for."""
    size = max(1, _BLOCK // max(1, index.size(1) * x.size(1)))
    if index.size(0) <= size:
        return _soft_median(x, values, index, temperature)
    # Backwards every part is computed again: what its neighbours say is held for one part at a time.
    parts = [
        checkpoint(_soft_median, x, *part, temperature, use_reentrant=False, preserve_rng_state=False)
        for part in zip(values.split(size), index.split(size), strict=True)
    ]
    return torch.cat(parts)


def _soft_median(x: Tensor, values: Tensor, index: Tensor, temperature: float) -> Tensor:
    if not index.numel():
        return x.new_zeros(index.size(0), x.size(1))
    median = x.gather(0, dispatch.weighted_median(x.detach(), values.detach(), index))
    heard = F.embedding(index, x)
    distance = torch.linalg.vector_norm(median[:, None] - heard, dim=2) / x.size(1) ** 0.5
    # The softmax needs no denominator, which cancels out; subtracting the nearest neighbour's distance, which does so, too,
    # keeps the sum above 0. Neighbours of weight 0 have no say in it, and their own exp, which only their gradient sees, is
    # kept finite.
    nearest = torch.where(values > 0, distance.detach(), torch.inf).amin(dim=1, keepdim=True)
    nearest = torch.where(nearest.isinf(), 0.0, nearest)
    share = values * ((nearest - distance) / temperature).clamp(max=_MOST).exp()
    total = share.sum(dim=1, keepdim=True)
    # Without neighbours 0 / 1.
    scale = values.sum(dim=1, keepdim=True) / torch.where(total > 0, total, 1.0)
    return scale * torch.einsum("rk,rkc->rc", share, heard)


class SoftMedianConv(nn.Module):
    r"""One layer: a linear map, and the :func:`soft_median` of the neighbours.

    .. math::
        o_u = b + \mathrm{softmedian}_v \bigl(A_{uv}, x_v W\bigr)

    The weights of the edges count as they are: for those of a graph convolution hand it
    ``adjacency.normalized(self_loops=True)``.

    Args:
        in_channels: features per node.
        out_channels: width of what comes out.
        temperature: :math:`T`.

    >>> x, edge_index = torch.ones(3, 10), torch.tensor([[0, 1], [1, 0]])
    >>> SoftMedianConv(10, 4)(x, edge_index).shape
    torch.Size([3, 4])
    """

    def __init__(self, in_channels: int, out_channels: int, *, temperature: float = 0.2) -> None:
        super().__init__()
        check_positive(in_channels=in_channels, out_channels=out_channels)
        _check_temperature(temperature)
        self.in_channels, self.out_channels, self.temperature = in_channels, out_channels, temperature
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(in_channels, out_channels)))
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(self, x: Tensor, edge_index: Tensor | Adjacency, edge_weight: Tensor | None = None) -> Tensor:
        """Shape ``[nodes, in_channels]`` to ``[nodes, out_channels]``; see :meth:`GraphModel.forward`."""
        _check_weights(edge_weight)
        adjacency = as_adjacency(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype)
        h = x @ self.weight
        out = torch.zeros_like(h)
        for nodes, values, index in _neighbourhoods(adjacency):
            out = out.index_copy(0, nodes, _in_parts(h, values, index, self.temperature))
        return out + self.bias


class SoftMedianGDC(GraphModel):
    r"""A graph convolutional network that listens to medians, over a diffused graph.

    .. math::
        H^{(l)} = \mathrm{ReLU}\bigl(\mathrm{softmedian}(S, H^{(l-1)} W_l) + b_l\bigr), \qquad
        S_{uv} = \frac{\Pi^k_{uv}}{\sum_w \Pi^k_{uw}}, \qquad
        \Pi = \alpha \bigl(I - (1 - \alpha) \hat A\bigr)^{-1}, \qquad
        \hat A = D^{-1/2} (A + I) D^{-1/2},

    where :math:`\Pi^k` has the ``k`` largest entries in each row of :math:`\Pi`; the last layer without ReLU, with dropout
    between layers. Every graph that the model is shown is diffused anew: an attack that did not see through the diffusion
    would only fool itself. The cost of that grows with the square of the nodes, so graphs do not run side by side. What
    :func:`soft_median` and :func:`~edgeproof.propagation.top_ppr` choose is not differentiated.

    Args:
        in_channels: features per node.
        out_channels: classes.
        hidden_channels: width of the hidden layers.
        num_layers: number of convolutions.
        alpha: the chance to return to the start in every step of the diffusion.
        k: neighbours of each node after the diffusion.
        temperature: of the soft median.
        dropout: share of hidden units dropped after every ReLU while training.

    >>> x, edge_index = torch.ones(3, 10), torch.tensor([[0, 1], [1, 0]])
    >>> SoftMedianGDC(10, 4)(x, edge_index).shape
    torch.Size([3, 4])
    """

    side_by_side = False

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
        check_positive(k=k)
        check_share(alpha=alpha)
        if not alpha:
            raise ValueError(f"expected alpha > 0, got {alpha!r}")
        _check_temperature(temperature)
        self.alpha, self.k, self.temperature = alpha, k, temperature
        self.weights = nn.ParameterList(nn.init.xavier_uniform_(torch.empty(size)) for size in self.layer_sizes)
        self.biases = nn.ParameterList(torch.zeros(width) for _, width in self.layer_sizes)

    def forward(self, x: Tensor, edge_index: Tensor | Adjacency, edge_weight: Tensor | None = None) -> Tensor:
        """Logits of every node; see :meth:`GraphModel.forward`. No weight may be negative."""
        _check_weights(edge_weight)
        return super().forward(x, edge_index, edge_weight)

    def encode(self, x: Tensor) -> Tensor:
        h: Tensor = x @ self.weights[0]
        return h

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        values, index = top_ppr(adjacency.normalized(self_loops=True), self.alpha, self.k)
        return self.convolve(h, values / values.sum(dim=1, keepdim=True), index)

    def convolve(self, h: Tensor, values: Tensor, index: Tensor) -> Tensor:
        """Hidden states to logits, over neighbours that are given as :func:`soft_median` takes them."""
        h = _in_parts(h, values, index, self.temperature) + self.biases[0]
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            h = F.dropout(h.relu(), self.dropout, self.training)
            h = _in_parts(h @ weight, values, index, self.temperature) + bias
        return h


def _neighbourhoods(adjacency: Adjacency) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Rows, and the weights and columns of their entries, for rows of about one length at a time.

    Padded to the longest of them, of less than twice the length, so that all together hold less than twice the entries. What
    pads has weight 0.
    """
    pattern = adjacency.pattern
    length = pattern.rowptr.diff()
    # Rows of 1 entry, of 2 and 3, of 4 to 7 ...
    level = torch.frexp(length.double()).exponent
    found = []
    for one in level.unique():
        nodes = (level == one).nonzero().squeeze(1)
        slot = torch.arange(int(length[nodes].max()), device=nodes.device)
        there = slot < length[nodes][:, None]
        place = torch.where(there, pattern.rowptr[nodes][:, None] + slot, 0)
        found.append((nodes, torch.where(there, adjacency.weight[place], 0.0), pattern.col[place]))
    return found


def _check_weights(weight: Tensor | None) -> None:
    """Raise for a negative weight or NaN: no median is defined by them."""
    if weight is not None and not bool((weight >= 0).all()):
        raise ValueError(f"expected weights >= 0, got {float(weight[~(weight >= 0)][0])}")


def _check_temperature(temperature: float) -> None:
    if not isinstance(temperature, (int, float)) or not temperature > 0:
        raise ValueError(f"expected temperature > 0, got {temperature!r}")
