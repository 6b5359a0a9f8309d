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
    for needed in measurements([find_table("main")]):
        if needed.kind == "clean":
            accuracy = 0.72 if needed.recipe.row.model == "GCN" else 1.0
            store.put(Record(needed.identity, {"accuracy": [[0.0, accuracy]]}, "a test", {"device": "cpu"}, 2.0, {}))
    return store


def run(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": "250"}).invoke(app, ["results", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return str(result.output)


def test_results_are_listed_filtered_and_exported(store: Store) -> None:
    folder = ("--store", str(store.root))
    everything = run("export", *folder).splitlines()
    assert everything[0] == "key,graph,model,training,splits,seed,measured,at,accuracy,seconds,weights"
    assert len(everything) == 58
    selected = run("export", *folder, "--model", "GCN").splitlines()
    assert len(selected) == 10
    assert all(",GCN," in line and ",72.0,2" in line for line in selected[1:])
    assert "57 values" in run("show", *folder)
    assert run("export", *folder, "--training", "regular", "--format", "markdown").count("\n") == 23
    assert run("export", *folder, "--kind", "clean", "--format", "latex").count(r" \\") == 58
    released = run("export", *folder, "--splits", "as_released", "--seed", "5").splitlines()
    assert len(released) > 1
    assert all(",as_released,5," in line for line in released[1:])
    adversarial = run("export", *folder, "--training", "PRBCD").splitlines()
    assert len(adversarial) == 19
    assert all(",PRBCD 0.2," in line for line in adversarial[1:])


def test_packed_results_are_the_same(store: Store) -> None:
    before = run("export", "--store", str(store.root))
    assert run("pack", "--store", str(store.root)).endswith("has 1 packed files\n")
    assert not list(store.root.glob("*.json"))
    assert run("export", "--store", str(store.root)) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("show --kind claen", "unknown kind 'claen': did you mean 'clean'"),
        ("show --model GNC", "unknown model 'GNC': did you mean 'GCN'"),
        ("show --training adversarial", "unknown training 'adversarial'"),
        ("export --format html", "unknown format 'html'"),
    ],
)
def test_unknown_names_raise(arguments: str, message: str, store: Store) -> None:
    with pytest.raises(ValueError, match=message):
        run(*arguments.split(), "--store", str(store.root))


@pytest.mark.parametrize("command", ["show", "export", "pack"])
def test_missing_store_raises(command: str) -> None:
    with pytest.raises(ValueError, match="expected a folder of results, got nowhere"):
        run(command, "--store", "nowhere")


def test_latex_special_characters_are_escaped() -> None:
    text = as_text(["share"], [["5 % & a_b ± 1"]], "latex")
    assert text.splitlines()[2] == r"5 \% \& a\_b $\pm$ 1 \\"
