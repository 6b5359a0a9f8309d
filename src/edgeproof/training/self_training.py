"""Self-training: a model's own answers stand in for the labels of unlabelled nodes (paper, Algorithm 3)."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from edgeproof import losses
from edgeproof.graph import UNKNOWN
from edgeproof.models import GraphModel, predict
from edgeproof.splits import Split
from edgeproof.training.checkpoint import beside, check_goes_on
from edgeproof.training.config import MOST_SEEDS, TrainConfig
from edgeproof.training.history import History
from edgeproof.training.loop import identity, run_epochs

# A model whose validation accuracy is further below that of the best has failed, and has no vote.
_FAILED = 0.1
# Seeds of label models are far from those of final ones, which would otherwise begin with the same parameters.
_LABELLING = 1_000_000
# A label model has to do better than this many times the answer that is right most often.
_BETTER_THAN_CHANCE = 1.5


class LabelWarning(UserWarning):
    """Pseudo-labels that are hardly worth training on."""


@dataclass(frozen=True, eq=False)
class PseudoLabels:
    """Labels of all nodes of a training graph.

    Args:
        labels: true ones where they are known, answers elsewhere, shape ``[nodes]``.
        confidence: the probability that the models gave to each answer; 1 where the label is known, shape ``[nodes]``.
        val_accuracy: accuracy of those who answered, on the validation nodes.
        accuracy: accuracy of the answers at unlabelled nodes by the labels in the data, which nothing else looks at; none if
            they are -1 there, for not known.
        histories: how each model was trained.
        voters: which of them had a vote.
        labeller: which kind of model answered.
        doubt: why not to trust the labels, where there is a reason.
    """

    labels: Tensor
    confidence: Tensor
    val_accuracy: float
    accuracy: float | None
    histories: tuple[History, ...]
    voters: tuple[int, ...]
    labeller: str
    doubt: str | None = None

    def __repr__(self) -> str:
        hidden = "unknown" if self.accuracy is None else f"{self.accuracy:.1%}"
        return (
            f"PseudoLabels({self.labels.numel()} nodes, {len(self.voters)} of {len(self.histories)} models, accuracy "
            f"{self.val_accuracy:.1%} on validation nodes, {hidden} at unlabelled nodes)"
        )


def vote(
    model: nn.Module, split: Split, config: TrainConfig, *, checkpoint: Path | None, checkpoint_every: int, show: bool
) -> PseudoLabels:
    """Train models of the same kind on the labelled nodes, and let them label the others.

    Args:
        model: what kind; it is not changed.
        split: who is labelled, who is not, and who validates.
        config: the final model's settings; ``label_models`` and ``label_weight_decay`` are meant for this.
        checkpoint: keeps the final model's run; those of these models are kept beside it.
        checkpoint_every: epochs between two checkpoints.
        show: whether to draw progress bars.
    """
    check_unlabeled(split)
    config = config.on_labelled_nodes()
    known, unlabeled, truth = split.train.nodes, split.train.unlabeled, split.train.data.y
    seeds = [(config.seed + _LABELLING + index) % MOST_SEEDS for index in range(config.label_models)]
    files = [None if checkpoint is None else beside(checkpoint, f"labels{index}") for index in range(len(seeds))]
    for seed, file in zip(seeds, files, strict=True):
        if file is not None:
            check_goes_on(file, identity(model, split, replace(config, seed=seed), None))
    answers, accuracies, histories = [], [], []
    for index, (seed, file) in enumerate(zip(seeds, files, strict=True)):
        labeller = another(model, seed)
        try:
            history = run_epochs(
                labeller,
                split,
                replace(config, seed=seed),
                nodes=known,
                labels=truth[known],
                threat=None,
                checkpoint=file,
                checkpoint_every=checkpoint_every,
                show=show,
            )
        except FloatingPointError as error:
            which = f"label model {index + 1} of {config.label_models}"
            raise FloatingPointError(f"{which}, before the training of the model itself: {error}") from error
        histories.append(history)
        seen = predict(labeller, split.val.data)[split.val.nodes]
        accuracies.append(float(losses.accuracy(seen, split.val.data.y[split.val.nodes])))
        answers.append((predict(labeller, split.train.data).softmax(dim=1), seen.softmax(dim=1)))
    voters = tuple(index for index, accuracy in enumerate(accuracies) if accuracy >= max(accuracies) - _FAILED)
    on_train, on_val = (torch.stack([answers[index][part] for index in voters]).mean(dim=0) for part in (0, 1))

    confidence, labels = on_train.max(dim=1)
    labels, confidence = labels.index_copy(0, known, truth[known]), confidence.index_fill(0, known, 1.0)
    val_truth = split.val.data.y[split.val.nodes]
    checked = unlabeled[truth[unlabeled] != UNKNOWN]
    result = PseudoLabels(
        labels=labels,
        confidence=confidence,
        val_accuracy=float(losses.accuracy(on_val, val_truth)),
        accuracy=float((labels[checked] == truth[checked]).double().mean()) if checked.numel() else None,
        histories=tuple(histories),
        voters=voters,
        labeller=kind(model),
    )
    chance = float(torch.bincount(val_truth).max()) / val_truth.numel()
    if result.val_accuracy >= min(_BETTER_THAN_CHANCE * chance, (1 + chance) / 2):
        return result
    doubt = (
        f"the model that labels unlabelled nodes has an accuracy of {result.val_accuracy:.1%} on validation nodes, little "
        f"better than a constant answer ({chance:.1%}): what is trained on its labels will be no better. Try another seed"
        + (", or label_models=5, which leaves out models that failed" if config.label_models == 1 else "")
    )
    warnings.warn(doubt, LabelWarning, stacklevel=3)
    return replace(result, doubt=doubt)


def check_unlabeled(split: Split) -> None:
    """Raise unless there are nodes to label."""
    if not split.train.unlabeled.numel():
        raise ValueError(
            f"expected unlabelled training nodes for self-training, got none in {split}; train with self_training=False "
            "(--no-self-training)"
        )


def kind(model: nn.Module) -> str:
    """In words: a model's name, and its settings, where they are known."""
    settings = model.settings if isinstance(model, GraphModel) else {}
    return f"{type(model).__name__}({', '.join(f'{name}={value!r}' for name, value in settings.items())})"


