"""Training of a model in one call: checks, pseudo-labels, warm-up, training loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from edgeproof._checks import check_data, check_int, check_nodes, check_not_caching
from edgeproof._features import for_model
from edgeproof._files import check_writable
from edgeproof._warnings import warn, with_code
from edgeproof.attacks.base import Attack
from edgeproof.models import GraphModel, build, predict
from edgeproof.models.adapt import adapt
from edgeproof.splits import Split, View
from edgeproof.training.adversarial import Adversary, Threat, make_threat
from edgeproof.training.checkpoint import check_resumable, sibling_path
from edgeproof.training.config import Preset, TrainConfig, TrainSettings, check_threat_settings, configure
from edgeproof.training.history import History, Observer
from edgeproof.training.loop import run_epochs, run_identity
from edgeproof.training.safeguards import (
    Outcome,
    TrainingWarning,
    best_start,
    divide_features,
    feature_scale,
    weights_of_scaled_features,
    with_restarts,
)
from edgeproof.training.self_training import PseudoLabels, check_unlabeled, generate_pseudo_labels


def train(
    model: nn.Module,
    split: Split,
    *,
    attack: Attack | None = None,
    epsilon: float | None = None,
    local: float | None = None,
    count: str | None = None,
    self_training: bool | nn.Module | PseudoLabels | None = None,
    preset: str | TrainConfig | Preset = "default",
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 25,
    progress: bool = True,
    observe: Observer | None = None,
    **settings: Unpack[TrainSettings],
) -> History:
    """Train ``model`` on ``split.train`` and restore its best epoch.

    The best epoch is chosen on ``split.val``; ``split.test`` is not used. In adversarial training the
    training and the validation graph are attacked in every epoch: the gradient step uses the perturbed training graph,
    the validation loss the perturbed validation graph. Model and split must be on the same device.

    Args:
        model: Module called as ``model(x, edge_index, edge_weight=None)``. If it has ``parameter_groups()``, the optimizer
            uses them; if it has ``training_objective()``, training minimizes it (see
            :class:`~edgeproof.models.WithObjective`).
        split: Training and validation nodes with their graphs.
        attack: Attack to train against, used with its own settings; ``LRBCD().for_training()`` has the paper's
            settings for training. None for clean training.
        epsilon: Global budget of the attack as a fraction of the edges at the target nodes.
        local: Local budget at each node as a fraction of its degree; None for no local budgets.
        count: Edges that ``epsilon`` is a fraction of; see :meth:`edgeproof.Budget.from_epsilon`. Default: as in the
            preset, otherwise ``"incident"``.
        self_training: Whether to train on all nodes of the training graph, with pseudo-labels for the unlabelled ones. True
            trains label models with the architecture given by the preset, if any, otherwise that of ``model``. A
            module sets their architecture; it is not changed. :class:`~edgeproof.training.PseudoLabels` are used
            without training label models. Default: as in the preset (``"default"``: in adversarial training, if there
            are unlabelled nodes; ``"paper"``: False).
        preset: ``"default"``, settings that work across graphs and models; ``"paper"``; ``"sturdy"``, which includes
            an attack, budgets and label models; settings as a :class:`TrainConfig`; or your own :class:`Preset`.
        checkpoint: File for the state of the run. If it exists, the run resumes from it, with the same result as an
            uninterrupted run: bit for bit on a CPU; on a GPU up to rounding, which may change the last epoch.
        checkpoint_every: Number of epochs between two checkpoints.
        progress: Whether to draw a progress bar (on terminals only).
        observe: Function called with every :class:`Epoch` of the main run as soon as it is over, for example a
            :class:`~edgeproof.training.TensorBoardLog`. Not called for label models and a separate warm-up; a
            restarted run begins again at epoch 0.
        settings: Settings that differ from the preset; see :class:`TrainConfig`.

    Returns:
        Record of the run. The model is changed in place and is in evaluation mode. A failed run is repeated with
        another seed up to ``max_restarts`` times, and suspicious results are reported by a :class:`TrainingWarning`.

    Raises:
        ValueError: For invalid settings, an invalid graph, or a checkpoint of another run.
        FloatingPointError: If the loss or a parameter is NaN or Inf; the model then has its best state so far.

    >>> from edgeproof import attacks, datasets, models, splits
    >>> data = datasets.load("csbm")
    >>> split = splits.inductive(data, train_per_class=100)
    >>> history = train(models.build("GPRGNN", data.num_features, 2, seed=0), split, max_epochs=20)
    >>> len(history.epochs), history.stopped
    (20, 'max_epochs')
    >>> model = models.build("GPRGNN", data.num_features, 2, seed=0)
    >>> attack = attacks.LRBCD(steps=3, block_size=10_000)
    >>> history = train(model, split, attack=attack, epsilon=0.1, local=0.5, self_training=True, max_epochs=5)
    >>> history.best.val_accuracy <= history.best.clean_val_accuracy
    True
    """
    # Errors come before any training.
    chosen = configure(preset, settings)
    config, threat = chosen.config, make_threat(attack, epsilon, local, count, chosen.threat)
    check_threat_settings(config, threat, settings)
    file = _check_checkpoint(checkpoint, checkpoint_every)
    if observe is not None and not callable(observe):
        raise TypeError(f"expected observe as a function of one epoch, got {observe!r}")
    source = _label_source(self_training, chosen, split, threat)
    config = config.without_redundant_warmup(is_clean=threat is None, has_pseudo_labels=source is not False)
    _check_parameters(model)
    if isinstance(split, Split):
        model = adapt(model, split.train.data)
        source = adapt(source, split.train.data) if isinstance(source, nn.Module) else source
        split = _with_usable_features(split, model, *([source] if isinstance(source, nn.Module) else []))
    num_classes = _check_ready(model, split)
    scale, split = _scale_features(model, split, config)
    if file is not None:
        _check_resumable(file, model, split, config, threat)
    label_model, labels = _resolve_labels(source, chosen, model, split, num_classes)
    if label_model is not None or config.has_separate_warmup:
        _check_attack(model, split, threat, all_nodes=source is not False)
    fit = partial(run_epochs, split=split, checkpoint_every=checkpoint_every, show=progress)

    # Self-training (Algorithm 3): pseudo-labels for all nodes of the training graph.
    if label_model is not None:
        labels = generate_pseudo_labels(
            label_model, split, config, checkpoint=file, checkpoint_every=checkpoint_every, show=progress
        )

    def attempt(model: nn.Module, config: TrainConfig, file: Path | None) -> Outcome:
        # Warm-up on the labelled nodes (Algorithm 2, lines 2 and 3).
        warmup, known = None, _labelled_nodes(split)
        if config.has_separate_warmup:
            warmup = warm_up(model, config, file, partial(fit, **known))
        # Main loop (Algorithm 2, lines 4 to 10), with pseudo-labels on all training nodes.
        main = config.for_main_run(is_adversarial=threat is not None)
        targets = known if labels is None else _all_nodes(labels)
        run = partial(fit, config=main, threat=threat, observe=observe, **targets)
        return Outcome(model, best_start(model, main, file, run), warmup)

    # Not in the paper: restarts, and features divided by their scale.
    with weights_of_scaled_features(model, scale, split):
        history, problem = with_restarts(model, split, config, file, attempt)
    text = None
    if problem is not None:
        warn(problem.code, problem.message, TrainingWarning, stacklevel=2)
        text = with_code(problem.code, problem.message)
    return replace(history, config=chosen.config, pseudo_labels=labels, warning=text)


def warm_up(model: nn.Module, config: TrainConfig, checkpoint: Path | None, fit: Callable[..., History]) -> History:
    """Train on the labelled nodes for a few clean epochs with cross-entropy, and restore the best one.

    Args:
        model: Model.
        config: Settings of the training.
        checkpoint: Checkpoint of the main run; that of the warm-up is its sibling.
        fit: :func:`~edgeproof.training.loop.run_epochs` on the labelled nodes.
    """
    settings = config.for_warmup()
    file = None if checkpoint is None else sibling_path(checkpoint, "warmup")
    try:
        return best_start(model, settings, file, partial(fit, config=settings, threat=None))
    except FloatingPointError as error:
        raise FloatingPointError(f"warm-up: {error}") from error


def pseudo_labels(
    model: nn.Module,
    split: Split,
    *,
    preset: str | TrainConfig | Preset = "default",
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 25,
    progress: bool = True,
    **settings: Unpack[TrainSettings],
) -> PseudoLabels:
    """Label all nodes of the training graph with models trained on the labelled nodes.

    This is the first half of self-training; ``edgeproof.train(..., self_training=True)`` runs both halves.

    In the transductive setting the training graph contains the test nodes. A model trained on these labels has then been
    trained on clean predictions for its test nodes, and robustness measured there shows memorization; see
    :class:`~edgeproof.training.Memorizing`.

    Args:
        model: Architecture of the label models; its parameters are not changed.
        split: Split with labelled, unlabelled and validation nodes.
        preset: See :func:`edgeproof.train`.
        checkpoint: Checkpoint of the run that will use the labels; those of the label models are files next to it.
        checkpoint_every: Number of epochs between two checkpoints.
        progress: Whether to draw progress bars (on terminals only).
        settings: Settings that differ from the preset; see :class:`TrainConfig`.

    >>> from edgeproof import datasets, models, splits
    >>> data = datasets.load("csbm")
    >>> split = splits.inductive(data, train_per_class=100)
    >>> found = pseudo_labels(models.build("GCN", data.num_features, 2, seed=0), split, max_epochs=50)
    >>> found.labels.shape == found.confidence.shape == (split.train.data.num_nodes,)
    True
    """
    config = configure(preset, settings).config
    if isinstance(split, Split):
        model = adapt(model, split.train.data)
        split = _with_usable_features(split, model)
    _check_ready(model, split)
    _, split = _scale_features(model, split, config)
    file = _check_checkpoint(checkpoint, checkpoint_every)
    return generate_pseudo_labels(
        model, split, config, checkpoint=file, checkpoint_every=checkpoint_every, show=progress
    )


def _with_usable_features(split: Split, *models: nn.Module) -> Split:
    """Return the split with dense training and validation features if a model does not take sparse ones."""

    def usable(view: View) -> View:
        return replace(view, data=for_model(view.data, *models))

    return replace(split, train=usable(split.train), val=usable(split.val))


def _check_checkpoint(checkpoint: str | Path | None, every: int) -> Path | None:
    """Return the checkpoint file; raise if it cannot be written."""
    check_int(1, checkpoint_every=every)
    if checkpoint is None:
        return None
    check_writable(Path(checkpoint))
    return Path(checkpoint)


def _check_parameters(model: nn.Module) -> None:
    """Raise unless the model has parameters to train."""
    parameters = list(model.parameters())
    if not parameters:
        raise ValueError(f"expected a model with parameters to train, got none in {type(model).__name__}")
    if not any(parameter.requires_grad for parameter in parameters):
        raise ValueError(f"expected parameters to train, got a {type(model).__name__} in which all are frozen")


def _check_ready(model: nn.Module, split: Split) -> int:
    """Raise unless the model can be trained on the split; return its number of classes."""
    if not isinstance(split, Split):
        raise TypeError(f"expected a Split (see edgeproof.splits), got {type(split).__name__}")
    check_not_caching(model)
    _check_parameters(model)
    parameters = list(model.parameters())
    for view in (split.train, split.val):
        check_data(view.data)
        check_nodes(view.nodes, view.data, labelled=True)
    devices = {str(tensor.device) for tensor in (*parameters, split.train.data.x, split.val.data.x)}
    if len(devices) > 1:
        raise ValueError(
            f"expected model and split on one device, got {', '.join(sorted(devices))}; use model.to and split.to"
        )
    dtypes = {tensor.dtype for tensor in (*parameters, split.train.data.x) if tensor.is_floating_point()}
    if len(dtypes) > 1:
        names = ", ".join(sorted(map(str, dtypes)))
        raise ValueError(f"expected model and features of one dtype, got {names}; use model.double() or x.float()")
    num_classes = int(max(view.data.y[view.nodes].max() for view in (split.train, split.val))) + 1
    logits = predict(model, split.train.data)
    if logits.size(1) < num_classes:
        expected = f"[{split.train.data.x.size(0)}, {num_classes}]"
        raise ValueError(f"expected logits of shape {expected} from the model, got {list(logits.shape)}")
    return logits.size(1)


def _label_source(
    self_training: bool | nn.Module | PseudoLabels | None, preset: Preset, split: Split, threat: Threat | None
) -> bool | nn.Module | PseudoLabels:
    """Return the argument ``self_training``, or the default of the preset."""
    source = preset.self_training if self_training is None else self_training
    if source is None:
        source = threat is not None and isinstance(split, Split) and bool(split.train.unlabeled.numel())
    if not isinstance(source, (bool, nn.Module, PseudoLabels)):
        raise TypeError(f"expected self_training to be True, False, a model or PseudoLabels, got {source!r}")
    return source


def _scale_features(model: nn.Module, split: Split, config: TrainConfig) -> tuple[Tensor | None, Split]:
    """Return the scale of the features, or None if they are not scaled, and the split with scaled features."""
    takes_scales = isinstance(model, GraphModel) and bool(model.input_weights())
    scale = feature_scale(split.train.data.x) if config.scale_features and takes_scales else None
    return scale, split if scale is None else divide_features(split, scale)


def _resolve_labels(
    source: bool | nn.Module | PseudoLabels, preset: Preset, model: nn.Module, split: Split, num_classes: int
) -> tuple[nn.Module | None, PseudoLabels | None]:
    """Return the label model to train, or the given pseudo-labels; both None without self-training."""
    if isinstance(source, PseudoLabels):
        _check_pseudo_labels(source, split, num_classes)
        return None, source
    if source is False:
        return None, None
    label_model = source if isinstance(source, nn.Module) else _default_label_model(preset, model, split, num_classes)
    _check_label_model(label_model, split, num_classes)
    return label_model, None


def _labelled_nodes(split: Split) -> dict[str, Tensor]:
    """Return the labelled training nodes and their labels, as arguments of the loop."""
    nodes = split.train.nodes
    return {"nodes": nodes, "labels": split.train.data.y[nodes]}


def _all_nodes(found: PseudoLabels) -> dict[str, Tensor]:
    """Return all training nodes and their pseudo-labels, as arguments of the loop."""
    return {"nodes": torch.arange(found.labels.numel(), device=found.labels.device), "labels": found.labels}


def _check_resumable(file: Path, model: nn.Module, split: Split, config: TrainConfig, threat: Threat | None) -> None:
    """Raise if the checkpoint of the main run or of the warm-up belongs to another run."""
    check_resumable(file, run_identity(model, split, config.for_main_run(is_adversarial=threat is not None), threat))
    if config.has_separate_warmup:
        check_resumable(sibling_path(file, "warmup"), run_identity(model, split, config.for_warmup(), None))


def _check_pseudo_labels(pseudo_labels: PseudoLabels, split: Split, num_classes: int) -> None:
    """Raise unless these are labels of this split's training graph and classes of the model."""
    labels, nodes, truth = pseudo_labels.labels, split.train.nodes, split.train.data.y
    if labels.dtype != torch.long:
        raise TypeError(f"expected pseudo-labels as int64, got {labels.dtype}")
    if labels.shape != truth.shape or labels.device != truth.device:
        raise ValueError(
            f"expected pseudo-labels of the {truth.numel()} training nodes on {truth.device}, got "
            f"{labels.numel()} on {labels.device}"
        )
    if not torch.equal(labels[nodes], truth[nodes]):
        raise ValueError("expected pseudo-labels of this split, got labels that differ from its known labels")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= num_classes:
        invalid = low if low < 0 else high
        raise ValueError(f"expected pseudo-labels from 0 to {num_classes - 1}, the classes of the model, got {invalid}")


