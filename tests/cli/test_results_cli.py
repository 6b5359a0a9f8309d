"""``edgeproof results``."""

from __future__ import annotations

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
    for measurement in measurements([find_table("main")]):
        if measurement.kind == "clean":
            accuracy = 0.72 if measurement.recipe.row.model == "GCN" else 1.0
            values = {"accuracy": [[0.0, accuracy]]}
            store.put(Record(measurement.identity, values, "a test", {"device": "cpu"}, 2.0, {}))
    return store


def run(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": "250"}).invoke(app, ["results", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def export(store: Store, *options: str) -> list[str]:
    return run("export", "--store", str(store.root), *options).splitlines()


def test_results_are_shown_filtered_and_exported(store: Store) -> None:
    lines = export(store)
    assert lines[0] == "key,graph,model,training,splits,seed,measured,at,accuracy,seconds,weights"
    assert len(lines) == 58
    of_model = export(store, "--model", "GCN")
    assert len(of_model) == 10
    assert all(",GCN," in line and ",72.0,2" in line for line in of_model[1:])
    assert "57 values" in run("show", "--store", str(store.root))
    assert "".join(export(store, "--kind", "clean", "--format", "latex")).count(r" \\") == 58
    released = export(store, "--splits", "as_released", "--seed", "5")
    assert len(released) > 1
    assert all(",as_released,5," in line for line in released[1:])
    adversarial = export(store, "--training", "PRBCD")
    assert len(adversarial) == 19
    assert all(",PRBCD 0.2," in line for line in adversarial[1:])


def test_results_are_selected_by_attack(store: Store) -> None:
    needed = find_table("main").measurements()
    attack = next(measurement for measurement in needed if measurement.kind == "LRBCD")
    values = {"accuracy": [[epsilon, 0.5] for epsilon in attack.epsilons]}
    store.put(Record(attack.identity, values, "a test", {"device": "cpu"}, 2.0, {}))
    with pytest.raises(ValueError, match="unknown kind 'LRBDC': did you mean 'LRBCD'"):
        export(store, "--kind", "LRBDC")
    lines = export(store, "--kind", "LRBCD", "--format", "markdown")
    assert lines == export(store, "--kind", "attack", "--format", "markdown")
    assert len(lines) == 2 + len(attack.epsilons)


def test_packed_results_are_exported_alike(store: Store) -> None:
    lines = export(store)
    assert run("pack", "--store", str(store.root)) == f"packed 57 new results; {store.root} has 1 packed files\n"
    assert [path.name for path in store.root.glob("*.json*")] == ["citeseer-clean.jsonl"]
    assert export(store) == lines
    assert run("pack", "--store", str(store.root)).startswith("packed 0 new results")


@pytest.mark.parametrize("command", ["show", "export", "pack"])
def test_help_has_examples(command: str) -> None:
    text = run(command, "--help")
    assert f"edgeproof results {command}" in text
    assert "Example" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--model GNC", "unknown model 'GNC': did you mean 'GCN'"),
        ("--dataset citseer", "unknown dataset 'citseer': did you mean 'citeseer'"),
        ("--training adversarial", "unknown training 'adversarial'"),
        ("--splits strikt", "unknown splits 'strikt': did you mean 'strict'"),
        ("--seed 7", r"unknown seed '7'.* Known: 0, 1, 5"),
    ],
)
@pytest.mark.parametrize("command", ["show", "export"])
def test_unknown_names_raise(command: str, arguments: str, message: str, store: Store) -> None:
    with pytest.raises(ValueError, match=message):
        run(command, "--store", str(store.root), *arguments.split())


def test_unknown_format_raises_before_the_store_is_read() -> None:
    with pytest.raises(ValueError, match=r"unknown format 'html'.* Known: csv, latex, markdown"):
        run("export", "--format", "html", "--store", "nowhere")


@pytest.mark.parametrize("command", ["show", "export", "pack"])
def test_missing_store_raises(command: str) -> None:
    with pytest.raises(ValueError, match="expected a folder of results, got nowhere"):
        run(command, "--store", "nowhere")


def test_latex_special_characters_are_escaped() -> None:
    text = as_text(["fraction"], [["5 % & a_b ± 1"]], "latex")
    assert text.splitlines()[2] == r"5 \% \& a\_b $\pm$ 1 \\"
