"""Training: the loop, early stopping, validation, settings and errors."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn.models import GCN as PyGGCN

import edgeproof as ep
from edgeproof import losses
from edgeproof.evaluation import clean_accuracy
from edgeproof.models import PAPER_SETTINGS
from edgeproof.splits import Split
from edgeproof.training import PRESETS, History, TrainConfig
from edgeproof.training.history import OUTCOME_KEYS


def build(name: str = "GPRGNN", seed: int = 0) -> nn.Module:
    return ep.models.build(name, 21, 2, {**PAPER_SETTINGS.get(name, {}), "hidden_channels": 16}, seed=seed)


def fit(split: Split, model: nn.Module | None = None, **options: object) -> tuple[nn.Module, History]:
    model = build() if model is None else model
    options = {"preset": "paper", "max_epochs": 40, "patience": 10, "progress": False, **options}
    return model, ep.train(model, split, **options)  # type: ignore[arg-type]


def same_state(first: nn.Module, second: nn.Module) -> bool:
    states = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in states)


@pytest.mark.parametrize("name", ep.models.available())
def test_every_model_learns(name: str, split: Split) -> None:
    model, _ = fit(split, build(name), max_epochs=200, patience=100)
    assert clean_accuracy(model, split.test.data, split.test.nodes) > 0.9
    assert not model.training


def test_pyg_model_learns(split: Split) -> None:
    torch.manual_seed(0)
    model, _ = fit(split, PyGGCN(21, 16, 2, 2), max_epochs=100, patience=50)
    assert clean_accuracy(model, split.test.data, split.test.nodes) > 0.9


def test_same_seed_gives_same_run(split: Split) -> None:
    (model, history), (same_model, same_history), (other_model, other_history) = (
        fit(split, seed=seed) for seed in (0, 0, 1)
    )
    assert history == same_history
    assert same_state(model, same_model)
    assert history.epochs != other_history.epochs
    assert not same_state(model, other_model)


def test_training_keeps_global_generator_state(split: Split) -> None:
    state = torch.get_rng_state()
    fit(split)
    assert torch.equal(torch.get_rng_state(), state)


def test_model_is_restored_to_best_epoch(split: Split) -> None:
    model, history = fit(split, max_epochs=60, patience=15)
    validated = [record for record in history.epochs if record.epoch >= 0]
    best = min(validated, key=lambda record: record.val_loss or 0.0)
    assert history.best == best
    assert history.best_epoch == best.epoch < validated[-1].epoch
    logits = ep.models.predict(model, split.val.data)[split.val.nodes]
    assert losses.tanh_margin(logits, split.val.data.y[split.val.nodes]).item() == pytest.approx(
        best.val_loss, abs=1e-6
    )
    # A run that ends at that epoch has the same parameters: the best state is a copy.
    shorter, _ = fit(split, max_epochs=best.epoch + 1, patience=15)
    assert same_state(model, shorter)


def test_run_stops_after_patience_or_max_epochs(split: Split) -> None:
    _, history = fit(split, max_epochs=3000, patience=7)
    assert history.stopped == "patience"
    assert history.epochs[-1].epoch == history.best_epoch + 7
    _, history = fit(split, max_epochs=5, patience=7)
    assert history.stopped == "max_epochs"
    assert [record.epoch for record in history.epochs] == list(range(5))


def test_warmup_uses_cross_entropy_and_main_loop_tanh_margin(split: Split) -> None:
    model = build().eval()
    model.mlp.dropout = 0.0
    logits = model(split.train.data.x, split.train.data.edge_index)[split.train.nodes]
    expected = losses.cross_entropy(logits, split.train.data.y[split.train.nodes]).item()
    _, history = fit(split, model, warmup_epochs=3, separate_warmup=False)
    assert [record.epoch for record in history.epochs][:4] == [-3, -2, -1, 0]
    assert history.epochs[0].train_loss == pytest.approx(expected, rel=1e-5)
    assert all(-1 <= record.train_loss <= 1 for record in history.epochs if record.epoch >= 0)
    _, plain = fit(split, warmup_epochs=0, loss="cross_entropy")
    assert plain.epochs[0].epoch == 0
    assert plain.epochs[0].train_loss > 0


@pytest.mark.parametrize(("lr", "weight_decay"), [(0.01, 0.0), (0.03, 0.0), (0.01, 0.5)])
def test_loop_equals_plain_adam(lr: float, weight_decay: float, split: Split) -> None:
    """Without dropout, the parameters equal those of a plain loop, with weight decay on gamma."""
    settings = {"hidden_channels": 16, "dropout": 0.0}
    model, plain = (ep.models.build("GPRGNN", 21, 2, settings, seed=0) for _ in range(2))
    history = ep.train(
        model,
        split,
        preset="paper",
        lr=lr,
        weight_decay=weight_decay,
        warmup_epochs=2,
        separate_warmup=False,
        max_epochs=4,
        patience=1000,
        progress=False,
    )
    optimizer = torch.optim.Adam(plain.parameters(), lr=lr, weight_decay=weight_decay)
    for epoch in range(-2, history.best_epoch + 1):
        optimizer.zero_grad()
        logits = plain(split.train.data.x, split.train.data.edge_index)[split.train.nodes]
        loss = losses.cross_entropy if epoch < 0 else losses.tanh_margin
        loss(logits, split.train.data.y[split.train.nodes]).backward()
        optimizer.step()
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(model.get_parameter(name), parameter)


def test_warmup_epoch_is_never_best(split: Split) -> None:
    """With an increasing loss the first warm-up epoch has the lowest one."""
    _, history = fit(split, warmup_epochs=5, separate_warmup=False, max_epochs=3, loss="cross_entropy", lr=3.0)
    assert min(history.epochs, key=lambda record: record.val_loss or 0.0).epoch < 0
    assert history.best_epoch >= 0


def test_validation_labels_do_not_train(split: Split) -> None:
    options = {"patience": 1000, "max_epochs": 15, "separate_warmup": False}
    _, history = fit(split, **options)
    split.val.data.y = 1 - split.val.data.y
    _, changed = fit(split, **options)
    assert [record.train_loss for record in history.epochs] == [record.train_loss for record in changed.epochs]
    assert [record.val_loss for record in history.epochs] != [record.val_loss for record in changed.epochs]


def test_validate_every(split: Split) -> None:
    _, history = fit(split, validate_every=4, max_epochs=21)
    validated = [record.epoch for record in history.epochs if record.val_loss is not None]
    assert all(epoch % 4 == 0 for epoch in validated)
    assert history.best_epoch % 4 == 0


def test_test_nodes_and_hidden_labels_are_not_used(split: Split) -> None:
    model, history = fit(split)
    poisoned = Data(x=split.test.data.x * torch.nan, edge_index=split.test.data.edge_index, y=-split.test.data.y)
    blind = dataclasses.replace(split, test=dataclasses.replace(split.test, data=poisoned))
    for view in (blind.train, blind.val):
        hidden = torch.ones(view.data.num_nodes, dtype=torch.bool)
        hidden[view.nodes] = False
        view.data.y = torch.where(hidden, 1 - view.data.y, view.data.y)
    same_model, same_history = fit(blind)
    assert same_history == history
    assert same_state(same_model, model)


def test_learning_rate_of_parameter_group_is_used(split: Split) -> None:
    model = ep.models.ChebNetII(21, 2, filter_lr=0.0)
    fit(split, model)
    assert torch.equal(model.gamma, torch.ones(11))


def test_nan_loss_stops_run_and_restores_state(split: Split) -> None:
    class Exploding(nn.Module):
        """Linear model with finite logits for 15 steps and NaN afterwards."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(21, 2)
            self.steps = 0

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            self.steps += self.training
            scale = torch.nan if self.steps > 15 else 1.0
            out: Tensor = self.linear(x) * scale
            return out

    model = Exploding()
    with pytest.raises(
        FloatingPointError, match=r"no longer finite in epoch 5 \(train_loss nan.*parameters of its best epoch, 4"
    ):
        fit(split, model)
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    model = Exploding()
    start = model.linear.weight.detach().clone()
    model.steps = 15
    with pytest.raises(FloatingPointError, match=r"epoch 0 .*its initial parameters"):
        fit(split, model, warmup_epochs=0)
    assert torch.equal(model.linear.weight, start)


