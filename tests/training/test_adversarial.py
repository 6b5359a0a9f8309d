"""Adversarial training: what is attacked, with which budget, against which model, and what is recorded of it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn.models import GCN as PyGGCN
from torch_geometric.nn.models import GraphSAGE

import edgeproof as ep
from edgeproof.attacks import LRBCD, Attack
from edgeproof.attacks.base import AttackTrace, Target
from edgeproof.budget import Budget
from edgeproof.evaluation import clean_accuracy
from edgeproof.splits import Split
from edgeproof.training import History, Threat, TrainConfig, loop
from edgeproof.training.adversarial import Adversary
from edgeproof.training.config import TrainSettings
from edgeproof.training.presets import PRESETS, Preset, configure

ATTACK = LRBCD(steps=3, block_size=2_000, samples=2)
AGAINST: dict[str, Any] = {"attack": ATTACK, "epsilon": 0.1, "local": 0.5}
SHORT: dict[str, Any] = {
    "warmup_epochs": 2,
    "separate_warmup": False,
    "max_epochs": 6,
    "patience": 6,
    "progress": False,
}


def build(name: str = "GPRGNN", seed: int = 0) -> nn.Module:
    return ep.models.build(name, 21, 2, {"hidden_channels": 8}, seed=seed)


def same_state(one: nn.Module, two: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))


@dataclass(frozen=True, kw_only=True)
class Noting(Attack):
    """Notes down what it is asked, and removes the first edges that fit."""

    asked: list[tuple[Target, Budget, dict[str, Tensor]]]

    def num_steps(self, budget: Budget) -> int:
        return 0

    def run(self, target: Target, budget: Budget, *, generator: torch.Generator, trace: object) -> Tensor:
        state = {name: value.clone() for name, value in target.model.state_dict().items()}
        self.asked.append((target, budget, state))
        row, col = target.data.edge_index
        edges: Tensor = target.data.edge_index[:, row < col]
        return edges[:, ep.attacks.discretize(torch.linspace(1, 0.5, edges.size(1)), edges, budget)]


@pytest.mark.parametrize("self_training", [False, True])
def test_both_graphs_are_attacked_in_every_epoch_of_the_main_loop(self_training: bool, split: Split) -> None:
    attack = Noting(asked=[])
    model = build()
    ep.train(model, split, attack=attack, epsilon=0.2, local=0.5, self_training=self_training, **SHORT)
    # Nothing in two epochs of warm-up; then training graph and validation graph in turn.
    assert len(attack.asked) == 12
    nodes = torch.arange(split.train.data.num_nodes) if self_training else split.train.nodes
    for (on_train, train_budget, _), (on_val, val_budget, _) in zip(attack.asked[::2], attack.asked[1::2], strict=True):
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
        known = attack.asked[0][0].labels[split.train.nodes]
        assert torch.equal(known, split.train.data.y[split.train.nodes])
    # The model that is attacked is the one at hand: before the step on the training graph, after it on the validation graph.
    before, after, later = (state for _, _, state in attack.asked[:3])
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert all(torch.equal(after[name], later[name]) for name in after)


def test_the_step_is_made_on_the_attacked_graph(split: Split) -> None:
    """With the same flips made by hand, clean training takes the same first step."""
    row, col = split.train.data.edge_index
    budget = Budget.from_epsilon(split.train.data, split.train.nodes, 0.2)
    flips = split.train.data.edge_index[:, row < col][:, : budget.total]
    flipped = replace(split, train=replace(split.train, data=ep.graph.flip_pairs(split.train.data, flips)))
    one, two = build(), build()
    options = {**SHORT, "warmup_epochs": 0, "max_epochs": 1}
    history = ep.train(one, split, attack=Noting(asked=[]), epsilon=0.2, **options)
    expected = ep.train(two, flipped, **options)
    assert history.best.train_loss == pytest.approx(expected.best.train_loss, abs=1e-6)
    for mine, other in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.allclose(mine, other, atol=1e-5)


def test_an_epoch_records_attacked_and_clean_figures_and_the_coefficients(split: Split) -> None:
    model = build()
    history = ep.train(model, split, **AGAINST, **SHORT)
    warm, first, *_, last = (*history.epochs[1:],)
    assert warm.epoch == -1
    # Without flips the two differ by rounding only: the order of additions.
    assert warm.val_loss == pytest.approx(warm.clean_val_loss)
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
    plain = ep.train(build("GCN"), split, **SHORT)
    assert plain.best.gamma is None
    assert plain.best.clean_val_loss is None
    assert "attack" not in plain.summary()


def test_without_a_budget_it_is_clean_training(split: Split) -> None:
    one, two = build(), build()
    attacked = ep.train(one, split, attack=ATTACK, epsilon=0.0, **SHORT)
    clean = ep.train(two, split, **SHORT)
    assert same_state(one, two)
    assert [record.val_loss for record in attacked.epochs] == [record.val_loss for record in clean.epochs]


@pytest.mark.parametrize("name", ep.models.available())
def test_every_model_can_be_trained_against_an_attack(name: str, split: Split) -> None:
    model = build(name)
    history = ep.train(model, split, self_training=True, **AGAINST, **SHORT)
    assert len(history.epochs) == 8
    assert not model.training
    assert history.pseudo_labels is not None


@pytest.mark.parametrize("name", ep.attacks.available())
def test_every_attack_can_be_trained_against(name: str, split: Split) -> None:
    attack = ep.attacks.build(name).for_training()
    settings = {key: value for key, value in {"steps": 2, "block_size": 2_000}.items() if hasattr(attack, key)}
    history = ep.train(build("GCN"), split, attack=replace(attack, **settings), epsilon=0.05, local=0.5, **SHORT)
    assert history.threat is not None
    assert history.best.clean_val_accuracy is not None


def test_a_users_own_pyg_model_can_be_trained_against_an_attack(split: Split) -> None:
    torch.manual_seed(0)
    model = PyGGCN(21, 8, 2, 2)
    history = ep.train(model, split, self_training=True, **AGAINST, **{**SHORT, "max_epochs": 20})
    assert clean_accuracy(model, split.test.data, split.test.nodes) > 0.8
    assert history.best.val_accuracy is not None


def test_it_makes_a_model_sturdier() -> None:
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


def test_a_users_own_model_takes_its_step_on_the_attacked_graph(split: Split) -> None:
    row, col = split.train.data.edge_index
    budget = Budget.from_epsilon(split.train.data, split.train.nodes, 0.2)
    flips = split.train.data.edge_index[:, row < col][:, : budget.total]
    flipped = replace(split, train=replace(split.train, data=ep.graph.flip_pairs(split.train.data, flips)))
    options = {**SHORT, "warmup_epochs": 0, "max_epochs": 1}
    models = []
    for parts, threat in ((split, {"attack": Noting(asked=[]), "epsilon": 0.2}), (flipped, {}), (split, {})):
        torch.manual_seed(0)
        models.append(PyGGCN(21, 8, 2, 2))
        ep.train(models[-1], parts, **threat, **options)  # type: ignore[arg-type]
    attacked, by_hand, clean = ([parameter.detach() for parameter in model.parameters()] for model in models)
    assert all(torch.allclose(one, two, atol=1e-6) for one, two in zip(attacked, by_hand, strict=True))
    assert not all(torch.allclose(one, two, atol=1e-6) for one, two in zip(attacked, clean, strict=True))


def test_attacks_have_random_choices_of_their_own(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    """On each graph, in each epoch, and in each run."""
    seeds: list[int] = []
    find = Attack.find

    def noting(self: Attack, *arguments: Any, generator: torch.Generator, **options: Any) -> Tensor:
        seeds.append(generator.initial_seed())
        return find(self, *arguments, generator=generator, **options)

    monkeypatch.setattr(Attack, "find", noting)
    for seed in (0, 1):
        ep.train(build(), split, seed=seed, **AGAINST, **SHORT)
    assert len(seeds) == len(set(seeds)) == 2 * 2 * 8


@pytest.mark.parametrize("setting", ["inductive", "transductive"])
def test_no_attack_sees_labels_that_training_does_not_know(setting: str, sbm: ep.graph.Data) -> None:
    """DICE looks at labels of all nodes."""
    split = getattr(ep.splits, setting)(sbm, seed=0)
    hidden = torch.ones(sbm.num_nodes, dtype=torch.bool)
    hidden[split.train.ids[split.train.nodes]] = False
    hidden[split.val.ids[split.val.nodes]] = False
    other = sbm.clone()
    other.y = torch.where(hidden, 1 - sbm.y, sbm.y)
    moved = replace(
        split,
        **{
            name: replace(view, data=ep.graph.Data(x=view.data.x, edge_index=view.data.edge_index, y=other.y[view.ids]))
            for name, view in (("train", split.train), ("val", split.val), ("test", split.test))
        },
    )
    histories = [ep.train(build(), parts, attack=ep.attacks.DICE(), epsilon=0.2, **SHORT) for parts in (split, moved)]
    assert histories[0].epochs == histories[1].epochs


# Settings.


def test_the_budget_can_rise_slowly(split: Split) -> None:
    attack = Noting(asked=[])
    ep.train(build(), split, attack=attack, epsilon=0.4, epsilon_warmup=3, **SHORT)
    whole = Budget.from_epsilon(split.train.data, split.train.nodes, 0.4).total
    totals = [budget.total for _, budget, _ in attack.asked[::2]]
    assert totals == [round(whole / 4), round(whole / 2), round(whole * 3 / 4), whole, whole, whole]
    # Epochs are compared by what the whole budget does.
    on_val = Budget.from_epsilon(split.val.data, split.val.nodes, 0.4).total
    assert {budget.total for _, budget, _ in attack.asked[1::2]} == {on_val}


def test_validation_may_be_rarer_but_not_of_the_last_epoch(split: Split) -> None:
    attack = Noting(asked=[])
    history = ep.train(build(), split, attack=attack, epsilon=0.2, validate_every=3, **SHORT)
    assert len(attack.asked) == 6 + 3
    validated = [record.epoch for record in history.epochs if record.val_loss is not None and record.epoch >= 0]
    assert validated == [0, 3, 5]
    late = ep.train(build(), split, attack=attack, epsilon=0.2, validate_every=5, min_epochs=4, **SHORT)
    assert late.best_epoch == 5


def test_part_of_the_loss_may_be_that_of_the_clean_graph(split: Split) -> None:
    """The first step's loss without dropout: a mean of the attacked and the clean one."""
    losses_of = []
    options = {**SHORT, "warmup_epochs": 0, "max_epochs": 1}
    for share, epsilon in ((0.0, 0.4), (0.0, 0.0), (0.25, 0.4)):
        model = ep.models.build("GPRGNN", 21, 2, {"hidden_channels": 8, "dropout": 0.0}, seed=0)
        history = ep.train(model, split, attack=Noting(asked=[]), epsilon=epsilon, clean_share=share, **options)
        losses_of.append(history.best.train_loss)
    attacked, clean, both = losses_of
    assert attacked != pytest.approx(clean)
    assert both == pytest.approx(0.75 * attacked + 0.25 * clean)


