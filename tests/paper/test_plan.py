"""What the paper's tables ask for, and that every setting has a say in a result's name."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from edgeproof.experiments.measure import Measure
from edgeproof.experiments.paper import Row, printed
from edgeproof.experiments.recipe import Recipe, protocols_of

from edgeproof.attacks import LRBCD, PRBCD
from edgeproof.experiments import TABLES, Store, Table, find, missing, paper
from edgeproof.experiments.plan import measures
from edgeproof.experiments.store import key_of


def test_every_number_of_the_paper_is_in_a_table() -> None:
    assert sum(len(table.cells) for table in TABLES) == 1409
    assert {table.label for table in TABLES} == set(paper._by_table())
    for table in TABLES:
        # More than once only where a table prints clean accuracies beside every attack; they differ in part.
        times = Counter((cell.row, cell.column) for cell in table.cells)
        repeated = {column.attack for (_, column), count in times.items() if count > 1}
        assert repeated <= {"clean"}


def test_tables_are_found_by_any_of_their_names() -> None:
    for table in TABLES:
        assert find(table.label) is find(str(table.number)) is find(table.nickname) is table
    with pytest.raises(ValueError, match="unknown table 'tab:result': did you mean 'tab:results'"):
        find("tab:result")


def test_what_tables_share_is_run_once(store: Store) -> None:
    main, citeseer = find("main"), find("citeseer")
    both = missing([main, citeseer], store)
    assert len(both) < len(missing([main], store)) + len(missing([citeseer], store))
    kinds = [(job.recipe, measure.kind) for job in both for measure in job.measures]
    assert len(kinds) == len(set(kinds))
    names = [key_of(measure.identity) for measure in measures(TABLES)]
    assert len(names) == len(set(names))


def test_protocols_differ_for_gprgnn_alone() -> None:
    for cell in printed("tab:app_results_citeseer"):
        assert (len(protocols_of(cell.row)) == 2) == (cell.row.model == "GPRGNN")
    assert protocols_of(Row("inductive", "csbm", "GPRGNN", False, None, None)) == ("strict",)
    assert protocols_of(Row("transductive", "cora", "GPRGNN", True, "PGD", 1.0)) == ("strict",)


ROW = Row("inductive", "citeseer", "GPRGNN", True, "LRBCD", 0.2)


@pytest.mark.parametrize(
    "other",
    [
        Recipe(ROW, 1),
        Recipe(ROW, 0, "as_released"),
        Recipe(ROW, 0, fast=True),
        Recipe(replace(ROW, attack="PRBCD"), 0),
        Recipe(replace(ROW, epsilon=0.1), 0),
        Recipe(replace(ROW, self_training=False), 0),
        Recipe(replace(ROW, model="APPNP"), 0),
        Recipe(replace(ROW, dataset="cora_ml"), 0),
        Recipe(replace(ROW, setting="transductive"), 0),
    ],
)
def test_a_changed_setting_changes_the_name(other: Recipe) -> None:
    recipe = Recipe(ROW, 0)
    assert key_of(recipe.identity) == key_of(Recipe(ROW, 0).identity)
    assert key_of(recipe.identity) != key_of(other.identity)
    assert key_of(Measure(recipe, "LRBCD").identity) != key_of(Measure(other, "LRBCD").identity)
    assert key_of(Measure(recipe, "LRBCD").identity) != key_of(Measure(recipe, "PRBCD").identity)


def test_settings_are_those_of_the_protocol() -> None:
    recipe = Recipe(ROW, 0)
    assert recipe.attack == LRBCD().for_training()
    assert recipe.local == 0.5
    assert Recipe(replace(ROW, attack="PRBCD"), 0).attack == PRBCD().for_training()
    assert Recipe(replace(ROW, attack="PRBCD"), 0).local is None
    assert recipe.config.max_epochs == 3000
    assert Recipe(replace(ROW, model="APPNP"), 0).model_settings == {"dropout": 0.5}
    arxiv = Recipe(replace(ROW, dataset="ogbn-arxiv"), 0)
    assert (arxiv.config.weight_decay, arxiv.config.validate_every, arxiv.local) == (0.0, 10, 0.25)
    assert Measure(recipe, "LRBCD").epsilons == (0.05, 0.1, 0.25)
    assert Measure(recipe, "LRBCD").local == 0.5
    assert Measure(recipe, "PRBCD").local is None


def test_gprgnn_begins_where_the_released_scripts_do() -> None:
    for attack in (None, "LRBCD"):
        recipe = Recipe(Row("inductive", "citeseer", "GPRGNN", True, attack, attack and 0.2), 5)
        assert recipe.model_settings == {"init_seed": 5}
        assert recipe.identity["model_settings"]["init_seed"] == 5


def test_the_names_of_results_stay_what_they_are() -> None:
    """A new setting of a model or of training must not rename what has been run without it."""
    for model, name in {"GPRGNN": "4a141c2794c9db30ebe8", "GCN": "c3d96cebea88638c459f"}.items():
        assert key_of(Recipe(Row("inductive", "citeseer", model, True, "LRBCD", 0.2), 0).identity) == name


def test_nothing_is_missing_that_is_there(small: Table, store: Store) -> None:
    assert [len(job.measures) for job in missing([small], store)] == [2] * 6
    assert [len(job.measures) for job in missing([small], store, fast=True)] == [2] * 2
