"""State of greedy attacks: the flips so far and the accuracy after each step."""

from __future__ import annotations

import torch
from torch import Tensor

from edgeproof.attacks.base import AttackTrace, Target
from edgeproof.budget import Budget
from edgeproof.propagation import EdgeGradient


class GreedyState:
    """Discrete flips that grow step by step, and the number of them at which the accuracy was lowest.

    Args:
        target: Model, graph and nodes under attack.
        loss: Name of the loss to maximize.
        trace: Receives the loss of every step and the time of every phase.
    """

    def __init__(self, target: Target, loss: str, trace: AttackTrace) -> None:
        self.target, self.trace = target, trace
        self.engine = target.engine(loss)
        self.flips: Tensor = target.data.edge_index.new_empty(2, 0)
        self._num_flips: list[int] = []
        self._accuracies: list[Tensor] = []

    def can_flip(self, budget: Budget) -> bool:
        """Whether the budget allows another flip."""
        return budget.after(self.flips).allows_flips

    def gradient(self) -> EdgeGradient:
        """Compute loss, logits and gradient at the current flips."""
        gradient = self.engine(self.flips, self.target.ones(self.flips.size(1)))
        self._record_accuracy(gradient.logits)
        self.trace.step(gradient.loss)
        self.trace.phase("forward and backward")
        return gradient

    def add(self, pairs: Tensor) -> None:
        """Append flips."""
        self.flips = torch.cat([self.flips, pairs], dim=1)

    def best_flips(self) -> Tensor:
        """Return the flips up to the point of lowest accuracy; of several such points, up to the last."""
        self._record_accuracy(self.engine.logits(self.flips, self.target.ones(self.flips.size(1))))
        accuracies = torch.stack(self._accuracies)
        last_best = int((accuracies == accuracies.min()).nonzero()[-1])
        return self.flips[:, : self._num_flips[last_best]]

    def _record_accuracy(self, logits: Tensor) -> None:
        self._num_flips.append(self.flips.size(1))
        self._accuracies.append(self.target.accuracy(logits))