def test_clean_figures_are_those_of_the_clean_graph(split: Split) -> None:
    model = build()
    history = ep.train(model, split, attack=Noting(asked=[]), epsilon=0.4, **SHORT)
    for view, name in ((split.train, "clean_train"), (split.val, "clean_val")):
        logits, labels = ep.models.predict(model, view.data)[view.nodes], view.data.y[view.nodes]
        loss = float(ep.losses.tanh_margin(logits, labels))
        assert getattr(history.best, f"{name}_loss") == pytest.approx(loss, abs=1e-6)
        assert getattr(history.best, f"{name}_accuracy") == pytest.approx(float(ep.losses.accuracy(logits, labels)))


def test_a_warm_start_begins_at_the_last_flips(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[Tensor | None] = []
    found: list[Tensor] = []
    run = LRBCD.run

    def noting(self: LRBCD, target: Target, budget: Budget, **options: Any) -> Tensor:
        result = run(self, target, budget, **options)
        if target.data.edge_index is split.train.data.edge_index:
            starts.append(options.get("start"))
            found.append(result)
        return result

    monkeypatch.setattr(LRBCD, "run", noting)
    ep.train(build(), split, warm_start=True, attack=replace(ATTACK, steps=1), epsilon=0.3, local=0.5, **SHORT)
    assert starts[0] is None or not starts[0].numel()
    for start, before in zip(starts[1:], found, strict=False):
        assert start is not None
        assert torch.equal(start, ep.propagation.pairs.Pairs.of(before, split.train.data.num_nodes).both)
    assert any(flips.numel() for flips in found)


def test_a_warm_start_keeps_flips_that_still_pay(sbm: ep.graph.Data) -> None:
    """Begun at the best flips of a long attack, a short one ends no worse than begun at nothing."""
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


def test_the_averaged_model_is_judged_and_kept(split: Split) -> None:
    model = build()
    states: list[dict[str, Tensor]] = []
    record = loop._record

    def noting(epoch: int, measured: dict[str, Tensor], judged: nn.Module) -> ep.training.Epoch:
        states.append({name: value.clone() for name, value in model.state_dict().items()})
        return record(epoch, measured, judged)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_record", noting)
        history = ep.train(model, split, averaging=0.5, min_epochs=5, **AGAINST, **SHORT)
    assert history.best_epoch == 5
    expected = states[0]
    for state in states[1:]:
        expected = {name: (value + state[name]) / 2 for name, value in expected.items()}
    for name, value in model.state_dict().items():
        assert torch.allclose(value, expected[name], atol=1e-6), name


def test_the_first_epochs_may_not_count(split: Split) -> None:
    history = ep.train(build(), split, min_epochs=30, max_epochs=100, patience=5, progress=False)
    assert history.best_epoch >= 30
    assert history.epochs[-1].epoch == history.best_epoch + 5


def test_presets_and_settings() -> None:
    assert configure("paper", {}).config == TrainConfig()
    assert configure(TrainConfig(lr=1.0), {"patience": 3}).config == TrainConfig(lr=1.0, patience=3)
    assert set(TrainSettings.__annotations__) == set(TrainConfig.__dataclass_fields__)
    with pytest.raises(ValueError, match="unknown preset 'papr': did you mean 'paper'"):
        configure("papr", {})
    with pytest.raises(ValueError, match="unknown setting 'patiense': did you mean 'patience'"):
        configure("paper", {"patiense": 3})  # type: ignore[typeddict-unknown-key]


def test_a_preset_may_have_an_attack_of_its_own(split: Split) -> None:
    usual = PRESETS["sturdy"].threat
    assert usual is not None
    history = ep.train(build(), split, preset="sturdy", label_models=1, min_epochs=0, **{**SHORT, "max_epochs": 1})
    assert history.threat == usual
    assert history.pseudo_labels is not None
    assert all(part in history.pseudo_labels.labeller for part in ("GPRGNN(", "alpha=0.1", "dropout=0.8"))
    assert history.config.weight_decay == PRESETS["sturdy"].config.weight_decay != TrainConfig().weight_decay
    options = {"preset": "sturdy", "self_training": False, "min_epochs": 0, **SHORT, "max_epochs": 1}
    assert ep.train(build(), split, epsilon=0.1, **options).threat == Threat(usual.attack, 0.1, usual.local)
    assert ep.train(build(), split, **AGAINST, **options).threat == Threat(ATTACK, 0.1, 0.5)
    assert ep.train(build(), split, **AGAINST, **options).pseudo_labels is None
    threat = ep.train(build(), split, count="half_degree", **options).threat
    assert threat == Threat(usual.attack, usual.epsilon, usual.local, "half_degree")


def test_label_models_of_a_preset_are_of_the_models_precision(split: Split) -> None:
    views = {name: getattr(split, name) for name in ("train", "val", "test")}
    double = {name: replace(view, data=view.data.clone()) for name, view in views.items()}
    for view in double.values():
        view.data.x = view.data.x.double()
    history = ep.train(
        build().double(),
        replace(split, **double),
        preset="sturdy",
        label_models=1,
        min_epochs=0,
        **{**SHORT, "max_epochs": 1},
    )
    assert history.pseudo_labels is not None
    assert history.pseudo_labels.confidence.dtype == torch.float64


def test_a_preset_of_ones_own(split: Split) -> None:
    threat = Threat(ATTACK, 0.1, 0.5, "half_degree")
    mine = Preset("mine", TrainConfig(max_epochs=4, warmup_epochs=0), threat, self_training=True)
    history = ep.train(build("GCN"), split, preset=mine, patience=3, progress=False)
    assert history.config == TrainConfig(max_epochs=4, warmup_epochs=0, patience=3)
    assert history.threat == threat
    assert history.pseudo_labels is not None
    assert history.pseudo_labels.labeller.startswith("GCN(")
    with pytest.raises(TypeError, match="expected threat as a Threat, an attack with its budgets, got LRBCD"):
        Preset("mine", TrainConfig(), ATTACK)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected config as a TrainConfig, got 'paper'"):
        Preset("mine", "paper")  # type: ignore[arg-type]


# Mistakes and faults.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.1}, "expected an attack to train against beside epsilon=0.1"),
        ({"local": 0.5}, "expected an attack to train against"),
        ({"attack": ATTACK}, "expected epsilon, the budget of LRBCD"),
        ({"attack": ATTACK, "epsilon": -0.1}, "expected epsilon to be a finite number >= 0"),
        ({"attack": ATTACK, "epsilon": float("nan")}, "expected epsilon to be a finite number >= 0"),
        ({"attack": ATTACK, "epsilon": True}, "expected epsilon to be a finite number >= 0, got True"),
        ({"attack": ATTACK, "epsilon": 0.1, "local": -1.0}, "expected local as a finite number >= 0"),
        ({"attack": ATTACK, "epsilon": 0.1, "local": True}, "expected local as a finite number >= 0"),
        ({"attack": ATTACK, "epsilon": 0.1, "local": torch.ones(3)}, "a share of each node's degree, got tensor"),
        ({"count": "incident"}, "expected an attack to train against beside count='incident'"),
        ({"attack": ATTACK, "epsilon": 0.1, "count": "odd"}, "unknown count 'odd'"),
        ({"warm_start": True}, "expected warm_start only with PGD, PRBCD or LRBCD, got None"),
        ({"warm_start": True, "attack": ep.attacks.DICE(), "epsilon": 0.1}, "expected warm_start only with"),
        ({"averaging": 1.0}, "expected 0 <= averaging < 1"),
        ({"warm_start": 1}, "expected warm_start to be True or False"),
        ({"separate_warmup": 1}, "expected separate_warmup to be True or False"),
        ({"min_epochs": 3000}, "expected min_epochs < max_epochs"),
        ({"label_models": 0}, "expected label_models to be a whole number >= 1"),
        ({"seed": 1 << 40}, "expected seed < 4294967296"),
        ({"attack": replace(ATTACK, block_size=2), "epsilon": 0.5}, "expected block_size >= twice the budget"),
    ],
)
@pytest.mark.parametrize("self_training", [False, True])
def test_bad_settings_are_refused_before_anything_is_done(
    options: dict[str, Any], message: str, self_training: bool, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_training(*_: object, **__: object) -> None:
        raise AssertionError("trained")

    monkeypatch.setattr("edgeproof.training.self_training.run_epochs", no_training)
    monkeypatch.setattr(loop, "_loop", no_training)
    with pytest.raises(ValueError, match=message):
        ep.train(build(), split, progress=False, self_training=self_training, **options)


def test_a_model_that_ignores_edge_weights_is_refused_before_labelling(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeproof.training.self_training.run_epochs", lambda *_, **__: pytest.fail("trained"))
    with pytest.raises(ValueError, match="does not take an edge of weight 0 for no edge"):
        ep.train(GraphSAGE(21, 8, 2, 2), split, self_training=True, **AGAINST, **SHORT)


def test_what_is_no_attack_is_refused(split: Split) -> None:
    with pytest.raises(TypeError, match=r"expected an attack of edgeproof\.attacks to train with, got 'LRBCD'"):
        ep.train(build(), split, attack="LRBCD", epsilon=0.1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected self_training to be True, False, a model or PseudoLabels"):
        ep.train(build(), split, self_training="yes")  # type: ignore[arg-type]


def test_a_loss_that_is_no_number_ends_the_run_with_the_last_good_state(split: Split) -> None:
    class Breaking(PyGGCN):  # type: ignore[misc]
        calls = 0

        def forward(self, *arguments: Any, **options: Any) -> Tensor:
            self.calls += self.training
            logits: Tensor = super().forward(*arguments, **options)
            return logits * float("nan") if self.calls > 6 and self.training else logits

    torch.manual_seed(0)
    model = Breaking(21, 8, 2, 2)
    with pytest.raises(
        FloatingPointError, match=r"no longer finite in epoch 4 \(train_loss nan.*of its best epoch, \d"
    ):
        ep.train(model, split, **AGAINST, **SHORT)
    assert bool(ep.models.predict(model, split.val.data).isfinite().all())
    assert not model.training


@pytest.mark.parametrize(
    ("most", "advice"), [(700, "block_size=500 would fit"), (1, "use an attack that looks at blocks")]
)
def test_too_little_memory_comes_with_advice(
    most: int, advice: str, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the block sizes tried, the largest that runs is named."""
    run = LRBCD.run

    def limited(self: LRBCD, *arguments: Any, **options: Any) -> Tensor:
        if self.block_size > most:
            raise torch.OutOfMemoryError("out of memory")
        return run(self, *arguments, **options)

    monkeypatch.setattr(LRBCD, "run", limited)
    with pytest.raises(torch.OutOfMemoryError, match=advice) as caught:
        ep.train(build(), split, **AGAINST, **SHORT)
    # What the failed try had allocated is not held while smaller blocks are tried.
    assert caught.value.__context__ is None


def test_an_adversary_sees_the_model_as_it_is(split: Split) -> None:
    """What is remembered between epochs does not outlive a change of the parameters."""
    model = build().eval()
    nodes, labels = split.train.nodes, split.train.data.y[split.train.nodes]
    trace = AttackTrace(torch.device("cpu"))
    lasting = Adversary(Threat(ATTACK, 0.3, 0.5), model, split.train.data, nodes, labels, seed=3)
    lasting.find(0, 1.0, trace)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    fresh = Adversary(Threat(ATTACK, 0.3, 0.5), model, split.train.data, nodes, labels, seed=3)
    assert torch.equal(lasting.find(1, 1.0, trace), fresh.find(1, 1.0, trace))
    assert not torch.equal(lasting.find(1, 1.0, trace), lasting.find(2, 1.0, trace))


def test_a_warm_up_apart_is_two_runs(split: Split) -> None:
    """By hand: a short clean run on labelled nodes, and one without warm-up from where it ended."""
    options: dict[str, Any] = {"max_epochs": 6, "patience": 6, "lr": 0.2, "progress": False}
    whole, parts = build(), build()
    labels = ep.training.pseudo_labels(build(), split, **SHORT)
    history = ep.train(
        whole,
        split,
        separate_warmup=True,
        warmup_epochs=9,
        self_training=labels,
        label_weight_decay=0.1,
        **AGAINST,
        **options,
    )
    alone = {"loss": "cross_entropy", "weight_decay": 0.1, "warmup_epochs": 0, "max_epochs": 9, "patience": 9}
    first = ep.train(parts, split, **{**options, **alone})
    # It goes on where its loss has risen.
    assert any(one.val_loss > before.val_loss for before, one in pairwise(first.epochs[: first.best_epoch + 1]))
    second = ep.train(parts, split, warmup_epochs=0, self_training=labels, label_weight_decay=0.1, **AGAINST, **options)
    assert same_state(whole, parts)
    assert history.epochs == second.epochs
    assert history.config.separate_warmup
    assert history.config.warmup_epochs == 9


def test_seconds_are_those_of_all_parts(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    fit = importlib.import_module("edgeproof.training.train")
    warm_up = fit.warm_up
    monkeypatch.setattr(fit, "warm_up", lambda *_, **options: replace(warm_up(*_, **options), seconds=1000.0))
    labels = ep.training.pseudo_labels(build(), split, label_models=2, **SHORT)
    slow = replace(labels, histories=tuple(replace(one, seconds=50.0) for one in labels.histories))
    history = ep.train(build(), split, self_training=slow, **{**SHORT, "separate_warmup": True})
    assert 1000 < history.seconds < 1500
    assert history.label_seconds == history.summary()["label_seconds"] == 100
    assert ep.train(build(), split, **SHORT).label_seconds == 0


# Going on after an end.


@pytest.mark.parametrize("epoch", [-1, 0, 3])
def test_an_interrupted_run_goes_on_to_the_same_end(
    epoch: int, split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With everything that has a state of its own: pseudo-labels, a warm-up, averaging, a warm start."""
    options: dict[str, Any] = {**AGAINST, **SHORT, "self_training": True, "warm_start": True, "averaging": 0.9}
    options["separate_warmup"] = epoch == 3
    path = tmp_path / "run.checkpoint"
    whole, resumed = build(), build()
    expected = ep.train(whole, split, **options)
    describe = loop._describe
    phase = [0]

    def interrupted(record: ep.training.Epoch) -> str:
        phase[0] += record.clean_val_loss is not None
        if record.clean_val_loss is not None and record.epoch == epoch:
            raise KeyboardInterrupt
        return describe(record)

    monkeypatch.setattr(loop, "_describe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ep.train(build(), split, checkpoint=path, checkpoint_every=1, **options)
    monkeypatch.undo()
    history = ep.train(resumed, split, checkpoint=path, checkpoint_every=1, **options)
    assert history == expected
    assert same_state(whole, resumed)
    ep.training.remove_checkpoints(path)
    assert list(tmp_path.iterdir()) == []


def test_a_run_interrupted_while_labelling_goes_on(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.checkpoint"
    whole, resumed = build(), build()
    expected = ep.train(whole, split, self_training=True, label_models=2, **SHORT)
    seen: list[int] = []

    def interrupted(record: ep.training.Epoch) -> str:
        seen.append(record.epoch)
        if len(seen) == 8:
            raise KeyboardInterrupt
        return ""

    monkeypatch.setattr(loop, "_describe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ep.train(build(), split, self_training=True, label_models=2, checkpoint=path, checkpoint_every=1, **SHORT)
    monkeypatch.undo()
    # The first labelling model was done, the second had begun.
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.checkpoint.labels0", "run.checkpoint.labels1"]
    history: History = ep.train(
        resumed, split, self_training=True, label_models=2, checkpoint=path, checkpoint_every=1, **SHORT
    )
    assert history == expected
    assert same_state(whole, resumed)


def test_a_checkpoint_of_another_threat_is_refused(split: Split, tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    ep.train(build(), split, checkpoint=path, **AGAINST, **SHORT)
    with pytest.raises(ValueError, match="belongs to another run, with threat"):
        ep.train(build(), split, checkpoint=path, **{**AGAINST, "epsilon": 0.2}, **SHORT)
    path.unlink()
    given = [ep.attacks.FixedFlips(flips=torch.tensor([[node], [node + 1]])) for node in (0, 5)]
    ep.train(build(), split, checkpoint=path, attack=given[0], epsilon=0.2, **SHORT)
    with pytest.raises(ValueError, match="belongs to another run, with threat"):
        ep.train(build(), split, checkpoint=path, attack=given[1], epsilon=0.2, **SHORT)


@pytest.mark.parametrize("validate_every", [1, 5])
def test_parameters_that_are_no_numbers_end_the_run_with_the_last_good_state(
    validate_every: int, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss was finite, the step was not: no attack may stumble over it first."""
    step, steps = torch.optim.Adam.step, []

    def breaking(self: torch.optim.Adam, *arguments: Any) -> Any:
        steps.append(step(self, *arguments))
        if len(steps) == 6:
            with torch.no_grad():
                self.param_groups[0]["params"][0].fill_(float("nan"))
        return steps[-1]

    monkeypatch.setattr(torch.optim.Adam, "step", breaking)
    model = build()
    with pytest.raises(FloatingPointError, match=r"no longer finite in epoch 3 \(parameters nan\).*of its best epoch"):
        ep.train(model, split, validate_every=validate_every, **AGAINST, **SHORT)
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())


def test_a_resumed_run_still_knows_what_it_started_with(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, untouched = tmp_path / "run.checkpoint", build()

    def interrupted(record: ep.training.Epoch) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "_describe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ep.train(build(), split, checkpoint=path, checkpoint_every=1, **SHORT)
    monkeypatch.undo()

    def broken(logits: Tensor, labels: Tensor) -> Tensor:
        return logits.sum() * float("nan")

    monkeypatch.setitem(ep.losses._LOSSES, "cross_entropy", broken)
    model = build()
    with pytest.raises(FloatingPointError, match="the parameters it started with"):
        ep.train(model, split, checkpoint=path, checkpoint_every=1, **SHORT)
    assert same_state(model, untouched)


def test_the_best_epoch_is_the_best_under_attack(split: Split) -> None:
    """Not the one with the lowest clean loss, which is another one for some seed."""
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


def test_the_clean_part_of_the_loss_counts_in_a_step(split: Split) -> None:
    """The first step of Adam is a sign for each parameter, that of whichever part of the loss weighs more."""
    options: dict[str, Any] = {**SHORT, "warmup_epochs": 0, "max_epochs": 1, "patience": 1}

    def step(**settings: Any) -> Tensor:
        model = ep.models.build("GPRGNN", 21, 2, {"hidden_channels": 8, "dropout": 0.0}, seed=0)
        before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
        ep.train(model, split, weight_decay=0.0, **settings, **options)
        return (nn.utils.parameters_to_vector(model.parameters()).detach() - before).sign()

    strong: dict[str, Any] = {**AGAINST, "epsilon": 1.0}
    clean, attacked, mixed = step(), step(**strong), step(**strong, clean_share=0.999)
    assert float((clean != attacked).double().mean()) > 0.05
    assert float((clean != mixed).double().mean()) < 0.01


def test_an_attack_is_checked_against_the_nodes_that_count(split: Split) -> None:
    """Its block is large enough for the budget of the labelled nodes, and too small for that of all nodes."""
    train, val = split.train, split.val
    labelled, everyone, validated = (
        Budget.from_epsilon(view.data, nodes, 0.2, local=0.5).total
        for view, nodes in ((train, train.nodes), (train, torch.arange(train.data.num_nodes)), (val, val.nodes))
    )
    enough = 2 * max(labelled, validated)
    assert enough < 2 * everyone
    small: dict[str, Any] = {"attack": LRBCD(steps=2, block_size=enough, samples=2), "epsilon": 0.2, "local": 0.5}
    options = {**SHORT, "separate_warmup": True, "max_epochs": 2}
    assert len(ep.train(build(), split, **small, **options).epochs) == 2
    with pytest.raises(ValueError, match="expected block_size >= twice the budget"):
        ep.train(build(), split, self_training=True, **small, **options)


@pytest.mark.parametrize("name", ["clean_share", "epsilon_warmup"])
def test_settings_of_an_attack_need_one(name: str, split: Split) -> None:
    with pytest.raises(ValueError, match=f"expected {name} only beside an attack"):
        ep.train(build(), split, **{name: 0.5 if name == "clean_share" else 3}, **SHORT)


def test_small_faults_are_named(split: Split) -> None:
    with pytest.raises(ValueError, match=r"expected checkpoint_every to be a whole number >= 1, got 2\.5"):
        ep.train(build(), split, checkpoint="x", checkpoint_every=2.5, **SHORT)  # type: ignore[arg-type]
    frozen = build().requires_grad_(False)
    with pytest.raises(ValueError, match="a GPRGNN in which all are frozen"):
        ep.train(frozen, split, **SHORT)
    with pytest.raises(ValueError, match=r"min_epochs < max_epochs.* that of preset 'sturdy'"):
        ep.train(build(), split, preset="sturdy", max_epochs=20)
