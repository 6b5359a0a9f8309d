"""Whether a model is one that attacks can be believed on: asked before any long run."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof._checks import check_data, check_module
from edgeproof._modules import caching_layer, eval_mode
from edgeproof.propagation import EdgeGradientEngine
from edgeproof.propagation.autograd_path import HOLDS_A_GRAPH, every_logit, nodes_interact, some_pairs
from edgeproof.propagation.batched_graphs import EncodeDiffuse
from edgeproof.propagation.layer_rules import UnsupportedLayerError, convert_pyg_layers

# Equal up to rounding, relative to the largest logit.
_EQUAL = {torch.float32: 1e-4, torch.float64: 1e-9}
# Share of the edges that is taken away to see what a model does on another graph.
_TAKEN_AWAY = 0.1


@dataclass(frozen=True)
class Answer:
    """One thing that was asked.

    Args:
        question: what was asked.
        fine: whether the answer is what the library needs; none where an earlier answer made it pointless to ask.
        says: the answer, in words.
    """

    question: str
    fine: bool | None
    says: str


@dataclass(frozen=True)
class ModelCheck:
    """What :func:`check_model` found.

    Args:
        answers: to all questions, in order.
        path: how its edge gradients are computed, ``"propagate"`` (fast) or ``"autograd"`` (slow, any model); none if they
            cannot be.
    """

    answers: tuple[Answer, ...]
    path: str | None

    @property
    def problems(self) -> list[str]:
        """What stands in the way of attacks, certificates and adversarial training; empty if nothing does."""
        return [f"{answer.question} {answer.says}" for answer in self.answers if answer.fine is False]

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def __str__(self) -> str:
        signs = {True: "yes", False: "NO", None: "-"}
        width = max(len(answer.question) for answer in self.answers)
        return "\n".join(f"{one.question:<{width}}  {signs[one.fine]:<3}  {one.says}" for one in self.answers)


def check_model(model: nn.Module, data: Data) -> ModelCheck:
    """Ask a model everything that attacks take for granted; takes a few forward passes, and leaves the model as it was.

    Args:
        model: any module called as ``model(x, edge_index)`` or ``model(x, edge_index, edge_weight)``, on the graph's device.
        data: a graph of the kind that it is for.

    >>> from edgeproof import datasets
    >>> from torch_geometric.nn.models import GraphSAGE
    >>> data = datasets.load("csbm")
    >>> sage = GraphSAGE(data.num_features, 8, num_layers=2, out_channels=2)
    >>> check_model(sage, data).ok
    False
    >>> from edgeproof.models import EdgeWeighted
    >>> check = check_model(EdgeWeighted(sage), data)
    >>> check.ok, check.path
    (True, 'propagate')
    """
    check_module(model)
    check_data(data, labels=False)
    asked, no_copy = _Asked(), _why_not_copied(model)

    def fresh() -> nn.Module:
        """A copy, for a model that remembers a graph must not remember one of these; itself where there is none."""
        return copy.deepcopy(model) if no_copy is None else model

    with torch.no_grad():
        logits = asked.runs(lambda: _answer(fresh(), data))
        if logits is None:
            return ModelCheck(tuple(asked.answers), None)
        asked.repeats(_answer(fresh(), data), logits)
        fewer = _with_fewer_edges(data)
        other, after = _answer(fresh(), fewer), fresh()
        _answer(after, data)
        asked.forgets(model, _answer(after, fewer), other, no_copy)
    listens = not _equal(logits, other)
    if not asked.listens(listens, lambda: _nodes_hear_each_other(fresh(), data)):
        return ModelCheck(tuple(asked.answers), None)
    path = asked.has_gradients(fresh(), data, listens)
    return ModelCheck(tuple(asked.answers), path)


class _Asked:
    """The questions, one method each."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []

    def _note(self, question: str, fine: bool | None, says: str) -> None:
        self.answers.append(Answer(question, fine, says))

    def runs(self, call: Callable[[], Tensor]) -> Tensor | None:
        question = "runs on this graph?"
        try:
            logits = call()
        except Exception as error:
            self._note(
                question,
                False,
                f"called as model(x, edge_index) it raised {type(error).__name__}: {error}; if it takes its graph in another "
                "form, a wrapper can make it from the edges, see 'A model over a sparse matrix' in docs/your-model.md",
            )
            return None
        if not isinstance(logits, Tensor) or logits.dim() != 2 or logits.size(1) < 2 or not logits.is_floating_point():
            shape = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            self._note(question, False, f"expected logits of shape [nodes, classes], got {shape}")
            return None
        if not bool(logits.isfinite().all()):
            self._note(question, False, f"{int((~logits.isfinite()).sum())} of its logits are not finite")
            return None
        self._note(question, True, f"logits of {logits.size(0)} nodes and {logits.size(1)} classes")
        return logits

    def repeats(self, again: Tensor, logits: Tensor) -> None:
        same = _equal(again, logits)
        says = "the same graph, the same logits" if same else "two looks at the same graph differ in evaluation mode"
        self._note("deterministic in evaluation?", same, says)

    def forgets(self, model: nn.Module, after: Tensor, alone: Tensor, no_copy: str | None) -> None:
        question = "sees every graph anew?"
        layer = caching_layer(model)
        if layer is not None:
            self._note(question, False, f"{layer} has cached=True and answers every graph with the first one it saw")
        elif no_copy is not None:
            self._note(question, None, f"not asked: {no_copy}, and only a copy can meet a graph as its first")
        elif not _equal(after, alone):
            self._note(question, False, "what it says of a graph depends on the graph that it saw before")
        else:
            self._note(question, True, "no graph changes what it says of the next")

    def listens(self, listens: bool, nodes_interact: Callable[[], bool]) -> bool:
        question = "depends on the edges?"
        if listens:
            self._note(question, True, "fewer edges change its logits")
        elif nodes_interact():
            self._note(question, False, f"it {HOLDS_A_GRAPH}")
            return False
        else:
            self._note(question, True, "no edge matters to it, so no attack on edges can do anything")
        return True

    def has_gradients(self, model: nn.Module, data: Data, listens: bool) -> str | None:
        weights, gradient = "weight 0 is no edge?", "differentiable in the edges?"
        nodes = torch.arange(data.x.size(0), device=data.x.device)
        try:
            engine = EdgeGradientEngine(model, data, nodes, labels=nodes, loss=every_logit)
        except Exception as error:
            self._note(weights, False, str(error))
            self._note(gradient, None, "not asked")
            return None
        self._note(weights, True, _where_weights_come_from(model, data))
        found = engine().at(torch.cat([data.edge_index[:, :256], some_pairs(data).both], dim=1))
        differs = bool(found.isfinite().all()) and (bool(found.any()) or not listens)
        how = {"propagate": "fast, from node quantities", "autograd": "slow, pair by pair in the graph"}[engine.path]
        says = how if differs else "its logits change with the edges, but the gradient is zero or not finite"
        self._note(gradient, differs, says)
        return engine.path


