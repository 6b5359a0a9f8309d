"""Tier of a model and of its layers: how attacks compute the effect of edge flips on it."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing

from edgeproof._checks import check_data
from edgeproof._features import for_model
from edgeproof._tables import Layout, Record, TabularResult
from edgeproof.models.adapt import Adapted, adapt
from edgeproof.propagation import EdgeGradientEngine, NoEdgeGradientError, Tier, UnsupportedLayerError
from edgeproof.propagation.autograd_path import eval_mode, same_logits, weighted_logit_sum
from edgeproof.propagation.layer_rules import rule_layer
from edgeproof.propagation.pairs import Pairs, num_pairs
from edgeproof.propagation.relaxation import EdgeRelaxation

# Block size of PR-BCD and LR-BCD, and the pairs from which the time of a block is extrapolated.
_BLOCK_SIZE, _TIMED_PAIRS = 500_000, 20_000


@dataclass(frozen=True)
class LayerTier:
    """Tier of one layer.

    Args:
        name: Name of the module in the model.
        layer: Class of the layer.
        tier: Fastest tier that the layer allows. None if the layer was not called.
        reason: Why it allows no faster one; empty for ``"propagate"``.
    """

    name: str
    layer: str
    tier: Tier | None
    reason: str


@dataclass(frozen=True)
class ModelTier(TabularResult):
    """Result of :func:`tier_of`.

    Args:
        tier: ``"propagate"``, ``"autograd"`` or ``"black_box"``.
        reason: Why the model has no faster tier; empty for ``"propagate"``.
        layers: Tier of each layer of PyG, or subclass of its ``MessagePassing``.
    """

    tier: Tier
    reason: str
    layers: tuple[LayerTier, ...]

    @property
    def advice(self) -> str:
        """What to change for a faster tier; empty for ``"propagate"``."""
        slow = [layer for layer in self.layers if layer.tier == self.tier]
        names = ", ".join(dict.fromkeys(f"{layer.layer} ({layer.name})" for layer in slow))
        if self.tier == "propagate":
            return ""
        if self.tier == "black_box":
            start = f"replace {names}, or " if names else ""
            return f"{start}give forward an edge_weight with which an edge of weight 0 equals no edge"
        start = f"replace {names} by a layer of tier 'propagate', or " if names else ""
        return f"{start}write the model as an edgeproof.models.GraphModel that only uses propagate()"

    def summary(self) -> Record:
        """Return the values that occur once, as numbers, text, lists and dictionaries."""
        return {"tier": self.tier, "reason": self.reason, "advice": self.advice}

    def _records(self) -> list[Record]:
        return [asdict(layer) for layer in self.layers]

    def _layout(self) -> Layout:
        lines = [(layer.name, layer.layer, layer.tier or "not called", layer.reason) for layer in self.layers]
        notes = [note for note in (self.reason, self.advice) if note]
        return Layout(
            f"tier: {self.tier}", ("module", "layer", "tier", "why no faster tier"), lines, left=4, notes=notes
        )


def tier_of(model: nn.Module, data: Data) -> ModelTier:
    """Return the fastest tier that is correct for a model, and that of its layers, by a few forward and backward passes.

    Args:
        model: Any module that returns logits, on the graph's device.
        data: Graph of the kind that the model is used on.

    Raises:
        ValueError: If no attack can be trusted on the model, for example because it reuses the graph of an earlier call.

    >>> from edgeproof import datasets
    >>> from torch_geometric.nn.models import GAT
    >>> data = datasets.load("csbm")
    >>> found = tier_of(GAT(data.num_features, 8, num_layers=2, out_channels=2, v2=True), data)
    >>> found.tier, found.layers[0].layer, found.layers[0].tier
    ('autograd', 'GATv2Conv', 'autograd')
    """
    check_data(data, labels=False)
    model = adapt(model, data)
    layers = layer_tiers(model, data)
    try:
        engine = _engine(model, data)
    except NoEdgeGradientError as error:
        return ModelTier("black_box", str(error), layers)
    return ModelTier(engine.path, engine.reason, layers)


def layer_tiers(model: nn.Module, data: Data) -> tuple[LayerTier, ...]:
    """Return the tier of each layer of PyG in a model, tested on its own with the inputs of one forward pass.

    Args:
        model: Module called as ``model(x, edge_index)``.
        data: Graph.
    """
    named = (model.model if isinstance(model, Adapted) else model).named_modules()
    convs = {module: name for name, module in named if isinstance(module, MessagePassing)}
    # Layers inside other layers, such as that of a GPSConv, are shown, too.
    calls: dict[nn.Module, tuple[tuple[Any, ...], dict[str, Any]]] = {}

    def remember(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        calls.setdefault(module, (args, kwargs))

    hooks = [conv.register_forward_pre_hook(remember, with_kwargs=True) for conv in convs]
    try:
        data = for_model(data, model)
        with eval_mode(model), torch.no_grad():
            model(data.x, data.edge_index)
            return tuple(_layer_tier(name, conv, calls.get(conv)) for conv, name in convs.items())
    finally:
        for hook in hooks:
            hook.remove()


def expected_seconds(model: nn.Module, data: Data) -> dict[str, float]:
    """Measure one prediction, and one step of an attack on a block of half a million pairs if the model has gradients.

    Args:
        model: Model.
        data: Graph.
    """
    model = adapt(model, data)
    data = for_model(data, model)
    with eval_mode(model), torch.no_grad():
        seconds = {"one prediction": _seconds(lambda: model(data.x, data.edge_index))}
    try:
        engine = _engine(model, data)
    except NoEdgeGradientError:
        return seconds
    total = num_pairs(engine.num_nodes)
    block, timed = min(total, _BLOCK_SIZE), min(total, _TIMED_PAIRS)
    number = torch.randint(max(1, total), (timed,), generator=torch.Generator().manual_seed(0)).unique()
    pairs = Pairs.from_number(number.to(data.x.device), engine.num_nodes)
    fixed, with_pairs = _seconds(engine), _seconds(lambda: engine().at(pairs))
    seconds[f"one attack step on {block:,} pairs"] = fixed + max(0.0, with_pairs - fixed) * block / max(1, timed)
    return seconds


def _engine(model: nn.Module, data: Data) -> EdgeGradientEngine:
    nodes = torch.arange(data.x.size(0), device=data.x.device)
    return EdgeGradientEngine(model, data, nodes, labels=nodes, loss=weighted_logit_sum)


def _seconds(call: Any) -> float:
    call()
    start = time.perf_counter()
    call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _layer_tier(name: str, conv: nn.Module, call: tuple[tuple[Any, ...], dict[str, Any]] | None) -> LayerTier:
    layer = type(conv).__name__
    try:
        rule_layer(conv)
    except UnsupportedLayerError as error:
        reason = str(error)
    else:
        return LayerTier(name, layer, "propagate", "")
    if call is None:
        return LayerTier(name, layer, None, reason)
    problem = _relaxation_problem(conv, *call)
    if problem is None:
        return LayerTier(name, layer, "autograd", reason)
    return LayerTier(name, layer, "black_box", problem)


def _relaxation_problem(conv: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Return why the layer's reductions over edges cannot be weighted, or None if they can."""
    graph = next((each for each in (*args, *kwargs.values()) if _is_edge_index(each)), None)
    if graph is None:
        return "it gets no edge_index"
    kept = (graph.amin(dim=0) + graph.amax(dim=0)) % 3 > 0

    def run(edges: Tensor) -> Any:
        def replaced(value: Any) -> Any:
            return edges if value is graph else value

        return conv(*map(replaced, args), **{key: replaced(value) for key, value in kwargs.items()})

    try:
        expected = run(graph[:, kept])
        with EdgeRelaxation(graph, kept.double()):
            found = run(graph)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        return f"with weighted reductions it raised {type(error).__name__}: {error}"
    equal = (
        isinstance(found, Tensor) and isinstance(expected, Tensor) and same_logits(found.to(expected.dtype), expected)
    )
    return None if equal else "its reductions over edges (such as medians, or sizes of sorted lists) cannot be weighted"


def _is_edge_index(value: object) -> bool:
    return isinstance(value, Tensor) and value.dim() == 2 and value.size(0) == 2 and not value.is_floating_point()
