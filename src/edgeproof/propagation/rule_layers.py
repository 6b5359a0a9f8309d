"""PyG's layers over an :class:`~edgeproof.propagation.Adjacency`, with the parameters of the original layers.

Each uses the graph only through :func:`~edgeproof.propagation.propagate` over matrices of known rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import APPNP as APPNPConv
from torch_geometric.nn import (
    ARMAConv,
    ChebConv,
    GATConv,
    GCN2Conv,
    GCNConv,
    GINConv,
    GraphConv,
    LEConv,
    SAGEConv,
    SGConv,
    TAGConv,
)

from edgeproof.propagation.adjacency import Adjacency
from edgeproof.propagation.message_rules import attention
from edgeproof.propagation.propagate import propagate


class RuleLayer(nn.Module):
    """Layer over an adjacency matrix, with the parameters of a PyG layer."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv: Any = conv

    def _check_graph(self, graph: object, *others: Tensor | None) -> None:
        if not isinstance(graph, Adjacency) or any(other is not None for other in others):
            raise TypeError(f"expected {type(self.conv).__name__} to get the graph that was passed to the model")

    def _normalized(self, adjacency: Adjacency, self_loops: bool | None = None) -> Adjacency:
        if not getattr(self.conv, "normalize", True):
            return adjacency
        return adjacency.normalized(self_loops=self.conv.add_self_loops if self_loops is None else self_loops)


class _Convolution(RuleLayer, ABC):
    """Layer called as ``layer(x, edge_index)``."""

    def forward(
        self, x: Tensor, edge_index: Adjacency, edge_weight: Tensor | None = None, edge_attr: Tensor | None = None
    ) -> Tensor:
        self._check_graph(edge_index, edge_weight, edge_attr)
        return self.run(x, edge_index)

    @abstractmethod
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        """Return the output of the layer."""


class GCN(_Convolution):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        return _add_bias(propagate(self._normalized(adjacency), self.conv.lin(x)), self.conv.bias)


class SG(_Convolution):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        # The linear map commutes with propagation, and there are fewer classes than features.
        h, matrix = x @ self.conv.lin.weight.T, self._normalized(adjacency)
        for _ in range(self.conv.K):
            h = propagate(matrix, h)
        return _add_bias(h, self.conv.lin.bias)


class APPNP(_Convolution):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        h, matrix = x, self._normalized(adjacency)
        for _ in range(self.conv.K):
            dropped = _dropout(matrix, self.conv.dropout, self.training)
            h = (1 - self.conv.alpha) * propagate(dropped, h) + self.conv.alpha * x
        return h


class Graph(_Convolution):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        matrix = adjacency.averaged if self.conv.aggr == "mean" else adjacency
        out = propagate(matrix, x @ self.conv.lin_rel.weight.T)
        return _add_bias(out, self.conv.lin_rel.bias) + cast(Tensor, self.conv.lin_root(x))


class GAT(_Convolution):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        conv, loops = self.conv, adjacency.with_self_loops
        states = conv.lin(x).view(-1, conv.heads, conv.out_channels)
        heads = []
        for head in range(conv.heads):
            h = states[:, head]
            matrix = attention(loops, h @ conv.att_dst[0, head], h @ conv.att_src[0, head], conv.negative_slope)
            heads.append(propagate(_dropout(matrix, conv.dropout, self.training), h))
        out = torch.cat(heads, dim=1) if conv.concat else torch.stack(heads).mean(dim=0)
        return _add_bias(out if conv.res is None else out + conv.res(x), conv.bias)


class SAGE(_Convolution):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        conv = self.conv
        matrix = adjacency.averaged if conv.aggr == "mean" else adjacency
        h = conv.lin(x).relu() if conv.project else x
        out = _add_bias(propagate(matrix, h @ conv.lin_l.weight.T), conv.lin_l.bias)
        if conv.root_weight:
            out = out + conv.lin_r(x)
        return F.normalize(out, p=2.0, dim=-1) if conv.normalize else out


class GIN(_Convolution):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        out: Tensor = self.conv.nn(propagate(adjacency, x) + (1 + self.conv.eps) * x)
        return out


