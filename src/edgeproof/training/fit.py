"""The training loop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from edgeproof import losses
from edgeproof._files import check_writable
from edgeproof._progress import progress_bar
from edgeproof._tensors import fingerprint
from edgeproof.graph import check_data, check_nodes
from edgeproof.models import graph_of, predict
from edgeproof.splits import Split, View
from edgeproof.training.checkpoint import Checkpoint, RunState
from edgeproof.training.config import TrainConfig
from edgeproof.training.history import Epoch, History


def train(
    model: nn.Module,
    split: Split,
    *,
    loss: str = TrainConfig.loss,
    lr: float = TrainConfig.lr,
    weight_decay: float = TrainConfig.weight_decay,
    warmup_epochs: int = TrainConfig.warmup_epochs,
    max_epochs: int = TrainConfig.max_epochs,
    patience: int = TrainConfig.patience,
    validate_every: int = TrainConfig.validate_every,
    seed: int = TrainConfig.seed,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 25,
    progress: bool = True,
) -> History:
    """Train ``model`` on the labelled nodes of ``split.train``, and leave it at its best epoch.

    The best epoch is the one with the lowest loss on ``split.val``; ``split.test`` is never looked at. Model and split
    must be on the same device. The arguments not listed here are those of :class:`TrainConfig`.

    Args:
        model: any module called as ``model(x, edge_index)``; if it has ``parameter_groups()``, the optimizer uses them.
        split: who is trained and validated on.
        checkpoint: a file to keep the run's state in; if it exists, the run goes on from there, to the same result
            as if it had never stopped.
        checkpoint_every: epochs between two checkpoints.
        progress: whether to draw a progress bar (on terminals only).

    Returns:
        The course of the run. The model is changed in place and left in evaluation mode.

    Raises:
        ValueError: for bad settings, a bad graph, or a checkpoint of another run.
        FloatingPointError: if the loss is no longer finite; the model then has its best state so far.

    >>> from edgeproof import datasets, models, splits
    >>> data = datasets.load("csbm")
    >>> split = splits.inductive(data, train_per_class=100)
    >>> history = train(models.build("GPRGNN", data.num_features, 2, seed=0), split, max_epochs=20)
    >>> len(history.epochs), history.stopped
    (30, 'max_epochs')
    """
    config = TrainConfig(
        loss=loss,
        lr=lr,
        weight_decay=weight_decay,
        warmup_epochs=warmup_epochs,
        max_epochs=max_epochs,
        patience=patience,
        validate_every=validate_every,
        seed=seed,
    )
    if checkpoint_every < 1:
        raise ValueError(f"expected checkpoint_every >= 1, got {checkpoint_every}")
    _check_ready(model, split)
    optimizer = torch.optim.Adam(_parameter_groups(model), lr=config.lr, weight_decay=config.weight_decay)
    file = None
    if checkpoint is not None:
        check_writable(Path(checkpoint))
        run = {
            "config": asdict(config),
            "model": repr(model),
            "initial parameters": fingerprint(model.state_dict().values()),
            "split": split.fingerprint,
            "device": next(model.parameters()).device.type,
        }
        file = Checkpoint(Path(checkpoint), run, checkpoint_every)

    with _seeded(config.seed, model):
        state = RunState(next_epoch=-config.warmup_epochs)
        if file is not None and file.path.exists():
            state = file.restore(model, optimizer)
        _fit(model, split, config, optimizer, state, file, show=progress)

    assert state.best_epoch is not None
    assert state.stopped is not None
    return History(config, tuple(state.records), state.best_epoch, state.stopped, state.seconds)


def _fit(
    model: nn.Module,
    split: Split,
    config: TrainConfig,
    optimizer: torch.optim.Optimizer,
    state: RunState,
    file: Checkpoint | None,
    *,
    show: bool,
) -> None:
    """Run all epochs that remain (paper, Alg. 2), keeping ``state`` up to date; ends with the best parameters."""
    initial = _copy(model)
    train_graph, val_graph = graph_of(model, split.train.data), graph_of(model, split.val.data)
    started = time.perf_counter() - state.seconds
    total = config.warmup_epochs + config.max_epochs
    with progress_bar(type(model).__name__, total, show=show) as advance:
        for epoch in range(state.next_epoch, config.max_epochs):
            if state.stopped is not None:
                break
            warming_up = epoch < 0
            loss = losses.get("cross_entropy" if warming_up else config.loss)

            # One step on the training graph (Alg. 2, l. 8).
            model.train()
            optimizer.zero_grad()
            logits, labels = _logits(model, split.train, train_graph)
            train_loss = loss(logits, labels)
            train_loss.backward()
            optimizer.step()
            measured = [train_loss.detach(), losses.accuracy(logits, labels)]

            # Validation (Alg. 2, l. 9).
            validated = epoch % config.validate_every == 0
            if validated:
                model.eval()
                with torch.no_grad():
                    logits, labels = _logits(model, split.val, val_graph)
                    measured += [loss(logits, labels), losses.accuracy(logits, labels)]
            record = _record(epoch, measured)
            if not torch.isfinite(torch.stack(measured)).all():
                model.load_state_dict(state.best_state or initial)
                last_good = "it started with" if state.best_epoch is None else f"of its best epoch, {state.best_epoch}"
                raise FloatingPointError(
                    f"training is no longer finite in {record}; the model has the parameters {last_good}. "
                    f"A smaller learning rate than {config.lr} may help"
                )
            state.records.append(record)

            # The best epoch so far, and the end (Alg. 2, l. 10 to 13; patience is not in the algorithm).
            if validated and not warming_up:
                assert record.val_loss is not None
                if record.val_loss < state.best_loss:
                    state.best_epoch, state.best_loss, state.best_state = epoch, record.val_loss, _copy(model)
                elif state.best_epoch is not None and epoch >= state.best_epoch + config.patience:
                    state.stopped = "patience"
            if state.stopped is None and epoch == config.max_epochs - 1:
                state.stopped = "max_epochs"

            state.next_epoch, state.seconds = epoch + 1, time.perf_counter() - started
            if file is not None and file.due(state):
                file.save(state, model, optimizer)
            advance(len(state.records), _describe(record))
    model.load_state_dict(state.best_state)
    model.eval()


def _logits(model: nn.Module, view: View, graph: object) -> tuple[Tensor, Tensor]:
    """Logits and labels of the nodes that count in ``view``."""
    return model(view.data.x, graph)[view.nodes], view.data.y[view.nodes]


def _record(epoch: int, measured: list[Tensor]) -> Epoch:
    train_loss, train_accuracy, *val = torch.stack(measured).tolist()
    val_loss, val_accuracy = val or (None, None)
    return Epoch(epoch, train_loss, train_accuracy, val_loss, val_accuracy)


def _describe(record: Epoch) -> str:
    text = f"loss {record.train_loss:.2f} ({record.train_accuracy:.0%})"
    if record.val_accuracy is not None:
        text += f", val {record.val_loss:.2f} ({record.val_accuracy:.0%})"
    return text


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def _parameter_groups(model: nn.Module) -> list[dict[str, Any]]:
    own = getattr(model, "parameter_groups", None)
    groups: list[dict[str, Any]] = own() if callable(own) else [{"params": list(model.parameters())}]
    return groups


def _check_ready(model: nn.Module, split: Split) -> None:
    """Everything that would otherwise fail in the middle: graphs, nodes, devices, and the model's output."""
    if not isinstance(split, Split):
        raise TypeError(f"expected a Split (see edgeproof.splits), got {type(split).__name__}")
    parameters = list(model.parameters())
    if not parameters:
        raise ValueError(f"expected a model with parameters to train, got none in {type(model).__name__}")
    for view in (split.train, split.val):
        check_data(view.data)
        check_nodes(view.nodes, view.data)
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
    if logits.dim() != 2 or logits.size(0) != split.train.data.x.size(0) or logits.size(1) < num_classes:
        expected = f"[{split.train.data.x.size(0)}, {num_classes}]"
        raise ValueError(f"expected logits of shape {expected} from the model, got {list(logits.shape)}")


@contextmanager
def _seeded(seed: int, model: nn.Module) -> Iterator[None]:
    """Seed torch's generators for the time of the run, and give them back as they were."""
    device = next(model.parameters()).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
