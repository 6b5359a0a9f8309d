"""Measurements behind the paper's tables and figures."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from edgeproof.experiments import Store
from edgeproof.experiments.identity import key_of
from edgeproof.paper import TABLES, Selection, find_table, missing
from edgeproof.paper.numbers import PaperRow, labels, paper_numbers
from edgeproof.paper.plan import measurements
from edgeproof.paper.recipes import protocols_of


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_every_number_of_the_paper_is_in_a_table() -> None:
    assert sum(len(table.cells) for table in TABLES) == 1409
    assert {table.label for table in TABLES} == labels()
    for table in TABLES:
        # Repeated only where a table prints clean accuracies beside every attack; some of them differ.
        times = Counter((cell.row, cell.column) for cell in table.cells)
        repeated = {column.attack for (_, column), count in times.items() if count > 1}
        assert repeated <= {"clean"}


def test_tables_are_found_by_any_of_their_names() -> None:
    for table in TABLES:
        assert find_table(table.label) is find_table(str(table.number)) is find_table(table.nickname) is table
    with pytest.raises(ValueError, match="unknown table 'tab:result': did you mean 'tab:results'"):
        find_table("tab:result")


def test_shared_measurements_of_tables_are_computed_once(store: Store) -> None:
    main, citeseer = find_table("main"), find_table("citeseer")
    both = missing([main, citeseer], store)
    assert len(both) < len(missing([main], store)) + len(missing([citeseer], store))
    tasks = [key_of(task.identity) for job in both for task in job.tasks]
    assert len(tasks) == len(set(tasks))
    keys = [key_of(measurement.identity) for measurement in measurements(TABLES)]
    assert len(keys) == len(set(keys))


def test_protocols_differ_for_gprgnn_only() -> None:
    for cell in paper_numbers("tab:app_results_citeseer"):
        assert (len(protocols_of(cell.row)) == 2) == (cell.row.model == "GPRGNN")
    assert protocols_of(PaperRow("inductive", "csbm", "GPRGNN", False, None, None)) == ("strict",)
    assert protocols_of(PaperRow("transductive", "cora", "GPRGNN", True, "PGD", 1.0)) == ("strict",)


def test_fast_version_has_one_seed(store: Store) -> None:
    table = find_table("other-graphs")
    seeds = {fast: {job.run.seed for job in missing([table], store, fast=fast)} for fast in (False, True)}
    assert seeds == {False: {0, 1, 5}, True: {0}}


def test_selection_agrees_on_rows_and_jobs(store: Store) -> None:
    table = find_table("citeseer")
    jobs = missing([table], store)
    for selection in (
        Selection(models=["GAT"]),
        Selection(trainings=["regular"]),
        Selection(trainings=["self", "PRBCD"]),
        Selection(datasets=["cora"]),
    ):
        rows = [row for row in table.rows if selection.has_row(row)]
        selected = {(job.run.model.name, job.run.training) for job in jobs if selection.has(job)}
        assert len(selected) == len({(row.model, row.self_training, row.attack) for row in rows})
    assert {job.run.seed for job in jobs if Selection(seeds=[5]).has(job)} == {5}
    with pytest.raises(ValueError, match=r"expected a seed of these tables and figures \(0, 1, 5\), got 7"):
        Selection(seeds=[7]).check([table])
    with pytest.raises(ValueError, match="expected rows with all of these"):
        Selection(models=["GRAND"], trainings=["LRBCD"]).check([table, find_table("more-attacks")])
