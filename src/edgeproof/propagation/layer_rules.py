"""Conversion of models of PyG layers, so that every message passes through :func:`~edgeproof.propagation.propagate`.

A PyG layer gathers its messages internally. Each is replaced by an equivalent layer over an
:class:`~edgeproof.propagation.Adjacency` with the same parameters. The code around the layers is unchanged; it may pass the
graph from layer to layer but must not use it otherwise.
"""

from __future__ import annotations

import copy
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing

from edgeproof.propagation.adjacency import Adjacency, as_adjacency
from edgeproof.propagation.autograd_path import eval_mode, same_logits
from edgeproof.propagation.message_rules import Plain
from edgeproof.propagation.rule_layers import GCN, LAYERS, RuleLayer


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
        layers = [module for module in self.modules() if isinstance(module, RuleLayer)]
        found = []
        for layer in layers:
            conv = layer.conv
            if not (isinstance(layer, GCN) and conv.normalize and conv.add_self_loops):
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
    converted = ConvertedModel(model)
    converted.check_same_logits(
        model, data.x, as_adjacency(data.edge_index, None, num_nodes=data.x.size(0), dtype=data.x.dtype)
    )
    return converted


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


def _replacement(conv: nn.Module) -> RuleLayer:
    name = type(conv).__name__
    if type(conv) not in LAYERS:
        supported = ", ".join(layer.__name__ for layer in LAYERS)
        raise UnsupportedLayerError(f"its layer {name} is not supported; supported layers: {supported}")
    layer, aggregations, required = LAYERS[type(conv)]
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
