"""Training from several initial parameters; keeps the run with the best validation result."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

from torch import nn

from edgeproof.models import GraphModel
from edgeproof.training.config import TrainConfig
from edgeproof.training.history import History
from edgeproof.training.loop import selection_loss

# Trains a model in place. The argument is the number of the start, 0 for the model's own parameters.
Run = Callable[[nn.Module, int], History]


def best_start(model: nn.Module, config: TrainConfig, run: Run) -> History:
    """Train from the model's parameters, and with ``config.try_starts`` also from its alternative starts.

    Args:
        model: Model; it gets the parameters of the best run.
        config: Settings of the runs.
        run: Training of one start.

    Returns:
        Record of the best run, with the total runtime of all runs.
    """
    starts = model.alternative_starts() if config.try_starts and isinstance(model, GraphModel) else []
    others = [copy.deepcopy(model) for _ in starts]
    best = run(model, 0)
    seconds = best.seconds
    for index, (other, start) in enumerate(zip(others, starts, strict=True), start=1):
        other.load_state_dict({**other.state_dict(), **start})
        history = run(other, index)
        seconds += history.seconds
        if selection_loss(history.best, config, None) < selection_loss(best.best, config, None):
            best = history
            model.load_state_dict(other.state_dict())
    return replace(best, seconds=seconds)
