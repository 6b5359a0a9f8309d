"""Models for tests that count, interrupt or forbid training steps."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

import edgeproof as ep


def counting(
    name: str = "GPRGNN", *, interrupt_at: int | None = None, nan_from: int | None = None
) -> type[ep.models.GraphModel]:
    """Return a subclass of a model that counts training steps over all its instances in ``steps``.

    Args:
        name: Name of the model.
        interrupt_at: Step that raises ``KeyboardInterrupt``; None for no interrupt.
        nan_from: First step with NaN logits; None for finite logits.
    """
    base: Any = getattr(ep.models, name)

    class Counting(base):  # type: ignore[misc]
        steps = 0

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
            logits: Tensor = super().forward(x, edge_index, edge_weight)
            if not self.training:
                return logits
            if Counting.steps == interrupt_at:
                raise KeyboardInterrupt
            Counting.steps += 1
            return logits * float("nan") if nan_from is not None and Counting.steps > nan_from else logits

    return Counting


def untrainable(name: str = "GPRGNN") -> type[ep.models.GraphModel]:
    """Return a subclass of a model that fails the test if it, or a copy of it, is trained."""
    base: Any = getattr(ep.models, name)

    class Untrainable(base):  # type: ignore[misc]
        def train(self, mode: bool = True) -> Any:
            if mode:
                pytest.fail("trained")
            return super().train(mode)

    return Untrainable


def interrupt_at(epoch: int) -> Any:
    """Return an observer that raises ``KeyboardInterrupt`` after this epoch, before its checkpoint is written."""

    def observe(record: ep.training.Epoch) -> None:
        if record.epoch == epoch:
            raise KeyboardInterrupt

    return observe
