"""``edgeproof results``."""

from __future__ import annotations

from pathlib import Path

import pytest
from edgeproof.experiments.render import as_text
from typer.testing import CliRunner

from edgeproof.cli.app import app
from edgeproof.experiments import Record, Store, find
from edgeproof.experiments.plan import measures


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return a store with the clean accuracies of the first table."""
    store = Store(tmp_path)
    for measure in measures([find("main")]):
        if measure.kind == "clean":
            accuracy = 0.72 if measure.recipe.row.model == "GCN" else 1.0
            store.put(Record(measure.identity, {"accuracy": [[0.0, accuracy]]}, "a test", {"device": "cpu"}, 2.0, {}))
    return store


def run(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": "250"}).invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_results_are_listed_filtered_and_exported(store: Store) -> None:
    everything = run("results", "--store", str(store.root), "--format", "csv").splitlines()
    assert everything[0] == "key,graph,model,training,splits,seed,measured,at,accuracy,seconds,weights"
    assert len(everything) == 58
    some = run("results", "--store", str(store.root), "--model", "GCN", "--format", "csv").splitlines()
    assert len(some) == 10
    assert all(",GCN," in line and ",72.0,2" in line for line in some[1:])
    assert "57 figures" in run("results", "--store", str(store.root))
    assert run("results", "--store", str(store.root), "--kind", "LRBCD", "--format", "markdown").count("\n") == 2
    assert run("results", "--store", str(store.root), "--kind", "clean", "--format", "latex").count(r" \\") == 58
    seen = run("results", "--store", str(store.root), "--splits", "as_released", "--seed", "5", "--format", "csv")
    assert len(seen.splitlines()) > 1
    assert all(",as_released,5," in line for line in seen.splitlines()[1:])
    attacked = run("results", "--store", str(store.root), "--training", "PRBCD", "--format", "csv").splitlines()
    assert len(attacked) == 19
    assert all(",PRBCD 0.2," in line for line in attacked[1:])
    with pytest.raises(ValueError, match="unknown kind 'LRBDC': did you mean 'LRBCD'"):
        run("results", "--store", str(store.root), "--kind", "LRBDC")
    with pytest.raises(ValueError, match="expected one of csv, latex, markdown, got 'html'"):
        run("results", "--store", str(store.root), "--format", "html")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--model GNC", "unknown model 'GNC': did you mean 'GCN'"),
        ("--store nowhere", "expected a folder of results, got nowhere"),
        ("--training adversarial", "unknown training 'adversarial'"),
    ],
)
def test_invalid_results_options_raise(arguments: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run("results", *arguments.split())


def test_latex_special_characters_are_escaped() -> None:
    text = as_text(["share"], [["5 % & a_b ± 1"]], "latex")
    assert text.splitlines()[2] == r"5 \% \& a\_b $\pm$ 1 \\"