BAD_SETTINGS = {
    "lr": (-1.0, "lr to be a finite number >= 0, got -1.0"),
    "averaging": (False, "expected 0 <= averaging < 1, got False"),
    "weight_decay": ("a", "weight_decay to be a finite number >= 0, got 'a'"),
    "seed": (1.5, "seed to be an integer from 0 to 4294967295, got 1.5"),
    "max_epochs": (0, "max_epochs to be an integer >= 1, got 0"),
    "patience": (2.5, "patience to be an integer >= 1, got 2.5"),
    "validate_every": (0, "validate_every"),
    "warmup_epochs": (-1, "warmup_epochs"),
    "loss": ("hinge", "unknown loss 'hinge'"),
    "checkpoint_every": (0, "checkpoint_every to be an integer >= 1"),
}


@pytest.mark.parametrize("name", BAD_SETTINGS)
def test_invalid_settings_raise(name: str, split: Split) -> None:
    value, message = BAD_SETTINGS[name]
    with pytest.raises(ValueError, match=message):
        fit(split, **{name: value})


def test_models_that_cannot_be_trained_raise(split: Split) -> None:
    with pytest.raises(ValueError, match="model with parameters to train, got none in ReLU"):
        fit(split, nn.ReLU())
    with pytest.raises(ValueError, match=r"logits of shape \[119, 2\] from the model, got \[119, 1\]"):
        fit(split, ep.models.GCN(21, 1))
    with pytest.raises(ValueError, match=r"features x of shape \[nodes, 20\]"):
        fit(split, ep.models.GCN(20, 2))


