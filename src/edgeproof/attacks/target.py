"""What is under attack: a model, a graph, the nodes that count, and the labels that they should get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof import losses
from edgeproof.budget import Budget
from edgeproof.models.predict import predict
from edgeproof.propagation import EdgeGradientEngine
from edgeproof.propagation.pairs import num_pairs

if TYPE_CHECKING:
    from edgeproof.attacks.recordings import Recording

Badness = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Target:
    """A model on a graph, and the nodes whose labels an attack wants it to get wrong.

    Args:
        model: any module called as ``model(x, edge_index, edge_weight)``.
        data: the graph.
        nodes: the target nodes.
        labels: their labels, in the same order.
        backend: the kernels to use; by default the fastest that fit.
    """

    model: nn.Module
    data: Data
    nodes: Tensor
    labels: Tensor
    backend: str | None = None

    @cached_property
    def _engines(self) -> dict[str, EdgeGradientEngine]:
        """Gradient engines by loss; shared with the copies of :meth:`for_one_attack`."""
        return {}

    @cached_property
    def _used_losses(self) -> list[str]:
        return []

    @cached_property
    def clean_logits(self) -> Tensor:
        """Logits of the target nodes on the clean graph."""
        return predict(self.model, self.data)[self.nodes]

    def for_one_attack(self) -> Target:
        """Return a copy with the same gradient engines, but its own recordings and its own :attr:`path`."""
        copy = replace(self)
        copy.__dict__["_engines"] = self._engines
        return copy

    @cached_property
    def recordings(self) -> dict[tuple[object, ...], Recording]:
        """Steps of attacks that were recorded, by kind; see :mod:`edgeproof.attacks.recordings`."""
        return {}

    @property
    def num_nodes(self) -> int:
        return int(self.data.x.size(0))

    @property
    def device(self) -> torch.device:
        device: torch.device = self.data.x.device
        return device

    @property
    def path(self) -> str:
        """How gradients were computed so far; ``"none"`` if they were not."""
        return self._engines[self._used_losses[0]].path if self._used_losses else "none"

    def engine(self, loss: str) -> EdgeGradientEngine:
        """Gradients of a loss by name; made once."""
        if loss not in self._engines:
            self._engines[loss] = EdgeGradientEngine(
                self.model, self.data, self.nodes, labels=self.labels, loss=losses.get(loss), backend=self.backend
            )
        if loss not in self._used_losses:
            self._used_losses.append(loss)
        return self._engines[loss]

    def refresh(self) -> None:
        """The model has changed: what was computed from it is computed anew."""
        self.__dict__.pop("clean_logits", None)
        for engine in self._engines.values():
            engine.refresh()

    def accuracy(self, logits: Tensor) -> Tensor:
        """Share of the target nodes that these logits of all nodes classify correctly."""
        return losses.accuracy(logits[self.nodes], self.labels)

    def badness(self, sets: Sequence[Tensor], loss: str) -> list[Badness]:
        """How sets of whole flips are judged, each on the graph itself: the lower, the worse for the model.

        First by accuracy, then by the loss, which counts negative.
        """
        engine = self.engine(loss)

        def measure(logits: Tensor) -> Tensor:
            z = logits[self.nodes]
            return torch.stack([losses.accuracy(z, self.labels), -engine.loss(z, self.labels)])

        measured = [torch.vmap(measure)(logits) for logits in engine.logits_of(sets)]
        return [(accuracy, gain) for accuracy, gain in torch.cat(measured).tolist()] if measured else []

    def worst(self, sets: Sequence[Tensor], loss: str) -> Tensor:
        """Of several sets of whole flips the one worst for the model; to change nothing is always among them."""
        nothing: Tensor = self.data.edge_index.new_empty(2, 0)
        candidates = [nothing, *sets]
        engine = self.engine(loss)
        logits = torch.cat([batch[:, self.nodes] for batch in engine.logits_of(candidates)])
        correct = (logits.argmax(dim=2) == self.labels) & logits.isfinite().all(dim=2)
        right = correct.sum(dim=1).tolist()
        # The loss decides among those of the lowest accuracy only.
        lowest = [index for index, count in enumerate(right) if count == min(right)]
        if len(lowest) == 1:
            return candidates[lowest[0]]
        losses_of = torch.vmap(lambda z: engine.loss(z, self.labels))(logits[lowest])
        return candidates[lowest[int(losses_of.argmax())]]


def num_usable_pairs(num_nodes: int, budget: Budget) -> int:
    """How many pairs there are whose two ends may both take part in a flip."""
    return num_pairs(num_nodes if budget.usable is None else budget.usable.numel())
