"""Full evaluation of every candidate: the reference, for any model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgeproof.propagation.incremental.base import Scan, margins_of, toggled


class FlippedLogits(Protocol):
    """Model that is run on flipped graphs: an engine of edge gradients, or predictions alone.

    Args:
        data: Graph.
        nodes: Target node ids.
        labels: Label of each target node.
        num_nodes: Number of nodes of the graph.
    """

    data: Data
    nodes: Tensor
    labels: Tensor
    num_nodes: int

    def logits_of(self, sets: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the logits under the next sets of flips, shape ``[sets, nodes, classes]``."""


class FullEvaluator:
    """Run the model on every flipped graph, in batches. See :class:`IncrementalEvaluator`.

    Args:
        engine: Model, graph, target nodes and labels.
    """

    name = "full"
    num_hops: int | None = None

    def __init__(self, engine: FlippedLogits) -> None:
        self._engine = engine
        self._set(engine.data.edge_index.new_empty(2, 0))

    def scan(self, candidates: Tensor, only: int | None = None) -> Scan:
        engine = self._engine
        sets = [toggled(self.flips, pair[:, None], engine.num_nodes) for pair in candidates.T]
        targets = torch.arange(engine.nodes.numel(), device=candidates.device)
        targets = targets if only is None else targets[only : only + 1]
        margins = [self._margins(logits)[targets] for batch in engine.logits_of(sets) for logits in batch]
        num_targets = targets.numel()
        return Scan(
            num_targets * torch.arange(len(sets) + 1, device=candidates.device),
            targets.repeat(len(sets)),
            torch.cat([self.margins[:0], *margins]),
            self.margins,
        )

    def apply(self, flips: Tensor) -> None:
        self._set(toggled(self.flips, flips, self._engine.num_nodes))

    def _set(self, flips: Tensor) -> None:
        self.flips = flips
        (logits,) = self._engine.logits_of([flips])
        self.margins = self._margins(logits[0])

    def _margins(self, logits: Tensor) -> Tensor:
        return margins_of(logits[self._engine.nodes].double(), self._engine.labels)
