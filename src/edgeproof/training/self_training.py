r"""Self-training (paper, Algorithm 3): pseudo-labels for the unlabelled nodes of the training graph.

Comments in :func:`generate_pseudo_labels` refer to these lines, with training graph :math:`G` and known labels :math:`y^L`::

    1  theta_best = train(f_theta, G, y^L)
    2  y^U = f_theta_best(G)
    3  y = y^L and y^U together
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from edgeproof import losses
from edgeproof._checks import MAX_SEED
from edgeproof._warnings import EdgeproofWarning, warn, with_code
from edgeproof.graph import UNKNOWN
from edgeproof.models import GraphModel, predict
from edgeproof.splits import Split
from edgeproof.training.checkpoint import check_resumable, sibling_path
from edgeproof.training.config import TrainConfig
from edgeproof.training.failures import clean_val_accuracy, is_near_constant
from edgeproof.training.history import History
from edgeproof.training.loop import run_epochs, run_identity
from edgeproof.training.starts import best_start

# Offset of the seeds of label models: with the seed of the final model they would have the same initial parameters.
_SEED_OFFSET = 1_000_000


class LabelWarning(EdgeproofWarning):
    """Problem with label models or their pseudo-labels."""


@dataclass(frozen=True, eq=False)
class PseudoLabels:
    """Labels of all nodes of a training graph.

    Args:
        labels: True labels of labelled nodes and predictions for all others, shape ``[nodes]``.
        confidence: Probability of each prediction; 1 for labelled nodes, shape ``[nodes]``.
        val_accuracy: Accuracy of the voting models on the validation nodes.
        accuracy: Accuracy of the predictions on unlabelled nodes, computed from the labels in the data, which are not used
            otherwise; None if they are unknown (-1).
        histories: Training history of each label model.
        voters: Indices of the label models with a vote.
        label_model: Architecture and settings of the label models.
        warning: Warning about the labels, with its code; None if there is none.
    """

    labels: Tensor
    confidence: Tensor
    val_accuracy: float
    accuracy: float | None
    histories: tuple[History, ...]
    voters: tuple[int, ...]
    label_model: str
    warning: str | None = None

    def __repr__(self) -> str:
        accuracy = "unknown" if self.accuracy is None else f"{self.accuracy:.1%}"
        return (
            f"PseudoLabels({self.labels.numel()} nodes, {len(self.voters)} of {len(self.histories)} models, accuracy "
            f"{self.val_accuracy:.1%} on validation nodes, {accuracy} at unlabelled nodes)"
        )


def generate_pseudo_labels(
    model: nn.Module, split: Split, config: TrainConfig, *, checkpoint: Path | None, checkpoint_every: int, show: bool
) -> PseudoLabels:
    """Train label models on the labelled nodes, and label the other nodes with their mean prediction.

    Args:
        model: Architecture of the label models; its parameters are not changed.
        split: Split with labelled, unlabelled and validation nodes.
        config: Settings of the final model.
        checkpoint: Checkpoint of the final model's run; those of the label models are its siblings.
        checkpoint_every: Number of epochs between two checkpoints.
        show: Whether to draw progress bars.
    """
    check_unlabeled(split)
    config = config.for_label_models()
    nodes, truth = split.train.nodes, split.train.data.y
    seeds = [(config.seed + _SEED_OFFSET + index) % (MAX_SEED + 1) for index in range(config.label_models)]
    files = [None if checkpoint is None else sibling_path(checkpoint, f"labels{index}") for index in range(len(seeds))]
    for seed, file in zip(seeds, files, strict=True):
        if file is not None:
            check_resumable(file, run_identity(model, split, replace(config, seed=seed), None))

    probabilities, val_probabilities, accuracies, histories = [], [], [], []
    val_labels = split.val.data.y[split.val.nodes]
    for index, (seed, file) in enumerate(zip(seeds, files, strict=True)):
        # Line 1: train an initial model. Not in the paper: several models, which vote.
        which = f"label model {index + 1} of {config.label_models}"
        trainer = _LabelTrainer(model, split, config, checkpoint_every, show)
        try:
            label_model, history = trainer.train(seed, file, which)
        except FloatingPointError as error:
            raise FloatingPointError(f"{which}, before the training of the model itself: {error}") from error
        histories.append(history)
        # Line 2: predict all nodes.
        val_logits = predict(label_model, split.val.data)[split.val.nodes]
        accuracies.append(float(losses.accuracy(val_logits, val_labels)))
        probabilities.append(predict(label_model, split.train.data).softmax(dim=1))
        val_probabilities.append(val_logits.softmax(dim=1))
    voters = select_voters(accuracies)
    mean_probabilities = torch.stack([probabilities[index] for index in voters]).mean(dim=0)
    mean_val_probabilities = torch.stack([val_probabilities[index] for index in voters]).mean(dim=0)

    # Line 3: known labels where there are any, predictions elsewhere.
    confidence, labels = mean_probabilities.max(dim=1)
    labels, confidence = labels.index_copy(0, nodes, truth[nodes]), confidence.index_fill(0, nodes, 1.0)

    known = split.train.unlabeled[truth[split.train.unlabeled] != UNKNOWN]
    result = PseudoLabels(
        labels=labels,
        confidence=confidence,
        val_accuracy=float(losses.accuracy(mean_val_probabilities, val_labels)),
        accuracy=float((labels[known] == truth[known]).double().mean()) if known.numel() else None,
        histories=tuple(histories),
        voters=voters,
        label_model=model_summary(model),
    )
    constant_accuracy = float(torch.bincount(val_labels).max()) / val_labels.numel()
    if beats_constant(result.val_accuracy, constant_accuracy):
        return result
    message = (
        f"the pseudo-labels are hardly better than a constant prediction: the label models have a validation accuracy of "
        f"{result.val_accuracy:.1%}, a constant prediction {constant_accuracy:.1%}. Try another seed"
        + (", or label_models=5, which excludes models that failed" if config.label_models == 1 else "")
    )
    warn("EP101", message, LabelWarning, stacklevel=3)
    return replace(result, warning=with_code("EP101", message))


@dataclass(frozen=True)
class _LabelTrainer:
    """Training of label models.

    Args:
        model: Architecture.
        split: Split.
        config: Settings of label models.
        checkpoint_every: Number of epochs between two checkpoints.
        show: Whether to draw progress bars.
    """

    model: nn.Module
    split: Split
    config: TrainConfig
    checkpoint_every: int
    show: bool

    def train(self, seed: int, checkpoint: Path | None, which: str) -> tuple[nn.Module, History]:
        """Train one label model; replace it if it failed, at most ``max_restarts`` times.

        Args:
            seed: Seed of its parameters and its training.
            checkpoint: Its checkpoint; None for none.
            which: Its number, for the warning.
        """
        label_model, history = self._train_once(seed, checkpoint)
        val_labels = self.split.val.data.y[self.split.val.nodes]
        for restart in range(1, self.config.max_restarts + 1):
            if not is_near_constant(clean_val_accuracy(history.best), val_labels):
                break
            warn(
                "EP107",
                f"{which} failed and is replaced by one with another seed (restart {restart} of {self.config.max_restarts}): "
                f"its accuracy on the validation nodes is {clean_val_accuracy(history.best):.1%}",
                LabelWarning,
                stacklevel=5,
            )
            file = None if checkpoint is None else sibling_path(checkpoint, f"restart{restart}")
            other, other_history = self._train_once((seed + _SEED_OFFSET * restart) % (MAX_SEED + 1), file)
            if clean_val_accuracy(other_history.best) > clean_val_accuracy(history.best):
                label_model, history = other, other_history
        return label_model, history

    def _train_once(self, seed: int, checkpoint: Path | None) -> tuple[nn.Module, History]:
        config, train = replace(self.config, seed=seed), self.split.train

        def run(model: nn.Module, start: int) -> History:
            file = checkpoint if checkpoint is None or not start else sibling_path(checkpoint, f"start{start}")
            return run_epochs(
                model,
                self.split,
                config,
                nodes=train.nodes,
                labels=train.data.y[train.nodes],
                threat=None,
                checkpoint=file,
                checkpoint_every=self.checkpoint_every,
                show=self.show,
            )

        label_model = reinitialized_copy(self.model, seed)
        return label_model, best_start(label_model, config, run)


def select_voters(accuracies: Sequence[float], tolerance: float = 0.1) -> tuple[int, ...]:
    """Return the indices of the models whose accuracy is at most ``tolerance`` below the highest.

    >>> select_voters([0.8, 0.5, 0.75])
    (0, 2)
    """
    return tuple(index for index, accuracy in enumerate(accuracies) if accuracy >= max(accuracies) - tolerance)


def beats_constant(accuracy: float, constant_accuracy: float, factor: float = 1.5) -> bool:
    """Return whether label models are clearly better than the best constant prediction.

    Their accuracy must be at least ``factor`` times that of the constant prediction, or at least half of the nodes that the
    constant prediction misclassifies must be classified correctly.
    """
    return accuracy >= min(factor * constant_accuracy, (1 + constant_accuracy) / 2)


def check_unlabeled(split: Split) -> None:
    """Raise unless the split has unlabelled training nodes."""
    if not split.train.unlabeled.numel():
        raise ValueError(
            f"expected unlabelled training nodes for self-training, got none in {split}; train with self_training=False "
            "(--no-self-training)"
        )


def model_summary(model: nn.Module) -> str:
    """Return class name and settings of a model."""
    settings = model.settings if isinstance(model, GraphModel) else {}
    return f"{type(model).__name__}({', '.join(f'{name}={value!r}' for name, value in settings.items())})"


def reinitialized_copy(model: nn.Module, seed: int) -> nn.Module:
    """Return a copy of a model with new initial parameters.

    Models of this library and modules with ``reset_parameters()`` are reset. Frozen parameters keep their values, since they
    were trained before. Other parameters that cannot be reset keep their values, with a warning.

    Args:
        model: Model; it is not changed.
        seed: Seed of the new parameters.
    """
    device, fresh = next(model.parameters()).device, copy.deepcopy(model)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        not_reset = _reset(fresh)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                fresh.get_parameter(name).copy_(parameter)
    for name, module in model.named_modules():
        parameters = list(module.parameters())
        if parameters and not any(parameter.requires_grad for parameter in parameters):
            # Frozen modules keep their buffers, too, such as running means.
            fresh.get_submodule(name).load_state_dict(module.state_dict())
    if not_reset:
        warn(
            "EP103",
            f"label models start with the current values of {', '.join(not_reset)} of {type(model).__name__}, which cannot be "
            "reset: define reset_parameters() in the module that owns them",
            LabelWarning,
            stacklevel=3,
        )
    return fresh


def _reset(module: nn.Module, prefix: str = "") -> list[str]:
    """Reset the parameters of a module and its submodules; return the names of those that cannot be reset."""
    if isinstance(module, GraphModel):
        # Without init_seed, which would give all copies the same coefficients.
        settings: dict[str, Any] = {
            name: None if name == "init_seed" else value for name, value in module.settings.items()
        }
        module.load_state_dict(type(module)(**settings).state_dict())
        return []
    not_reset = [name for part, child in module.named_children() for name in _reset(child, f"{prefix}{part}.")]
    reset = getattr(module, "reset_parameters", None)
    if callable(reset):
        reset()
        return []
    own = module.named_parameters(recurse=False)
    return not_reset + [f"{prefix}{name}" for name, parameter in own if parameter.requires_grad]
