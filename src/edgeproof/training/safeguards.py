r"""Safeguards of the preset ``"default"`` that are not in the paper: starts, failure checks, restarts, feature scaling.

Feature scaling: Adam changes all weights by steps of similar size, so features of very different or extreme scales slow
training down or make it diverge. Training replaces :math:`x_j` by :math:`x_j / s_j`, and afterwards the weights :math:`W_j`
of feature :math:`j` by :math:`W_j / s_j`: the trained model takes unscaled features.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from edgeproof import losses
from edgeproof._checks import MAX_SEED
from edgeproof._features import column_means, divide_columns
from edgeproof._warnings import EdgeproofWarning, warn
from edgeproof.models import BoundedInfluence, GraphModel, predict
from edgeproof.splits import Split, View
from edgeproof.training.checkpoint import sibling_path
from edgeproof.training.config import TrainConfig
from edgeproof.training.history import Epoch, History
from edgeproof.training.loop import selection_loss

# A run fails if its validation accuracy is this far below that of its own warm-up.
_MAX_LOSS_OF_WARMUP = 0.1
# Gap between training and validation accuracy above which a warning is issued.
_MAX_MISMATCH = 0.5
# Distance between the seeds of restarts; larger than the offset of the seeds of label models.
_SEED_OFFSET = 2_000_000
# Range of the root mean square of the rows' norms in which no global factor is applied. Bags of words have norms from about 0.2
# (rows of sum 1) to 20 (many words); 64 standardized features have norm 8.
_NORMAL = (0.1, 30.0)
# The norm that features outside this range are scaled to.
_TYPICAL = 3.0
# Features that are non-zero at more than this fraction of the nodes get their own scale. Rare words do not, because they would
# get a large weight.
_DENSE = 0.5
# Scales of dense features that differ by less than this factor are left as they are.
_SIMILAR = 10.0

# Trains a model in place, with a checkpoint file or None.
Fit = Callable[[nn.Module, Path | None], History]


class TrainingWarning(EdgeproofWarning):
    """Problem with a trained model."""


class LabelWarning(TrainingWarning):
    """Problem with label models or their pseudo-labels."""


class Problem(NamedTuple):
    """Reason to doubt a trained model.

    Args:
        code: Code of the warning.
        message: What is wrong and what to try.
        failed: Whether the run is repeated with another seed.
    """

    code: str
    message: str
    failed: bool


class Outcome(NamedTuple):
    """Trained model with its records.

    Args:
        model: Model in its best state.
        history: Record of the main run.
        warmup: Record of the separate warm-up, if there was one.
    """

    model: nn.Module
    history: History
    warmup: History | None = None

    @property
    def seconds(self) -> float:
        """Runtime with warm-up."""
        return self.history.seconds + (0.0 if self.warmup is None else self.warmup.seconds)


# Trains a model in place with these settings, and a checkpoint file or None.
Attempt = Callable[[nn.Module, TrainConfig, Path | None], Outcome]


def best_start(model: nn.Module, config: TrainConfig, checkpoint: Path | None, fit: Fit) -> History:
    """Train from the model's parameters, and with ``config.try_starts`` also from its alternative starts.

    Args:
        model: Model; it gets the parameters of the best run.
        config: Settings of the runs.
        checkpoint: Checkpoint of the first run; those of others are its siblings.
        fit: Training of one start.

    Returns:
        Record of the run with the best validation result, with the total runtime of all runs.
    """
    starts = model.alternative_starts() if config.try_starts and isinstance(model, GraphModel) else []
    others = [copy.deepcopy(model) for _ in starts]
    best = fit(model, checkpoint)
    seconds = best.seconds
    for index, (other, start) in enumerate(zip(others, starts, strict=True), start=1):
        other.load_state_dict({**other.state_dict(), **start})
        history = fit(other, None if checkpoint is None else sibling_path(checkpoint, f"start{index}"))
        seconds += history.seconds
        if selection_loss(history.best, config, None) < selection_loss(best.best, config, None):
            best = history
            model.load_state_dict(other.state_dict())
    return replace(best, seconds=seconds)


def with_restarts(
    model: nn.Module,
    split: Split,
    config: TrainConfig,
    checkpoint: Path | None,
    attempt: Attempt,
    *,
    subject: str = "training",
    category: type[EdgeproofWarning] = TrainingWarning,
) -> tuple[History, Problem | None]:
    """Train a model; if that fails, train it again with other seeds, at most ``config.max_restarts`` times.

    Every restart is reported by a warning.

    Args:
        model: Model; it gets the parameters of the best attempt on the clean validation nodes.
        split: Split that the model is trained on.
        config: Settings.
        checkpoint: Checkpoint of the first attempt; those of restarts are its siblings.
        attempt: Training.
        subject: Subject of the warning.
        category: Class of the warning.

    Returns:
        Record of the best attempt with the total runtime and the number of restarts, and its problem, if any.
    """
    fresh = copy.deepcopy(model) if config.max_restarts else model
    best = attempt(model, config, checkpoint)
    problem, seconds, restarts = find_problem(best, split), best.seconds, 0
    while problem is not None and problem.failed and restarts < config.max_restarts:
        restarts += 1
        warn(
            "EP107",
            f"{subject} failed and starts again with another seed (restart {restarts} of {config.max_restarts}): "
            f"{problem.message}",
            category,
            stacklevel=4,
        )
        seed = (config.seed + _SEED_OFFSET * restarts) % (MAX_SEED + 1)
        file = None if checkpoint is None else sibling_path(checkpoint, f"restart{restarts}")
        other = attempt(reinitialized_copy(fresh, seed), replace(config, seed=seed), file)
        seconds += other.seconds
        if clean_val_accuracy(other.history.best) > clean_val_accuracy(best.history.best):
            best, problem = other, find_problem(other, split)
            model.load_state_dict(other.model.state_dict())
    return replace(best.history, seconds=seconds, restarts=restarts), problem


def find_problem(outcome: Outcome, split: Split) -> Problem | None:
    """Return the most serious problem of a trained model, or None.

    Args:
        outcome: Trained model with its records.
        split: Split that the model was trained on.
    """
    val_labels = split.val.data.y[split.val.nodes]
    best = outcome.history.best
    val_accuracy = clean_val_accuracy(best)
    if is_near_constant(val_accuracy, val_labels):
        return Problem(
            "EP104",
            f"the model is not better than a constant prediction on the validation nodes ({val_accuracy:.1%}, constant "
            f"{constant_accuracy(val_labels):.1%}): check features and labels (edgeproof datasets describe), try a lower "
            "learning rate (lr), more labelled nodes, or another architecture",
            failed=True,
        )
    if outcome.warmup is not None:
        warmup_accuracy = clean_val_accuracy(outcome.warmup.best)
        if val_accuracy < warmup_accuracy - _MAX_LOSS_OF_WARMUP:
            return Problem(
                "EP105",
                f"the main run ended far below its own warm-up on the clean validation nodes ({val_accuracy:.1%} after "
                f"{warmup_accuracy:.1%}): try loss='cross_entropy', a lower learning rate (lr), a smaller epsilon, or "
                "clean_weight=0.5",
                failed=True,
            )
    train_accuracy = best.train_accuracy if best.clean_train_accuracy is None else best.clean_train_accuracy
    if train_accuracy - val_accuracy > _MAX_MISMATCH:
        return Problem(
            "EP106",
            f"the model fits its training nodes much better than the validation nodes ({train_accuracy:.1%} and "
            f"{val_accuracy:.1%}): try more labelled nodes, self_training=True, a larger weight_decay or more dropout, and "
            "check that both come from the same distribution",
            failed=False,
        )
    return None


def clean_val_accuracy(record: Epoch) -> float:
    """Return the accuracy on the clean validation graph."""
    accuracy = record.val_accuracy if record.clean_val_accuracy is None else record.clean_val_accuracy
    assert accuracy is not None
    return accuracy


def constant_accuracy(labels: Tensor) -> float:
    """Return the accuracy of the best constant prediction.

    >>> constant_accuracy(torch.tensor([0, 1, 1]))
    0.6666666666666666
    """
    return int(torch.bincount(labels).max()) / labels.numel()


def is_near_constant(accuracy: float, labels: Tensor) -> bool:
    """Return whether an accuracy is at most two standard errors above that of the best constant prediction.

    >>> is_near_constant(0.6, torch.tensor([0, 1] * 20)), is_near_constant(0.7, torch.tensor([0, 1] * 20))
    (True, False)
    """
    constant = constant_accuracy(labels)
    return accuracy <= constant + 2 * math.sqrt(constant * (1 - constant) / labels.numel())


def feature_scale(x: Tensor) -> Tensor | None:
    """Return the scale of each feature, or None if no scaling is needed.

    Dense features whose root mean squares differ by a factor of more than 10 get their root mean square as scale, all others 1.
    If the rows then have a typical norm below 0.1 or above 30, all scales are multiplied by one factor that makes it 3.

    Args:
        x: Features of the training graph, shape ``[nodes, features]``.

    >>> feature_scale(torch.tensor([[1.0, 2.0], [-1.0, 3.0]]))
    >>> feature_scale(torch.tensor([[1.0, 2000.0], [-1.0, 2000.0]]))
    tensor([1.0000e+00, 2.0000e+03])
    """
    mean_square, density = column_means(x)
    scale = _dense_scale(density, mean_square.sqrt())
    norm = float((mean_square / scale.square()).sum().sqrt())
    if norm > 0 and not _NORMAL[0] <= norm <= _NORMAL[1]:
        scale = scale * (norm / _TYPICAL)
    return None if bool((scale == 1).all()) else scale.to(x.dtype)


def _dense_scale(density: Tensor, root_mean_square: Tensor) -> Tensor:
    """Return the root mean square of dense features if these differ much, and 1 for all others."""
    is_dense = density > _DENSE
    scale = torch.ones_like(root_mean_square)
    dense = root_mean_square[is_dense]
    if dense.numel() and float(dense.max()) > _SIMILAR * float(dense.min()):
        scale[is_dense] = dense
    return scale


def divide_features(split: Split, scale: Tensor) -> Split:
    """Return the split with all features divided by ``scale``."""

    def divided(view: View) -> View:
        data = view.data.clone()
        data.x = divide_columns(data.x, scale)
        return replace(view, data=data)

    return replace(split, train=divided(split.train), val=divided(split.val), test=divided(split.test))


@contextmanager
def weights_of_scaled_features(model: nn.Module, scale: Tensor | None, split: Split) -> Iterator[None]:
    """Let a model take features divided by ``scale`` within the context, and unscaled ones after it.

    On entry, the first weights of a trained model are multiplied by the scale, so that its predictions do not change. Those of
    an untrained model, which is no better than a constant prediction, keep the size they were initialized with.

    Args:
        model: Model.
        scale: Scale of each feature; None for no change.
        split: Split with scaled features, to tell whether the model has been trained.
    """
    if scale is None:
        yield
        return
    assert isinstance(model, GraphModel)
    initial = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    scale_input_weights(model, scale)
    val_labels = split.val.data.y[split.val.nodes]
    accuracy = float(losses.accuracy(predict(model, split.val.data)[split.val.nodes], val_labels))
    if is_near_constant(accuracy, val_labels):
        model.load_state_dict(initial)
    try:
        yield
    finally:
        scale_input_weights(model, 1 / scale)


@torch.no_grad()
def scale_input_weights(model: GraphModel, factor: Tensor) -> None:
    """Multiply the weights of each feature by ``factor``, shape ``[features]``, in place."""
    for weight in model.input_weights():
        weight.mul_(factor[:, None])


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
    if isinstance(module, GraphModel) and not isinstance(module, BoundedInfluence):
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
