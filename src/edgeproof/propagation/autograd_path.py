"""The graph with pairs as weighted edges of it: the slow path, which is right for any model that takes edge weights.

Whether a model does that, and whether it listens to the edges that it is shown, is asked here too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof import losses
from edgeproof._modules import eval_mode
from edgeproof.kernels import dispatch
from edgeproof.propagation.pairs import Pairs, contained, num_pairs

# Pairs that join the graph at once: bounds the memory of the autograd path.
_BLOCK = 1 << 20
# Logits that differ by no more than so many units of rounding, relative to the largest, are the same.
_SLACK = 64
# From this share of what its own features do to a node, those of others count: less may be what rounding leaves of a sum.
_HEARD = 1e-3
# How far the two paths may differ on a model that was not seen before, relative to the largest gradient.
AGREE = {torch.float32: 1e-3, torch.float64: 1e-8}


class AutogradPath:
    """A model on a graph in which any pairs are edges of any weight.

    Args:
        model: any module called as ``model(x, edge_index, edge_weight)``.
        data: the graph.
        nodes: the nodes whose loss counts.
        labels: their labels, in the same order.
        loss: a function of their logits and labels.
        backend: the kernels to use; by default the fastest that fit.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Data,
        nodes: Tensor,
        labels: Tensor,
        loss: Callable[[Tensor, Tensor], Tensor],
        backend: str | None,
    ) -> None:
        self.model, self.data, self.nodes, self.labels = model, data, nodes, labels
        self.loss, self.backend = loss, backend
        self.num_nodes = int(data.x.size(0))

    @cached_property
    def edge_key(self) -> Tensor:
        """Keys of all edges, once each: ascending."""
        row, col = self.data.edge_index
        key: Tensor = (row * self.num_nodes + col)[row < col]
        return key.sort().values

    @property
    def _nothing(self) -> tuple[Tensor, Tensor]:
        """No flips."""
        return self.data.edge_index.new_empty(2, 0), self.data.x.new_empty(0)

    def run(self, pairs: Tensor, flip: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and logits with every pair in the graph as an edge of its own weight, differentiable in ``flip``."""
        edge_index = self.data.edge_index
        key = edge_index[0] * self.num_nodes + edge_index[1]
        both, flips = torch.cat([pairs, pairs.flip(0)], dim=1), torch.cat([flip, flip])
        ordered, order = key.sort()
        place = torch.searchsorted(ordered, both[0] * self.num_nodes + both[1])
        known = torch.zeros_like(place, dtype=torch.bool)
        if key.numel():
            place = place.clamp(max=key.numel() - 1)
            known = ordered[place] == both[0] * self.num_nodes + both[1]
        weight = flip.new_ones(key.numel()).index_put((order[place[known]],), 1 - flips[known])
        edges = torch.cat([edge_index, both[:, ~known]], dim=1)
        with eval_mode(self.model), dispatch.using(self.backend):
            logits = self.model(self.data.x, edges, torch.cat([weight, flips[~known]]))
        return checked_loss(self.loss(logits[self.nodes], self.labels)), logits

    def answers(self) -> object:
        """What the model says of the clean graph; if it insists on weights, with weights of 1."""
        edges = self.data.edge_index
        ones = () if _takes(self.model, 2) else (self.data.x.new_ones(edges.size(1)),)
        with eval_mode(self.model), dispatch.using(self.backend), torch.no_grad():
            said: object = self.model(self.data.x, edges, *ones)
        return said

    def check_answers(self, logits: object, name: str) -> None:
        """Raise unless these, of the clean graph, are finite logits of every node, with a class for every label.

        Args:
            logits: what the model said.
            name: what to call it.
        """
        rows = self.num_nodes
        if not isinstance(logits, Tensor) or logits.dim() != 2 or logits.size(0) != rows:
            raise ValueError(f"expected logits of shape [{rows}, classes] from {name}, got {described(logits)}")
        if not bool(logits.isfinite().all()):
            raise ValueError(f"expected finite logits from {name}, got NaN or Inf on the clean graph")
        highest = int(self.labels.max())
        # Other losses may mean something else by labels.
        if losses.is_builtin(self.loss) and highest >= logits.size(1):
            raise ValueError(f"expected labels between 0 and {logits.size(1) - 1}, the model's classes, got {highest}")

    def differentiate(self, flips: tuple[Tensor, Tensor], pairs: Pairs) -> Tensor:
        """The gradient at each pair by autograd: flips and pairs join the graph, a block at a time."""
        key = pairs.key
        unique, place = key.unique(return_inverse=True)
        gradient = [self._differentiate_block(flips, block) for block in unique.split(_BLOCK)]
        return torch.cat(gradient)[place] if gradient else self.data.x.new_empty(0)

    def _differentiate_block(self, flips: tuple[Tensor, Tensor], key: Tensor) -> Tensor:
        n = self.num_nodes
        (u, v), flip = flips
        flip_key = torch.minimum(u, v) * n + torch.maximum(u, v)
        joined, place = torch.cat([flip_key, key]).unique(return_inverse=True)
        with torch.enable_grad():
            weight = flip.new_zeros(joined.numel()).index_put((place[: flip.numel()],), flip).requires_grad_()
            loss, _ = self.run(torch.stack([joined // n, joined % n]), weight)
            (gradient,) = torch.autograd.grad(loss, weight, allow_unused=True) if loss.requires_grad else (None,)
        if gradient is None:
            gradient = torch.zeros_like(weight)
        return gradient[place[flip.numel() :]]

    def why_not_weighed(self) -> str | None:
        """What keeps an edge of weight 0 from being no edge to the model, if anything: all of the autograd path rests on it."""
        if not _takes(self.model, 3):
            return (
                "it takes no edge_weight; if it computes with an EdgeIndex or a sparse matrix, a wrapper can make one from "
                "edges and weights, see 'A model over a sparse matrix' in docs/your-model.md"
            )
        try:
            weighs = self._weighs()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            return f"called as model(x, edge_index, edge_weight) it raised {type(error).__name__}: {error}"
        return None if weighs else "it may ignore edge_weight, or keep what it computed from an earlier graph"

    def _weighs(self) -> bool:
        """Whether logits stay the same with pairs of weight 0, and edges of weight 0 are as good as removed."""
        if self.num_nodes < 2:
            return True
        pairs = some_pairs(self.data)
        nothing, whole = self.data.x.new_zeros(len(pairs)), self.data.x.new_ones(len(pairs))
        edges = self.edge_key[:8]
        with torch.no_grad():
            _, clean = self.run(*self._nothing)
            _, idle = self.run(pairs.both, nothing)
            _, removed = self.run(torch.stack([edges // self.num_nodes, edges % self.num_nodes]), whole[: len(edges)])
            row, col = self.data.edge_index
            kept = ~contained(torch.minimum(row, col) * self.num_nodes + torch.maximum(row, col), edges)
            with eval_mode(self.model):
                without = self.model(self.data.x, self.data.edge_index[:, kept], self.data.x.new_ones(int(kept.sum())))
        return all(
            bool((one - other).abs().max() <= AGREE[one.dtype] * other.abs().max() + 1e-12)
            for one, other in ((clean, idle), (removed, without))
        )

    def holds_a_graph(self) -> bool:
        """Whether nodes hear each other, but not along the edges that the model is shown."""
        edges = self.edge_key[::2]
        if not edges.numel():
            return False
        half = torch.stack([edges // self.num_nodes, edges % self.num_nodes])
        with torch.no_grad():
            _, clean = self.run(*self._nothing)
            _, without = self.run(half, clean.new_ones(edges.numel()))
        slack = _SLACK * torch.finfo(clean.dtype).eps * clean.abs().max()
        if bool(((clean - without).abs() > slack).any()):
            return False
        with eval_mode(self.model), dispatch.using(self.backend):
            return nodes_interact(self.model, self.data)


# How it is said that a model shows an attack nothing.
HOLDS_A_GRAPH = (
    "lets nodes hear each other, but not along the edges that it is shown: it keeps a graph that it saw before, holds one of "
    "its own or lets every node hear all, and no flip can change what it says"
)


def nodes_interact(model: nn.Module, data: Data) -> bool:
    """Whether the features of some nodes matter to the logits of others, as gradients tell; those of an MLP do not."""
    with torch.inference_mode(False), torch.enable_grad():
        x = data.x.detach().clone().requires_grad_()
        loss = every_logit(model(x, data.edge_index)[::2], x)
        (gradient,) = torch.autograd.grad(loss, x, allow_unused=True) if loss.requires_grad else (None,)
    return gradient is not None and bool((gradient[1::2].abs() > _HEARD * gradient.abs().max()).any())


def check_differentiable(model: nn.Module, data: Data) -> None:
    """Raise for a model or a graph made under ``torch.inference_mode()``, of which there are no gradients."""
    if any(tensor.is_inference() for tensor in (*model.parameters(), *model.buffers(), data.x, data.edge_index)):
        raise ValueError(
            "expected a model and a graph that were made outside of torch.inference_mode(), for gradients are needed: leave it "
            "out, or clone them outside of it"
        )


def for_autograd(tensor: Tensor) -> Tensor:
    """The tensor, or a copy of it that autograd may keep, where it was made under ``torch.inference_mode()``."""
    return tensor.clone() if tensor.is_inference() else tensor


def checked_loss(loss: object) -> Tensor:
    """What a loss function returned; raises unless it is one number."""
    if not isinstance(loss, Tensor) or loss.dim():
        raise ValueError(f"expected a loss of one number in a tensor of no dimension, got {described(loss)}")
    return loss


def described(value: object) -> str:
    """Type and shape, for a message."""
    return f"{value.dtype} of shape {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def _takes(model: nn.Module, count: int) -> bool:
    """Whether so many arguments can be handed to the model at all."""
    try:
        inspect.signature(model.forward).bind(*[None] * count)
    except TypeError:
        return False
    return True


def some_pairs(data: Data) -> Pairs:
    """Up to 64 pairs of nodes, always the same ones; none where there are none."""
    count = num_pairs(data.x.size(0))
    number = torch.randint(0, max(1, count), (64 if count else 0,), generator=torch.Generator().manual_seed(0))
    return Pairs.from_number(number.unique().to(data.x.device), data.x.size(0))


def every_logit(logits: Tensor, _: Tensor) -> Tensor:
    """A loss that listens to every logit of every node, to each in its own way."""
    weight = torch.arange(logits.numel(), device=logits.device, dtype=logits.dtype).cos().view_as(logits)
    return (weight * logits).sum()
