"""Restarts: the same split with other initial parameters and another training seed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import edgeproof as ep
from edgeproof.experiments import (
    CleanAccuracy,
    DatasetSpec,
    ModelSpec,
    Record,
    Run,
    SplitSpec,
    Store,
    Sweep,
    Task,
    TrainingSpec,
    as_settings,
    read_sweep,
    summarize,
)
from edgeproof.experiments.execute import make_split, train_run
from edgeproof.experiments.graphs import load_graph

RUN = Run(
    DatasetSpec("csbm"),
    SplitSpec(),
    ModelSpec("GCN", as_settings({"hidden_channels": 4})),
    TrainingSpec(config=as_settings({"max_epochs": 3})),
    seed=2,
)


def test_identity_names_the_restart_only_if_it_is_not_zero() -> None:
    assert "restart" not in RUN.identity["run"]
    assert replace(RUN, restart=3).identity["run"] == {**RUN.identity["run"], "restart": 3}
    assert replace(RUN, restart=3).name == "csbm GCN, regular, strict, seed 2, restart 3, 3 epochs"


def test_restart_has_another_training_seed_on_the_same_split() -> None:
    restarted = replace(RUN, restart=1)
    graph = load_graph(*RUN.graph)
    split, same = make_split(RUN, graph), make_split(restarted, graph)
    assert torch.equal(split.test.nodes, same.test.nodes)
    model, _ = train_run(restarted, same, "cpu")
    expected = ep.models.build("GCN", graph.num_features, ep.num_classes(graph), {"hidden_channels": 4}, seed=1002)
    ep.train(expected, split, preset="paper", max_epochs=3, seed=1002, progress=False)
    for ours, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("restart", [-1, 1.0, True])
def test_invalid_restart_raises(restart: object) -> None:
    with pytest.raises(ValueError, match="restart"):
        replace(RUN, restart=restart)


def test_sweep_combines_seeds_and_restarts(tmp_path: Path) -> None:
    path, store = tmp_path / "sweep.toml", Store(tmp_path / "store")
    path.write_text(
        "seeds = [0, 1]\nrestarts = [0, 2]\n"
        '[[dataset]]\nname = "csbm"\n[[model]]\nname = "GCN"\n[[measurement]]\nkind = "clean"\n'
    )
    sweep = read_sweep(path)
    assert [(run.seed, run.restart) for run in sweep.runs()] == [(0, 0), (1, 0), (0, 2), (1, 2)]
    store_accuracies(sweep, store, [0.1, 0.2, 0.3])
    assert summarize(sweep, store).lines[0][-1] == "20.0 ± 5.8 (3/4)"


def store_accuracies(sweep: Sweep, store: Store, accuracies: list[float]) -> None:
    for run, accuracy in zip(sweep.runs(), accuracies, strict=False):
        identity = Task(run, CleanAccuracy()).identity
        store.put(Record(identity, {"accuracy": [[0.0, accuracy]]}, "", {}, 0.0, {}))
