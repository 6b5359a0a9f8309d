"""Probes of a model: whether attacks, certificates and adversarial training give correct results for it.

The single probes and their tolerances are in :mod:`edgeproof.propagation.autograd_path`, because the edge-gradient engine uses
them, too.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof._checks import caching_layer, check_data, check_module, describe
from edgeproof._features import for_model
from edgeproof._tables import Layout, Record, TabularResult
from edgeproof.propagation import Adjacency, EdgeGradientEngine, EncodeDiffuse, NoEdgeGradientError, Tier
from edgeproof.propagation.autograd_path import (
    IGNORES_EDGES,
    batching_is_exact,
    eval_mode,
    nodes_interact,
    probe_pairs,
    same_logits,
    weighted_logit_sum,
)
from edgeproof.propagation.layer_rules import UnsupportedLayerError, convert_pyg_layers

__all__ = ["ModelCheck", "ProbeResult", "batching_is_exact", "check_model", "encode_once", "same_logits"]

# Fraction of the edges removed to get a second graph.
_REMOVED = 0.1


@dataclass(frozen=True)
class ProbeResult:
    """Result of one probe.

    Args:
        question: Property that was tested.
        passed: Whether the model has the property. None if it was not tested or is not required.
        detail: Explanation.
    """

    question: str
    passed: bool | None
    detail: str


@dataclass(frozen=True)
class ModelCheck(TabularResult):
    """Result of :func:`check_model`.

    Args:
        results: Results of all probes, in order.
        tier: ``"propagate"`` (fast edge gradients), ``"autograd"`` (slow edge gradients) or ``"black_box"`` (predictions only);
            see :data:`edgeproof.propagation.Tier`. None if a failed probe makes attacks meaningless.
    """

    results: tuple[ProbeResult, ...]
    tier: Tier | None

    @property
    def path(self) -> str | None:
        """How edge gradients are computed: the tier, or None if the model has none."""
        return None if self.tier == "black_box" else self.tier

    @property
    def problems(self) -> list[str]:
        """Failed probes: each makes attacks, certificates or adversarial training fail or give wrong results."""
        return [f"{result.question} {result.detail}" for result in self.results if result.passed is False]

    @property
    def ok(self) -> bool:
        """Whether no probe failed."""
        return not self.problems

    def summary(self) -> Record:
        """Return the values that occur once, as numbers, text, lists and dictionaries."""
        return {"ok": self.ok, "tier": self.tier, "path": self.path, "problems": self.problems}

    def _records(self) -> list[Record]:
        return [asdict(result) for result in self.results]

    def _layout(self) -> Layout:
        signs = {True: "yes", False: "NO", None: "-"}
        lines = [(result.question, signs[result.passed], result.detail) for result in self.results]
        return Layout("", (), lines, left=3)


def check_model(model: nn.Module, data: Data) -> ModelCheck:
    """Test the assumptions that attacks make about a model, with a few forward passes. The model is not changed.

    Args:
        model: Any module called as ``model(x, edge_index)`` or ``model(x, edge_index, edge_weight)``, on the graph's device.
        data: Graph of the kind that the model is used on.

    >>> from edgeproof import datasets
    >>> from torch_geometric.nn.models import GraphSAGE
    >>> data = datasets.load("csbm")
    >>> sage = GraphSAGE(data.num_features, 8, num_layers=2, out_channels=2)
    >>> check = check_model(sage, data)
    >>> check.ok, check.tier
    (True, 'propagate')
    """
    check_module(model)
    check_data(data, labels=False)
    data = for_model(data, model)
    copy_problem = _copy_problem(model)

    def fresh() -> nn.Module:
        """Return a copy, so that the probes do not fill the model's cache; the model itself if it cannot be copied."""
        return copy.deepcopy(model) if copy_problem is None else model

    with torch.no_grad():
        result, logits = _probe_run(lambda: _run(fresh(), data))
        if logits is None:
            return ModelCheck((result,), None)
        results = [result, _probe_determinism(_run(fresh(), data), logits)]
        fewer_edges = _remove_edges(data)
        expected, used = _run(fresh(), fewer_edges), fresh()
        _run(used, data)
        results.append(_probe_caching(model, _run(used, fewer_edges), expected, copy_problem))
    depends = not same_logits(logits, expected)
    results.append(_probe_edges(depends, lambda: _nodes_interact(fresh(), data)))
    if results[-1].passed is False:
        return ModelCheck(tuple(results), None)
    gradient_results, tier = _probe_gradients(fresh(), data, depends)
    return ModelCheck((*results, *gradient_results), tier)


def encode_once(model: nn.Module, data: Data) -> Tensor | None:
    """Return the encoded features of a model in two parts, or None if ``forward`` is more than these parts."""
    if not isinstance(model, EncodeDiffuse):
        return None
    with eval_mode(model), torch.no_grad():
        encoded = model.encode(data.x)
        logits = model.diffuse(encoded, Adjacency.from_data(data))
        expected = model(data.x, data.edge_index)
    return encoded if same_logits(logits, expected) else None


