"""A warm-up that is a run of its own, as in the paper's released scripts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import nn

from edgeproof.splits import Split
from edgeproof.training.checkpoint import beside
from edgeproof.training.config import TrainConfig
from edgeproof.training.history import History
from edgeproof.training.loop import run_epochs


def alone(config: TrainConfig) -> TrainConfig:
    """The settings of a warm-up that is a run of its own."""
    return replace(config.on_labelled_nodes(), max_epochs=config.warmup_epochs, patience=config.warmup_epochs)


def warm_up(
    model: nn.Module, split: Split, config: TrainConfig, *, checkpoint: Path | None, checkpoint_every: int, show: bool
) -> History:
    """Train on the labelled nodes for a few epochs, and leave the model at the best of them.

    Args:
        model: what to train.
        split: its labelled nodes and its validation nodes.
        config: of the whole run.
        checkpoint: keeps the run that follows; this one is kept beside it.
        checkpoint_every: epochs between two checkpoints.
        show: whether to draw a progress bar.
    """
    nodes = split.train.nodes
    try:
        return run_epochs(
            model,
            split,
            alone(config),
            nodes=nodes,
            labels=split.train.data.y[nodes],
            threat=None,
            checkpoint=None if checkpoint is None else beside(checkpoint, "warmup"),
            checkpoint_every=checkpoint_every,
            show=show,
        )
    except FloatingPointError as error:
        raise FloatingPointError(f"the warm-up: {error}") from error
