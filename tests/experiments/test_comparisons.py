"""Measurements for comparisons, measurements of validation nodes, and label models of another architecture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import edgeproof as ep
from edgeproof.experiments import (
    AttackSpec,
    ClassAccuracy,
    CleanAccuracy,
    DatasetSpec,
    Job,
    Measurement,
    MemorizingAccuracy,
    ModelSpec,
    PygRobustAccuracy,
    Record,
    RobustAccuracy,
    Run,
    SplitSpec,
    Store,
    Task,
    TrainingSpec,
    as_settings,
    read_sweep,
)
from edgeproof.experiments.estimate import Times
from edgeproof.experiments.execute import train_run
from edgeproof.experiments.identity import key_of
from edgeproof.experiments.schema import check_values
from edgeproof.splits import Split

GREEDY = AttackSpec("GreedyRBCD", as_settings({"steps": 3, "block_size": 5_000}))
RUN = Run(DatasetSpec("csbm"), SplitSpec(), ModelSpec("GCN"), TrainingSpec(config=as_settings({"max_epochs": 30})))


@pytest.fixture(scope="module")
def split() -> Split:
    return ep.splits.inductive(ep.datasets.load("csbm"), seed=0)


@pytest.fixture(scope="module")
def model(split: Split) -> nn.Module:
    return train_run(RUN, split, "cpu")[0]


def measure(measurement: Measurement, model: nn.Module, split: Split) -> dict[str, Any]:
    """Measure, and check the values as a store would."""
    values = measurement.measure(model, split, seed=0)
    check_values(Task(RUN, measurement).identity, values)
    return values


def test_measurements_of_validation_nodes(model: nn.Module, split: Split) -> None:
    view = split.val
    clean = measure(CleanAccuracy(nodes="val"), model, split)
    assert clean["accuracy"] == [[0.0, ep.evaluation.clean_accuracy(model, view.data, view.nodes)]]
    attacked = measure(RobustAccuracy(GREEDY, (0.1,), 0.5, nodes="val"), model, split)
    budget = ep.Budget.from_epsilon(view.data, view.nodes, 0.1, local=0.5)
    assert attacked["accuracy"] == [[0.1, GREEDY.build()(model, view.data, view.nodes, budget, seed=0).accuracy]]
    assert attacked != measure(RobustAccuracy(GREEDY, (0.1,), 0.5), model, split)


def test_test_nodes_are_the_default_of_identities() -> None:
    for on_test in (CleanAccuracy(), RobustAccuracy(GREEDY, (0.1,)), ClassAccuracy()):
        on_val = replace(on_test, nodes="val")
        assert "nodes" not in on_test.entries
        assert on_val.entries == {**on_test.entries, "nodes": "val"}
        assert on_val.label == f"{on_test.label}, validation nodes"
    with pytest.raises(ValueError, match="unknown nodes 'train'"):
        CleanAccuracy(nodes="train")


def test_memorizing_defence_keeps_its_clean_accuracy_in_the_transductive_setting_only(
    model: nn.Module, split: Split
) -> None:
    measurement = MemorizingAccuracy(GREEDY, (0.1, 0.25))
    clean = measure(CleanAccuracy(), model, split)["accuracy"]
    inductive = measure(measurement, model, split)
    assert inductive["accuracy"] == clean + measure(RobustAccuracy(GREEDY, (0.1, 0.25)), model, split)["accuracy"]
    transductive = ep.splits.transductive(ep.datasets.load("csbm"), seed=0)
    values = measure(measurement, model, transductive)
    (_, unperturbed), *attacked = values["accuracy"]
    assert [accuracy for _, accuracy in attacked] == [unperturbed] * 2
    assert set(MemorizingAccuracy.accuracies(values)) == set(measurement.columns)


def test_pyg_attack_lowers_the_accuracy_and_is_deterministic(model: nn.Module, split: Split) -> None:
    measurement = PygRobustAccuracy((0.25,), steps=20, resampling_steps=15, block_size=20_000)
    state = torch.get_rng_state()
    values = measure(measurement, model, split)
    assert torch.equal(torch.get_rng_state(), state)
    assert values == measure(measurement, model, split)
    assert values["accuracy"][0][1] < measure(CleanAccuracy(), model, split)["accuracy"][0][1]
    assert tuple(PygRobustAccuracy.accuracies(values)) == measurement.columns


def test_class_accuracy_counts_nodes_of_each_class(model: nn.Module, split: Split) -> None:
    values = measure(ClassAccuracy(), model, split)
    labels = split.test.data.y[split.test.nodes]
    assert values["nodes"] == [int((labels == label).sum()) for label in range(2)]
    accuracy = sum(values["correct"]) / sum(values["nodes"])
    assert accuracy == pytest.approx(measure(CleanAccuracy(), model, split)["accuracy"][0][1])
    assert ClassAccuracy.accuracies({"correct": [1, 0, 3], "nodes": [2, 0, 4]}) == {"mean": 0.625}


@pytest.mark.parametrize(("correct", "nodes"), [([1], [1, 2]), ([3, 1], [2, 2]), ([1.0], [2]), ([], []), ([0], [0])])
def test_invalid_class_counts_raise(correct: list[Any], nodes: list[Any]) -> None:
    with pytest.raises(ValueError, match="invalid values"):
        check_values(Task(RUN, ClassAccuracy()).identity, {"correct": correct, "nodes": nodes})


LABELLED = TrainingSpec(
    config=as_settings({"max_epochs": 12, "label_models": 2}),
    self_training=True,
    label_model=ModelSpec("GPRGNN", as_settings({"init": "ppr"})),
)


def test_sweep_label_model_matches_train(split: Split) -> None:
    run = Run(DatasetSpec("csbm"), SplitSpec(), ModelSpec("MLP"), LABELLED)
    ours, history = train_run(run, split, "cpu")
    assert history.summary()["label_model"].startswith("GPRGNN(")
    data = split.test.data
    sizes = data.num_features, ep.num_classes(data)
    expected = ep.models.build("MLP", *sizes, seed=0)
    label_model = ep.models.build("GPRGNN", *sizes, {"init": "ppr"}, seed=0)
    options = {"preset": "paper", "self_training": label_model, "progress": False}
    ep.train(expected, split, **options, max_epochs=12, label_models=2)
    parameters = zip(ours.parameters(), expected.parameters(), strict=True)
    assert all(torch.equal(left, right) for left, right in parameters)


def test_label_model_is_part_of_the_identity_and_replaces_that_of_the_preset() -> None:
    assert LABELLED.identity["label_model"] == {"name": "GPRGNN", "settings": {"dropout": 0.5, "init": "ppr"}}
    assert "label_model" not in replace(LABELLED, label_model=None).identity
    sturdy = TrainingSpec(preset="sturdy", label_model=ModelSpec("APPNP"))
    assert sturdy.identity["label_model"] == {"name": "APPNP"}
    assert sturdy.identity != TrainingSpec(preset="sturdy").identity
    with pytest.raises(ValueError, match="expected label_model only with self_training=True"):
        TrainingSpec(label_model=ModelSpec("GCN"))
    with pytest.raises(ValueError, match="expected label_model as one of"):
        TrainingSpec(self_training=True, label_model=ModelSpec("module:factory"))


def test_toml_parses_memorizing_pyg_and_label_model(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    text = """
        [[dataset]]
        name = "csbm"
        [[model]]
        name = "MLP"
        [[training]]
        preset = "paper"
        self_training = true
        label_model = "GPRGNN"
        label_model_settings = { init = "ppr" }
        config = { max_epochs = 12, label_models = 2 }
        [[measurement]]
        kind = "clean"
        nodes = "val"
        [[measurement]]
        kind = "memorizing"
        attack = "GreedyRBCD"
        settings = { steps = 3, block_size = 5_000 }
        epsilons = [0.1]
        [[measurement]]
        kind = "pyg_prbcd"
        epsilons = [0.1]
        steps = 20
    """
    file.write_text(text)
    (job,) = read_sweep(file).jobs()
    assert job.run.training == LABELLED
    expected = (CleanAccuracy("val"), MemorizingAccuracy(GREEDY, (0.1,)), PygRobustAccuracy((0.1,), steps=20))
    assert job.measurements == expected
    file.write_text(text.replace('label_model = "GPRGNN"', ""))
    with pytest.raises(ValueError, match="expected a label_model beside label_model_settings"):
        read_sweep(file)


def test_results_without_run_time_do_not_count_in_estimates(tmp_path: Path) -> None:
    store, job = Store(tmp_path), Job(RUN, (CleanAccuracy(),))
    for identity, values in (
        (RUN.identity, {"best_epoch": 1, "epochs": 2}),
        (job.tasks[0].identity, {"accuracy": [[0.0, 1.0]]}),
    ):
        store.put(Record(identity, values, "command", {"device": "cpu"}, 0.0, {}))
    other = Job(replace(RUN, seed=1), job.measurements)
    assert key_of(other.run.identity) != key_of(RUN.identity)
    seconds, known = Times(store, "cpu").estimate([other])
    assert seconds > 0
    assert known == 0