def test_graph_instead_of_split_raises(sbm: Data) -> None:
    with pytest.raises(TypeError, match=r"expected a Split .* got Data"):
        ep.train(build(), sbm)  # type: ignore[arg-type]


def test_observer_must_be_callable(split: Split) -> None:
    with pytest.raises(TypeError, match="expected observe as a function of one epoch, got 3"):
        fit(split, observe=3)


def test_mixed_dtypes_raise(split: Split) -> None:
    with pytest.raises(ValueError, match=r"of one dtype, got torch.float32, torch.float64; use model.double"):
        fit(split, build().double())


def test_invalid_graph_raises(split: Split) -> None:
    split.train.data.x[0, 0] = torch.nan
    with pytest.raises(ValueError, match="NaN or Inf at 1 nodes"):
        fit(split)


def test_unwritable_checkpoint_raises(split: Split, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot write"):
        fit(split, checkpoint=tmp_path / "file" / "below")
    with pytest.raises(ValueError, match="got the folder"):
        fit(split, checkpoint=tmp_path)


def test_summary_contains_settings_and_outcome(split: Split) -> None:
    _, history = fit(split)
    summary = history.summary()
    assert summary["lr"] == TrainConfig().lr
    assert summary["epochs"] == len(history.epochs)
    assert summary["best_epoch"] == history.best_epoch


def test_summaries_of_two_seeds_differ_only_in_outcome(split: Split) -> None:
    """Reports group runs by their settings."""
    first, second = (
        fit(split, seed=seed, self_training=True, attack=ep.attacks.DICE(), epsilon=0.1, max_epochs=3)[1].summary()
        for seed in (0, 1)
    )
    assert first.keys() == second.keys() >= OUTCOME_KEYS - {"gamma", "restarts"}
    assert {name: first[name] for name in first.keys() - OUTCOME_KEYS} == {
        name: second[name] for name in second.keys() - OUTCOME_KEYS
    }


def test_default_settings_are_the_papers() -> None:
    expected = TrainConfig(
        loss="tanh_margin",
        lr=1e-2,
        weight_decay=1e-3,
        warmup_epochs=10,
        separate_warmup=True,
        max_epochs=3000,
        min_epochs=0,
        patience=200,
        validate_every=1,
        epsilon_warmup=0,
        warm_start=False,
        clean_weight=0.0,
        averaging=0.0,
        label_models=1,
        label_weight_decay=0.0,
        seed=0,
    )
    assert TrainConfig() == PRESETS["paper"].config == expected
    assert PRESETS["paper"].threat is None
