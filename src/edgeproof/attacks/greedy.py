"""A way through graphs that takes a few whole flips at a time, and remembers where it was best."""

from __future__ import annotations

import torch
from torch import Tensor

from edgeproof.attacks.target import Target
from edgeproof.attacks.trace import AttackTrace
from edgeproof.propagation import EdgeGradient


class GreedyState:
    """The flips so far, and how many of them gave the lowest accuracy.

    Args:
        target: what is under attack.
        loss: the loss to raise, by name.
        trace: takes note.
    """

    def __init__(self, target: Target, loss: str, trace: AttackTrace) -> None:
        self.target, self.trace = target, trace
        self.engine = target.engine(loss)
        self.flips: Tensor = target.data.edge_index.new_empty(2, 0)
        self._lengths: list[int] = []
        self._measured: list[Tensor] = []

    def gradient(self) -> EdgeGradient:
        """Loss, logits and gradients at the flips so far."""
        gradient = self.engine(self.flips, self.target.data.x.new_ones(self.flips.size(1)))
        self._note(gradient.logits)
        self.trace.step(gradient.loss)
        self.trace.phase("forward and backward")
        return gradient

    def add(self, pairs: Tensor) -> None:
        """Take these flips, too."""
        self.flips = torch.cat([self.flips, pairs], dim=1)

    def end(self) -> Tensor:
        """The first flips up to where the accuracy was lowest; where it was so twice, up to the later one."""
        self._note(self.engine.logits(self.flips, self.target.data.x.new_ones(self.flips.size(1))))
        accuracies = torch.stack(self._measured)
        last_best = int((accuracies == accuracies.min()).nonzero()[-1])
        return self.flips[:, : self._lengths[last_best]]

    def _note(self, logits: Tensor) -> None:
        self._lengths.append(self.flips.size(1))
        self._measured.append(self.target.accuracy(logits))
