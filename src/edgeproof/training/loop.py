r"""Training loop (paper, Algorithm 2: adversarial training); clean training is the same loop without an attack.

Comments in :func:`run_epochs` refer to these lines, with training graph :math:`G_t`, validation graph :math:`G_v`, model
:math:`f_\theta` and adversary :math:`\mathcal A`::

    1  l_min = inf
    2  for each warm-up epoch:
    3      theta = step on loss(f_theta(G_t), y_t)
    4  for each epoch of the main loop:
    5      G_t' = A(f_theta, G_t, y_t)
    6      theta = step on loss(f_theta(G_t'), y_t)
    7      G_v' = A(f_theta, G_v, y_v)
    8      if loss(f_theta(G_v'), y_v) < l_min:
    9          l_min = loss(f_theta(G_v'), y_v)
    10         theta_best = theta
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from edgeproof import losses
from edgeproof._progress import progress_bar
from edgeproof._tensors import fingerprint
from edgeproof.attacks.base import AttackTrace
from edgeproof.splits import Split
from edgeproof.training.adversarial import Stage, Threat
from edgeproof.training.checkpoint import Checkpoint, RunState
from edgeproof.training.config import TrainConfig
from edgeproof.training.history import Epoch, History, Observer

# Weight of the loss, which breaks ties: too small to outweigh one misclassified validation node.
_TIE_BREAK = 1e-7
# Rounding error of accuracies in float32.
_ROUNDING = 1e-6
# Larger than any difference of validation losses.
_PENALTY = 1e6


def run_epochs(
    model: nn.Module,
    checkpoint: Path | None,
    *,
    split: Split,
    config: TrainConfig,
    nodes: Tensor,
    labels: Tensor,
    threat: Threat | None,
    checkpoint_every: int,
    show: bool,
    observe: Observer | None = None,
) -> History:
    """Train ``model`` on some nodes of the training graph, and restore its best state; see :func:`edgeproof.train`.

    All arguments have been checked.
    """
    optimizer = _adam(model, config)
    # Not in the paper: averaged parameters, which are then validated and kept.
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(config.averaging)) if config.averaging else None
    # The two adversaries have different seeds.
    train = Stage(model, split.train.data, nodes, labels, threat, 2 * config.seed)
    val_model = model if average is None else average.module
    val_labels = split.val.data.y[split.val.nodes]
    val = Stage(val_model, split.val.data, split.val.nodes, val_labels, threat, 2 * config.seed + 1)
    file = None
    if checkpoint is not None:
        run = run_identity(model, split, config, threat) | {
            "initial parameters": fingerprint(model.state_dict().values()),
            "training nodes and labels": fingerprint([nodes, labels]),
        }
        file = Checkpoint(checkpoint, run, checkpoint_every)

    num_epochs = config.warmup_epochs + config.max_epochs
    with _seeded(config.seed, model), progress_bar(type(model).__name__, num_epochs, show=show) as advance:
        # Warm-up epochs (lines 2 and 3) are negative. The best loss of a new state is infinite (line 1).
        state, initial = RunState(next_epoch=-config.warmup_epochs), _copy_state(model)
        lowest_clean = None
        if threat is not None and config.max_clean_drop < 1:
            model.eval()
            # Among few validation nodes, a single one is a larger fraction than max_clean_drop.
            drop = max(config.max_clean_drop, 1 / val.nodes.numel()) + _ROUNDING
            lowest_clean = float(_measure("val", val, losses.get(config.loss))["val_accuracy"]) - drop
        if file is not None and file.path.exists():
            state = file.restore(model, optimizer, average)
        guard = _FiniteGuard(model, initial, state, config.lr)
        started = time.perf_counter() - state.seconds
        for epoch in range(state.next_epoch, config.max_epochs):
            if state.stopped is not None:
                break
            trace = AttackTrace(next(model.parameters()).device)
            metrics = _train_epoch(epoch, train, config, optimizer, average, state, guard, trace)
            is_validated = epoch % config.validate_every == 0 or epoch == config.max_epochs - 1
            if is_validated:
                metrics |= _validate(epoch, train, val, config, guard, trace)
            record = _record(epoch, metrics, val.model)
            state.records.append(record)
            if observe is not None:
                observe(record)

            if is_validated and epoch >= config.min_epochs:
                _keep_best(record, state, val.model, config, lowest_clean)
            if state.stopped is None and epoch == config.max_epochs - 1:
                state.stopped = "max_epochs"

            state.next_epoch, state.seconds = epoch + 1, time.perf_counter() - started
            for phase, seconds in trace.seconds.items():
                state.phases[phase] = state.phases.get(phase, 0.0) + seconds
            if file is not None and file.due(state):
                file.save(state, model, optimizer, average)
            advance(len(state.records), _progress_text(record))
    model.load_state_dict(state.best_state)
    model.eval()

    assert state.stopped is not None
    best = next(record for record in state.records if record.epoch == state.best_epoch)
    return History(config, tuple(state.records), best, state.stopped, state.seconds, dict(state.phases), threat)


def _train_epoch(
    epoch: int,
    train: Stage,
    config: TrainConfig,
    optimizer: torch.optim.Optimizer,
    average: AveragedModel | None,
    state: RunState,
    guard: _FiniteGuard,
    trace: AttackTrace,
) -> dict[str, Tensor]:
    """Perturb the training graph and make one step; return loss and accuracy of the step."""
    model, loss = train.model, _loss_of(epoch, config)
    # Line 5. Not in the paper: a warm start, and a budget that rises over the first epochs.
    start = state.flips if config.warm_start else None
    flips = state.flips = train.attack(epoch, _budget_fraction(epoch, config), trace, start)

    # Lines 3 and 6: forward, loss, step.
    model.train()
    optimizer.zero_grad()
    objective, logits = train.objective(loss, flips)
    if config.clean_weight and flips is not None:
        # Not in the paper: a part of the loss is that on the clean graph.
        objective = torch.lerp(objective, train.objective(loss)[0], config.clean_weight)
    metrics = {"train_loss": objective.detach(), "train_accuracy": losses.accuracy(logits, train.labels)}
    guard.check(epoch, metrics)
    objective.backward()
    optimizer.step()
    guard.check(epoch, {"parameters": torch.stack([value.detach().sum() for value in model.parameters()]).sum()})
    if average is not None:
        average.update_parameters(model)
    model.eval()
    trace.phase("step")
    return metrics


def _validate(
    epoch: int, train: Stage, val: Stage, config: TrainConfig, guard: _FiniteGuard, trace: AttackTrace
) -> dict[str, Tensor]:
    """Perturb the validation graph; return losses and accuracies in evaluation mode."""
    loss = _loss_of(epoch, config)
    val.model.eval()
    metrics: dict[str, Tensor] = {}
    if train.adversary is not None:
        # Not in the paper: the metrics on the clean graphs, for the record.
        metrics |= _measure("clean_train", train, loss) | _measure("clean_val", val, loss)
        guard.check(epoch, metrics)
        trace.phase("validation")
    # Line 7, always with the full budget, so that the losses of all epochs are comparable.
    metrics |= _measure("val", val, loss, val.attack(epoch, 0.0 if epoch < 0 else 1.0, trace))
    guard.check(epoch, metrics)
    trace.phase("validation")
    return metrics


def _keep_best(
    record: Epoch, state: RunState, model: nn.Module, config: TrainConfig, lowest_clean: float | None
) -> None:
    """Keep a copy of the best state (lines 8 to 10). Not in the paper: other criteria, min_epochs and patience."""
    loss = selection_loss(record, config, lowest_clean)
    if loss < state.best_loss:
        state.best_epoch, state.best_loss, state.best_state = record.epoch, loss, _copy_state(model)
    elif state.best_epoch is not None and record.epoch >= state.best_epoch + config.patience:
        state.stopped = "patience"


def selection_loss(record: Epoch, config: TrainConfig, lowest_clean: float | None) -> float:
    """Return the criterion by which the best epoch is selected; lower is better.

    It is the validation loss, or for ``select="accuracy"`` the fraction of misclassified validation nodes, where the loss
    breaks ties. If the clean accuracy is below ``lowest_clean``, a large penalty is added.

    Args:
        record: Metrics of a validated epoch.
        config: Settings of the run.
        lowest_clean: Lowest clean validation accuracy without a penalty; None for no penalty.
    """
    assert record.val_loss is not None
    assert record.val_accuracy is not None
    loss = record.val_loss
    if config.select == "accuracy":
        loss = 1 - record.val_accuracy + _TIE_BREAK * loss / (1 + abs(loss))
    if lowest_clean is None or record.clean_val_accuracy is None or record.clean_val_accuracy >= lowest_clean:
        return loss
    return loss + _PENALTY * (1 + lowest_clean - record.clean_val_accuracy)


def run_identity(model: nn.Module, split: Split, config: TrainConfig, threat: Threat | None) -> dict[str, Any]:
    """Return the identity of a run, without the results of label models and warm-up."""
    return {
        "config": asdict(config),
        "model": repr(model),
        "split": split.fingerprint,
        "threat": None if threat is None else threat.identity,
        "device": next(model.parameters()).device.type,
    }


@dataclass(frozen=True)
class _FiniteGuard:
    """Check for NaN and Inf that restores the last good state of the model.

    Args:
        model: Model.
        initial: State of the model before training.
        state: State of the run, which contains the best state so far.
        lr: Learning rate, for the error message.
    """

    model: nn.Module
    initial: dict[str, Tensor]
    state: RunState
    lr: float

    def check(self, epoch: int, metrics: dict[str, Tensor]) -> None:
        """Raise ``FloatingPointError`` if a metric is not finite."""
        if bool(torch.stack(list(metrics.values())).isfinite().all()):
            return
        best = self.state.best_epoch
        self.model.load_state_dict(self.state.best_state or self.initial)
        self.model.eval()
        last_good = "its initial parameters" if best is None else f"the parameters of its best epoch, {best}"
        values = ", ".join(f"{name} {float(value):g}" for name, value in metrics.items())
        raise FloatingPointError(
            f"training is no longer finite in epoch {epoch} ({values}); the model has {last_good}. "
            f"Try a learning rate below {self.lr}"
        )


def _adam(model: nn.Module, config: TrainConfig) -> torch.optim.Adam:
    groups = getattr(model, "parameter_groups", None)
    parameters = groups() if callable(groups) else [{"params": list(model.parameters())}]
    # The fused step needs no host-device sync per parameter.
    fused = all(parameter.is_cuda for parameter in model.parameters())
    return torch.optim.Adam(parameters, lr=config.lr, weight_decay=config.weight_decay, fused=fused or None)


def _loss_of(epoch: int, config: TrainConfig) -> losses.Loss:
    """Return cross-entropy in warm-up epochs, else the loss of the main loop."""
    return losses.get("cross_entropy" if epoch < 0 else config.loss)


def _budget_fraction(epoch: int, config: TrainConfig) -> float:
    """Return the fraction of the budget on the training graph: 0 in warm-up epochs, then rising linearly to 1."""
    return 0.0 if epoch < 0 else min(1.0, (epoch + 1) / (config.epsilon_warmup + 1))


def _measure(name: str, stage: Stage, loss: losses.Loss, flips: Tensor | None = None) -> dict[str, Tensor]:
    """Return loss and accuracy without gradients."""
    with torch.no_grad():
        logits = stage.logits(flips)
        return {f"{name}_loss": loss(logits, stage.labels), f"{name}_accuracy": losses.accuracy(logits, stage.labels)}


def _record(epoch: int, metrics: dict[str, Tensor], model: nn.Module) -> Epoch:
    gamma = getattr(model, "gamma", None)
    coefficients = gamma.detach().flatten() if isinstance(gamma, Tensor) else torch.empty(0)
    # One host-device sync for all numbers.
    device = next(iter(metrics.values())).device
    numbers = torch.cat([torch.stack(list(metrics.values())).double(), coefficients.to(device).double()]).tolist()
    values, gammas = numbers[: len(metrics)], tuple(numbers[len(metrics) :])
    return Epoch(epoch, **dict(zip(metrics, values, strict=True)), gamma=gammas or None)


def _progress_text(record: Epoch) -> str:
    text = f"loss {record.train_loss:.2f} ({record.train_accuracy:.0%})"
    if record.val_accuracy is not None:
        text += f", val {record.val_loss:.2f} ({record.val_accuracy:.0%})"
    if record.clean_val_accuracy is not None:
        text += f", clean {record.clean_val_accuracy:.0%}"
    return text


def _copy_state(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


@contextmanager
def _seeded(seed: int, model: nn.Module) -> Iterator[None]:
    """Seed torch's global generators, and restore their states on exit."""
    device = next(model.parameters()).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
