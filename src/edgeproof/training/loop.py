"""The training loop, clean and adversarial (paper, Algorithm 2)."""

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
from edgeproof.training.adversarial import Threat
from edgeproof.training.checkpoint import Checkpoint, RunState
from edgeproof.training.config import TrainConfig
from edgeproof.training.history import Epoch, History, Observer
from edgeproof.training.stage import Stage


def run_epochs(
    model: nn.Module,
    split: Split,
    config: TrainConfig,
    *,
    nodes: Tensor,
    labels: Tensor,
    threat: Threat | None,
    checkpoint: Path | None,
    checkpoint_every: int,
    show: bool,
    observe: Observer | None = None,
) -> History:
    """Train ``model`` on some nodes of the training graph and their labels; see :func:`edgeproof.train`.

    All arguments have been checked.
    """
    # In one piece a GPU need not wait for the host parameter by parameter.
    fused = all(parameter.is_cuda for parameter in model.parameters())
    optimizer = torch.optim.Adam(
        _parameter_groups(model), lr=config.lr, weight_decay=config.weight_decay, fused=fused or None
    )
    average = None
    if config.averaging:
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(config.averaging))
    judged = model if average is None else average.module
    file = None
    if checkpoint is not None:
        run = {
            **identity(model, split, config, threat),
            "initial parameters": fingerprint(model.state_dict().values()),
            "training nodes and labels": fingerprint([nodes, labels]),
        }
        file = Checkpoint(checkpoint, run, checkpoint_every)
    # Attacks on the two graphs have random choices of their own.
    train = Stage(model, split.train.data, nodes, labels, threat, 2 * config.seed)
    val = Stage(judged, split.val.data, split.val.nodes, split.val.data.y[split.val.nodes], threat, 2 * config.seed + 1)

    with _seeded(config.seed, model):
        state, initial = RunState(next_epoch=-config.warmup_epochs), _copy(model)
        if file is not None and file.path.exists():
            state = file.restore(model, optimizer, average)
        _loop(train, val, config, optimizer, average, state, initial, file, show=show, observe=observe)

    assert state.best_epoch is not None
    assert state.stopped is not None
    return History(
        config, tuple(state.records), state.best_epoch, state.stopped, state.seconds, dict(state.phases), threat
    )


def identity(model: nn.Module, split: Split, config: TrainConfig, threat: Threat | None) -> dict[str, Any]:
    """What tells a run from others, as far as it is known before anything has been labelled or warmed up."""
    return {
        "config": asdict(config),
        "model": repr(model),
        "split": split.fingerprint,
        "threat": None if threat is None else threat.identity,
        "device": next(model.parameters()).device.type,
    }


def _loop(
    train: Stage,
    val: Stage,
    config: TrainConfig,
    optimizer: torch.optim.Optimizer,
    average: AveragedModel | None,
    state: RunState,
    initial: dict[str, Tensor],
    file: Checkpoint | None,
    *,
    show: bool,
    observe: Observer | None,
) -> None:
    """Run all epochs that remain, keeping ``state`` up to date; ends with the best parameters (paper, Algorithm 2)."""
    model = train.model
    good = _LastGood(model, initial, state, config)
    started = time.perf_counter() - state.seconds
    total = config.warmup_epochs + config.max_epochs
    with progress_bar(type(model).__name__, total, show=show) as advance:
        for epoch in range(state.next_epoch, config.max_epochs):
            if state.stopped is not None:
                break
            warming_up = epoch < 0
            loss = losses.get("cross_entropy" if warming_up else config.loss)
            share = _share_of_budget(epoch, config)
            trace = AttackTrace(next(model.parameters()).device)

            # Attack the training graph, and make one step on what is left of it (Alg. 2, l. 5 to 8).
            start = state.flips if config.warm_start else None
            flips = train.attacked(epoch, share, trace, start)
            model.train()
            optimizer.zero_grad()
            train_loss, logits = train.objective(loss, flips)
            if config.clean_share and flips is not None:
                train_loss = torch.lerp(train_loss, train.objective(loss)[0], config.clean_share)
            measured = {"train_loss": train_loss.detach(), "train_accuracy": losses.accuracy(logits, train.labels)}
            good.check(epoch, measured)
            train_loss.backward()
            optimizer.step()
            good.check(epoch, {"parameters": torch.stack([value.detach().sum() for value in model.parameters()]).sum()})
            if average is not None:
                average.update_parameters(model)
            trace.phase("step")

            # Attack the validation graph, and see how the model does there (Alg. 2, l. 9).
            model.eval()
            val.model.eval()
            validated = epoch % config.validate_every == 0 or epoch == config.max_epochs - 1
            if validated:
                if train.adversary is not None:
                    measured |= _measure("clean_train", train, loss) | _measure("clean_val", val, loss)
                    good.check(epoch, measured)
                    trace.phase("validation")
                # With the whole budget, so that epochs compare.
                measured |= _measure("val", val, loss, val.attacked(epoch, float(not warming_up), trace))
                good.check(epoch, measured)
                trace.phase("validation")
            record = _record(epoch, measured, val.model)
            state.records.append(record)
            if observe is not None:
                observe(record)
            state.flips = flips

            # The best epoch so far, and the end (Alg. 2, l. 10 to 13; patience is not in the algorithm).
            if validated and epoch >= config.min_epochs:
                assert record.val_loss is not None
                if record.val_loss < state.best_loss:
                    state.best_epoch, state.best_loss, state.best_state = epoch, record.val_loss, _copy(val.model)
                elif state.best_epoch is not None and epoch >= state.best_epoch + config.patience:
                    state.stopped = "patience"
            if state.stopped is None and epoch == config.max_epochs - 1:
                state.stopped = "max_epochs"

            state.next_epoch, state.seconds = epoch + 1, time.perf_counter() - started
            for phase, seconds in trace.seconds.items():
                state.phases[phase] = state.phases.get(phase, 0.0) + seconds
            if file is not None and file.due(state):
                file.save(state, model, optimizer, average)
            advance(len(state.records), _describe(record))
    model.load_state_dict(state.best_state)
    model.eval()


