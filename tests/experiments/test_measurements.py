"""Runs and measurements: settings take effect, and measured values are correct."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_experiments import small_run

import edgeproof as ep
from edgeproof.experiments import (
    AttackedDegrees,
    AttackSpec,
    CertifiedAccuracy,
    CleanAccuracy,
    DatasetSpec,
    Evaluated,
    LearnedFilter,
    ModelSpec,
    RobustAccuracy,
    SplitSpec,
    TrainingSpec,
    as_settings,
)
from edgeproof.experiments import graphs as graphs_module
from edgeproof.experiments.execute import make_split, model_from_bytes, model_to_bytes, train_run
from edgeproof.experiments.graphs import STAND_IN, graph_fingerprint, is_local, load_graph, with_fingerprint
from edgeproof.training import TrainConfig

SHORT = as_settings({"max_epochs": 3, "warmup_epochs": 1})


def test_run_is_trained_with_its_settings() -> None:
    training = TrainingSpec(
        config=SHORT,
        attack=AttackSpec.for_training("LRBCD", {"steps": 2, "block_size": 5_000}),
        epsilon=0.2,
        local=0.5,
    )
    run = replace(small_run(seed=3), training=training)
    _, history = train_run(run, make_split(run, load_graph(*run.graph)), "cpu")
    assert history.config == TrainConfig(max_epochs=3, warmup_epochs=1, seed=3)
    assert history.threat is not None
    assert history.threat.attack == replace(ep.attacks.LRBCD().for_training(), steps=2, block_size=5_000)
    assert (history.threat.epsilon, history.threat.local, history.threat.count) == (0.2, 0.5, "incident")
    assert history.pseudo_labels is None


def test_self_training_uses_the_settings_of_label_models() -> None:
    training = TrainingSpec(config=SHORT, self_training=True, label_config=as_settings({"max_epochs": 7}))
    run = replace(small_run(), split=SplitSpec(), training=training)
    _, history = train_run(run, make_split(run, load_graph(DatasetSpec("csbm"), False)), "cpu")
    assert history.threat is None
    assert history.config.max_epochs == 3
    assert history.pseudo_labels is not None
    assert [len(labels.epochs) for labels in history.pseudo_labels.histories] == [7]


def test_preset_sets_attack_and_label_models() -> None:
    training = TrainingSpec(preset="sturdy", config=as_settings({"max_epochs": 2, "min_epochs": 0, "label_models": 1}))
    identity = training.identity
    assert identity["attack"]["name"] == "GreedyRBCD"
    assert (identity["epsilon"], identity["local"]) == (1.5, 2.0)
    assert identity["label_model"]["name"] == "GPRGNN"
    assert identity["config"]["weight_decay"] == 5e-3
    assert training.label.startswith("GreedyRBCD 1.5")


@pytest.mark.parametrize("protocol", ["strict", "as_released"])
def test_protocol_determines_the_split_of_gprgnn(protocol: str) -> None:
    data = ep.datasets.load("csbm")
    run = replace(small_run("GPRGNN", seed=5), split=SplitSpec(protocol=protocol))
    split = make_split(run, data)
    expected = ep.splits.by_protocol(data, 5, model="GPRGNN", protocol=protocol)
    assert split.fingerprint == expected.fingerprint
    assert (split.num_seen > 0) == (protocol == "as_released")


def test_split_settings_are_used() -> None:
    data = ep.datasets.load("csbm")
    run = replace(small_run(), split=SplitSpec(train_per_class=7, val_per_class=9, test_fraction=0.3))
    split = make_split(run, data)
    assert (split.train.nodes.numel(), split.val.nodes.numel(), split.test.nodes.numel()) == (14, 18, 295)
    assert make_split(replace(run, split=SplitSpec("transductive")), data).setting == "transductive"
    provided = make_split(small_run(), data)
    assert provided.test.ids[provided.test.nodes].tolist() == data.val_mask.nonzero().squeeze(1).tolist()


def test_seed_selects_one_of_several_provided_splits() -> None:
    data = ep.datasets.csbm(num_nodes=50, p=0.2)
    masks = torch.stack([data.train_mask, ~data.train_mask], dim=1)
    data.train_mask, data.val_mask = masks, ~masks
    splits = [make_split(small_run(seed=seed), data).rule for seed in (0, 1, 2)]
    assert splits == [f"provided[{index}], tested on val" for index in (0, 1, 0)]


@pytest.fixture(scope="module")
def trained() -> tuple[ep.models.GraphModel, ep.splits.Split]:
    """A trained GPRGNN and its split."""
    config = as_settings({"max_epochs": 60, "warmup_epochs": 50})
    run = replace(small_run("GPRGNN"), training=TrainingSpec(config=config))
    split = make_split(run, load_graph(*run.graph))
    model, _ = train_run(run, split, "cpu")
    return model, split  # type: ignore[return-value]


def test_robust_accuracy_equals_accuracy_under_attack(trained: tuple[ep.models.GraphModel, ep.splits.Split]) -> None:
    model, split = trained
    settings = {"steps": 5, "block_size": 5_000}
    values = RobustAccuracy(AttackSpec("LRBCD", as_settings(settings)), (0.1, 0.25), 0.5).measure(model, split, 4)
    graph, nodes = split.test.data, split.test.nodes
    budgets = ep.Budget.from_epsilons(graph, nodes, [0.1, 0.25], local=0.5)
    results = ep.attacks.LRBCD(steps=5, block_size=5_000)(model, graph, nodes, budgets, seed=4)
    assert values == {"accuracy": [[0.1, results[0].accuracy], [0.25, results[1].accuracy]]}
    clean = CleanAccuracy().measure(model, split, 0)["accuracy"][0]
    assert clean == [0.0, results[0].clean_accuracy]


def test_evaluation_keeps_the_worst_and_every_attack(trained: tuple[ep.models.GraphModel, ep.splits.Split]) -> None:
    model, split = trained
    values = Evaluated((0.01, 0.02), attacks=("FGSM", "DICE")).measure(model, split, 0)
    Evaluated.check({"epsilons": [0.01, 0.02]}, values)
    assert {name for name, _, _ in values["attacks"]} == {"FGSM", "DICE"}
    worst = dict(values["accuracy"])
    assert worst[0.02] <= min(accuracy for _, epsilon, accuracy in values["attacks"] if epsilon == 0.02)


def test_certificate_in_parts_equals_undivided_certificate(
    trained: tuple[ep.models.GraphModel, ep.splits.Split],
) -> None:
    model, split = trained
    certificate = CertifiedAccuracy(samples=600, choosing_samples=50)
    assert (certificate.num_parts(1_000), certificate.num_parts(200), certificate.num_parts(1)) == (1, 3, 10)
    parts = [certificate.count_part(model, split, 2, part, 3) for part in range(3)]
    assert certificate.combine(parts, split) == certificate.measure(model, split, 2)


def test_filter_and_degrees_describe_the_model(trained: tuple[ep.models.GraphModel, ep.splits.Split]) -> None:
    model, split = trained
    learned = LearnedFilter().measure(model, split, 0)
    assert sum(map(abs, learned["gamma"])) == pytest.approx(1)
    assert sum(learned["density"]) == pytest.approx(1, abs=1e-4)
    attack = AttackSpec("PRBCD", as_settings({"steps": 8, "fine_tune_steps": 2, "block_size": 10_000}))
    nodes = AttackedDegrees(attack, (0.1, 0.25)).measure(model, split, 0)["nodes"]
    assert [epsilon for epsilon, _ in nodes] == [0.1, 0.25]
    with torch.no_grad():
        logits = model(split.test.data.x, split.test.data.edge_index)[split.test.nodes]
    correct = int((logits.argmax(1) == split.test.data.y[split.test.nodes]).sum())
    degree = split.test.data.edge_index[0].bincount(minlength=split.test.data.num_nodes)[split.test.nodes]
    for _, lines in nodes:
        # Nodes that were classified correctly are either misclassified now or robust.
        assert sum(misclassified + robust for _, _, misclassified, robust in lines) == correct
        assert {line[0] for line in lines} <= set(degree.tolist())
        assert max(line[1] for line in lines) < int(degree.max())


def test_user_models_round_trip_through_model_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ModelSpec("some_module:build", as_settings({"bias": False}))

    def factory(in_channels: int, out_channels: int, bias: bool) -> torch.nn.Module:
        return torch.nn.Linear(in_channels, out_channels, bias=bias)

    model = factory(3, 2, bias=False)
    content = model_to_bytes(model, spec, 3, 2)
    loaded = model_from_bytes(content, spec, factory)
    assert torch.equal(loaded.weight, model.weight)
    with pytest.raises(ValueError, match="do not fit the model of some_module:build"):
        model_from_bytes(
            content, spec, lambda in_channels, out_channels, bias: factory(in_channels, out_channels, True)
        )
    with pytest.raises(ValueError, match="expected parameters of some_module:other, got those of some_module:build"):
        model_from_bytes(content, replace(spec, name="some_module:other"), factory)
    with pytest.raises(ValueError, match="damaged"):
        model_from_bytes(content[:-10], spec, factory)


def test_another_graph_of_the_same_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = with_fingerprint(DatasetSpec("csbm"), masks=True)
    assert dataset.fingerprint is not None
    data = load_graph(dataset, True)
    for name, value in (("x", data.x + 0.1), ("y", 1 - data.y), ("val_mask", ~data.val_mask)):
        changed = data.clone()
        changed[name] = value
        monkeypatch.setattr(graphs_module.datasets, "load", lambda *_, found=changed, **__: found)
        with pytest.raises(ValueError, match="expected csbm to be the graph of the stored results"):
            load_graph(dataset, True)
    changed = data.clone()
    changed.edge_index = data.edge_index.flip(1)
    monkeypatch.setattr(graphs_module.datasets, "load", lambda *_, **__: changed)
    assert load_graph(dataset, True) is changed


def test_masks_affect_fingerprint_only_if_used() -> None:
    data = ep.datasets.load("csbm")
    changed = data.clone()
    changed.val_mask = ~data.val_mask
    assert graph_fingerprint(changed, masks=False) == graph_fingerprint(data, masks=False)
    assert graph_fingerprint(changed, masks=True) != graph_fingerprint(data, masks=True)
    assert is_local(DatasetSpec(STAND_IN))
    assert not is_local(DatasetSpec("wikics"))
