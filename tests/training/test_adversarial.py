"""Adversarial training: attacked graphs, budgets, settings, recorded metrics, errors and resumed runs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch
from instrumented_models import counting, interrupt_at, untrainable
from torch import Tensor, nn
from torch_geometric.nn.models import GCN as PyGGCN
from torch_geometric.nn.models import GraphSAGE

import edgeproof as ep
from edgeproof.attacks import LRBCD, Attack
from edgeproof.attacks.base import AttackTrace, Target
from edgeproof.budget import Budget
from edgeproof.evaluation import clean_accuracy
from edgeproof.models import PAPER_SETTINGS
from edgeproof.propagation import NoEdgeGradientError
from edgeproof.splits import Split
from edgeproof.training import PRESETS, History, Preset, Threat, TrainConfig
from edgeproof.training.adversarial import Adversary
from edgeproof.training.config import TrainSettings, configure

ATTACK = LRBCD(steps=3, block_size=2_000, samples=2)
AGAINST: dict[str, Any] = {"attack": ATTACK, "epsilon": 0.1, "local": 0.5}
SHORT: dict[str, Any] = {
    "preset": "paper",
    "warmup_epochs": 2,
    "separate_warmup": False,
    "max_epochs": 6,
    "patience": 6,
    "progress": False,
}


def build(name: str = "GPRGNN", seed: int = 0) -> nn.Module:
    return ep.models.build(name, 21, 2, {**PAPER_SETTINGS.get(name, {}), "hidden_channels": 8}, seed=seed)


def same_state(first: nn.Module, second: nn.Module) -> bool:
    states = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in states)


@dataclass(frozen=True, kw_only=True)
class RecordingAttack(Attack):
    """Attack that records its calls and removes the first edges within the budget."""

    calls: list[tuple[Target, Budget, dict[str, Tensor]]] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)

    def num_steps(self, budget: Budget) -> int:
        return 0

    def run(self, target: Target, budget: Budget, *, generator: torch.Generator, trace: object) -> Tensor:
        state = {name: value.clone() for name, value in target.model.state_dict().items()}
        self.calls.append((target, budget, state))
        self.seeds.append(generator.initial_seed())
        row, col = target.data.edge_index
        edges: Tensor = target.data.edge_index[:, row < col]
        return edges[:, ep.attacks.discretize(torch.linspace(1, 0.5, edges.size(1)), edges, budget)]


@pytest.mark.parametrize("self_training", [False, True])
def test_training_and_validation_graph_are_attacked_in_every_main_epoch(self_training: bool, split: Split) -> None:
    attack = RecordingAttack()
    model = build()
    ep.train(model, split, attack=attack, epsilon=0.2, local=0.5, self_training=self_training, **SHORT)
    # No attack in two warm-up epochs; then training and validation graph alternate.
    assert len(attack.calls) == 12
    nodes = torch.arange(split.train.data.num_nodes) if self_training else split.train.nodes
    for (on_train, train_budget, _), (on_val, val_budget, _) in zip(attack.calls[::2], attack.calls[1::2], strict=True):
        assert on_train.data.edge_index is split.train.data.edge_index
        assert torch.equal(on_train.nodes, nodes)
        assert on_val.data.edge_index is split.val.data.edge_index
        assert torch.equal(on_val.nodes, split.val.nodes)
        assert torch.equal(on_val.labels, split.val.data.y[split.val.nodes])
        for target, budget in ((on_train, train_budget), (on_val, val_budget)):
            expected = Budget.from_epsilon(target.data, target.nodes, 0.2, local=0.5)
            assert budget.total == expected.total > 0
            assert torch.equal(budget.local, expected.local)  # type: ignore[arg-type]
    if self_training:
        known = attack.calls[0][0].labels[split.train.nodes]
        assert torch.equal(known, split.train.data.y[split.train.nodes])
    # The training graph is attacked before the step, the validation graph after it.
    before, after, next_epoch = (state for _, _, state in attack.calls[:3])
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert all(torch.equal(after[name], next_epoch[name]) for name in after)


def test_step_uses_perturbed_graph(split: Split) -> None:
    """Clean training on the same graph, perturbed by hand, takes the same first step."""
    row, col = split.train.data.edge_index
    budget = Budget.from_epsilon(split.train.data, split.train.nodes, 0.2)
    flips = split.train.data.edge_index[:, row < col][:, : budget.total]
    perturbed = replace(split, train=replace(split.train, data=ep.graph.flip_pairs(split.train.data, flips)))
    model, reference = build(), build()
    options = {**SHORT, "warmup_epochs": 0, "max_epochs": 1}
    history = ep.train(model, split, attack=RecordingAttack(), epsilon=0.2, **options)
    expected = ep.train(reference, perturbed, **options)
    assert history.best.train_loss == pytest.approx(expected.best.train_loss, abs=1e-6)
    for parameter, other in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.allclose(parameter, other, atol=1e-5)


def test_epoch_records_perturbed_and_clean_metrics_and_gamma(split: Split) -> None:
    model = build()
    history = ep.train(model, split, **AGAINST, **SHORT)
    warmup, first, *_, last = (*history.epochs[1:],)
    assert warmup.epoch == -1
    # Without flips the two differ only by rounding.
    assert warmup.val_loss == pytest.approx(warmup.clean_val_loss)
    assert first.epoch == 0
    assert first.val_loss is not None
    assert first.clean_val_loss is not None
    assert first.val_loss > first.clean_val_loss
    assert first.clean_train_accuracy is not None
    gamma = model.gamma.tolist()  # type: ignore[union-attr,operator]
    assert len(gamma) == 11
    assert history.best.gamma == pytest.approx(gamma)
    assert last.gamma != first.gamma
    assert history.summary()["gamma"] == pytest.approx(gamma)
    assert history.summary()["attack"] == repr(ATTACK)
    assert set(history.phases) >= {"step", "validation", "projection", "scores", "forward and backward"}
    clean = ep.train(build("GCN"), split, **SHORT)
    assert clean.best.gamma is None
    assert clean.best.clean_val_loss is None
    assert "attack" not in clean.summary()


def test_zero_budget_equals_clean_training(split: Split) -> None:
    model, reference = build(), build()
    attacked = ep.train(model, split, attack=ATTACK, epsilon=0.0, **SHORT)
    clean = ep.train(reference, split, **SHORT)
    assert same_state(model, reference)
    assert [record.val_loss for record in attacked.epochs] == [record.val_loss for record in clean.epochs]


@pytest.mark.parametrize("name", ep.models.available())
def test_adversarial_training_of_every_model(name: str, split: Split) -> None:
    model = build(name)
    history = ep.train(model, split, self_training=True, **AGAINST, **SHORT)
    assert len(history.epochs) == 8
    assert not model.training
    assert history.pseudo_labels is not None


@pytest.mark.parametrize("name", ep.attacks.available())
def test_adversarial_training_with_every_attack(name: str, split: Split) -> None:
    attack = ep.attacks.build(name).for_training()
    small = {"steps": 2, "block_size": 2_000, "population": 8, "generations": 2, "candidates": 64, "rounds": 1}
    settings = {key: value for key, value in small.items() if hasattr(attack, key)}
    history = ep.train(build("GCN"), split, attack=replace(attack, **settings), epsilon=0.05, local=0.5, **SHORT)
    assert history.threat is not None
    assert history.best.clean_val_accuracy is not None


def test_adversarial_training_of_pyg_model(split: Split) -> None:
    torch.manual_seed(0)
    model = PyGGCN(21, 8, 2, 2)
    history = ep.train(model, split, self_training=True, **AGAINST, **{**SHORT, "max_epochs": 20})
    assert clean_accuracy(model, split.test.data, split.test.nodes) > 0.8
    assert history.best.val_accuracy is not None


def test_adversarial_training_improves_robust_accuracy() -> None:
    data = ep.datasets.csbm("homophilous", num_nodes=300, p=0.05, q=0.005, K=3.0, seed=0)
    split = ep.splits.inductive(data, seed=0, train_per_class=30, val_per_class=30, test_share=0.2)
    graph, nodes = split.test.data, split.test.nodes
    budget = Budget.from_epsilon(graph, nodes, 0.25, local=0.5)
    attack = ep.attacks.GreedyRBCD(steps=10, block_size=50_000, loss="log_margin")
    threats: list[dict[str, Any]] = [{}, {"attack": attack, "epsilon": 0.3, "local": 0.5}]
    accuracies = []
    for threat in threats:
        results = []
        for seed in range(2):
            model = build(seed=seed)
            ep.train(
                model, split, self_training=True, progress=False, max_epochs=45, min_epochs=40, seed=seed, **threat
            )
            results.append(attack(model, graph, nodes, budget).accuracy)
        accuracies.append(sum(results) / 2)
    regular, adversarial = accuracies
    assert adversarial > regular + 0.03


def test_step_of_pyg_model_uses_perturbed_graph(split: Split) -> None:
    row, col = split.train.data.edge_index
    budget = Budget.from_epsilon(split.train.data, split.train.nodes, 0.2)
    flips = split.train.data.edge_index[:, row < col][:, : budget.total]
    perturbed = replace(split, train=replace(split.train, data=ep.graph.flip_pairs(split.train.data, flips)))
    options = {**SHORT, "warmup_epochs": 0, "max_epochs": 1}
    parameters = []
    for parts, threat in ((split, {"attack": RecordingAttack(), "epsilon": 0.2}), (perturbed, {}), (split, {})):
        torch.manual_seed(0)
        model = PyGGCN(21, 8, 2, 2)
        ep.train(model, parts, **threat, **options)  # type: ignore[arg-type]
        parameters.append([parameter.detach() for parameter in model.parameters()])
    attacked, by_hand, clean = parameters
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(attacked, by_hand, strict=True))
    assert not all(torch.allclose(a, b, atol=1e-6) for a, b in zip(attacked, clean, strict=True))


def test_attacks_use_distinct_seeds_per_graph_epoch_and_run(split: Split) -> None:
    attack = RecordingAttack()
    for seed in (0, 1):
        ep.train(build(), split, seed=seed, attack=attack, epsilon=0.1, **SHORT)
    assert len(attack.seeds) == len(set(attack.seeds)) == 2 * 2 * 6


@pytest.mark.parametrize("setting", ["inductive", "transductive"])
def test_attacks_do_not_use_hidden_labels(setting: str, sbm: ep.graph.Data) -> None:
    """DICE reads labels of all nodes."""
    split = getattr(ep.splits, setting)(sbm, seed=0)
    hidden = torch.ones(sbm.num_nodes, dtype=torch.bool)
    hidden[split.train.ids[split.train.nodes]] = False
    hidden[split.val.ids[split.val.nodes]] = False
    wrong = sbm.clone()
    wrong.y = torch.where(hidden, 1 - sbm.y, sbm.y)
    changed = replace(
        split,
        **{
            name: replace(view, data=ep.graph.Data(x=view.data.x, edge_index=view.data.edge_index, y=wrong.y[view.ids]))
            for name, view in (("train", split.train), ("val", split.val), ("test", split.test))
        },
    )
    histories = [ep.train(build(), parts, attack=ep.attacks.DICE(), epsilon=0.2, **SHORT) for parts in (split, changed)]
    assert histories[0].epochs == histories[1].epochs


# Settings.


def test_epsilon_warmup_raises_training_budget_linearly(split: Split) -> None:
    attack = RecordingAttack()
    ep.train(build(), split, attack=attack, epsilon=0.4, epsilon_warmup=3, **SHORT)
    full = Budget.from_epsilon(split.train.data, split.train.nodes, 0.4).total
    totals = [budget.total for _, budget, _ in attack.calls[::2]]
    assert totals == [round(full / 4), round(full / 2), round(full * 3 / 4), full, full, full]
    # Validation always uses the full budget.
    on_val = Budget.from_epsilon(split.val.data, split.val.nodes, 0.4).total
    assert {budget.total for _, budget, _ in attack.calls[1::2]} == {on_val}


def test_validate_every_always_includes_last_epoch(split: Split) -> None:
    attack = RecordingAttack()
    history = ep.train(build(), split, attack=attack, epsilon=0.2, validate_every=3, **SHORT)
    assert len(attack.calls) == 6 + 3
    validated = [record.epoch for record in history.epochs if record.val_loss is not None and record.epoch >= 0]
    assert validated == [0, 3, 5]
    late = ep.train(build(), split, attack=attack, epsilon=0.2, validate_every=5, min_epochs=4, **SHORT)
    assert late.best_epoch == 5


def test_clean_weight_mixes_clean_and_perturbed_loss(split: Split) -> None:
    """Without dropout, the loss of the first step is the weighted mean of perturbed and clean loss."""
    train_losses = []
    options = {**SHORT, "warmup_epochs": 0, "max_epochs": 1}
    for share, epsilon in ((0.0, 0.4), (0.0, 0.0), (0.25, 0.4)):
        model = ep.models.build("GPRGNN", 21, 2, {"hidden_channels": 8, "dropout": 0.0}, seed=0)
        history = ep.train(model, split, attack=RecordingAttack(), epsilon=epsilon, clean_weight=share, **options)
        train_losses.append(history.best.train_loss)
    attacked, clean, both = train_losses
    assert attacked != pytest.approx(clean)
    assert both == pytest.approx(0.75 * attacked + 0.25 * clean)


def test_clean_metrics_are_measured_on_clean_graph(split: Split) -> None:
    model = build()
    history = ep.train(model, split, attack=RecordingAttack(), epsilon=0.4, **SHORT)
    for view, name in ((split.train, "clean_train"), (split.val, "clean_val")):
        logits, labels = ep.models.predict(model, view.data)[view.nodes], view.data.y[view.nodes]
        loss = float(ep.losses.tanh_margin(logits, labels))
        assert getattr(history.best, f"{name}_loss") == pytest.approx(loss, abs=1e-6)
        assert getattr(history.best, f"{name}_accuracy") == pytest.approx(float(ep.losses.accuracy(logits, labels)))


def test_warm_start_begins_at_previous_flips(split: Split) -> None:
    starts: list[Tensor | None] = []
    found: list[Tensor] = []

    class RecordingLRBCD(LRBCD):
        def run(self, target: Target, budget: Budget, **options: Any) -> Tensor:
            result = super().run(target, budget, **options)
            if target.data.edge_index is split.train.data.edge_index:
                starts.append(options.get("start"))
                found.append(result)
            return result

    attack = RecordingLRBCD(steps=1, block_size=2_000, samples=2)
    ep.train(build(), split, warm_start=True, attack=attack, epsilon=0.3, local=0.5, **SHORT)
    assert len(starts) == 6
    assert starts[0] is None or not starts[0].numel()
    for start, previous in zip(starts[1:], found, strict=False):
        assert start is not None
        assert torch.equal(start, ep.propagation.pairs.Pairs.of(previous, split.train.data.num_nodes).both)
    assert any(flips.numel() for flips in found)


def test_warm_started_attack_is_at_least_as_strong(sbm: ep.graph.Data) -> None:
    """A short attack that starts at the flips of a long one is stronger than one that starts without flips."""
    model, nodes = build("GCN").eval(), torch.arange(100)
    budget = Budget.from_epsilon(sbm, nodes, 0.1, local=0.5)
    target = Target(model, sbm, nodes, sbm.y[nodes])
    trace = AttackTrace(torch.device("cpu"))
    long, short = LRBCD(steps=60, block_size=20_000), LRBCD(steps=1, block_size=500)
    best = long.find(target, budget, generator=torch.Generator().manual_seed(0), trace=trace)
    cold = short.find(target, budget, generator=torch.Generator().manual_seed(1), trace=trace)
    warm = short.find(target, budget, generator=torch.Generator().manual_seed(1), trace=trace, start=best)
    from_best, from_nothing = target.score([warm, cold], "tanh_margin")
    assert from_best < from_nothing


def test_averaged_model_is_validated_and_kept(split: Split) -> None:
    model = build()
    states: list[dict[str, Tensor]] = []

    def copy_state(record: ep.training.Epoch) -> None:
        states.append({name: value.clone() for name, value in model.state_dict().items()})

    history = ep.train(model, split, averaging=0.5, min_epochs=5, observe=copy_state, **AGAINST, **SHORT)
    assert history.best_epoch == 5
    expected = states[0]
    for state in states[1:]:
        expected = {name: (value + state[name]) / 2 for name, value in expected.items()}
    for name, value in model.state_dict().items():
        assert torch.allclose(value, expected[name], atol=1e-6), name


def test_min_epochs_excludes_first_epochs(split: Split) -> None:
    history = ep.train(build(), split, preset="paper", min_epochs=30, max_epochs=100, patience=5, progress=False)
    assert history.best_epoch >= 30
    assert history.epochs[-1].epoch == history.best_epoch + 5


def test_configure_overrides_presets() -> None:
    assert configure("paper", {}).config == TrainConfig()
    assert configure(TrainConfig(lr=1.0), {"patience": 3}).config == TrainConfig(lr=1.0, patience=3)
    with pytest.raises(ValueError, match="unknown preset 'papr': did you mean 'paper'"):
        configure("papr", {})
    with pytest.raises(ValueError, match="unknown setting 'patiense': did you mean 'patience'"):
        configure("paper", {"patiense": 3})  # type: ignore[typeddict-unknown-key]


def test_train_settings_mirror_train_config() -> None:
    assert get_type_hints(TrainSettings) == get_type_hints(TrainConfig)


def test_every_setting_has_a_help_text() -> None:
    assert all(entry.metadata["help"].endswith(".") for entry in fields(TrainConfig))


def test_numpy_settings_become_python_numbers() -> None:
    config = TrainConfig(lr=np.float32(0.5), seed=np.int64(3), warm_start=np.True_)  # type: ignore[arg-type]
    assert config == TrainConfig(lr=0.5, seed=3, warm_start=True)
    assert [type(value) for value in (config.lr, config.seed, config.warm_start)] == [float, int, bool]


def test_preset_with_default_attack(split: Split) -> None:
    default = PRESETS["sturdy"].threat
    assert default is not None
    options = {**SHORT, "preset": "sturdy", "min_epochs": 0, "max_epochs": 1}
    history = ep.train(build(), split, label_models=1, **options)
    assert history.threat == default
    assert history.pseudo_labels is not None
    assert all(part in history.pseudo_labels.label_model for part in ("GPRGNN(", "alpha=0.1", "dropout=0.8"))
    assert history.config.weight_decay == PRESETS["sturdy"].config.weight_decay != TrainConfig().weight_decay
    options["self_training"] = False
    assert ep.train(build(), split, epsilon=0.1, **options).threat == Threat(default.attack, 0.1, default.local)
    assert ep.train(build(), split, **AGAINST, **options).threat == Threat(ATTACK, 0.1, 0.5)
    assert ep.train(build(), split, **AGAINST, **options).pseudo_labels is None
    threat = ep.train(build(), split, count="half_degree", **options).threat
    assert threat == Threat(default.attack, default.epsilon, default.local, "half_degree")


def test_label_models_of_preset_use_dtype_of_model(split: Split) -> None:
    views = {name: getattr(split, name) for name in ("train", "val", "test")}
    double = {name: replace(view, data=view.data.clone()) for name, view in views.items()}
    for view in double.values():
        view.data.x = view.data.x.double()
    history = ep.train(
        build().double(),
        replace(split, **double),
        label_models=1,
        **{**SHORT, "preset": "sturdy", "min_epochs": 0, "max_epochs": 1},
    )
    assert history.pseudo_labels is not None
    assert history.pseudo_labels.confidence.dtype == torch.float64


def test_custom_preset(split: Split) -> None:
    threat = Threat(ATTACK, 0.1, 0.5, "half_degree")
    preset = Preset("custom", TrainConfig(max_epochs=4, warmup_epochs=0), threat, self_training=True)
    history = ep.train(build("GCN"), split, preset=preset, patience=3, progress=False)
    assert history.config == TrainConfig(max_epochs=4, warmup_epochs=0, patience=3)
    assert history.threat == threat
    assert history.pseudo_labels is not None
    assert history.pseudo_labels.label_model.startswith("GCN(")
    with pytest.raises(TypeError, match="expected threat as a Threat, an attack with its budgets, got LRBCD"):
        Preset("custom", TrainConfig(), ATTACK)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected config as a TrainConfig, got 'paper'"):
        Preset("custom", "paper")  # type: ignore[arg-type]


# Errors.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.1}, "expected an attack to train against with epsilon=0.1"),
        ({"local": 0.5}, "expected an attack to train against"),
        ({"attack": ATTACK}, "expected epsilon, the budget of LRBCD"),
        ({"attack": ATTACK, "epsilon": -0.1}, "expected epsilon to be a finite number >= 0"),
        ({"attack": ATTACK, "epsilon": float("nan")}, "expected epsilon to be a finite number >= 0"),
        ({"attack": ATTACK, "epsilon": True}, "expected epsilon to be a finite number >= 0, got True"),
        ({"attack": ATTACK, "epsilon": 0.1, "local": -1.0}, "expected local as a finite number >= 0"),
        ({"attack": ATTACK, "epsilon": 0.1, "local": True}, "expected local as a finite number >= 0"),
        ({"attack": ATTACK, "epsilon": 0.1, "local": torch.ones(3)}, "a fraction of each node's degree, got tensor"),
        ({"count": "incident"}, "expected an attack to train against with count='incident'"),
        ({"attack": ATTACK, "epsilon": 0.1, "count": "odd"}, "unknown count 'odd'"),
        ({"warm_start": True}, "expected warm_start only with PGD, PRBCD or LRBCD, got None"),
        ({"warm_start": True, "attack": ep.attacks.DICE(), "epsilon": 0.1}, "expected warm_start only with"),
        ({"averaging": 1.0}, "expected 0 <= averaging < 1"),
        ({"warm_start": 1}, "expected warm_start to be True or False"),
        ({"separate_warmup": 1}, "expected separate_warmup to be True or False"),
        ({"min_epochs": 3000}, "expected min_epochs < max_epochs"),
        ({"label_models": 0}, "expected label_models to be an integer >= 1"),
        ({"seed": 1 << 40}, "expected seed to be an integer from 0 to 4294967295, got 1099511627776"),
        ({"attack": replace(ATTACK, block_size=2), "epsilon": 0.5}, "expected block_size >= twice the budget"),
    ],
)
@pytest.mark.parametrize("self_training", [False, True])
def test_invalid_settings_raise_before_training(
    options: dict[str, Any], message: str, self_training: bool, split: Split
) -> None:
    model = untrainable()(21, 2, hidden_channels=8)
    with pytest.raises(ValueError, match=message):
        ep.train(model, split, progress=False, self_training=self_training, **options)


def test_model_without_edge_gradients_raises_before_label_models_are_trained(split: Split) -> None:
    with pytest.raises(NoEdgeGradientError, match="GraphSAGE has no edge gradients"):
        ep.train(
            GraphSAGE(21, 8, 2, 2, aggr="median"), split, self_training=untrainable("GCN")(21, 2), **AGAINST, **SHORT
        )


def test_invalid_attack_and_self_training_types_raise(split: Split) -> None:
    with pytest.raises(TypeError, match=r"expected an attack of edgeproof\.attacks to train with, got 'LRBCD'"):
        ep.train(build(), split, attack="LRBCD", epsilon=0.1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected self_training to be True, False, a model or PseudoLabels"):
        ep.train(build(), split, self_training="yes")  # type: ignore[arg-type]


def test_nan_loss_restores_best_state(split: Split) -> None:
    model = counting(nan_from=6)(21, 2, hidden_channels=8)
    with pytest.raises(
        FloatingPointError, match=r"no longer finite in epoch 4 \(train_loss nan.*parameters of its best epoch, \d"
    ):
        ep.train(model, split, **AGAINST, **SHORT)
    assert bool(ep.models.predict(model, split.val.data).isfinite().all())
    assert not model.training


@pytest.mark.parametrize(
    ("largest", "advice"), [(700, "block_size=500 would fit"), (1, "use an attack on blocks of pairs")]
)
def test_out_of_memory_error_names_largest_block_size_that_fits(largest: int, advice: str, split: Split) -> None:
    class Limited(LRBCD):
        def run(self, *arguments: Any, **options: Any) -> Tensor:
            if self.block_size > largest:
                raise torch.OutOfMemoryError("out of memory")
            return super().run(*arguments, **options)

    attack = Limited(steps=3, block_size=2_000, samples=2)
    with pytest.raises(torch.OutOfMemoryError, match=advice) as caught:
        ep.train(build(), split, **{**AGAINST, "attack": attack}, **SHORT)
    # The traceback of the failed attempt, which holds its memory, is released before smaller blocks are tried.
    assert caught.value.__context__ is None


def test_adversary_uses_current_parameters(split: Split) -> None:
    """Values cached between epochs are refreshed when the parameters change."""
    model = build().eval()
    nodes, labels = split.train.nodes, split.train.data.y[split.train.nodes]
    trace = AttackTrace(torch.device("cpu"))
    adversary = Adversary(Threat(ATTACK, 0.3, 0.5), model, split.train.data, nodes, labels, seed=3)
    adversary.find(0, 1.0, trace)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    fresh = Adversary(Threat(ATTACK, 0.3, 0.5), model, split.train.data, nodes, labels, seed=3)
    assert torch.equal(adversary.find(1, 1.0, trace), fresh.find(1, 1.0, trace))
    assert not torch.equal(adversary.find(1, 1.0, trace), adversary.find(2, 1.0, trace))


def test_separate_warmup_equals_two_runs(split: Split) -> None:
    """A short clean run on labelled nodes, then one without warm-up from the same parameters."""
    options: dict[str, Any] = {"max_epochs": 6, "patience": 6, "lr": 0.2, "progress": False}
    model, reference = build(), build()
    labels = ep.training.pseudo_labels(build(), split, **SHORT)
    history = ep.train(
        model,
        split,
        separate_warmup=True,
        warmup_epochs=9,
        self_training=labels,
        label_weight_decay=0.1,
        **AGAINST,
        **options,
    )
    warmup = {"loss": "cross_entropy", "weight_decay": 0.1, "warmup_epochs": 0, "max_epochs": 9, "patience": 9}
    first = ep.train(reference, split, **{**options, **warmup})
    # The best epoch is not the last one before the first increase of the loss.
    assert any(epoch.val_loss > previous.val_loss for previous, epoch in pairwise(first.epochs[: first.best_epoch + 1]))
    second = ep.train(
        reference, split, warmup_epochs=0, self_training=labels, label_weight_decay=0.1, **AGAINST, **options
    )
    assert same_state(model, reference)
    assert history.epochs == second.epochs
    assert history.config.separate_warmup
    assert history.config.warmup_epochs == 9


def test_seconds_include_warmup_and_exclude_label_models(split: Split) -> None:
    class SlowWarmup(ep.models.GPRGNN):
        """GPRGNN whose first two training steps take long."""

        steps = 0

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
            if self.training and self.steps < 2:
                self.steps += 1
                time.sleep(0.3)
            return super().forward(x, edge_index, edge_weight)

    labels = ep.training.pseudo_labels(build(), split, label_models=2, **SHORT)
    slow = replace(labels, histories=tuple(replace(history, seconds=50.0) for history in labels.histories))
    options = {**SHORT, "separate_warmup": True}
    history = ep.train(SlowWarmup(21, 2, hidden_channels=8), split, self_training=slow, **options)
    # The phases are those of the main run.
    assert 0.6 + sum(history.phases.values()) <= history.seconds < 50
    assert history.label_seconds == history.summary()["label_seconds"] == 100
    assert ep.train(build(), split, **SHORT).label_seconds == 0


# Resumed runs.


@pytest.mark.parametrize("epoch", [0, 1, 4])
def test_resumed_run_equals_uninterrupted_run(epoch: int, split: Split, tmp_path: Path) -> None:
    """The run uses every feature with state: pseudo-labels, warm-up, averaging and warm starts."""
    options: dict[str, Any] = {**AGAINST, **SHORT, "self_training": True, "warm_start": True, "averaging": 0.9}
    options["separate_warmup"] = epoch == 4
    path = tmp_path / "run.checkpoint"
    model, resumed = build(), build()
    expected = ep.train(model, split, **options)
    with pytest.raises(KeyboardInterrupt):
        ep.train(build(), split, checkpoint=path, checkpoint_every=1, observe=interrupt_at(epoch), **options)
    history = ep.train(resumed, split, checkpoint=path, checkpoint_every=1, **options)
    assert history == expected
    assert same_state(model, resumed)
    ep.training.remove_checkpoints(path)
    assert list(tmp_path.iterdir()) == []


def test_run_interrupted_in_label_model_resumes(split: Split, tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    # The second label model is interrupted after its second epoch.
    interrupted, whole, resumed = (counting(interrupt_at=step)(21, 2, hidden_channels=8) for step in (8, None, None))
    for model in (whole, resumed):
        model.load_state_dict(interrupted.state_dict())
    options: dict[str, Any] = {"self_training": True, "label_models": 2, **SHORT}
    expected = ep.train(whole, split, **options)
    with pytest.raises(KeyboardInterrupt):
        ep.train(interrupted, split, checkpoint=path, checkpoint_every=1, **options)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.checkpoint.labels0", "run.checkpoint.labels1"]
    history: History = ep.train(resumed, split, checkpoint=path, checkpoint_every=1, **options)
    assert history == expected
    assert same_state(whole, resumed)
    # Neither the first label model nor the first two epochs of the second are repeated.
    assert (whole.steps, resumed.steps) == (6 + 6 + 8, 4 + 8)  # type: ignore[attr-defined]


def test_checkpoint_of_another_threat_is_refused(split: Split, tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    ep.train(build(), split, checkpoint=path, **AGAINST, **SHORT)
    with pytest.raises(ValueError, match="belongs to another run, with threat"):
        ep.train(build(), split, checkpoint=path, **{**AGAINST, "epsilon": 0.2}, **SHORT)
    path.unlink()
    attacks = [ep.attacks.FixedFlips(flips=torch.tensor([[node], [node + 1]])) for node in (0, 5)]
    ep.train(build(), split, checkpoint=path, attack=attacks[0], epsilon=0.2, **SHORT)
    with pytest.raises(ValueError, match="belongs to another run, with threat"):
        ep.train(build(), split, checkpoint=path, attack=attacks[1], epsilon=0.2, **SHORT)


@pytest.mark.parametrize("validate_every", [1, 5])
def test_nan_parameters_restore_best_state(validate_every: int, split: Split) -> None:
    """The loss is finite and its gradient NaN; parameters are checked before the next attack."""

    class BrokenGradient(ep.models.GPRGNN):
        steps = 0

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
            logits = super().forward(x, edge_index, edge_weight)
            self.steps += self.training
            if self.training and self.steps == 6:
                logits.register_hook(lambda gradient: gradient * float("nan"))
            return logits

    model = BrokenGradient(21, 2, hidden_channels=8)
    with pytest.raises(FloatingPointError, match=r"no longer finite in epoch 3 \(parameters nan\).*of its best epoch"):
        ep.train(model, split, validate_every=validate_every, **AGAINST, **SHORT)
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())


def test_resumed_run_restores_initial_parameters_after_nan(split: Split, tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    models = [counting(nan_from=step)(21, 2, hidden_channels=8) for step in (None, 0)]
    models[1].load_state_dict(models[0].state_dict())
    untouched = {name: value.clone() for name, value in models[0].state_dict().items()}
    with pytest.raises(KeyboardInterrupt):
        ep.train(models[0], split, checkpoint=path, checkpoint_every=1, observe=interrupt_at(-1), **SHORT)
    with pytest.raises(FloatingPointError, match=r"epoch -1 .*the model has its initial parameters"):
        ep.train(models[1], split, checkpoint=path, checkpoint_every=1, **SHORT)
    assert all(torch.equal(value, untouched[name]) for name, value in models[1].state_dict().items())


def test_best_epoch_has_lowest_perturbed_validation_loss(split: Split) -> None:
    """The epoch with the lowest clean loss differs for at least one seed."""
    differ = False
    for seed in range(4):
        options: dict[str, Any] = {**SHORT, "max_epochs": 25, "patience": 25, "seed": seed}
        history = ep.train(build(seed=seed), split, **{**AGAINST, "epsilon": 0.5}, **options)
        main = [epoch for epoch in history.epochs if epoch.epoch >= 0]
        attacked = min(main, key=lambda epoch: epoch.val_loss)  # type: ignore[arg-type, return-value]
        clean = min(main, key=lambda epoch: epoch.clean_val_loss)  # type: ignore[arg-type, return-value]
        assert history.best_epoch == attacked.epoch
        differ |= clean.epoch != attacked.epoch
    assert differ


def test_clean_weight_changes_gradient_step(split: Split) -> None:
    """The first step of Adam is the sign of the gradient, here mostly that of the clean loss."""
    options: dict[str, Any] = {**SHORT, "warmup_epochs": 0, "max_epochs": 1, "patience": 1}

    def step(**settings: Any) -> Tensor:
        settings_of_model = {"hidden_channels": 8, "dropout": 0.0, "init": "random"}
        model = ep.models.build("GPRGNN", 21, 2, settings_of_model, seed=0)
        before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
        ep.train(model, split, weight_decay=0.0, **settings, **options)
        return (nn.utils.parameters_to_vector(model.parameters()).detach() - before).sign()

    strong: dict[str, Any] = {**AGAINST, "epsilon": 1.0}
    clean, attacked, mixed = step(), step(**strong), step(**strong, clean_weight=0.999)
    assert float((clean != attacked).double().mean()) > 0.05
    assert float((clean != mixed).double().mean()) < 0.01


def test_attack_is_checked_with_budget_of_target_nodes(split: Split) -> None:
    """The block is large enough for the budget of the labelled nodes and too small for that of all nodes."""
    train, val = split.train, split.val
    labelled, all_nodes, validation = (
        Budget.from_epsilon(view.data, nodes, 0.2, local=0.5).total
        for view, nodes in ((train, train.nodes), (train, torch.arange(train.data.num_nodes)), (val, val.nodes))
    )
    block_size = 2 * max(labelled, validation)
    assert block_size < 2 * all_nodes
    small: dict[str, Any] = {"attack": LRBCD(steps=2, block_size=block_size, samples=2), "epsilon": 0.2, "local": 0.5}
    options = {**SHORT, "separate_warmup": True, "max_epochs": 2}
    assert len(ep.train(build(), split, **small, **options).epochs) == 2
    with pytest.raises(ValueError, match="expected block_size >= twice the budget"):
        ep.train(build(), split, self_training=True, **small, **options)


@pytest.mark.parametrize("name", ["clean_weight", "epsilon_warmup"])
def test_attack_settings_require_attack(name: str, split: Split) -> None:
    with pytest.raises(ValueError, match=f"expected {name} only with an attack"):
        ep.train(build(), split, **{name: 0.5 if name == "clean_weight" else 3}, **SHORT)


def test_invalid_checkpoint_every_frozen_model_and_epochs_raise(split: Split) -> None:
    with pytest.raises(ValueError, match=r"expected checkpoint_every to be an integer >= 1, got 2\.5"):
        ep.train(build(), split, checkpoint="x", checkpoint_every=2.5, **SHORT)  # type: ignore[arg-type]
    frozen = build().requires_grad_(False)
    with pytest.raises(ValueError, match="a GPRGNN in which all are frozen"):
        ep.train(frozen, split, **SHORT)
    with pytest.raises(ValueError, match=r"min_epochs < max_epochs.* those of preset 'sturdy'"):
        ep.train(build(), split, preset="sturdy", max_epochs=20)
