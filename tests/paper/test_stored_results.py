"""The results in the repository are complete and packed, and are still found after options are added."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from edgeproof.experiments import Record, Run, Store, StoreWarning, Task
from edgeproof.experiments.identity import key_of
from edgeproof.experiments.spec import resolve
from edgeproof.paper import FIGURES, STAND_INS, TABLES, Recipe
from edgeproof.paper.plan import measurements
from edgeproof.training import PRESETS, TrainConfig

ROOT = Path(__file__).resolve().parents[2] / "results" / "experiments"
# Graphs that were not available when the results were computed.
UNAVAILABLE = {"wikics", "ogbn-arxiv"}


@pytest.fixture(scope="module")
def records() -> dict[str, Record]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", StoreWarning)
        return {record.key: record for record in Store(ROOT).records()}


def expected_keys() -> tuple[set[str], set[str]]:
    """Keys of all measurements of tables and figures, and of all trainings behind them."""
    needed = measurements([*TABLES, *STAND_INS, *FIGURES])
    trainings = {Recipe(one.recipe.row, one.recipe.seed, one.recipe.protocol) for one in needed}
    return {key_of(one.identity) for one in needed}, {key_of(one.identity) for one in trainings}


def test_all_results_belong_to_tables_and_figures(records: dict[str, Record]) -> None:
    measured, trained = expected_keys()
    assert len(records) == 2302
    assert set(records) <= measured | trained


def test_all_measurements_on_available_graphs_are_stored(records: dict[str, Record]) -> None:
    needed = [one for one in measurements(TABLES) if one.recipe.row.dataset not in UNAVAILABLE]
    assert [one for one in needed if key_of(one.identity) not in records] == []


def test_results_are_packed() -> None:
    assert not list(ROOT.glob("*.json"))
    files = sorted(ROOT.glob("*.jsonl"))
    assert {path.stem.rpartition("-")[0] for path in files} >= {"citeseer", "cora", "cora_ml", "pubmed", "karate"}
    for path in files:
        assert path.read_bytes().endswith(b"\n")


@dataclass(frozen=True)
class ExtendedConfig(TrainConfig):
    """Settings with an option that did not exist when the results were computed."""

    new_option: float = 0.5


def test_results_are_found_after_an_option_is_added(
    records: dict[str, Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PRESETS, "extended", replace(PRESETS["paper"], config=ExtendedConfig()))

    def extended(run: Run) -> Run:
        return replace(run, training=replace(run.training, preset="extended"))

    needed = measurements([*TABLES, *STAND_INS, *FIGURES])
    assert resolve(extended(needed[0].recipe.run).training).preset.config.new_option == 0.5
    measured = {key_of(Task(extended(one.recipe.run), one.measurement).identity) for one in needed}
    trained = {key_of(extended(one.recipe.run).identity) for one in needed}
    assert (measured, trained) == expected_keys()
    assert set(records) <= measured | trained