def _default_label_model(preset: Preset, model: nn.Module, split: Split, num_classes: int) -> nn.Module:
    """Return a label model of the preset's architecture, or the trained model if the preset has none."""
    if preset.label_model is None:
        return model
    parameter, num_features = next(model.parameters()), split.train.data.x.size(1)
    label_model = build(
        preset.label_model, num_features, num_classes, preset.label_model_settings, seed=preset.config.seed
    )
    return label_model.to(parameter.device, parameter.dtype)


def _check_label_model(label_model: nn.Module, split: Split, num_classes: int) -> None:
    """Raise unless label models of this architecture can be trained and have no more classes than the model."""
    check_unlabeled(split)
    num_label_classes = _check_ready(label_model, split)
    if num_label_classes > num_classes:
        raise ValueError(
            f"expected label models with the {num_classes} classes of the model, got {num_label_classes} from "
            f"{type(label_model).__name__}"
        )


def _check_attack(model: nn.Module, split: Split, threat: Threat | None, *, all_nodes: bool) -> None:
    """Raise for an attack that would fail only after label models and warm-up have been trained.

    Args:
        model: Model.
        split: Split.
        threat: Threat model; None for clean training.
        all_nodes: Whether all nodes of the training graph are targets, or only the labelled ones.
    """
    if threat is None:
        return
    train = split.train
    targets = torch.arange(train.data.x.size(0), device=train.nodes.device) if all_nodes else train.nodes
    for view, nodes in ((train, targets), (split.val, split.val.nodes)):
        # The labels do not matter: the attack is prepared, not run.
        Adversary(threat, model, view.data, nodes, torch.zeros_like(nodes), seed=0)