@dataclass(frozen=True)
class _LastGood:
    """What a model goes back to when something is no number any more.

    Args:
        model: the model.
        initial: its state before training.
        state: of the run, which holds the best state since.
        config: of the run.
    """

    model: nn.Module
    initial: dict[str, Tensor]
    state: RunState
    config: TrainConfig

    def check(self, epoch: int, measured: dict[str, Tensor]) -> None:
        """Raise if something is no longer finite, and leave the model as it was last good."""
        if bool(torch.stack(list(measured.values())).isfinite().all()):
            return
        best = self.state.best_epoch
        self.model.load_state_dict(self.state.best_state or self.initial)
        self.model.eval()
        last_good = "it started with" if best is None else f"of its best epoch, {best}"
        found = ", ".join(f"{name} {float(value):g}" for name, value in measured.items())
        raise FloatingPointError(
            f"training is no longer finite in epoch {epoch} ({found}); the model has the parameters {last_good}. "
            f"A smaller learning rate than {self.config.lr} may help"
        )


def _share_of_budget(epoch: int, config: TrainConfig) -> float:
    """How much of its budget the adversary has: nothing while warming up, then more and more."""
    return 0.0 if epoch < 0 else min(1.0, (epoch + 1) / (config.epsilon_warmup + 1))


def _measure(name: str, stage: Stage, loss: losses.Loss, flips: Tensor | None = None) -> dict[str, Tensor]:
    """Loss and accuracy in evaluation mode."""
    with torch.no_grad():
        logits = stage.logits(flips)
        return {f"{name}_loss": loss(logits, stage.labels), f"{name}_accuracy": losses.accuracy(logits, stage.labels)}


def _record(epoch: int, measured: dict[str, Tensor], model: nn.Module) -> Epoch:
    gamma = getattr(model, "gamma", None)
    coefficients = gamma.detach().flatten() if isinstance(gamma, Tensor) else torch.empty(0)
    # One trip to the host for all numbers.
    device = next(iter(measured.values())).device
    numbers = torch.cat([torch.stack(list(measured.values())).double(), coefficients.to(device).double()]).tolist()
    values, rest = numbers[: len(measured)], tuple(numbers[len(measured) :])
    return Epoch(epoch, **dict(zip(measured, values, strict=True)), gamma=rest or None)


def _describe(record: Epoch) -> str:
    text = f"loss {record.train_loss:.2f} ({record.train_accuracy:.0%})"
    if record.val_accuracy is not None:
        text += f", val {record.val_loss:.2f} ({record.val_accuracy:.0%})"
    if record.clean_val_accuracy is not None:
        text += f", clean {record.clean_val_accuracy:.0%}"
    return text


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def _parameter_groups(model: nn.Module) -> list[dict[str, Any]]:
    own = getattr(model, "parameter_groups", None)
    groups: list[dict[str, Any]] = own() if callable(own) else [{"params": list(model.parameters())}]
    return groups


@contextmanager
def _seeded(seed: int, model: nn.Module) -> Iterator[None]:
    """Seed torch's generators for the time of the run, and give them back as they were."""
    device = next(model.parameters()).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
