"""How long things are said to take."""

from __future__ import annotations

from typing import Any

import pytest

import edgeproof as ep
from edgeproof.experiments import Record, Store, StoreWarning
from edgeproof.experiments.estimate import Times
from edgeproof.experiments.measure import Measure
from edgeproof.experiments.paper import Row
from edgeproof.experiments.plan import Job
from edgeproof.experiments.recipe import Recipe

GCN = Recipe(Row("inductive", "citeseer", "GCN", True, "LRBCD", 0.2), 0)
GAT = Recipe(Row("inductive", "citeseer", "GAT", True, "LRBCD", 0.2), 0)
CORA = Recipe(Row("inductive", "cora", "GCN", True, "LRBCD", 0.2), 0)
REGULAR = Recipe(Row("inductive", "citeseer", "GCN", False, None, None), 0)


def took(store: Store, part: Recipe | Measure, seconds: float, device: str = "cpu (some)") -> None:
    if isinstance(part, Recipe):
        values: dict[str, Any] = {"best_epoch": 1, "epochs": 1}
    else:
        values = {"accuracy": [[epsilon, 0.5] for epsilon in part.identity.get("epsilons", [0.0])]}
    store.put(Record(part.identity, values, "a command", {"device": device}, seconds, {}))


def expected(store: Store, recipe: Recipe, *kinds: str) -> tuple[float, int]:
    return Times(store, "cpu").estimate([Job(recipe, tuple(Measure(recipe, kind) for kind in kinds))])


def test_what_is_most_alike_counts(store: Store) -> None:
    took(store, CORA, 70.0)
    assert expected(store, GCN) == (70.0, 0)
    took(store, GAT, 50.0)
    assert expected(store, GCN) == (50.0, 0)
    took(store, GCN, 10.0)
    took(store, Recipe(GCN.row, 1), 20.0)
    assert expected(store, GCN) == (15.0, 1)
    # Of training against an attack nothing follows for one without.
    assert expected(store, REGULAR)[0] not in (10.0, 15.0, 50.0, 70.0)


def test_every_measurement_counts(store: Store) -> None:
    took(store, GCN, 10.0)
    took(store, Measure(GCN, "LRBCD"), 3.0)
    took(store, Measure(REGULAR, "clean"), 0.5)
    assert expected(store, GCN, "LRBCD", "clean") == (13.5, 1)


def test_other_devices_do_not_count(store: Store) -> None:
    nothing = expected(store, GCN)
    took(store, GCN, 1.0, "cuda (some)")
    assert expected(store, GCN) == nothing
    assert Times(store, "cuda:1").estimate([Job(GCN, ())]) == (1.0, 1)


def test_the_smaller_version_says_nothing_of_the_other(store: Store) -> None:
    fast, nothing = Recipe(GCN.row, 0, fast=True), expected(store, GCN, "LRBCD")
    took(store, fast, 1.0)
    took(store, Measure(fast, "LRBCD"), 2.0)
    assert expected(store, GCN, "LRBCD") == nothing
    assert expected(store, fast, "LRBCD") == (3.0, 1)
    assert expected(store, Recipe(GAT.row, 0, fast=True), "PRBCD")[0] < nothing[0]


def test_a_model_that_is_kept_is_not_trained_again(store: Store) -> None:
    took(store, GCN, 10.0)
    took(store, Measure(GCN, "LRBCD"), 3.0)
    path = store.model_path(GCN.identity)
    path.parent.mkdir()
    ep.save(ep.models.GCN(3, 2), path)
    assert expected(store, GCN, "LRBCD") == (3.0, 1)
    job = Job(GCN, (Measure(GCN, "LRBCD"),))
    assert Times(store, "cpu").estimate([job], anew=True) == (13.0, 1)
    path.write_bytes(b"broken")
    with pytest.warns(StoreWarning, match="it is trained anew"):
        assert expected(store, GCN, "LRBCD") == (13.0, 1)


def test_large_graphs_are_thought_to_take_longer(store: Store) -> None:
    large = Recipe(Row("inductive", "ogbn-arxiv", "GCN", False, None, None), 0)
    assert expected(store, large)[0] > expected(store, REGULAR)[0]


def test_training_against_attacks_is_thought_to_take_longer_and_a_gpu_to_be_faster(store: Store) -> None:
    against = Recipe(Row("inductive", "citeseer", "GCN", True, "PRBCD", 0.2), 0)
    assert expected(store, REGULAR)[0] < expected(store, GCN)[0] < expected(store, against)[0]
    assert Times(store, "cuda").estimate([Job(GCN, ())])[0] < expected(store, GCN)[0]