class TAG(_Convolution):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        out, matrix = self.conv.lins[0](x), self._normalized(adjacency, self_loops=False)
        for lin in self.conv.lins[1:]:
            x = propagate(matrix, x)
            out = out + lin(x)
        return _add_bias(out, self.conv.bias)


class Cheb(_Convolution):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        # The largest entry of the Laplacian is 1, so the scaled Laplacian is minus the normalized adjacency matrix.
        matrix, lins = adjacency.normalized(self_loops=False), self.conv.lins
        terms = [x, -propagate(matrix, x)] if len(lins) > 1 else [x]
        for _ in lins[2:]:
            terms.append(-2 * propagate(matrix, terms[-1]) - terms[-2])
        out = sum((lin(term) for lin, term in zip(lins[1:], terms[1:], strict=True)), lins[0](x))
        return _add_bias(out, self.conv.bias)


class ARMA(_Convolution):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        conv, matrix = self.conv, adjacency.normalized(self_loops=False)
        out = x[None]
        for t in range(conv.num_layers):
            shared = 0 if conv.shared_weights else t
            out = out @ (conv.init_weight if t == 0 else conv.weight[0 if conv.shared_weights else t - 1])
            # All stacks as channels of one matrix.
            stacks, nodes, channels = out.shape
            wide = propagate(matrix, out.transpose(0, 1).reshape(nodes, stacks * channels))
            out = wide.view(nodes, stacks, channels).transpose(0, 1)
            out = out + F.dropout(x[None], p=conv.dropout, training=self.training) @ conv.root_weight[shared]
            if conv.bias is not None:
                out = out + conv.bias[shared]
            if conv.act is not None:
                out = conv.act(out)
        return out.mean(dim=0)


class GCN2(RuleLayer):
    def forward(self, x: Tensor, x_0: Tensor, edge_index: Adjacency, edge_weight: Tensor | None = None) -> Tensor:
        self._check_graph(edge_index, edge_weight)
        conv = self.conv
        h, x_0 = (1 - conv.alpha) * propagate(self._normalized(edge_index), x), conv.alpha * x_0
        second = conv.weight1 if conv.weight2 is None else conv.weight2
        out: Tensor = (1 - conv.beta) * (h + x_0) + conv.beta * (h @ conv.weight1 + x_0 @ second)
        return out


class LE(_Convolution):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        # The sum of (a_j - b_i) over the neighbors j of i; the degree is a message of ones.
        degree = propagate(adjacency, x.new_ones(x.size(0), 1))
        out: Tensor = propagate(adjacency, self.conv.lin1(x)) - degree * self.conv.lin2(x) + self.conv.lin3(x)
        return out


_SUM, _MEAN = ("add", "sum"), ("mean",)
LAYERS: dict[type, tuple[type[RuleLayer], tuple[str, ...], dict[str, Any]]] = {
    GCNConv: (GCN, _SUM, {"improved": False, "cached": False}),
    SGConv: (SG, _SUM, {"cached": False}),
    APPNPConv: (APPNP, _SUM, {"cached": False}),
    GraphConv: (Graph, _MEAN + _SUM, {}),
    GATConv: (GAT, _SUM, {"add_self_loops": True, "edge_dim": None, "lin_src": None}),
    SAGEConv: (SAGE, _MEAN + _SUM, {}),
    GINConv: (GIN, _SUM, {}),
    TAGConv: (TAG, _SUM, {}),
    ChebConv: (Cheb, _SUM, {"normalization": "sym"}),
    ARMAConv: (ARMA, _SUM, {}),
    GCN2Conv: (GCN2, _SUM, {"cached": False}),
    LEConv: (LE, _SUM, {}),
}
"""For each layer: its replacement, the supported aggregations, and the required values of other settings."""


def _add_bias(out: Tensor, bias: Tensor | None) -> Tensor:
    return out if bias is None else out + bias


def _dropout(matrix: Adjacency, p: float, training: bool) -> Adjacency:
    """Drop entries during training. The rule is dropped, too, but gradients are computed in evaluation mode only."""
    return matrix.with_weight(F.dropout(matrix.weight, p)) if training and p else matrix
