"""Training a model, in one call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from typing_extensions import Unpack

from edgeproof._checks import check_data, check_nodes, check_not_caching
from edgeproof._files import check_writable
from edgeproof.attacks.base import Attack
from edgeproof.models import build, predict
from edgeproof.splits import Split
from edgeproof.training.adversarial import Adversary, Threat, check_threatened, make_threat
from edgeproof.training.checkpoint import beside, check_goes_on, files_beside
from edgeproof.training.config import TrainConfig, TrainSettings
from edgeproof.training.history import History, Observer
from edgeproof.training.loop import identity, run_epochs
from edgeproof.training.presets import Preset, configure
from edgeproof.training.self_training import PseudoLabels, check_unlabeled, vote
from edgeproof.training.warm_up import alone, warm_up


def train(
    model: nn.Module,
    split: Split,
    *,
    attack: Attack | None = None,
    epsilon: float | None = None,
    local: float | None = None,
    count: str | None = None,
    self_training: bool | nn.Module | PseudoLabels | None = None,
    preset: str | TrainConfig | Preset = "paper",
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 25,
    progress: bool = True,
    observe: Observer | None = None,
    **settings: Unpack[TrainSettings],
) -> History:
    """Train ``model`` on ``split.train``, and leave it at its best epoch.

    The best epoch is the one with the lowest loss on ``split.val``; ``split.test`` is never looked at. With an attack both
    graphs are attacked anew in every epoch, the model learns on the one and is judged on the other. Model and split must be on
    the same device.

    Args:
        model: any module called as ``model(x, edge_index, edge_weight=None)``; if it has ``parameter_groups()``, the optimizer
            uses them; if it has ``training_objective()``, that is what training lowers
            (see :class:`~edgeproof.models.WithObjective`).
        split: who is trained and validated on.
        attack: what to train against, used as it is; ``LRBCD().for_training()`` has the paper's settings for training. None
            for clean training.
        epsilon: the attack's budget, as a share of the edges at the nodes that count.
        local: its budget at each node, as a share of the node's degree; none for no local budgets.
        count: which edges ``epsilon`` is a share of; see :meth:`edgeproof.Budget.from_epsilon`. By default the preset's, else
            ``"incident"``.
        self_training: whether other models label the unlabelled nodes first, so that all nodes of the training graph count:
            models of the kind that is trained, or those of the preset, if it has some. Or a model, of whose kind they are to
            be; it is not changed. Or what :func:`edgeproof.training.pseudo_labels` gave. By default as the preset has it:
            with ``"paper"`` no.
        preset: settings to begin with: ``"paper"``; ``"sturdy"``, which has an attack, budgets and label models of its own;
            settings as a :class:`TrainConfig`; or a :class:`Preset` of yours.
        checkpoint: a file to keep the run's state in; if it exists, the run goes on from there, to the same result
            as if it had never stopped: bit by bit on a CPU; on a GPU up to rounding, which may move its end by epochs.
        checkpoint_every: epochs between two checkpoints.
        progress: whether to draw a progress bar (on terminals only).
        observe: called with every :class:`Epoch` of the main run, not of models that label or of a warm-up apart, as soon as it
            is over; for example a :class:`~edgeproof.training.TensorBoardLog`.
        settings: what differs from the preset; see :class:`TrainConfig`.

    Returns:
        The course of the run. The model is changed in place and left in evaluation mode.

    Raises:
        ValueError: for bad settings, a bad graph, or a checkpoint of another run.
        FloatingPointError: if the loss is no longer finite; the model then has its best state so far.

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
    chosen = configure(preset, settings)
    config, threat = chosen.config, make_threat(attack, epsilon, local, count, chosen.threat)
    self_training = chosen.self_training if self_training is None else self_training
    check_threatened(config, threat)
    file = _checked(checkpoint, checkpoint_every)
    if observe is not None and not callable(observe):
        raise TypeError(f"expected observe to be called with every epoch, got {observe!r}")
    if not isinstance(self_training, (bool, nn.Module, PseudoLabels)):
        raise TypeError(f"expected self_training to be True, False, a model or PseudoLabels, got {self_training!r}")
    outputs = _check_ready(model, split)
    if file is not None:
        check_goes_on(file, identity(model, split, config.after_warm_up(), threat))
        if config.has_separate_warmup:
            check_goes_on(beside(file, "warmup"), identity(model, split, alone(config), None))
    known = self_training if isinstance(self_training, PseudoLabels) else None
    if known is not None:
        _check_labels(known, split, outputs)
    labeller = self_training if isinstance(self_training, nn.Module) else None
    if self_training is True:
        labeller = _labeller_of(chosen, model, split, outputs)
    if labeller is not None:
        check_unlabeled(split)
        answers = _check_ready(labeller, split)
        if answers > outputs:
            raise ValueError(
                f"expected label models with the {outputs} classes of the model, got {answers} from {type(labeller).__name__}"
            )
    if labeller is not None or config.has_separate_warmup:
        _check_threat(model, split, threat, everyone=self_training is not False)
    if labeller is not None:
        known = vote(labeller, split, config, checkpoint=file, checkpoint_every=checkpoint_every, show=progress)
    nodes, labels = split.train.nodes, split.train.data.y[split.train.nodes]
    if known is not None:
        nodes, labels = torch.arange(split.train.data.x.size(0), device=nodes.device), known.labels
    seconds = 0.0
    if config.has_separate_warmup:
        warmed = warm_up(model, split, config, checkpoint=file, checkpoint_every=checkpoint_every, show=progress)
        seconds = warmed.seconds
    history = run_epochs(
        model,
        split,
        config.after_warm_up(),
        nodes=nodes,
        labels=labels,
        threat=threat,
        checkpoint=file,
        checkpoint_every=checkpoint_every,
        show=progress,
        observe=observe,
    )
    return replace(history, config=config, seconds=seconds + history.seconds, pseudo_labels=known)


