"""``edgeproof results``."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgeproof.cli.app import app
from edgeproof.experiments import Record, Store
from edgeproof.experiments.export import as_text
from edgeproof.paper import find_table
from edgeproof.paper.plan import measurements


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return a store with the clean accuracies of the first table."""
    store = Store(tmp_path)
    for measure in measurements([find_table("main")]):
        if measure.kind == "clean":
            accuracy = 0.72 if measure.recipe.row.model == "GCN" else 1.0
            store.put(Record(measure.identity, {"accuracy": [[0.0, accuracy]]}, "a test", {"device": "cpu"}, 2.0, {}))
    return store


def run(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": "250"}).invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def export(store: Store, *options: str) -> list[dict[str, str]]:
    return list(csv.DictReader(run("results", "export", "--store", str(store.root), *options).splitlines()))


def test_export_lists_and_filters_results(store: Store) -> None:
    lines = export(store)
    assert list(lines[0]) == [
        *("key", "graph", "model", "training", "splits", "seed"),
        *("measured", "at", "accuracy", "seconds", "weights"),
    ]
    assert len(lines) == 57
    of_gcn = export(store, "--model", "GCN")
    assert len(of_gcn) == 9
    assert {(line["model"], line["accuracy"], line["seconds"]) for line in of_gcn} == {("GCN", "72.0", "2")}
    released = export(store, "--splits", "as_released", "--seed", "5")
    assert {(line["splits"], line["seed"]) for line in released} == {("as_released", "5")}
    adversarial = export(store, "--training", "PRBCD")
    assert len(adversarial) == 18
    assert all(line["training"].startswith("PRBCD 0.2") for line in adversarial)


def test_show_and_export_formats(store: Store) -> None:
    folder = ("--store", str(store.root))
    assert "57 values" in run("results", "show", *folder)
    assert run("results", "export", *folder, "--seed", "5", "--format", "markdown").count("\n") == 2 + 19
    assert run("results", "export", *folder, "--kind", "clean", "--format", "latex").count(r" \\") == 58


def test_pack_keeps_all_results(store: Store) -> None:
    before = export(store)
    assert "packed 57 new results" in run("results", "pack", "--store", str(store.root))
    assert [path.name for path in store.root.iterdir() if path.suffix in (".json", ".jsonl")] == [
        "citeseer-clean.jsonl"
    ]
    assert sorted(map(str, export(store))) == sorted(map(str, before))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("show --model GNC", "unknown model 'GNC': did you mean 'GCN'"),
        ("show --kind clen", "unknown kind 'clen': did you mean 'clean'"),
        ("show --training adversarial", "unknown training 'adversarial'"),
        ("export --format html", "unknown format 'html'. Known: csv, latex, markdown"),
    ],
)
def test_invalid_results_options_raise(store: Store, arguments: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run("results", *arguments.split(), "--store", str(store.root))


def test_missing_store_raises() -> None:
    with pytest.raises(ValueError, match="expected a folder of results, got nowhere"):
        run("results", "show", "--store", "nowhere")


def test_latex_special_characters_are_escaped() -> None:
    text = as_text(["share"], [["5 % & a_b ± 1"]], "latex")
    assert text.splitlines()[2] == r"5 \% \& a\_b $\pm$ 1 \\"