def another(model: nn.Module, seed: int) -> nn.Module:
    """A model of the same kind with new parameters.

    Every part of a copy that is a model of this library or has ``reset_parameters()`` is reset, but for frozen parameters,
    which have been trained before; what else is left as it was is warned of.
    """
    device, fresh = next(model.parameters()).device, copy.deepcopy(model)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        kept = _reset(fresh)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                fresh.get_parameter(name).copy_(parameter)
    for name, part in model.named_modules():
        parameters = list(part.parameters())
        if parameters and not any(parameter.requires_grad for parameter in parameters):
            # With what it has beside parameters, such as running means.
            fresh.get_submodule(name).load_state_dict(part.state_dict())
    if kept:
        warnings.warn(
            f"{', '.join(kept)} of {type(model).__name__} keep their values in label models: no part of it that has them has "
            "reset_parameters()",
            LabelWarning,
            stacklevel=3,
        )
    return fresh


def _reset(module: nn.Module, prefix: str = "") -> list[str]:
    """New parameters for a module and all its parts; the names of those that stay as they are, for want of a way."""
    if isinstance(module, GraphModel):
        # Coefficients by a seed of their own would be the same again.
        settings: dict[str, Any] = {
            name: None if name == "init_seed" else value for name, value in module.settings.items()
        }
        module.load_state_dict(type(module)(**settings).state_dict())
        return []
    kept = [name for part, child in module.named_children() for name in _reset(child, f"{prefix}{part}.")]
    reset = getattr(module, "reset_parameters", None)
    if callable(reset):
        reset()
        return []
    own = module.named_parameters(recurse=False)
    return kept + [f"{prefix}{name}" for name, parameter in own if parameter.requires_grad]