def pseudo_labels(
    model: nn.Module,
    split: Split,
    *,
    preset: str | TrainConfig | Preset = "paper",
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 25,
    progress: bool = True,
    **settings: Unpack[TrainSettings],
) -> PseudoLabels:
    """Labels for all nodes of the training graph, from models that were trained on the labelled ones.

    This is the first half of self-training; ``edgeproof.train(..., self_training=True)`` does both halves, with models of the
    kind that is trained, or of the kind that the preset has for it.

    In the transductive setting the training graph holds the test nodes. What is trained on these labels has then been trained
    on the clean answers at the very nodes that it is tested on: robustness measured there shows memory, see
    :class:`~edgeproof.training.Memorizing`.

    Args:
        model: what kind of model labels; it is not changed.
        split: who is labelled and who is not.
        preset: settings to begin with; see :func:`edgeproof.train`.
        checkpoint: the run that these labels are for keeps its state there; theirs is kept in files beside it.
        checkpoint_every: epochs between two checkpoints.
        progress: whether to draw progress bars (on terminals only).
        settings: what differs from the preset; see :class:`TrainConfig`.

    >>> from edgeproof import datasets, models, splits
    >>> data = datasets.load("csbm")
    >>> split = splits.inductive(data, train_per_class=100)
    >>> found = pseudo_labels(models.build("GCN", data.num_features, 2, seed=0), split, max_epochs=50)
    >>> found.labels.shape == found.confidence.shape == (split.train.data.num_nodes,)
    True
    """
    config = configure(preset, settings).config
    _check_ready(model, split)
    file = _checked(checkpoint, checkpoint_every)
    return vote(model, split, config, checkpoint=file, checkpoint_every=checkpoint_every, show=progress)


def remove_checkpoints(checkpoint: str | Path) -> None:
    """Remove what a finished run has left beside its result."""
    file = Path(checkpoint)
    for path in (file, *files_beside(file)):
        path.unlink(missing_ok=True)


def _checked(checkpoint: str | Path | None, every: int) -> Path | None:
    """The file to write to every so many epochs, if there is one; raises now if it could not be."""
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise ValueError(f"expected checkpoint_every to be a whole number >= 1, got {every!r}")
    if checkpoint is None:
        return None
    check_writable(Path(checkpoint))
    return Path(checkpoint)


def _labeller_of(preset: Preset, model: nn.Module, split: Split, outputs: int) -> nn.Module:
    """The kind of model that labels: the preset's own, or the one that is trained."""
    if preset.labeller is None:
        return model
    parameter, sizes = next(model.parameters()), (split.train.data.x.size(1), outputs)
    return build(preset.labeller, *sizes, preset.labeller_settings, seed=preset.config.seed).to(
        parameter.device, parameter.dtype
    )


def _check_threat(model: nn.Module, split: Split, threat: Threat | None, *, everyone: bool) -> None:
    """Raise now for an attack that could not be run after all labelling and warming up.

    Args:
        model: what is attacked.
        split: where.
        threat: by whom.
        everyone: whether all nodes of the training graph count, or the labelled ones.
    """
    if threat is None:
        return
    train = split.train
    targets = torch.arange(train.data.x.size(0), device=train.nodes.device) if everyone else train.nodes
    for view, nodes in ((train, targets), (split.val, split.val.nodes)):
        # Any labels do: the attack is made ready, not run.
        Adversary(threat, model, view.data, nodes, torch.zeros_like(nodes), seed=0)


def _check_labels(known: PseudoLabels, split: Split, outputs: int) -> None:
    """Raise unless these are labels of this split's training graph, and classes of a model with so many outputs."""
    nodes, truth = split.train.nodes, split.train.data.y
    if known.labels.dtype != torch.long:
        raise TypeError(f"expected pseudo-labels as int64, got {known.labels.dtype}")
    if known.labels.shape != truth.shape or known.labels.device != truth.device:
        raise ValueError(
            f"expected pseudo-labels of the {truth.numel()} training nodes on {truth.device}, got "
            f"{known.labels.numel()} on {known.labels.device}"
        )
    if not torch.equal(known.labels[nodes], truth[nodes]):
        raise ValueError("expected pseudo-labels of this split, got others: they disagree with its known labels")
    least, most = int(known.labels.min()), int(known.labels.max())
    if least < 0 or most >= outputs:
        odd = least if least < 0 else most
        raise ValueError(f"expected pseudo-labels from 0 to {outputs - 1}, the classes of the model, got {odd}")


def _check_ready(model: nn.Module, split: Split) -> int:
    """Everything that would otherwise fail in the middle: graphs, nodes, devices, and the model's output.

    Returns:
        How many classes the model knows.
    """
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
        raise ValueError(f"expected model and features of one type, got {names}; use model.double() or x.float()")
    num_classes = int(max(view.data.y[view.nodes].max() for view in (split.train, split.val))) + 1
    logits = predict(model, split.train.data)
    if logits.size(1) < num_classes:
        expected = f"[{split.train.data.x.size(0)}, {num_classes}]"
        raise ValueError(f"expected logits of shape {expected} from the model, got {list(logits.shape)}")
    return logits.size(1)
