"""Edge gradients by autograd, and numerical probes of models.

The autograd path adds the pairs to the graph as weighted edges. It is slow, and correct for any model that treats zero-weight
edges like missing edges; the probes test this and the other assumptions of the library.
:mod:`edgeproof.models.model_probe` combines them into one report.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof import losses
from edgeproof._checks import describe
from edgeproof._features import is_sparse, with_values
from edgeproof.kernels import dispatch
from edgeproof.propagation.message_rules import UnknownRuleError
from edgeproof.propagation.pairs import EdgeSet, Pairs, contained, num_pairs

if TYPE_CHECKING:
    from edgeproof.propagation.adjacency import Adjacency


@runtime_checkable
class EncodeDiffuse(Protocol):
    """Model in two parts, ``diffuse(encode(x), adjacency)``, such as :class:`edgeproof.models.GraphModel`."""

    def encode(self, x: Tensor) -> Tensor:
        """Transform the features of every node without using the graph."""

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        """Return the logits of every node."""


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Switch every submodule to evaluation mode, and restore each submodule's previous mode on exit."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


class Tolerance(NamedTuple):
    """Largest accepted difference between two results, relative to the largest absolute value.

    Args:
        logits: For logits of unweighted graphs.
        weighted: For gradients, and for logits of graphs with edge weights.
    """

    logits: float
    weighted: float


TOLERANCES = {
    torch.float32: Tolerance(logits=1e-4, weighted=1e-3),
    torch.float64: Tolerance(logits=1e-9, weighted=1e-8),
}
_LOW_PRECISION = Tolerance(logits=1e-2, weighted=1e-2)
# Logits of the same computation differ by at most this many units of rounding, relative to the largest.
_ROUNDING_UNITS = 64
# Gradients with respect to other nodes' features below this fraction of the largest are treated as rounding errors.
_INTERACTION = 1e-3

IGNORES_EDGES = (
    "mixes features between nodes, but not along the edges passed to it: it reuses the graph of an earlier call, stores its "
    "own graph, or connects all nodes, so no edge flip can change its output"
)
UNINFORMATIVE = (
    "gives the same logits without some of the edges, because of the features: they are 0, equal at all nodes, or so small or "
    "large that the model saturates. Check and scale them (edgeproof datasets describe)"
)


class AutogradPath:
    """Model on a graph to which pairs are added as edges of any weight.

    Args:
        model: Any module called as ``model(x, edge_index, edge_weight)``.
        data: Graph.
        nodes: Target nodes.
        labels: Label of each target node.
        loss: Function of the logits and labels of the target nodes.
        backend: Kernel backend. Default: the fastest that supports the inputs.
        block_size: Pairs added to the graph at once.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Data,
        nodes: Tensor,
        labels: Tensor,
        loss: Callable[[Tensor, Tensor], Tensor],
        backend: str | None,
        block_size: int = 1 << 20,
    ) -> None:
        self.model, self.data, self.nodes, self.labels = model, data, nodes, labels
        self.loss, self.backend, self.block_size = loss, backend, block_size
        self.num_nodes = int(data.x.size(0))
        # Sparse features have no new_ones.
        self._empty = torch.empty(0, dtype=data.x.dtype, device=data.x.device)

    def run(self, pairs: Tensor, flip: Tensor) -> tuple[Tensor, Tensor]:
        """Return loss and logits of the graph with each pair as a weighted edge, differentiable in ``flip``."""
        edge_index = self.data.edge_index
        key = edge_index[0] * self.num_nodes + edge_index[1]
        both, flips = torch.cat([pairs, pairs.flip(0)], dim=1), torch.cat([flip, flip])
        ascending, order = key.sort()
        position = torch.searchsorted(ascending, both[0] * self.num_nodes + both[1])
        is_edge = torch.zeros_like(position, dtype=torch.bool)
        if key.numel():
            position = position.clamp(max=key.numel() - 1)
            is_edge = ascending[position] == both[0] * self.num_nodes + both[1]
        weight = flip.new_ones(key.numel()).index_put((order[position[is_edge]],), 1 - flips[is_edge])
        edges = torch.cat([edge_index, both[:, ~is_edge]], dim=1)
        with eval_mode(self.model), dispatch.using(self.backend):
            logits = self.model(self.data.x, edges, torch.cat([weight, flips[~is_edge]]))
        return check_loss(self.loss(logits[self.nodes], self.labels)), logits

    def clean_logits(self) -> object:
        """Return the model's output on the clean graph; with weights of 1 if ``edge_weight`` is a required argument."""
        edges = self.data.edge_index
        ones = () if _accepts(self.model, 2) else (self._empty.new_ones(edges.size(1)),)
        with eval_mode(self.model), dispatch.using(self.backend), torch.no_grad():
            output: object = self.model(self.data.x, edges, *ones)
        return output

    def differentiate(self, flips: tuple[Tensor, Tensor], pairs: Pairs) -> Tensor:
        """Return the gradient at each pair: flips and pairs are added to the graph, a block at a time."""
        unique, position = pairs.key.unique(return_inverse=True)
        gradient = [self._differentiate_block(flips, block) for block in unique.split(self.block_size)]
        return torch.cat(gradient)[position] if gradient else self._empty

    def _differentiate_block(self, flips: tuple[Tensor, Tensor], key: Tensor) -> Tensor:
        n = self.num_nodes
        (u, v), flip = flips
        flip_key = torch.minimum(u, v) * n + torch.maximum(u, v)
        merged, position = torch.cat([flip_key, key]).unique(return_inverse=True)
        with torch.enable_grad():
            weight = flip.new_zeros(merged.numel()).index_put((position[: flip.numel()],), flip).requires_grad_()
            loss, _ = self.run(torch.stack([merged // n, merged % n]), weight)
            (gradient,) = torch.autograd.grad(loss, weight, allow_unused=True) if loss.requires_grad else (None,)
        if gradient is None:
            gradient = torch.zeros_like(weight)
        return gradient[position[flip.numel() :]]

    def edge_weight_problem(self) -> str | None:
        """Return how the model treats zero-weight edges differently from missing edges, or None if it does not."""
        if not _accepts(self.model, 3):
            return (
                "its forward takes no edge_weight. If it computes with an EdgeIndex or a sparse matrix, wrap it as shown in "
                "docs/your-model.md, 'A model over a sparse matrix'"
            )
        try:
            equal = self._zero_weight_is_no_edge()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            return f"called as model(x, edge_index, edge_weight) it raised {type(error).__name__}: {error}"
        return (
            None if equal else "it treats zero-weight edges differently from missing edges, or weights of 1 from none"
        )

    def _zero_weight_is_no_edge(self) -> bool:
        """Test that weights of 1 and pairs of weight 0 change nothing, and that edges of weight 0 equal removed edges."""
        if self.num_nodes < 2:
            return True
        pairs = probe_pairs(self.data)
        zeros, ones = self._empty.new_zeros(len(pairs)), self._empty.new_ones(len(pairs))
        edges = EdgeSet(self.data.edge_index, self.num_nodes).key[:8]
        with torch.no_grad():
            clean = self._clean_run()
            _, with_zeros = self.run(pairs.both, zeros)
            _, flipped = self.run(torch.stack([edges // self.num_nodes, edges % self.num_nodes]), ones[: len(edges)])
            row, col = self.data.edge_index
            kept = ~contained(torch.minimum(row, col) * self.num_nodes + torch.maximum(row, col), edges)
            with eval_mode(self.model):
                removed = self.model(self.data.x, self.data.edge_index[:, kept], self._empty.new_ones(int(kept.sum())))
        unweighted = self.clean_logits()
        assert isinstance(unweighted, Tensor)
        return same_weighted(clean, unweighted) and same_weighted(clean, with_zeros) and same_weighted(flipped, removed)

    def edge_problem(self) -> str | None:
        """Return why no edge can change the logits of a model that mixes features between nodes; None if there is no reason."""
        edges = EdgeSet(self.data.edge_index, self.num_nodes).key[::2]
        if not edges.numel():
            return None
        with eval_mode(self.model), dispatch.using(self.backend):
            half = torch.stack([edges // self.num_nodes, edges % self.num_nodes])
            if self._depends_on(half) or not nodes_interact(self.model, self.data):
                return None
            other = replace_features(self.data)
            path = AutogradPath(self.model, other, self.nodes, self.labels, self.loss, self.backend)
            return UNINFORMATIVE if path._depends_on(half) else IGNORES_EDGES

    def _depends_on(self, pairs: Tensor) -> bool:
        """Test whether removing edges changes the logits by more than rounding."""
        with torch.no_grad():
            clean = self._clean_run()
            _, without = self.run(pairs, clean.new_ones(pairs.size(1)))
        slack = _ROUNDING_UNITS * torch.finfo(clean.dtype).eps * clean.abs().max()
        return bool(((clean - without).abs() > slack).any())

    def gradient_problem(self) -> str | None:
        """Return a message if the logits depend on the edges, but not their gradient at any edge or random pair."""
        edges = EdgeSet(self.data.edge_index, self.num_nodes).key
        if not edges.numel():
            return None
        key = torch.cat([edges, probe_pairs(self.data).key]).unique()
        pairs = torch.stack([key // self.num_nodes, key % self.num_nodes])
        with torch.enable_grad():
            weight = self._empty.new_zeros(key.numel()).requires_grad_()
            clean = self.run(pairs, weight)[1]
            loss = weighted_logit_sum(clean, weight)
            (gradient,) = torch.autograd.grad(loss, weight, allow_unused=True) if loss.requires_grad else (None,)
        if gradient is not None and bool(gradient.any()):
            return None
        with torch.no_grad():
            without = self.run(pairs[:, ::2], self._empty.new_ones(pairs[:, ::2].size(1)))[1]
        if same_weighted(without, clean.detach()):
            return None
        return "the gradient of its logits is zero at every edge: it computes them outside of autograd, or rounds them"

    def _clean_run(self) -> Tensor:
        return self.run(self.data.edge_index.new_empty(2, 0), self._empty)[1]


def same_logits(logits: Tensor, expected: Tensor) -> bool:
    """Test whether the logits of two unweighted graphs are equal up to rounding."""
    return _close(logits, expected, TOLERANCES.get(logits.dtype, _LOW_PRECISION).logits)


def same_weighted(values: Tensor, expected: Tensor) -> bool:
    """Test whether two gradients, or the logits of two graphs with edge weights, are equal up to rounding."""
    return _close(values, expected, TOLERANCES.get(values.dtype, _LOW_PRECISION).weighted)


def _close(values: Tensor, expected: Tensor, tolerance: float) -> bool:
    if values.shape != expected.shape:
        return False
    return bool((values - expected).abs().max() <= tolerance * expected.abs().max() + 1e-12)


def batching_is_exact(separate: Callable[[], Tensor], batched: Callable[[], Tensor]) -> bool:
    """Test whether graphs in one batch get the same logits as each graph alone; a norm over all nodes prevents this.

    Args:
        separate: Runs the model on each of several different graphs.
        batched: Runs it on all of them as one disconnected graph, with logits of the same shape.
    """
    expected = separate()
    try:
        logits = batched()
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, IndexError):
        # For example, a parameter with one row per node of a single graph.
        return False
    return same_logits(logits, expected)


def propagate_path_is_exact(
    model: nn.Module, data: Data, gradient: Callable[[str, Pairs, Tensor, Tensor], tuple[Tensor, Tensor]]
) -> bool:
    """Test whether the ``"propagate"`` path gives the same logits and edge gradients as autograd; cached by model.

    Args:
        model: Model.
        data: Graph.
        gradient: Called with a path, flips, their weights, and pairs; returns the logits and the gradient at the pairs.
    """
    if not isinstance(model, EncodeDiffuse):
        return False
    if model in _EXACT:
        return _EXACT[model]
    if data.x.size(0) < 2:
        return True
    pairs = probe_pairs(data)
    flips = pairs[torch.arange(0, len(pairs), 8, device=data.x.device)]
    weight = torch.full((len(flips),), 0.5, dtype=data.x.dtype, device=data.x.device)
    probed = torch.cat([pairs.both, data.edge_index[:, :64]], dim=1)
    try:
        logits, fast = gradient("propagate", flips, weight, probed)
        expected_logits, expected = gradient("autograd", flips, weight, probed)
    except UnknownRuleError:
        # Not cached: on a smaller graph the rules may be known.
        return False
    equal = same_weighted(logits, expected_logits) and same_weighted(fast, expected)
    # Equal gradients that are all zero prove nothing, so such a model is tested again next time.
    if not equal or bool(expected.any()):
        _EXACT[model] = equal
    return equal


_EXACT: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def is_verified(model: nn.Module) -> bool:
    """Return whether :func:`propagate_path_is_exact` has been true for the model with a non-zero gradient."""
    return _EXACT.get(model, False)


def nodes_interact(model: nn.Module, data: Data) -> bool:
    """Test whether the logits of some nodes depend on the features of others, by gradients; an MLP's do not."""
    with torch.inference_mode(False), torch.enable_grad():
        # The gradient with respect to sparse features is that of their stored entries.
        leaf = (data.x.values() if is_sparse(data.x) else data.x).detach().clone().requires_grad_()
        x = with_values(data.x.detach(), leaf) if is_sparse(data.x) else leaf
        loss = weighted_logit_sum(model(x, data.edge_index)[::2], x)
        (gradient,) = torch.autograd.grad(loss, leaf, allow_unused=True) if loss.requires_grad else (None,)
    if gradient is None or not gradient.numel():
        return False
    row = torch.arange(x.size(0), device=x.device)
    is_other = (row.repeat_interleave(x.crow_indices().diff()) if is_sparse(x) else row) % 2 == 1
    return bool((gradient[is_other].abs() > _INTERACTION * gradient.abs().max()).any())


def replace_features(data: Data) -> Data:
    """Return the graph with random features of mean 0 and variance 1, at the stored entries of sparse ones."""
    other, stored = copy(data), data.x.values() if is_sparse(data.x) else data.x
    draw = torch.randn(tuple(stored.shape), generator=torch.Generator().manual_seed(0)).to(stored)
    other.x = with_values(data.x, draw) if is_sparse(data.x) else draw
    return other


def probe_pairs(data: Data) -> Pairs:
    """Return up to 64 random pairs of nodes, the same for every graph of this size."""
    count = num_pairs(data.x.size(0))
    number = torch.randint(0, max(1, count), (64 if count else 0,), generator=torch.Generator().manual_seed(0))
    return Pairs.from_number(number.unique().to(data.x.device), data.x.size(0))


def weighted_logit_sum(logits: Tensor, _: Tensor) -> Tensor:
    """Return a loss that depends on every logit of every node, each with its own weight."""
    weight = torch.arange(logits.numel(), device=logits.device, dtype=logits.dtype).cos().view_as(logits)
    return (weight * logits).sum()


def check_labels(labels: object, nodes: Tensor) -> Tensor:
    """Return the labels of the target nodes. Raise unless they are one class id >= 0 for each."""
    if not isinstance(labels, Tensor) or labels.dtype != torch.long or labels.shape != nodes.shape:
        raise ValueError(f"expected one int64 label per node, shape {list(nodes.shape)}, got {describe(labels)}")
    if int(labels.min()) < 0:
        raise ValueError(f"expected labels >= 0, got {int(labels.min())}")
    return for_autograd(labels)


def check_logits(
    logits: object, labels: Tensor, loss: Callable[[Tensor, Tensor], Tensor], num_nodes: int, name: str
) -> None:
    """Raise unless the output on the clean graph is finite logits of every node, with a class for every label.

    Args:
        logits: Output of the model.
        labels: Labels of the target nodes.
        loss: Loss function. Only those of :mod:`edgeproof.losses` require labels to be classes.
        num_nodes: Number of nodes.
        name: Name of the model in error messages.
    """
    if not isinstance(logits, Tensor) or logits.dim() != 2 or logits.size(0) != num_nodes:
        raise ValueError(f"expected logits of shape [{num_nodes}, classes] from {name}, got {describe(logits)}")
    if not bool(logits.isfinite().all()):
        raise ValueError(f"expected finite logits from {name}, got NaN or Inf on the clean graph")
    highest = int(labels.max())
    if losses.is_builtin(loss) and highest >= logits.size(1):
        raise ValueError(f"expected labels between 0 and {logits.size(1) - 1}, the model's classes, got {highest}")


def check_loss(loss: object) -> Tensor:
    """Return the output of a loss function. Raise unless it is a scalar tensor."""
    if not isinstance(loss, Tensor) or loss.dim():
        raise ValueError(f"expected the loss to be a scalar tensor, got {describe(loss)}")
    return loss


def check_inputs(model: nn.Module, data: Data) -> None:
    """Raise unless model and graph can be differentiated, and the features have the dtype and width that the model expects."""
    if any(tensor.is_inference() for tensor in (*model.parameters(), *model.buffers(), data.x, data.edge_index)):
        raise ValueError(
            "expected a model and a graph created outside of torch.inference_mode(), because gradients are needed: create "
            "them outside, or clone them there"
        )
    dtypes = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()} | {data.x.dtype}
    if len(dtypes) > 1:
        names = ", ".join(sorted(map(str, dtypes)))
        raise ValueError(f"expected model and features of one dtype, got {names}; use model.double() or x.float()")
    width = getattr(model, "in_channels", data.x.size(1))
    if isinstance(width, int) and isinstance(model, EncodeDiffuse) and width != data.x.size(1):
        raise ValueError(f"expected features x of shape [nodes, {width}], got {list(data.x.shape)}")


def for_autograd(tensor: Tensor) -> Tensor:
    """Return the tensor, or a clone that autograd can save if it was created under ``torch.inference_mode()``."""
    return tensor.clone() if tensor.is_inference() else tensor


def _accepts(model: nn.Module, num_arguments: int) -> bool:
    """Test whether ``forward`` can be called with this number of positional arguments."""
    try:
        signature = inspect.signature(model.forward)
    except ValueError:
        # Scripted modules have no signature; calling them shows whether they take the arguments.
        return True
    try:
        signature.bind(*[None] * num_arguments)
    except TypeError:
        return False
    return True
