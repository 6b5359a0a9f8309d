"""Training of a model in one call: checks, pseudo-labels, warm-up, training loop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from typing_extensions import Unpack

from edgeproof._checks import check_data, check_int, check_nodes, check_not_caching
from edgeproof._features import for_model
from edgeproof._files import check_writable
from edgeproof.attacks.base import Attack
from edgeproof.models import GraphModel, build, predict
from edgeproof.splits import Split, View
from edgeproof.training.adversarial import Adversary, Threat, make_threat
from edgeproof.training.checkpoint import check_resumable, sibling_path
from edgeproof.training.config import Preset, TrainConfig, TrainSettings, check_threat_settings, configure
from edgeproof.training.features import divide_features, feature_scale, weights_of_scaled_features
from edgeproof.training.history import History, Observer
from edgeproof.training.loop import run_identity
from edgeproof.training.self_training import PseudoLabels, check_unlabeled, generate_pseudo_labels
from edgeproof.training.stages import Stages, train_with_restarts


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
    training and the validation graph are attacked in every epoch: the step is made on the perturbed training graph, the
    validation loss is that on the perturbed validation graph. Model and split must be on the same device.

    Args:
        model: Module called as ``model(x, edge_index, edge_weight=None)``. If it has ``parameter_groups()``, the optimizer
            uses them; if it has ``training_objective()``, training minimizes it
            (see :class:`~edgeproof.models.WithObjective`).
        split: Training and validation nodes with their graphs.
        attack: Attack to train against, used as it is; ``LRBCD().for_training()`` has the paper's settings for training. None
            for clean training.
        epsilon: Global budget of the attack as a fraction of the edges at the target nodes.
        local: Local budget at each node as a fraction of its degree; None for no local budgets.
        count: Edges that ``epsilon`` is a fraction of; see :meth:`edgeproof.Budget.from_epsilon`. By default that of the
            preset, else ``"incident"``.
        self_training: Whether to train on all nodes of the training graph, with pseudo-labels for the unlabelled ones. True
            trains label models with the architecture of ``model``, or the one of the preset, if it has one. A module sets
            their architecture; it is not changed. :class:`~edgeproof.training.PseudoLabels` are used as they are. By default
            that of the preset (``"default"``: in adversarial training, if there are unlabelled nodes; ``"paper"``: False).
        preset: ``"default"``, settings that hold across graphs and models; ``"paper"``; ``"sturdy"``, which includes an attack,
            budgets and label models; settings as a :class:`TrainConfig`; or your own :class:`Preset`.
        checkpoint: File for the state of the run. If it exists, the run resumes from it, with the same result as an
            uninterrupted run: bit for bit on a CPU; on a GPU up to rounding, which may change the last epoch.
        checkpoint_every: Number of epochs between two checkpoints.
        progress: Whether to draw a progress bar (on terminals only).
        observe: Function called with every :class:`Epoch` of the main run as soon as it is over, for example a
            :class:`~edgeproof.training.TensorBoardLog`. Not called in label models and a separate warm-up; a restarted run
            begins again at epoch 0.
        settings: Settings that differ from the preset; see :class:`TrainConfig`.

    Returns:
        Record of the run. The model is changed in place and is in evaluation mode. A run that failed is repeated with another
        seed if the preset says so, and a suspicious result is issued as a :class:`TrainingWarning`.

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
    source = chosen.self_training if self_training is None else self_training
    if source is None:
        source = threat is not None and isinstance(split, Split) and bool(split.train.unlabeled.numel())
    if not isinstance(source, (bool, nn.Module, PseudoLabels)):
        raise TypeError(f"expected self_training to be True, False, a model or PseudoLabels, got {source!r}")
    if isinstance(split, Split):
        split = _with_usable_features(split, model, *([source] if isinstance(source, nn.Module) else []))
    num_classes = _check_ready(model, split)
    # Not in the paper: features of extreme scales are divided by them during training.
    scale = feature_scale(split.train.data.x) if config.scale_features and _takes_scales(model) else None
    if scale is not None:
        split = divide_features(split, scale)
    if file is not None:
        _check_resumable(file, model, split, config, threat)
    pseudo_labels = source if isinstance(source, PseudoLabels) else None
    if pseudo_labels is not None:
        _check_pseudo_labels(pseudo_labels, split, num_classes)
    label_model = source if isinstance(source, nn.Module) else None
    if source is True:
        label_model = _default_label_model(chosen, model, split, num_classes)
    if label_model is not None:
        _check_label_model(label_model, split, num_classes)
    if label_model is not None or config.has_separate_warmup:
        _check_attack(model, split, threat, all_nodes=source is not False)

    # Self-training (Algorithm 3): pseudo-labels for all nodes of the training graph.
    if label_model is not None:
        pseudo_labels = generate_pseudo_labels(
            label_model, split, config, checkpoint=file, checkpoint_every=checkpoint_every, show=progress
        )

    # Warm-up and training loop (Algorithm 2). Not in the paper: a run that failed is repeated with another seed.
    has_labels = pseudo_labels is not None
    stages = Stages(
        split,
        config.without_redundant_warmup(is_clean=threat is None, has_pseudo_labels=has_labels),
        threat,
        pseudo_labels,
        file,
        checkpoint_every,
        progress,
        observe,
    )
    with weights_of_scaled_features(model, scale, split):
        history = train_with_restarts(model, stages)
    return replace(history, config=config, pseudo_labels=pseudo_labels)


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
        split = _with_usable_features(split, model)
    _check_ready(model, split)
    scale = feature_scale(split.train.data.x) if config.scale_features and _takes_scales(model) else None
    if scale is not None:
        split = divide_features(split, scale)
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


def _check_ready(model: nn.Module, split: Split) -> int:
    """Raise unless the model can be trained on the split; return its number of classes."""
    if not isinstance(split, Split):
        raise TypeError(f"expected a Split (see edgeproof.splits), got {type(split).__name__}")
    check_not_caching(model)
    parameters = list(model.parameters())
    if not parameters:
        raise ValueError(f"expected a model with parameters to train, got none in {type(model).__name__}")
    if not any(parameter.requires_grad for parameter in parameters):
        raise ValueError(f"expected parameters to train, got a {type(model).__name__} in which all are frozen")
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


def _takes_scales(model: nn.Module) -> bool:
    """Return whether the scale of features can be moved into the model's first weights."""
    return isinstance(model, GraphModel) and bool(model.input_weights())


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
