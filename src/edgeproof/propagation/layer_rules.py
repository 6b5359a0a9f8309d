"""Models of PyG's layers, with every message sent through :func:`~edgeproof.propagation.propagate`.

A layer of PyG gathers its messages itself, so nobody else can see them. Here each one is replaced by the same layer over an
:class:`~edgeproof.propagation.Adjacency`, with the parameters that it has; everything around the layers stays the user's own
code, which hands the graph from layer to layer without looking into it.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GATConv, GCNConv, GINConv, GraphConv, MessagePassing, SAGEConv, SGConv

from edgeproof._checks import check_module
from edgeproof._modules import eval_mode
from edgeproof.propagation.adjacency import Adjacency, as_adjacency
from edgeproof.propagation.attention import attention
from edgeproof.propagation.message_rules import Plain
from edgeproof.propagation.propagate import propagate

# How far the logits of a model and of what replaces it may differ, relative to the largest.
_AGREE = {torch.float32: 1e-4, torch.float64: 1e-10}


class UnsupportedLayerError(ValueError):
    """A model does more with its graph than to hand it to layers that are known here."""


class EdgeWeighted(nn.Module):
    """A model whose messages are weighted, so that its output can be differentiated in the edges.

    For models of PyG's ``GCNConv``, ``SGConv``, ``APPNP``, ``GraphConv`` and ``GATConv`` the library does this by itself.
    Models of ``SAGEConv`` (means and sums) and ``GINConv`` take no edge weights at all: wrap them to say that a weight of 0
    shall mean no edge and that a weight in between shall count in part. Where all weights are 1 nothing changes.

    The parameters are the model's own: training one trains the other. That nothing changes is seen to on the first call, where
    the model itself is asked, too.

    Args:
        model: called as ``model(x, edge_index)``.

    >>> from torch_geometric.nn.models import GraphSAGE
    >>> model = EdgeWeighted(GraphSAGE(3, 8, num_layers=2, out_channels=2))
    >>> x, edge_index = torch.ones(3, 3), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> weight = torch.ones(4, requires_grad=True)
    >>> model(x, edge_index, weight).sum().backward()
    >>> weight.grad.shape
    torch.Size([4])
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        check_module(model)
        self.inner = _with_layers_replaced(model)
        self.training = model.training
        # Whom the first call is compared with; in a tuple, so that it is no part of this module.
        self._original: tuple[nn.Module, ...] = (model,)

    def encode(self, x: Tensor) -> Tensor:
        """Nothing: where the first message stands is the model's own affair."""
        return x

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        """Logits of every node."""
        if self._original:
            self._compare(h, adjacency)
            self._original = ()
        logits: Tensor = self.inner(h, adjacency)
        return logits

    def forward(self, x: Tensor, edge_index: Tensor | Adjacency, edge_weight: Tensor | None = None) -> Tensor:
        """Logits of every node; a weight of 0 is no edge."""
        return self.diffuse(x, as_adjacency(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype))

    @torch.no_grad()
    def _compare(self, x: Tensor, adjacency: Adjacency) -> None:
        """Raise unless the model itself gives the same, where all weights are 1."""
        there, pattern = adjacency.weight > 0, adjacency.pattern
        with eval_mode(self):
            try:
                logits = self.inner(x, Adjacency(pattern, there.to(x.dtype), rule=Plain()))
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                raise UnsupportedLayerError(
                    f"it looks into its graph, not only its layers do ({type(error).__name__}: {error})"
                ) from error
        # Where this module has been moved or cast since, the model has not: a copy of it gets the tensors that are here.
        pairs = zip(_tensors(self._original[0]), _tensors(self.inner), strict=True)
        original = _copied(self._original[0], {id(theirs): mine for theirs, mine in pairs})
        with eval_mode(original):
            expected = original(x, torch.stack([pattern.col, pattern.row])[:, there])
        same = isinstance(logits, Tensor) and isinstance(expected, Tensor) and logits.shape == expected.shape
        if not same or not bool(
            ((expected - logits).abs() <= _AGREE.get(logits.dtype, 1e-2) * expected.abs().max() + 1e-12).all()
        ):
            raise UnsupportedLayerError(
                "it gives other logits with its layers replaced: they are not all of its messages"
            )


