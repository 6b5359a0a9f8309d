"""Run time estimates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import edgeproof as ep
from edgeproof.experiments import (
    AttackSpec,
    CleanAccuracy,
    DatasetSpec,
    Job,
    Measurement,
    ModelSpec,
    Record,
    RobustAccuracy,
    Run,
    SplitSpec,
    Store,
    StoreWarning,
    Task,
    TrainingSpec,
    as_settings,
)
from edgeproof.experiments.estimate import Times

ADVERSARIAL = TrainingSpec(attack=AttackSpec.for_training("LRBCD"), epsilon=0.2, local=0.5, self_training=True)
SHORT = replace(ADVERSARIAL, config=as_settings({"max_epochs": 60}))
GCN = Run(DatasetSpec("citeseer"), SplitSpec(), ModelSpec("GCN"), ADVERSARIAL)
GAT = replace(GCN, model=ModelSpec("GAT"))
CORA = replace(GCN, dataset=DatasetSpec("cora"))
REGULAR = replace(GCN, training=TrainingSpec())
LRBCD = RobustAccuracy(AttackSpec("LRBCD"), (0.1,), 0.5)
FAST_LRBCD = RobustAccuracy(AttackSpec("LRBCD", as_settings({"steps": 10})), (0.1,), 0.5)


def took(store: Store, part: Run | Task, seconds: float, device: str = "cpu (some)") -> None:
    if isinstance(part, Run):
        values: dict[str, Any] = {"best_epoch": 1, "epochs": 1}
    else:
        values = {"accuracy": [[epsilon, 0.5] for epsilon in part.identity.get("epsilons", [0.0])]}
    store.put(Record(part.identity, values, "a command", {"device": device}, seconds, {}))


def expected(store: Store, run: Run, *measurements: Measurement) -> tuple[float, int]:
    return Times(store, "cpu").estimate([Job(run, measurements)])


def test_estimate_uses_the_most_similar_results(store: Store) -> None:
    took(store, CORA, 70.0)
    assert expected(store, GCN) == (70.0, 0)
    took(store, GAT, 50.0)
    assert expected(store, GCN) == (50.0, 0)
    took(store, GCN, 10.0)
    took(store, replace(GCN, seed=1), 20.0)
    assert expected(store, GCN) == (15.0, 1)
    # Adversarial training does not predict clean training.
    assert expected(store, REGULAR)[0] not in (10.0, 15.0, 50.0, 70.0)


def test_estimate_adds_up_all_measurements(store: Store) -> None:
    took(store, GCN, 10.0)
    took(store, Task(GCN, LRBCD), 3.0)
    took(store, Task(REGULAR, CleanAccuracy()), 0.5)
    assert expected(store, GCN, LRBCD, CleanAccuracy()) == (13.5, 1)
    other_budgets = replace(LRBCD, epsilons=(0.05, 0.2))
    assert expected(store, GCN, other_budgets) == (13.0, 1)


def test_estimate_ignores_other_devices(store: Store) -> None:
    nothing = expected(store, GCN)
    took(store, GCN, 1.0, "cuda (some)")
    assert expected(store, GCN) == nothing
    assert Times(store, "cuda:1").estimate([Job(GCN, ())]) == (1.0, 1)


def test_estimate_separates_short_runs(store: Store) -> None:
    fast, nothing = replace(GCN, training=SHORT), expected(store, GCN, LRBCD)
    took(store, fast, 1.0)
    took(store, Task(fast, FAST_LRBCD), 2.0)
    assert expected(store, GCN, LRBCD) == nothing
    assert expected(store, fast, FAST_LRBCD) == (3.0, 1)
    other = replace(GAT, training=replace(SHORT, attack=AttackSpec.for_training("PRBCD"), local=None))
    assert expected(store, other, FAST_LRBCD)[0] < nothing[0]


def test_estimate_skips_the_training_of_stored_models(store: Store) -> None:
    took(store, GCN, 10.0)
    took(store, Task(GCN, LRBCD), 3.0)
    path = store.model_path(GCN.identity)
    path.parent.mkdir(exist_ok=True)
    ep.save(ep.models.GCN(3, 2), path)
    assert expected(store, GCN, LRBCD) == (3.0, 1)
    assert Times(store, "cpu").estimate([Job(GCN, (LRBCD,))], retrain=True) == (13.0, 1)
    path.write_bytes(b"broken")
    with pytest.warns(StoreWarning, match=r"EP205: .* it is trained again"):
        assert expected(store, GCN, LRBCD) == (13.0, 1)


def test_default_estimates_depend_on_graph_size_attack_and_device(store: Store) -> None:
    large = replace(REGULAR, dataset=DatasetSpec("ogbn-arxiv"))
    assert expected(store, large)[0] > expected(store, REGULAR)[0]
    prbcd = replace(GCN, training=replace(ADVERSARIAL, attack=AttackSpec.for_training("PRBCD"), local=None))
    assert expected(store, REGULAR)[0] < expected(store, GCN)[0] < expected(store, prbcd)[0]
    assert Times(store, "cuda").estimate([Job(GCN, ())])[0] < expected(store, GCN)[0]
