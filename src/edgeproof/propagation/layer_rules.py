"""Conversion of models of PyG layers, so that every message passes through :func:`~edgeproof.propagation.propagate`.

A PyG layer gathers its messages internally. Each is replaced by an equivalent layer over an
:class:`~edgeproof.propagation.Adjacency` with the same parameters. The code around the layers is unchanged; it may pass the
graph from layer to layer but must not use it otherwise.
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

from edgeproof.propagation.adjacency import Adjacency, as_adjacency
from edgeproof.propagation.autograd_path import eval_mode, same_logits
from edgeproof.propagation.message_rules import Plain, attention
from edgeproof.propagation.propagate import propagate


class UnsupportedLayerError(ValueError):
    """A model has a layer without a replacement, or uses its graph outside of its layers."""


class ConvertedModel(nn.Module):
    """Copy of a model with its PyG layers replaced. It shares the parameters of the original.

    Args:
        model: Model called as ``model(x, edge_index)``.

    Raises:
        UnsupportedLayerError: If a layer has no replacement.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.inner = _replace_layers(model)
        self.training = model.training

    def convolutions(self) -> list[tuple[Tensor, Tensor]]:
        """Return weight and bias of each normalized convolution with self-loops; an empty list if there are other layers."""
        layers = [module for module in self.modules() if isinstance(module, _Layer)]
        found = []
        for layer in layers:
            conv = layer.conv
            if not (isinstance(layer, _GCN) and conv.normalize and conv.add_self_loops):
                return []
            weight = conv.lin.weight.T
            found.append((weight, weight.new_zeros(weight.size(1)) if conv.bias is None else conv.bias))
        return found

    def encode(self, x: Tensor) -> Tensor:
        """Return the features unchanged: the position of the first message in the model is unknown."""
        return x

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        """Return the logits of every node."""
        logits: Tensor = self.inner(h, adjacency)
        return logits

    def forward(self, x: Tensor, edge_index: Tensor | Adjacency, edge_weight: Tensor | None = None) -> Tensor:
        """Return the logits of every node. An edge of weight 0 equals no edge."""
        return self.diffuse(x, as_adjacency(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype))

    @torch.no_grad()
    def check_same_logits(self, original: nn.Module, x: Tensor, adjacency: Adjacency) -> None:
        """Raise :class:`UnsupportedLayerError` unless the original model gives the same logits where all weights are 1."""
        is_edge, pattern = adjacency.weight > 0, adjacency.pattern
        with eval_mode(self):
            try:
                logits = self.inner(x, Adjacency(pattern, is_edge.to(x.dtype), rule=Plain()))
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                raise UnsupportedLayerError(
                    f"it uses its graph outside of its layers ({type(error).__name__}: {error})"
                ) from error
        # This module may have been moved or cast since its construction, so a copy of the original gets its tensors.
        tensors = zip(_tensors(original), _tensors(self.inner), strict=True)
        original = _copy_module(original, {id(old): new for old, new in tensors})
        with eval_mode(original):
            expected = original(x, torch.stack([pattern.col, pattern.row])[:, is_edge])
        if not (isinstance(logits, Tensor) and isinstance(expected, Tensor) and same_logits(logits, expected)):
            raise UnsupportedLayerError(
                "its logits change when its layers are replaced, so it has messages outside of its layers"
            )


def convert_pyg_layers(model: nn.Module, data: Data) -> ConvertedModel:
    """Replace the PyG layers of a model, and compare the logits on this graph.

    Convert again after changes of the model other than to the values of its parameters.

    Raises:
        UnsupportedLayerError: If a layer has no replacement, or the logits differ.
    """
    weightless = [type(module).__name__ for module in model.modules() if type(module) in _WEIGHTLESS]
    if weightless:
        raise UnsupportedLayerError(
            f"its layer {weightless[0]} takes no edge weights; edgeproof.models.EdgeWeighted(model) adds them"
        )
    converted = ConvertedModel(model)
    converted.check_same_logits(
        model, data.x, as_adjacency(data.edge_index, None, num_nodes=data.x.size(0), dtype=data.x.dtype)
    )
    return converted