def _where_weights_come_from(model: nn.Module, data: Data) -> str:
    if isinstance(model, EncodeDiffuse):
        return "written for it"
    try:
        convert_pyg_layers(model, data)
    except UnsupportedLayerError as error:
        return f"by its own edge_weight ({error})"
    return "by its layers of torch_geometric, which are known here"


def _why_not_copied(model: nn.Module) -> str | None:
    """What keeps a model from being copied, if anything: a lock, or a tensor with a history that it has kept."""
    try:
        copy.deepcopy(model)
    except Exception as error:
        return f"it cannot be copied ({type(error).__name__}: {error})"
    return None


def _nodes_hear_each_other(model: nn.Module, data: Data) -> bool:
    # A graph without edges shows nothing.
    if not data.edge_index.numel():
        return False
    with eval_mode(model):
        return nodes_interact(model, data)


def _answer(model: nn.Module, data: Data) -> Tensor:
    with eval_mode(model):
        logits: Tensor = model(data.x, data.edge_index)
    return logits


def _equal(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return False
    return bool((one - other).abs().max() <= _EQUAL.get(one.dtype, 1e-2) * other.abs().max() + 1e-12)


def _with_fewer_edges(data: Data) -> Data:
    """The graph without some of its edges, always the same ones."""
    row, col = data.edge_index
    low, high = torch.minimum(row, col), torch.maximum(row, col)
    _, edge = (low * data.x.size(0) + high).unique(return_inverse=True)
    draw = torch.rand(int(edge.max()) + 1 if edge.numel() else 0, generator=torch.Generator().manual_seed(0))
    keep = (draw.argsort().argsort() >= max(1, int(_TAKEN_AWAY * draw.numel()))).to(row.device)
    fewer = copy.copy(data)
    fewer.edge_index = data.edge_index[:, keep[edge]]
    return fewer
