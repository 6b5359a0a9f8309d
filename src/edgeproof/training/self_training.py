r"""Self-training (paper, Algorithm 3): pseudo-labels for the unlabelled nodes of the training graph.

Comments in :func:`generate_pseudo_labels` refer to these lines, with training graph :math:`G` and known labels :math:`y^L`::

    1  theta_best = train(f_theta, G, y^L)
    2  y^U = f_theta_best(G)
    3  y = y^L and y^U together
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from edgeproof import losses
from edgeproof._checks import MAX_SEED
from edgeproof._tables import Layout, Record, TabularResult, records
from edgeproof._warnings import warn, with_code
from edgeproof.graph import UNKNOWN
from edgeproof.models import GraphModel, predict
from edgeproof.splits import Split
from edgeproof.training.checkpoint import check_resumable, sibling_path
from edgeproof.training.config import TrainConfig
from edgeproof.training.history import History
from edgeproof.training.loop import run_epochs, run_identity
from edgeproof.training.safeguards import (
    LabelWarning,
    Outcome,
    best_start,
    constant_accuracy,
    reinitialized_copy,
    with_restarts,
)

# Offset of the seeds of label models: with the seed of the final model they would have the same initial parameters.
_SEED_OFFSET = 1_000_000


@dataclass(frozen=True, eq=False)
class PseudoLabels(TabularResult):
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

    def summary(self) -> Record:
        """Return the values that occur once, as numbers, text, lists and dictionaries."""
        return {
            "label_model": self.label_model,
            "models": len(self.histories),
            "voters": list(self.voters),
            "val_accuracy": self.val_accuracy,
            "accuracy": self.accuracy,
            "warning": self.warning,
        }

    def _records(self) -> list[Record]:
        nodes = range(self.labels.numel())
        return records({"node": nodes, "label": self.labels.tolist(), "confidence": self.confidence.tolist()})

    def _layout(self) -> Layout:
        lines = [
            ("label models", f"{len(self.voters)} of {len(self.histories)} {self.label_model}"),
            ("nodes", f"{self.labels.numel():,}"),
            ("accuracy on validation nodes", f"{self.val_accuracy:.1%}"),
            ("accuracy at unlabelled nodes", "unknown" if self.accuracy is None else f"{self.accuracy:.1%}"),
        ]
        return Layout("", (), lines, left=2, notes=[] if self.warning is None else [f"warning: {self.warning}"])


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

    def attempt(label_model: nn.Module, settings: TrainConfig, file: Path | None) -> Outcome:
        fit = partial(
            run_epochs,
            split=split,
            config=settings,
            nodes=nodes,
            labels=truth[nodes],
            threat=None,
            checkpoint_every=checkpoint_every,
            show=show,
        )
        return Outcome(label_model, best_start(label_model, settings, file, fit))

    probabilities, val_probabilities, accuracies, histories = [], [], [], []
    val_labels = split.val.data.y[split.val.nodes]
    for index, (seed, file) in enumerate(zip(seeds, files, strict=True)):
        # Line 1: train an initial model. Not in the paper: several models, which vote.
        which = f"label model {index + 1} of {config.label_models}"
        label_model, settings = reinitialized_copy(model, seed), replace(config, seed=seed)
        try:
            history, _ = with_restarts(
                label_model, split, settings, file, attempt, subject=which, category=LabelWarning
            )
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
    message = _doubt(result, val_labels, config.label_models)
    if message is None:
        return result
    warn("EP101", message, LabelWarning, stacklevel=3)
    return replace(result, warning=with_code("EP101", message))


def _doubt(found: PseudoLabels, val_labels: Tensor, num_models: int) -> str | None:
    """Return a message if pseudo-labels are hardly better than a constant prediction, else None."""
    constant = constant_accuracy(val_labels)
    if beats_constant(found.val_accuracy, constant):
        return None
    return (
        f"the pseudo-labels are hardly better than a constant prediction: the label models have a validation accuracy of "
        f"{found.val_accuracy:.1%}, a constant prediction {constant:.1%}. Try another seed"
        + (", or label_models=5, which excludes models that failed" if num_models == 1 else "")
    )


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
            f"expected unlabelled training nodes for self-training, got none in {split!r}; train with self_training=False "
            "(--no-self-training)"
        )


def model_summary(model: nn.Module) -> str:
    """Return class name and settings of a model."""
    settings = model.settings if isinstance(model, GraphModel) else {}
    return f"{type(model).__name__}({', '.join(f'{name}={value!r}' for name, value in settings.items())})"
