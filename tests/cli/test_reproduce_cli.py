"""``edgeproof reproduce``."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import edgeproof as ep
from edgeproof.cli.app import app
from edgeproof.experiments import Record, Store
from edgeproof.experiments.analyses import BINS
from edgeproof.paper import FIGURES, PaperMeasurement, find_figure, find_table
from edgeproof.paper.plan import measurements

FILTER = {"gamma": [0.6, 0.4], "self_loops": True, "density": [1 / BINS] * BINS, "mean_frequency": 0.7}


def put(store: Store, measurement: PaperMeasurement, values: dict[str, Any], **notes: str) -> None:
    store.put(Record(measurement.identity, values, "a test", {"device": "cpu"}, 2.0, notes))


def accuracies(measurement: PaperMeasurement, accuracy: float) -> dict[str, Any]:
    """Return values with the same accuracy at all budgets of a measurement."""
    budgets = (0.0,) if measurement.kind == "clean" else measurement.epsilons
    return {"accuracy": [[epsilon, accuracy] for epsilon in budgets]}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return a store with the clean accuracies of the first table: those of the paper for GCN, 1 for other models."""
    store = Store(tmp_path)
    for measurement in measurements([find_table("main")]):
        if measurement.kind == "clean":
            put(store, measurement, accuracies(measurement, 0.72 if measurement.recipe.row.model == "GCN" else 1.0))
    return store


@pytest.fixture
def complete(store: Store) -> Store:
    """Return the store with all results of the first table."""
    grid = [[added, deleted, 0.5] for added in range(5) for deleted in range(8)]
    certificate = {"certified_accuracy": grid, "average_certifiable_radius": [1.0, 1.0], "abstained": 0.0}
    for measurement in find_table("main").measurements():
        if measurement.kind == "smoothing":
            put(store, measurement, certificate)
        elif measurement.kind != "clean":
            put(store, measurement, accuracies(measurement, 0.5))
    return store


