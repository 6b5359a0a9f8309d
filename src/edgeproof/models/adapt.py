"""Find out how a user's model is called, and call it as ``model(x, edge_index, edge_weight=None)``."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof._checks import check_module, check_not_caching, describe
from edgeproof._features import for_model
from edgeproof.propagation import Adjacency, EncodeDiffuse
from edgeproof.propagation.autograd_path import eval_mode

_FEATURES = ("x", "feat", "feats", "feature", "features", "h", "inputs", "node_feat", "node_feats", "node_features")
_EDGES = ("edge_index", "edge_indices", "edges", "edge_list", "adj", "adj_t", "adjacency", "index", "graph")
_WEIGHTS = ("edge_weight", "edge_weights", "weight", "weights", "ew")
_GRAPHS = ("data", "batch", "graph", "g", "inputs", "input")
_LOGITS = ("logits", "out", "output", "outputs", "pred", "y_hat", "y", "scores")


@dataclass(frozen=True)
class CallForm:
    """How a model is called, and where its logits are.

    Args:
        names: Names of the arguments for features, edges and edge weights, the last one None if there is none; None if the
            argument is a ``Data``.
        needs_weight: Whether edge weights are required.
        output: Key or position of the logits in the output; None if the output is the logits.
        needs_batch: Whether ``batch``, the graph of each node, is required; there is only one.
    """

    names: tuple[str, str, str | None] | None
    needs_weight: bool
    output: str | int | None
    needs_batch: bool = False

    @property
    def text(self) -> str:
        """The call as text.

        >>> CallForm(None, False, 0).text
        'model(data)[0]'
        """
        if self.names is None:
            call = "model(data)"
        else:
            names = [*self.names, *(["batch"] if self.needs_batch else [])]
            call = f"model({', '.join(f'{name}=...' for name in names if name is not None)})"
        return call if self.output is None else f"{call}[{self.output!r}]"


class Adapted(nn.Module):
    """Model called as ``model(x, edge_index, edge_weight=None)`` around a model that is called otherwise.

    Args:
        model: Model whose parameters are used.
        form: How it is called.
    """

    def __init__(self, model: nn.Module, form: CallForm) -> None:
        super().__init__()
        self.model, self.form = model, form
        self.training = model.training

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Return the logits of every node."""
        logits = select_logits(self._call(x, edge_index, edge_weight), self.form.output)
        assert isinstance(logits, Tensor)
        return logits

    def _call(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> object:
        form = self.form
        if edge_weight is None and form.needs_weight and not isinstance(edge_index, Adjacency):
            edge_weight = x.new_ones(edge_index.size(1))
        if form.names is None:
            graph = Data(x=x, edge_index=edge_index)
            if edge_weight is not None:
                graph.edge_weight = edge_weight
            return self.model(graph)
        features, edges, weight = form.names
        arguments: dict[str, Tensor | None] = {features: x, edges: edge_index}
        if weight is not None and (edge_weight is not None or form.needs_weight):
            arguments[weight] = edge_weight
        elif edge_weight is not None:
            raise TypeError("its forward takes no edge_weight")
        if form.needs_batch:
            arguments["batch"] = torch.zeros(x.size(0), dtype=torch.long, device=x.device)
        return self.model(**arguments)


_FORMS: WeakKeyDictionary[nn.Module, CallForm | None] = WeakKeyDictionary()


def adapt(model: nn.Module, data: Data) -> nn.Module:
    """Return a model as a module called as ``model(x, edge_index, edge_weight=None)`` that returns logits.

    Models called like this are returned unchanged. The others are wrapped: ``forward(data)``, other names or another order of
    the arguments, a required ``edge_weight`` or ``batch``, outputs in tuples and dictionaries, modules compiled by
    ``torch.compile`` (the module inside is used), and modules without ``forward`` around a single model. The wrapper shares the
    parameters.

    Args:
        model: Model.
        data: Graph that the model is called on once, on a copy, to see its output.

    Raises:
        ValueError: If it is unclear how the model is called or where its logits are; the message shows what to write.

    >>> class Net(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.linear = nn.Linear(2, 3)
    ...     def forward(self, data):
    ...         return {"logits": self.linear(data.x), "hidden": data.x}
    >>> graph = Data(x=torch.ones(4, 2), edge_index=torch.tensor([[0, 1], [1, 0]]))
    >>> adapt(Net(), graph)(graph.x, graph.edge_index).shape
    torch.Size([4, 3])
    """
    check_not_caching(model)
    model = unwrapped(model)
    if isinstance(model, (EncodeDiffuse, Adapted)):
        return model
    if model not in _FORMS:
        _FORMS[model] = _find_form(model, data)
    form = _FORMS[model]
    if form is None:
        return model
    # Messages name the class of the model.
    adapted: Adapted = type(type(model).__name__, (Adapted,), {})(model, form)
    return adapted


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the module inside ``torch.compile``, or the only child of a module without ``forward``."""
    check_module(model)
    compiled = getattr(model, "_orig_mod", None)
    if isinstance(compiled, nn.Module):
        return unwrapped(compiled)
    children = list(model.children())
    if not _has_forward(model) and len(children) == 1 and _has_forward(unwrapped(children[0])):
        return unwrapped(children[0])
    return model


def select_logits(output: object, key: str | int | None) -> object:
    """Return an entry of a model's output."""
    if key is None:
        return output
    assert isinstance(output, (Mapping, tuple, list))
    return output[key]  # type: ignore[index]


def _find_form(model: nn.Module, data: Data) -> CallForm | None:
    """Return how the model is called; None if it needs no adapter, or fails so that its own error is clearer."""
    name, arguments = type(model).__name__, _arguments(model)
    if arguments is None:
        return None
    required = [argument for argument, optional in arguments.items() if not optional]
    if len(required) == 1 and (required[0] in _GRAPHS or len(arguments) == 1):
        names, needs_weight, needs_batch = None, False, False
    else:
        features = _one_of(_FEATURES, arguments) or next(iter(arguments))
        edges = _one_of(_EDGES, [each for each in arguments if each != features]) or next(
            (each for each in required if each != features), None
        )
        if edges is None:
            return None
        weight = _one_of(_WEIGHTS, arguments)
        unknown = [each for each in required if each not in (features, edges, weight, "batch")]
        if unknown:
            raise ValueError(
                f"{name}.forward requires {', '.join(unknown)}, which edgeproof cannot provide: wrap the model in a module "
                "with forward(x, edge_index, edge_weight=None) that passes it, see docs/your-model.md"
            )
        names, needs_weight, needs_batch = (features, edges, weight), weight in required, "batch" in required
        order = [each for each in arguments if each in (features, edges)]
        direct = list(arguments)[:2] == [features, edges] == order and not needs_weight and not needs_batch
        if direct and (weight is None or list(arguments).index(weight) == 2):
            direct_output = _call_directly(model, data)
            output = _try_call(model, CallForm(names, False, None), data) if direct_output is None else direct_output
            key = _output_key(model, output, data)
            # If no call works, the error of the direct call is clearest.
            works_directly = direct_output is not None or output is None
            return None if works_directly and key is None else CallForm(names, False, key)
    form = CallForm(names, needs_weight, None, needs_batch)
    output = _try_call(model, form, data)
    if output is None and names is None:
        form = CallForm(None, True, None)
        output = _try_call(model, form, data)
    if output is None:
        output = _try_call(model, form, data, report=True)
    return replace(form, output=_output_key(model, output, data))


def _arguments(model: nn.Module) -> dict[str, bool] | None:
    """Return the arguments of ``forward``, and whether each has a default; None if they are unknown."""
    if isinstance(model, torch.jit.ScriptModule):
        forward: Any = model.forward
        schema = forward.schema.arguments[1:]
        return {argument.name: argument.has_default_value() for argument in schema}
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return None
    named = [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    if not named or not _has_forward(model):
        return None
    return {each.name: each.default is not each.empty for each in named}


def _has_forward(model: nn.Module) -> bool:
    if isinstance(model, torch.jit.ScriptModule):
        return True
    forward = type(model).forward
    if forward is nn.Module.forward:
        return False
    # Lightning's default only raises an error.
    return not getattr(forward, "__module__", "").startswith(("pytorch_lightning", "lightning"))


def _one_of(names: tuple[str, ...], arguments: Any) -> str | None:
    return next((name for name in names if name in arguments), None)


def _call_directly(model: nn.Module, data: Data) -> object:
    """Return the output of ``model(x, edge_index)``; None if it fails."""
    try:
        return _run(lambda used, graph: used(graph.x, graph.edge_index), model, data)
    except torch.OutOfMemoryError:
        raise
    except Exception:
        return None


def _try_call(model: nn.Module, form: CallForm, data: Data, *, report: bool = False) -> object:
    """Return the output; None if the call fails, or an error that names the call."""
    try:
        return _run(lambda used, graph: Adapted(used, form)._call(graph.x, graph.edge_index, None), model, data)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        if not report:
            return None
        raise ValueError(
            f"{type(model).__name__} called as {form.text} raised {type(error).__name__}: {error}. If it takes its graph in "
            "another form, wrap it in a module with forward(x, edge_index, edge_weight=None), see docs/your-model.md"
        ) from error


def _run(call: Any, model: nn.Module, data: Data) -> object:
    # The call must not fill a cache of the model.
    with contextlib.suppress(Exception):
        model = copy.deepcopy(model)
    graph = for_model(data, model)
    with eval_mode(model), torch.no_grad(), torch.random.fork_rng(devices=[]):
        output: object = call(model, graph)
    return output


def _output_key(model: nn.Module, output: object, data: Data) -> str | int | None:
    """Return the key or position of the logits in an output; None if the output is a tensor, or unknown."""
    if isinstance(output, Mapping):
        entries: dict[Any, Any] = dict(output.items())
    elif isinstance(output, (tuple, list)):
        entries = dict(enumerate(output))
    else:
        return None
    possible = [key for key, value in entries.items() if _is_logits(value, data)]
    named = [name for name in _LOGITS if name in possible]
    if named:
        return named[0]
    if len(possible) > 1 and isinstance(data.y, Tensor):
        classes = int(data.y.max()) + 1
        possible = [key for key in possible if entries[key].size(1) == classes] or possible
    if len(possible) == 1:
        key: str | int = possible[0]
        return key
    shapes = ", ".join(f"{key!r}: {describe(value)}" for key, value in entries.items())
    raise ValueError(
        f"expected logits of shape [{data.x.size(0)}, classes] from {type(model).__name__}, got {type(output).__name__} with "
        f"{shapes}: wrap the model in a module that returns its logits, see docs/your-model.md"
    )


def _is_logits(value: object, data: Data) -> bool:
    if not isinstance(value, Tensor) or value.dim() != 2 or not value.is_floating_point():
        return False
    return value.size(0) == data.x.size(0) and value.size(1) > 1
