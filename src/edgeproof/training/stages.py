"""Warm-up and main run of a training, repeated with another seed if they fail."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from edgeproof._checks import MAX_SEED
from edgeproof._warnings import EdgeproofWarning, warn, with_code
from edgeproof.splits import Split
from edgeproof.training.adversarial import Threat
from edgeproof.training.checkpoint import sibling_path
from edgeproof.training.config import TrainConfig
from edgeproof.training.failures import Problem, clean_val_accuracy, find_problem
from edgeproof.training.history import History, Observer
from edgeproof.training.loop import run_epochs
from edgeproof.training.self_training import PseudoLabels, reinitialized_copy
from edgeproof.training.starts import best_start

# Offset of the seeds of restarts; other than that of label models.
_SEED_OFFSET = 2_000_000


class TrainingWarning(EdgeproofWarning):
    """Problem with a trained model."""


@dataclass(frozen=True)
class Stages:
    """Shared inputs of the stages of one training.

    Args:
        split: Split.
        config: Settings.
        threat: Threat model; None for clean training.
        pseudo_labels: Labels of all training nodes; None without self-training.
        checkpoint: Checkpoint of the main run; those of other stages are its siblings.
        checkpoint_every: Number of epochs between two checkpoints.
        show: Whether to draw progress bars.
        observe: Function called with every epoch of the main run.
    """

    split: Split
    config: TrainConfig
    threat: Threat | None
    pseudo_labels: PseudoLabels | None
    checkpoint: Path | None
    checkpoint_every: int
    show: bool
    observe: Observer | None

    def warm_up(self, model: nn.Module) -> History:
        """Train on the labelled nodes for a few clean epochs, and restore the best one."""
        nodes, config = self.split.train.nodes, self.config.for_warmup()

        def run(start_model: nn.Module, start: int) -> History:
            return run_epochs(
                start_model,
                self.split,
                config,
                nodes=nodes,
                labels=self.split.train.data.y[nodes],
                threat=None,
                checkpoint=self._file("warmup", start),
                checkpoint_every=self.checkpoint_every,
                show=self.show,
            )

        try:
            return best_start(model, config, run)
        except FloatingPointError as error:
            raise FloatingPointError(f"warm-up: {error}") from error

    def main_run(self, model: nn.Module) -> History:
        """Run the main loop on the labelled nodes, or on all training nodes with pseudo-labels."""
        train, config = self.split.train, self.config.for_main_run(is_adversarial=self.threat is not None)
        nodes, labels = train.nodes, train.data.y[train.nodes]
        if self.pseudo_labels is not None:
            nodes = torch.arange(train.data.x.size(0), device=nodes.device)
            labels = self.pseudo_labels.labels

        def run(start_model: nn.Module, start: int) -> History:
            return run_epochs(
                start_model,
                self.split,
                config,
                nodes=nodes,
                labels=labels,
                threat=self.threat,
                checkpoint=self._file(None, start),
                checkpoint_every=self.checkpoint_every,
                show=self.show,
                observe=self.observe,
            )

        # Alternative starts are tried in clean stages only: attacks make runs expensive.
        return best_start(model, config, run) if self.threat is None else run(model, 0)

    def _file(self, part: str | None, start: int) -> Path | None:
        """Return the checkpoint of one start of a stage."""
        if self.checkpoint is None:
            return None
        name = "".join([part or "", f"start{start}" if start else ""])
        return sibling_path(self.checkpoint, name) if name else self.checkpoint

    def restarted(self, restart: int) -> Stages:
        """Return the same stages with another seed, and other checkpoints."""
        seed = (self.config.seed + _SEED_OFFSET + restart) % (MAX_SEED + 1)
        file = None if self.checkpoint is None else sibling_path(self.checkpoint, f"restart{restart}")
        return replace(self, config=replace(self.config, seed=seed), checkpoint=file)


def train_with_restarts(model: nn.Module, stages: Stages) -> History:
    """Run warm-up and main loop, repeat them with another seed if they fail, and keep the best run.

    Problems of the kept run are issued as :class:`TrainingWarning`.

    Args:
        model: Model; it gets the parameters of the kept run.
        stages: Settings of the stages.
    """
    fresh = copy.deepcopy(model) if stages.config.max_restarts else model
    history, problem = _run_stages(model, stages)
    restarts, seconds = 0, history.seconds
    while problem is not None and problem.failed and restarts < stages.config.max_restarts:
        restarts += 1
        warn(
            "EP107",
            f"training failed and starts again with another seed (restart {restarts} of {stages.config.max_restarts}): "
            f"{problem.message}",
            TrainingWarning,
            stacklevel=3,
        )
        attempt = stages.restarted(restarts)
        other = reinitialized_copy(fresh, attempt.config.seed)
        other_history, other_problem = _run_stages(other, attempt)
        seconds += other_history.seconds
        if clean_val_accuracy(other_history.best) > clean_val_accuracy(history.best):
            history, problem = other_history, other_problem
            model.load_state_dict(other.state_dict())
    text = None
    if problem is not None:
        warn(problem.code, problem.message, TrainingWarning, stacklevel=3)
        text = with_code(problem.code, problem.message)
    return replace(history, seconds=seconds, restarts=restarts, warning=text)


def _run_stages(model: nn.Module, stages: Stages) -> tuple[History, Problem | None]:
    warmup = stages.warm_up(model) if stages.config.has_separate_warmup else None
    history = stages.main_run(model)
    if warmup is not None:
        history = replace(history, seconds=warmup.seconds + history.seconds)
    return history, find_problem(history, warmup, stages.split)