def run(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": "250"}).invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def run_in_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> str:
    """Return the output, with its colours, in a terminal of the given width."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    app(list(arguments), standalone_mode=False)
    return capsys.readouterr().out


def test_list_shows_progress_and_estimates(store: Store) -> None:
    shown = run("reproduce", "list", "--store", str(store.root))
    assert "tab:app_smooth_cora_ml" in shown
    assert "57 of 228" in shown
    assert "fig:karate" in shown
    assert "hours left" in shown
    assert "total hours" in shown
    # Test machines have only the generated datasets and those in PyG.
    assert "to be downloaded first: citeseer, cora_ml, cora, pubmed, squirrel, wikics, ogbn-arxiv" in shown


def test_show_in_all_formats(store: Store) -> None:
    options = ("--store", str(store.root))
    terminal = run("reproduce", "show", "tab:results", *options)
    assert "72.0 ± 2.5" in terminal
    assert "100.0 ± 0.0" in terminal
    lines = run("reproduce", "show", "1", *options, "--format", "csv").splitlines()
    assert lines[0] == (
        'table,graph,model,training,measured,paper,as released,strict,"verdict, as released","verdict, strict"'
    )
    assert lines[1] == "tab:results,citeseer,GCN,regular,clean,72.0 ± 2.5,72.0 ± 0.0,72.0 ± 0.0,matched,matched"
    # Three of 16 trainings use GCN.
    assert sum(line.endswith("better") for line in lines) == 13
    assert sum(line.endswith("not run") for line in lines) == 112
    markdown = run("reproduce", "show", "main", *options, "--format", "markdown").splitlines()
    assert markdown[2].startswith("| tab:results | citeseer | GCN |")
    assert r"72.0 $\pm$ 2.5" in run("reproduce", "show", "main", *options, "--format", "latex")
    with pytest.raises(ValueError, match=r"unknown format 'pdf'.* Known: csv, latex, markdown"):
        run("reproduce", "show", "main", *options, "--format", "pdf")


def test_show_table_of_one_model_has_a_row_per_attack(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for measurement in measurements([find_table("perfect-citeseer")]):
        if measurement.kind in ("clean", "DICE"):
            epsilons = measurement.epsilons if measurement.kind == "DICE" else (0.0,)
            put(store, measurement, {"accuracy": [[epsilon, 1 - epsilon / 2] for epsilon in epsilons]})
    shown = run("reproduce", "show", "perfect-citeseer", "--store", str(tmp_path))
    (titles,) = (line for line in shown.splitlines() if "100%" in line)
    assert titles.replace("┃", " ").split() == [
        *("graph", "model", "training", "attack"),
        *("0%", "1%", "5%", "10%", "25%", "50%", "100%"),
    ]
    lines = [line.split("│")[1:-1] for line in shown.splitlines() if line.startswith("│")]
    assert [line[3].strip() for line in lines if line[4].strip() == "paper"] == [
        *("PGD", "DICE", "FGSM", "GreedyRBCD", "PRBCD"),
    ]
    (dice,) = (number for number, line in enumerate(lines) if line[3].strip() == "DICE")
    ours = [cell.strip().split(" ")[0] for cell in lines[dice + 2][5:]]
    assert ours == ["100.0", "99.5", "97.5", "95.0", "87.5", "75.0", "50.0"]
    summary = run("reproduce", "summary", "perfect-citeseer", "--store", str(tmp_path))
    (line,) = (line for line in summary.splitlines() if "overfitting_citeseer" in line)
    # Six cells of DICE, and the clean accuracy of each of five attacks; the paper's are near 71.8.
    assert [cell.strip() for cell in line.split("│")[2:-1]] == ["35", "0 / 10 / 1", "0 / 10 / 1", "24", "11 / 11"]


def test_cells_with_missing_seeds_are_not_shown(store: Store) -> None:
    (missing, *_) = (
        measurement
        for measurement in find_table("main").measurements()
        if measurement.kind == "clean" and measurement.recipe.row.model == "GCN"
    )
    store.path(missing.identity).unlink()
    lines = run("reproduce", "show", "main", "--format", "csv", "--store", str(store.root)).splitlines()
    assert lines[1] == "tab:results,citeseer,GCN,regular,clean,72.0 ± 2.5,-,-,not run,not run"


@pytest.mark.parametrize("columns", [20, 80])
def test_narrow_terminals_truncate_no_cells(
    columns: int, store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = {
        command: run_in_terminal(columns, capsys, monkeypatch, *command.split(), "--store", str(store.root))
        for command in ("reproduce show main", "reproduce summary", "reproduce list", "results show")
    }
    assert not any("…" in text for text in shown.values())
    assert "72.0 ± 2.5" in shown["reproduce show main"]
    assert "1409" in shown["reproduce summary"]
    assert "tab:app_adv_causes_overfitting_citeseer" in shown["reproduce summary"]


def test_show_colours_cells_by_verdict(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for measurement in find_table("main").measurements():
        if measurement.kind == "clean" and measurement.recipe.row.model == "GAT":
            put(store, measurement, accuracies(measurement, 0.1))
    shown = run_in_terminal(250, capsys, monkeypatch, "reproduce", "show", "main", "--store", str(store.root))
    green, cyan, red = (f"\x1b[{code}m" for code in (32, 36, 31))
    assert f"{green}72.0 ± 0.0" in shown
    assert f"{cyan}100.0 ± 0.0" in shown
    assert f"{red}10.0 ± 0.0" in shown


def test_summary_counts_cells(store: Store) -> None:
    shown = run("reproduce", "summary", "--store", str(store.root))
    assert shown.count("tab:results ") == 1
    assert "tab:app_adv_causes_overfitting_citeseer" in shown
    assert "1409" in shown
    assert "differ: the difference exceeds two standard errors of the difference" in shown
    lines = list(csv.reader(run("reproduce", "summary", "--format", "csv", "--store", str(store.root)).splitlines()))
    assert lines[0] == ["table", "about", "protocol", "cells", "matched", "better", "worse", "not run", "differ"]
    assert [line[3:8] for line in lines if line[:3:2] == ["tab:results", "strict"]] == [["128", "3", "13", "0", "112"]]
    counts = [[int(entry) for entry in line[3:]] for line in lines[1:] if line[2] == "strict"]
    assert lines[-1][:3] == ["all", "all of these", "strict"]
    assert counts[-1] == [sum(column) for column in zip(*counts[:-1], strict=True)]
    with pytest.raises(ValueError, match="expected tables, got fig:karate: use edgeproof reproduce figures fig:karate"):
        run("reproduce", "summary", "karate", "--store", str(store.root))


def test_stand_in_tables_are_not_compared_with_the_paper(tmp_path: Path) -> None:
    store, table = Store(tmp_path), find_table("tab:arxiv_stand_in")
    for measurement in measurements([table]):
        if measurement.kind == "clean":
            put(store, measurement, accuracies(measurement, 0.5))
    options = ("--store", str(tmp_path))
    assert "SYNTHETIC" in run("reproduce", "show", "arxiv-table-stand-in", *options)
    lines = run("reproduce", "show", "tab:arxiv_stand_in", "--format", "csv", *options).splitlines()[1:]
    assert len(lines) == len(find_table("arxiv").cells)
    assert lines[0] == ("tab:arxiv_stand_in,arxiv-stand-in,APPNP,regular,clean,-,50.0,50.0,not compared,not compared")
    assert {line[5] for line in csv.reader(lines)} == {"-"}
    assert "tab:arxiv_stand_in" in run("reproduce", "list", *options)
    run("reproduce", "show", "--page", str(tmp_path / "page.md"), *options)
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "`tab:arxiv_stand_in`" not in page, "stand-ins are not in the summary"
    assert "SYNTHETIC graph" in page
    cells = (tmp_path / "page.csv").read_text(encoding="utf-8").splitlines()
    assert [line for line in cells if line.startswith("tab:arxiv_stand_in,")] == lines
    with pytest.raises(ValueError, match="expected tables of the paper, got stand-ins only"):
        run("reproduce", "summary", "tab:arxiv_stand_in", *options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("show main --seed 7", r"expected a seed of these tables and figures \(0, 1, 5\), got 7"),
        ("show main --dataset cora", r"expected a dataset of these tables and figures \(citeseer\), got cora"),
        ("run karate --training PGD", "expected a training of these tables and figures"),
        ("run main --dry-run --device gpu0", "expected a device of this machine"),
        (
            "run main --engine ray --device cuda",
            "expected --gpus, the fraction of a GPU of each task, with --engine ray",
        ),
        ("run main --engine ray --jobs 2", "expected --cpus, the cores of each task, with --engine ray"),
        ("run main --gpus 0.5", "expected --address, --cpus and --gpus with --engine ray only"),
        ("run main --engine foo --dry-run", "unknown engine 'foo'"),
        ("summary --dataset cora --model GRAND", "expected rows with all of these: cora, GRAND; got none"),
        ("summary main --dataset karate", r"expected a dataset of these tables and figures \(citeseer\), got karate"),
        ("show main --page page.md", "expected --page without names, --format and filters"),
        ("show --page page.md --model GCN", "expected --page without names, --format and filters"),
        ("figures karate --page page.md", "expected no names with --page"),
        ("figures main", "expected figures, got tab:results: use edgeproof reproduce show tab:results"),
        ("show karate --format csv", "expected tables, got fig:karate"),
        ("run karate --format csv", "expected --format with tables and without --dry-run"),
        ("run main --dry-run --format csv", "expected --format with tables and without --dry-run"),
        ("run main --engine ray --cpus 0", "expected cpus > 0 and gpus >= 0, got 0.0 and 0"),
        ("run main --threads -2", "expected threads to be an integer >= 1, got -2"),
    ],
)
def test_conflicting_options_raise(store: Store, arguments: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run("reproduce", *arguments.split(), "--store", str(store.root))


@pytest.mark.parametrize("arguments", ["list --model GCN", "list main", "summary --seed 0", "figures --format csv"])
def test_unknown_options_are_usage_errors(arguments: str) -> None:
    assert CliRunner().invoke(app, ["reproduce", *arguments.split()]).exit_code == 2


def test_page_counts_cells_and_csv_file_lists_them(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "page[bold].md"
    assert f"wrote {path}" in run("reproduce", "show", "--page", str(path), "--store", str(store.root))
    text = path.read_text(encoding="utf-8")
    assert "| `tab:results` | Citeseer: attacks and certificates, regular and adversarial training | 128 |" in text
    assert "[All numbers as CSV](page[bold].csv)" in text
    with (tmp_path / "page[bold].csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0].values())[:8] == [
        *("tab:results", "citeseer", "GCN", "regular", "clean", "72.0 ± 2.5", "72.0 ± 0.0", "72.0 ± 0.0"),
    ]
    # The store has only clean accuracies: of the first table, and of other tables with the same rows.
    assert {line["measured"] for line in lines if line["strict"] != "-"} == {"clean"}
    assert {line["verdict, strict"] for line in lines if line["measured"] != "clean"} <= {"not run", "not compared"}


def test_dry_run_runs_nothing(store: Store) -> None:
    before = sorted(store.root.iterdir())
    shown = run("reproduce", "run", "main", "--dry-run", "--model", "GAT", "--store", str(store.root), "--jobs", "2")
    assert "9 jobs" in shown
    assert "citeseer GAT, LRBCD 0.2, strict, seed 5" in shown
    assert "GPRGNN" not in shown
    adversarial = run(
        "reproduce", "run", "main", "--dry-run", "--training", "LRBCD", "--store", str(store.root), "--jobs", "2"
    )
    assert "citeseer GCN, LRBCD 0.2, strict, seed 0" in adversarial
    assert " regular " not in adversarial
    assert sorted(store.root.iterdir()) == before


def test_show_filters_rows(store: Store) -> None:
    options = ("--format", "csv", "--store", str(store.root))
    lines = run(
        "reproduce", "show", "main", "1", "citeseer", "--model", "GAT", "--training", "self", *options
    ).splitlines()
    assert {tuple(line.split(",")[:4]) for line in lines[1:]} == {
        ("tab:app_results_citeseer", "citeseer", "GAT", "self-trained")
    }
    assert sum(line.startswith("table,") for line in lines) == 1
    both = run("reproduce", "show", "main", "1", "citeseer", *options).splitlines()[1:]
    assert len(both) == len(find_table("main").cells) + len(find_table("citeseer").cells)
    shown = run("reproduce", "show", "main", "perfect-cora", "--model", "GAT", "--store", str(store.root))
    assert "perfect robustness" not in shown
    assert "GAT" in shown
    assert "GCN" not in shown


def test_fast_results_are_separate(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for fast in (False, True):
        needed = find_table("main").measurements(fast=fast)
        measurement = next(measurement for measurement in needed if measurement.kind == "clean")
        put(store, measurement, accuracies(measurement, 0.5 + 0.2 * fast))
    options = ("--store", str(tmp_path))
    listed = list(csv.reader(run("results", "export", *options).splitlines()))[1:]
    assert {line[3]: line[8] for line in listed} == {"regular": "50.0", "regular, 60 epochs": "70.0"}
    assert len(listed) == 2
    assert "regular and adversarial training, fast" in run("reproduce", "show", "main", "--fast", *options)
    assert ", fast" not in run("reproduce", "show", "main", *options)
    assert "standard errors / better / worse, fast" in run("reproduce", "summary", "--fast", *options)
    assert "jobs, fast, about" in run("reproduce", "run", "main", "--fast", "--dry-run", *options)


def test_page_lists_results_of_several_models(tmp_path: Path) -> None:
    store, needed = Store(tmp_path), find_table("citeseer").measurements()
    stored = [
        *(("GAT", "clean", {"model": "a" * 16}), ("GAT", "LRBCD", {"model": "b" * 16})),
        *(("GAT", "PRBCD", {"model": "b" * 16}), ("APPNP", "clean", {}), ("APPNP", "LRBCD", {"model": "c" * 16})),
    ]
    for model, kind, notes in stored:
        same = (entry for entry in needed if (entry.kind, entry.recipe.row.model) == (kind, model))
        measurement = next(same)
        put(store, measurement, accuracies(measurement, 0.5), **notes)
    page = tmp_path / "page.md"
    run("reproduce", "show", "--page", str(page), "--store", str(tmp_path))
    assert "2 trainings have results of more than one model" in page.read_text(encoding="utf-8")
    with (tmp_path / "page-retrained.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    assert ["citeseer GAT, regular, strict, seed 0", "LRBCD, PRBCD; clean"] in lines
    # A result without the hash of its model may be of a different model.
    assert ["citeseer APPNP, regular, strict, seed 0", "LRBCD; clean (?)"] in lines
    listed = run("results", "export", "--store", str(tmp_path), "--kind", "clean", "--model", "GAT").splitlines()
    assert listed[1].endswith(",aaaaaaaa")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("show main --format pdf", "unknown format 'pdf'.* Known: csv, latex, markdown"),
        ("run main --format pdf", "unknown format 'pdf'.* Known: csv, latex, markdown"),
        ("run main --training LRBDC", "unknown training 'LRBDC': did you mean 'LRBCD'"),
        ("run main --dataset citseer", "unknown dataset 'citseer': did you mean 'citeseer'"),
        ("run main --model GNC", "unknown model 'GNC': did you mean 'GCN'"),
        ("run main --engine rai", "unknown engine 'rai': did you mean 'ray'"),
        ("run main --device tpux", "expected a device of this machine"),
        ("run main --store /proc/none", "cannot write"),
        ("run karate --out /proc/none", "cannot write"),
        ("run karate --training adversarial", "unknown training 'adversarial'"),
        ("run karate --image pdf", "expected png or svg, got 'pdf'"),
        ("run karate --protocol strikt", "unknown protocol 'strikt': did you mean 'strict'"),
        ("run karate --log-dir /proc/none", "cannot write"),
        ("show main --store nowhere", "expected a folder of results, got nowhere"),
        ("summary --store nowhere", "expected a folder of results, got nowhere"),
        ("show --page page.md --store nowhere", "expected a folder of results, got nowhere"),
        ("figures --page page.md --store nowhere", "expected a folder of results, got nowhere"),
        ("run main --dry-run --store /dev/null", "expected a folder of results, got /dev/null"),
    ],
)
def test_invalid_options_raise_before_any_job_runs(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        run("reproduce", *arguments.split())
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("command", ["run", "show", "summary", "figures"])
@pytest.mark.parametrize(("name", "nearest"), [("mian", "main"), ("fig:karat", "fig:karate")])
def test_unknown_names_suggest_nearest(command: str, name: str, nearest: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"unknown table or figure '{name}': did you mean '{nearest}'"):
        run("reproduce", command, name, "--store", str(tmp_path))


def test_figures_are_drawn_from_stored_results(store: Store, tmp_path: Path) -> None:
    needed = find_figure("gamma").measurements()
    put(store, next(measurement for measurement in needed if measurement.recipe.row.attack is None), FILTER)
    out = tmp_path / "pictures"
    options = ("--store", str(store.root), "--out", str(out))
    shown = run("reproduce", "figures", "fig6", "karate", "--image", "svg", *options)
    assert [path.name for path in out.iterdir()] == ["gamma.svg"]
    assert "missing: citeseer GPRGNN, regular: filter (2 of 3 seeds)" in shown
    assert "fig:karate: no results to draw yet" in shown
    assert "9 jobs" not in run("reproduce", "run", "gamma", "--dry-run", *options)
    released = run("reproduce", "run", "gamma", "--dry-run", "--seed", "5", "--protocol", "as_released", *options)
    assert "3 jobs" in released
    assert "citeseer GPRGNN, LRBCD 0.2, as_released, seed 5" in released
    assert "1 jobs" in run("reproduce", "run", "gamma", "--dry-run", "--seed", "5", "--training", "PRBCD", *options)


def test_figures_page(store: Store, tmp_path: Path) -> None:
    page = tmp_path / "site" / "drawn.md"
    page.parent.mkdir()
    run("reproduce", "figures", "--page", str(page), "--store", str(store.root))
    text = page.read_text(encoding="utf-8")
    # Clean accuracies alone give no curve.
    assert "](drawn/curves-citeseer.png)" in text
    assert sorted(path.name for path in (tmp_path / "site" / "drawn").iterdir()) == [
        "curves-citeseer.png",
        "curves-citeseer.svg",
    ]
    assert text.count("\n## ") == len(FIGURES)


def test_figures_page_with_an_unusable_dataset(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters of a trained model need its graph; the other figures do not depend on it."""
    needed = find_figure("gamma").measurements()
    measurement = next(measurement for measurement in needed if measurement.recipe.row.attack is None)
    values = {"best_epoch": 3, "epochs": 5, "stopped": "patience"}
    store.put(Record(measurement.recipe.identity, values, "a test", {"device": "cpu"}, 1.0, {"gamma": [0.6, 0.4]}))
    (tmp_path / "data").mkdir()
    ep.datasets.write_npz(ep.datasets.csbm(), tmp_path / "data" / "citeseer.npz")
    monkeypatch.setenv("EDGEPROOF_DATA", str(tmp_path / "data"))
    page = tmp_path / "drawn.md"
    run("reproduce", "figures", "--page", str(page), "--store", str(store.root))
    assert "](drawn/curves-citeseer.png)" in page.read_text(encoding="utf-8")
    assert store.get(measurement.identity) is None


def test_exported_tables_are_alone_on_standard_output(complete: Store, tmp_path: Path) -> None:
    for measurement in find_figure("gamma").measurements():
        put(complete, measurement, FILTER)
    options = ["--format", "csv", "--store", str(complete.root), "--out", str(tmp_path / "pictures")]
    result = CliRunner().invoke(app, ["reproduce", "run", "main", "gamma", *options], catch_exceptions=False)
    assert {line.partition(",")[0] for line in result.stdout.splitlines()} == {"table", "tab:results"}
    assert "gamma.svg" in result.stderr


def test_fast_page_and_tables_are_labelled(store: Store, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    run("reproduce", "show", "--page", str(page), "--fast", "--store", str(store.root))
    assert "**The fast version: few epochs, weak attacks, one seed.**" in page.read_text(encoding="utf-8")
    titles = run("reproduce", "show", "main", "--fast", "--format", "csv", "--store", str(store.root)).splitlines()[0]
    assert '"as released, fast","strict, fast"' in titles


def test_complete_tables_are_shown_from_a_store_that_cannot_be_written(complete: Store) -> None:
    # Jobs check that this file could be written.
    (complete.root / "result.json").mkdir()
    assert "72.0 ± 2.5" in run("reproduce", "run", "main", "--store", str(complete.root))
    complete.path(find_table("main").measurements()[0].identity).unlink()
    with pytest.raises(ValueError, match="expected a file to write, got the folder"):
        run("reproduce", "run", "main", "--store", str(complete.root))


def test_damaged_result_is_reported_once_in_one_line(store: Store) -> None:
    damaged = next(store.root.glob("*.json"))
    damaged.write_text("{")
    command = [sys.executable, "-m", "edgeproof", "reproduce", "show", "main", "--store", str(store.root)]
    stderr = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    (line,) = (line for line in stderr.splitlines() if "damaged" in line)
    assert line.startswith("warning: EP201: ")
    assert stderr.count(str(damaged)) == 1