class _Layer(nn.Module, ABC):
    """A layer of PyG over an adjacency matrix."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv: Any = conv

    def forward(
        self, x: Tensor, edge_index: Adjacency, edge_weight: Tensor | None = None, edge_attr: Tensor | None = None
    ) -> Tensor:
        if not isinstance(edge_index, Adjacency) or edge_weight is not None or edge_attr is not None:
            raise TypeError(f"{type(self.conv).__name__} was given a graph or weights that the model made itself")
        return self.run(x, edge_index)

    @abstractmethod
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        """What the layer gives."""

    def _normalized(self, adjacency: Adjacency) -> Adjacency:
        if not getattr(self.conv, "normalize", True):
            return adjacency
        return adjacency.normalized(self_loops=self.conv.add_self_loops)


class _GCN(_Layer):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        return _plus(propagate(self._normalized(adjacency), self.conv.lin(x)), self.conv.bias)


class _SG(_Layer):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        # The linear map and the propagation change places: there are fewer classes than features.
        h, matrix = x @ self.conv.lin.weight.T, self._normalized(adjacency)
        for _ in range(self.conv.K):
            h = propagate(matrix, h)
        return _plus(h, self.conv.lin.bias)


class _APPNP(_Layer):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        h, matrix = x, self._normalized(adjacency)
        for _ in range(self.conv.K):
            matrix_now = _dropped(matrix, self.conv.dropout, self.training)
            h = (1 - self.conv.alpha) * propagate(matrix_now, h) + self.conv.alpha * x
        return h


class _Graph(_Layer):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        heard = propagate(adjacency, x @ self.conv.lin_rel.weight.T)
        return _plus(heard, self.conv.lin_rel.bias) + cast(Tensor, self.conv.lin_root(x))


class _GAT(_Layer):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        conv, loops = self.conv, adjacency.with_self_loops
        states = conv.lin(x).view(-1, conv.heads, conv.out_channels)
        heads = []
        for head in range(conv.heads):
            h = states[:, head]
            matrix = attention(loops, h @ conv.att_dst[0, head], h @ conv.att_src[0, head], conv.negative_slope)
            heads.append(propagate(_dropped(matrix, conv.dropout, self.training), h))
        out = torch.cat(heads, dim=1) if conv.concat else torch.stack(heads).mean(dim=0)
        return _plus(out if conv.res is None else out + conv.res(x), conv.bias)


class _SAGE(_Layer):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        conv = self.conv
        matrix = adjacency.averaged if conv.aggr == "mean" else adjacency
        h = conv.lin(x).relu() if conv.project else x
        out = _plus(propagate(matrix, h @ conv.lin_l.weight.T), conv.lin_l.bias)
        if conv.root_weight:
            out = out + conv.lin_r(x)
        return F.normalize(out, p=2.0, dim=-1) if conv.normalize else out


class _GIN(_Layer):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        out: Tensor = self.conv.nn(propagate(adjacency, x) + (1 + self.conv.eps) * x)
        return out


_SUM, _MEAN = ("add", "sum"), ("mean",)
# What replaces each layer, how it may join messages, and which settings it must have: what means something else is refused.
_LAYERS: dict[type, tuple[type[_Layer], tuple[str, ...], dict[str, Any]]] = {
    GCNConv: (_GCN, _SUM, {"improved": False, "cached": False}),
    SGConv: (_SG, _SUM, {"cached": False}),
    APPNP: (_APPNP, _SUM, {"cached": False}),
    GraphConv: (_Graph, _SUM, {}),
    GATConv: (_GAT, _SUM, {"add_self_loops": True, "edge_dim": None, "lin_src": None}),
    SAGEConv: (_SAGE, _MEAN + _SUM, {}),
    GINConv: (_GIN, _SUM, {}),
}
# Layers that take no edge weights, nor a place for them that everyone agrees on: they are replaced only where asked for.
_WEIGHTLESS = (SAGEConv, GINConv)


def convert_pyg_layers(model: nn.Module, data: Data) -> EdgeWeighted:
    """The model with its layers replaced, where that gives the same logits on this graph.

    Made anew on every call: what becomes of the model later, other than the values of its parameters, is not seen here.

    Raises:
        UnsupportedLayerError: with the reason, if it cannot be done or does not give the same.
    """
    weightless = [type(module).__name__ for module in model.modules() if type(module) in _WEIGHTLESS]
    if weightless:
        raise UnsupportedLayerError(
            f"its layer {weightless[0]} takes no edge weights; edgeproof.models.EdgeWeighted(model) weighs its messages"
        )
    adopted = EdgeWeighted(model)
    with torch.no_grad(), eval_mode(adopted):
        adopted(data.x, data.edge_index)
    return adopted


def _with_layers_replaced(model: nn.Module) -> nn.Module:
    """A copy of the modules around the very same parameters, each layer of PyG replaced."""
    inner = _copied(model, {id(tensor): tensor for tensor in _tensors(model)})
    layers = {id(module): _replaced(module) for module in inner.modules() if isinstance(module, MessagePassing)}
    if not layers:
        raise UnsupportedLayerError("it has no layers of torch_geometric.nn")
    if id(inner) in layers:
        return layers[id(inner)]
    for parent in list(inner.modules()):
        # Not named_children: it passes over a layer that is used twice.
        for name, child in parent._modules.items():
            if id(child) in layers:
                parent._modules[name] = layers[id(child)]
    return inner


def _tensors(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


def _copied(model: nn.Module, tensors: dict[int, Tensor]) -> nn.Module:
    """A copy of the modules, with these tensors in place of those of these ids."""
    try:
        return copy.deepcopy(model, cast(dict[int, Any], dict(tensors)))
    except Exception as error:
        raise UnsupportedLayerError(f"it cannot be copied: {error}") from error


def _replaced(conv: nn.Module) -> _Layer:
    name = type(conv).__name__
    if type(conv) not in _LAYERS:
        known = ", ".join(layer.__name__ for layer in _LAYERS)
        raise UnsupportedLayerError(f"its layer {name} is none of {known}")
    layer, joins, needed = _LAYERS[type(conv)]
    if conv.aggr not in joins:
        raise UnsupportedLayerError(
            f"its layer {name} has aggr={conv.aggr!r}, expected {' or '.join(map(repr, joins))}"
        )
    for setting, value in {"flow": "source_to_target", **needed}.items():
        found = getattr(conv, setting)
        if found != value:
            raise UnsupportedLayerError(f"its layer {name} has {setting}={found!r}, expected {value!r}")
    replaced = layer(conv)
    replaced.training = conv.training
    return replaced


def _plus(out: Tensor, bias: Tensor | None) -> Tensor:
    return out if bias is None else out + bias


def _dropped(matrix: Adjacency, share: float, training: bool) -> Adjacency:
    """Entries dropped while training; not in evaluation, where gradients are asked for."""
    return matrix.with_weight(F.dropout(matrix.weight, share)) if training and share else matrix