def _probe_run(call: Callable[[], object]) -> tuple[ProbeResult, Tensor | None]:
    question = "runs on this graph?"
    try:
        logits = call()
    except Exception as error:
        detail = (
            f"called as model(x, edge_index) it raised {type(error).__name__}: {error}. If it takes its graph in another form, "
            "wrap it as shown in docs/your-model.md, 'A model over a sparse matrix'"
        )
        return ProbeResult(question, False, detail), None
    if not isinstance(logits, Tensor) or logits.dim() != 2 or logits.size(1) < 2 or not logits.is_floating_point():
        detail = f"expected floating-point logits of shape [nodes, classes], got {describe(logits)}"
        return ProbeResult(question, False, detail), None
    if not bool(logits.isfinite().all()):
        return ProbeResult(question, False, f"{int((~logits.isfinite()).sum())} logits are not finite"), None
    return ProbeResult(question, True, f"logits of {logits.size(0)} nodes and {logits.size(1)} classes"), logits


def _probe_determinism(second: Tensor, first: Tensor) -> ProbeResult:
    same = same_logits(second, first)
    detail = "two runs give the same logits" if same else "two runs on the same graph give different logits"
    return ProbeResult("deterministic in evaluation mode?", same, detail)


def _probe_caching(model: nn.Module, after_other_graph: Tensor, alone: Tensor, copy_problem: str | None) -> ProbeResult:
    question = "no cached graph?"
    layer = caching_layer(model)
    if layer is not None:
        return ProbeResult(question, False, f"{layer} has cached=True and reuses the first graph for every later call")
    if copy_problem is not None:
        return ProbeResult(question, None, f"not tested, because the model {copy_problem}")
    if not same_logits(after_other_graph, alone):
        return ProbeResult(question, False, "the logits depend on the graph of an earlier call")
    return ProbeResult(question, True, "the logits do not depend on earlier calls")


def _probe_edges(depends: bool, nodes_interact: Callable[[], bool]) -> ProbeResult:
    question = "depends on edges?"
    if depends:
        return ProbeResult(question, True, "removing edges changes the logits")
    if nodes_interact():
        return ProbeResult(question, False, f"the model {IGNORES_EDGES}")
    return ProbeResult(question, None, "edges do not affect the logits, so no attack on edges has an effect")


def _probe_gradients(model: nn.Module, data: Data, depends: bool) -> tuple[list[ProbeResult], Tier | None]:
    zero_weight, differentiable = "zero-weight edge = no edge?", "differentiable in edge weights?"
    nodes = torch.arange(data.x.size(0), device=data.x.device)
    try:
        engine = EdgeGradientEngine(model, data, nodes, labels=nodes, loss=weighted_logit_sum)
    except NoEdgeGradientError as error:
        detail = f"tier 'black_box' (only predictions are used): {error}"
        return [ProbeResult(zero_weight, None, detail), ProbeResult(differentiable, None, "not required")], "black_box"
    except Exception as error:
        return [ProbeResult(zero_weight, False, str(error)), ProbeResult(differentiable, None, "not tested")], None
    gradient = engine().at(torch.cat([data.edge_index[:, :256], probe_pairs(data).both], dim=1))
    passed = bool(gradient.isfinite().all()) and (bool(gradient.any()) or not depends)
    detail = {
        "propagate": "tier 'propagate' (fast, from node quantities)",
        "autograd": "tier 'autograd' (slow, pairs added to the graph)",
    }[engine.path]
    if not passed:
        detail = "edges change the logits, but the edge gradient is zero or not finite"
    return [
        ProbeResult(zero_weight, True, _source_of_weights(model, data)),
        ProbeResult(differentiable, passed, detail),
    ], engine.path


def _source_of_weights(model: nn.Module, data: Data) -> str:
    if isinstance(model, EncodeDiffuse):
        return "model in two parts, encode and diffuse"
    try:
        convert_pyg_layers(model, data)
    except UnsupportedLayerError as error:
        return f"by its own edge_weight ({error})"
    return "by its PyG layers, all of which are supported"


def _copy_problem(model: nn.Module) -> str | None:
    """Return why a model cannot be copied (a lock, a tensor with autograd history), or None if it can."""
    try:
        copy.deepcopy(model)
    except Exception as error:
        return f"cannot be copied ({type(error).__name__}: {error})"
    return None


def _nodes_interact(model: nn.Module, data: Data) -> bool:
    # Without edges, no interaction is expected.
    if not data.edge_index.numel():
        return False
    with eval_mode(model):
        return nodes_interact(model, data)


def _run(model: nn.Module, data: Data) -> Tensor:
    with eval_mode(model):
        logits: Tensor = model(data.x, data.edge_index)
    return logits


def _remove_edges(data: Data) -> Data:
    """Return the graph without a random fraction of its edges, the same for every call."""
    row, col = data.edge_index
    low, high = torch.minimum(row, col), torch.maximum(row, col)
    _, edge = (low * data.x.size(0) + high).unique(return_inverse=True)
    draw = torch.rand(int(edge.max()) + 1 if edge.numel() else 0, generator=torch.Generator().manual_seed(0))
    keep = (draw.argsort().argsort() >= max(1, int(_REMOVED * draw.numel()))).to(row.device)
    fewer_edges = copy.copy(data)
    fewer_edges.edge_index = data.edge_index[:, keep[edge]]
    return fewer_edges