class _Layer(nn.Module, ABC):
    """PyG layer over an adjacency matrix."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv: Any = conv

    def forward(
        self, x: Tensor, edge_index: Adjacency, edge_weight: Tensor | None = None, edge_attr: Tensor | None = None
    ) -> Tensor:
        if not isinstance(edge_index, Adjacency) or edge_weight is not None or edge_attr is not None:
            raise TypeError(f"expected {type(self.conv).__name__} to get the graph that was passed to the model")
        return self.run(x, edge_index)

    @abstractmethod
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        """Return the output of the layer."""

    def _normalized(self, adjacency: Adjacency) -> Adjacency:
        if not getattr(self.conv, "normalize", True):
            return adjacency
        return adjacency.normalized(self_loops=self.conv.add_self_loops)


class _GCN(_Layer):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        return _add_bias(propagate(self._normalized(adjacency), self.conv.lin(x)), self.conv.bias)


class _SG(_Layer):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        # The linear map commutes with propagation, and there are fewer classes than features.
        h, matrix = x @ self.conv.lin.weight.T, self._normalized(adjacency)
        for _ in range(self.conv.K):
            h = propagate(matrix, h)
        return _add_bias(h, self.conv.lin.bias)


class _APPNP(_Layer):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        h, matrix = x, self._normalized(adjacency)
        for _ in range(self.conv.K):
            dropped = _dropout(matrix, self.conv.dropout, self.training)
            h = (1 - self.conv.alpha) * propagate(dropped, h) + self.conv.alpha * x
        return h


class _Graph(_Layer):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        out = propagate(adjacency, x @ self.conv.lin_rel.weight.T)
        return _add_bias(out, self.conv.lin_rel.bias) + cast(Tensor, self.conv.lin_root(x))


class _GAT(_Layer):
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


class _SAGE(_Layer):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        conv = self.conv
        matrix = adjacency.averaged if conv.aggr == "mean" else adjacency
        h = conv.lin(x).relu() if conv.project else x
        out = _add_bias(propagate(matrix, h @ conv.lin_l.weight.T), conv.lin_l.bias)
        if conv.root_weight:
            out = out + conv.lin_r(x)
        return F.normalize(out, p=2.0, dim=-1) if conv.normalize else out


class _GIN(_Layer):
    def run(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        out: Tensor = self.conv.nn(propagate(adjacency, x) + (1 + self.conv.eps) * x)
        return out


_SUM, _MEAN = ("add", "sum"), ("mean",)
# For each layer: its replacement, the supported aggregations, and the required values of other settings.
_LAYERS: dict[type, tuple[type[_Layer], tuple[str, ...], dict[str, Any]]] = {
    GCNConv: (_GCN, _SUM, {"improved": False, "cached": False}),
    SGConv: (_SG, _SUM, {"cached": False}),
    APPNP: (_APPNP, _SUM, {"cached": False}),
    GraphConv: (_Graph, _SUM, {}),
    GATConv: (_GAT, _SUM, {"add_self_loops": True, "edge_dim": None, "lin_src": None}),
    SAGEConv: (_SAGE, _MEAN + _SUM, {}),
    GINConv: (_GIN, _SUM, {}),
}
# Layers without edge weights. There is more than one way to add them, so they are replaced on request only.
_WEIGHTLESS = (SAGEConv, GINConv)


def _replace_layers(model: nn.Module) -> nn.Module:
    """Return a copy of the modules that shares all tensors, with each PyG layer replaced."""
    inner = _copy_module(model, {id(tensor): tensor for tensor in _tensors(model)})
    layers = {id(module): _replacement(module) for module in inner.modules() if isinstance(module, MessagePassing)}
    if not layers:
        raise UnsupportedLayerError("it has no layers of torch_geometric.nn")
    if id(inner) in layers:
        return layers[id(inner)]
    for parent in list(inner.modules()):
        # named_children would skip the second use of a shared layer.
        for name, child in parent._modules.items():
            if id(child) in layers:
                parent._modules[name] = layers[id(child)]
    return inner


def _replacement(conv: nn.Module) -> _Layer:
    name = type(conv).__name__
    if type(conv) not in _LAYERS:
        supported = ", ".join(layer.__name__ for layer in _LAYERS)
        raise UnsupportedLayerError(f"its layer {name} is not supported; supported layers: {supported}")
    layer, aggregations, required = _LAYERS[type(conv)]
    if conv.aggr not in aggregations:
        raise UnsupportedLayerError(
            f"its layer {name} has aggr={conv.aggr!r}, expected {' or '.join(map(repr, aggregations))}"
        )
    for setting, expected in {"flow": "source_to_target", **required}.items():
        value = getattr(conv, setting)
        if value != expected:
            raise UnsupportedLayerError(f"its layer {name} has {setting}={value!r}, expected {expected!r}")
    replacement = layer(conv)
    replacement.training = conv.training
    return replacement


def _tensors(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


def _copy_module(model: nn.Module, tensors: dict[int, Tensor]) -> nn.Module:
    """Copy the modules, with each tensor replaced by the one under its ``id``."""
    try:
        return copy.deepcopy(model, cast(dict[int, Any], dict(tensors)))
    except Exception as error:
        raise UnsupportedLayerError(f"it cannot be copied: {error}") from error


def _add_bias(out: Tensor, bias: Tensor | None) -> Tensor:
    return out if bias is None else out + bias


def _dropout(matrix: Adjacency, p: float, training: bool) -> Adjacency:
    """Drop entries during training. The rule is dropped, too, but gradients are computed in evaluation mode only."""
    return matrix.with_weight(F.dropout(matrix.weight, p)) if training and p else matrix
