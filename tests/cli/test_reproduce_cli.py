"""``edgeproof reproduce`` and ``edgeproof results``."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgeproof.cli.app import app
from edgeproof.experiments import FIGURES, Record, Store, find, find_figure
from edgeproof.experiments.looks import BINS
from edgeproof.experiments.plan import measures
from edgeproof.experiments.recipe import Recipe
from edgeproof.experiments.render import as_text


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """All clean accuracies of the first table, and nothing else: as the paper has them for GCN, 1 for all others."""
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


def test_tables_are_listed(store: Store) -> None:
    shown = run("reproduce", "--list", "--store", str(store.root))
    assert "tab:app_smooth_cora_ml" in shown
    assert "57 of 228" in shown
    assert "fig:karate" in shown
    assert "hours left" in shown
    assert "hours in all" in shown
    # No graph is on this machine but those that are generated or come with PyG.
    assert "to be downloaded first: citeseer, cora_ml, cora, pubmed, squirrel, wikics, ogbn-arxiv" in shown


def test_a_table_in_every_form(store: Store) -> None:
    options = ("--show", "--store", str(store.root))
    terminal = run("reproduce", "tab:results", *options)
    assert "72.0 ± 2.5" in terminal
    assert "100.0 ± 0.0" in terminal
    lines = run("reproduce", "1", *options, "--format", "csv").splitlines()
    assert lines[0] == (
        'table,graph,model,training,measured,paper,as released,strict,"verdict, as released","verdict, strict"'
    )
    assert lines[1] == "tab:results,citeseer,GCN,regular,clean,72.0 ± 2.5,72.0 ± 0.0,72.0 ± 0.0,matched,matched"
    # Of 16 trainings, three are of GCN.
    assert sum(line.endswith("better") for line in lines) == 13
    assert sum(line.endswith("not run") for line in lines) == 112
    marked = run("reproduce", "main", *options, "--format", "markdown").splitlines()
    assert marked[2].startswith("| tab:results | citeseer | GCN |")
    assert r"72.0 $\pm$ 2.5" in run("reproduce", "main", *options, "--format", "latex")
    with pytest.raises(ValueError, match="expected one of csv, latex, markdown, got 'pdf'"):
        run("reproduce", "main", *options, "--format", "pdf")


def test_a_table_of_one_model_has_a_line_for_each_attack(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for measure in measures([find("perfect-citeseer")]):
        if measure.kind in ("clean", "DICE"):
            epsilons = measure.epsilons if measure.kind == "DICE" else (0.0,)
            values = {"accuracy": [[epsilon, 1 - epsilon / 2] for epsilon in epsilons]}
            store.put(Record(measure.identity, values, "a test", {"device": "cpu"}, 2.0, {}))
    shown = run("reproduce", "perfect-citeseer", "--show", "--store", str(tmp_path))
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
    summary = run("reproduce", "perfect-citeseer", "--summary", "--store", str(tmp_path))
    (line,) = (line for line in summary.splitlines() if "overfitting_citeseer" in line)
    # Six of DICE, and the clean figure beside each of five attacks; the paper's are all near 71.8.
    assert [cell.strip() for cell in line.split("│")[2:-1]] == ["35", "0 / 10 / 1", "0 / 10 / 1", "24", "11 / 11"]


def test_a_figure_whose_seeds_are_not_all_there_is_not_shown(store: Store) -> None:
    (gone, *_) = (one for one in find("main").measures() if one.kind == "clean" and one.recipe.row.model == "GCN")
    store.path(gone.identity).unlink()
    lines = run("reproduce", "main", "--show", "--format", "csv", "--store", str(store.root)).splitlines()
    assert lines[1] == "tab:results,citeseer,GCN,regular,clean,72.0 ± 2.5,-,-,not run,not run"


def in_a_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> str:
    """What is printed, with its colours, in a terminal so wide."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    app(list(arguments), standalone_mode=False)
    return capsys.readouterr().out


def test_a_narrow_terminal_cuts_no_figure(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--store", str(store.root))
    for width in (20, 80):
        shown = in_a_terminal(width, capsys, monkeypatch, "reproduce", "main", "--show", *options)
        assert "72.0 ± 2.5" in shown
        assert "…" not in shown
        assert "1409" in (summary := in_a_terminal(width, capsys, monkeypatch, "reproduce", "--summary", *options))
        assert "tab:app_adv_causes_overfitting_citeseer" in summary
        assert "…" not in summary
        assert "…" not in in_a_terminal(width, capsys, monkeypatch, "results", *options)
        assert "…" not in in_a_terminal(width, capsys, monkeypatch, "reproduce", "--list", *options)


def test_colours_say_whether_a_figure_matches(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in find("main").measures():
        if one.kind == "clean" and one.recipe.row.model == "GAT":
            store.put(Record(one.identity, {"accuracy": [[0.0, 0.1]]}, "a test", {"device": "cpu"}, 2.0, {}))
    shown = in_a_terminal(250, capsys, monkeypatch, "reproduce", "main", "--show", "--store", str(store.root))
    green, cyan, red = (f"\x1b[{code}m" for code in (32, 36, 31))
    assert f"{green}72.0 ± 0.0" in shown
    assert f"{cyan}100.0 ± 0.0" in shown
    assert f"{red}10.0 ± 0.0" in shown


def test_the_summary(store: Store) -> None:
    shown = run("reproduce", "--summary", "--store", str(store.root))
    # Whole names, one line each, however wide the terminal is not.
    assert shown.count("tab:results ") == 1
    assert "tab:app_adv_causes_overfitting_citeseer" in shown
    assert "1409" in shown
    assert "apart: by more than two standard errors" in shown
    lines = list(csv.reader(run("reproduce", "--summary", "--format", "csv", "--store", str(store.root)).splitlines()))
    assert lines[0] == ["table", "about", "protocol", "cells", "matched", "better", "worse", "not run", "apart"]
    assert [line[3:8] for line in lines if line[:3:2] == ["tab:results", "strict"]] == [["128", "3", "13", "0", "112"]]
    numbers = [[int(entry) for entry in line[3:]] for line in lines[1:] if line[2] == "strict"]
    assert lines[-1][:3] == ["all", "all of these", "strict"]
    assert numbers[-1] == [sum(column) for column in zip(*numbers[:-1], strict=True)]
    with pytest.raises(ValueError, match="expected names of the paper's tables to sum up"):
        run("reproduce", "karate", "--summary", "--store", str(store.root))


def test_a_stand_in_is_shown_beside_no_figure_of_the_paper(tmp_path: Path) -> None:
    store, table = Store(tmp_path), find("tab:arxiv_stand_in")
    for measure in measures([table]):
        if measure.kind == "clean":
            store.put(Record(measure.identity, {"accuracy": [[0.0, 0.5]]}, "a test", {"device": "cpu"}, 2.0, {}))
    options = ("--store", str(tmp_path))
    assert "SYNTHETIC" in run("reproduce", "arxiv-table-stand-in", "--show", *options)
    lines = run("reproduce", "tab:arxiv_stand_in", "--show", "--format", "csv", *options).splitlines()[1:]
    assert len(lines) == len(find("arxiv").cells)
    assert lines[0] == ("tab:arxiv_stand_in,arxiv-stand-in,APPNP,regular,clean,-,50.0,50.0,not compared,not compared")
    assert {line[5] for line in csv.reader(lines)} == {"-"}
    assert "tab:arxiv_stand_in" in run("reproduce", "--list", *options)
    run("reproduce", "--page", str(tmp_path / "page.md"), *options)
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert page.count("stand_in") == 0, "it has no line among the tables that are counted"
    assert "## Stand-in for table 11: a SYNTHETIC graph" in page
    # Nothing is counted: there is nothing to compare.
    with pytest.raises(ValueError, match="the paper's tables to sum up"):
        run("reproduce", "tab:arxiv_stand_in", "--summary", *options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("main", "--seed", "7"), r"expected a seed that is in there \(0, 1, 5\), got 7"),
        (("main", "--dataset", "cora"), r"expected a dataset that is in there \(citeseer\), got cora"),
        (("karate", "--training", "PGD"), "expected a training that is in there"),
        (("main", "--dry-run", "--device", "gpu0"), "expected a device of this machine"),
        (("main", "--engine", "ray", "--device", "cuda"), "expected --gpus"),
        (("main", "--engine", "ray", "--jobs", "2"), "expected --cpus, the cores of each task, in place of --jobs"),
        (("main", "--gpus", "0.5", "--show"), "expected --address, --cpus and --gpus with --engine ray only"),
        (("main", "--engine", "foo", "--dry-run"), "unknown engine 'foo'"),
        (
            ("--summary", "--dataset", "cora", "--model", "GRAND"),
            "expected rows in there that are all of this: cora, GRAND",
        ),
        (
            ("main", "karate", "--summary", "--dataset", "karate"),
            r"expected a dataset that is in there \(citeseer\), got",
        ),
        (("--summary", "--list"), "expected one of --list, --summary at a time"),
        (("main", "--dry-run", "--show"), "expected one of --dry-run, --show at a time"),
        (("--page", "page.md", "--figure-page", "figures.md"), "expected one of --page, --figure-page at a time"),
        (("main", "--list"), "expected no names with --list"),
        (("main", "--page", "page.md"), "expected no names with --page"),
        (("--summary", "--seed", "0"), "expected --summary without --seed"),
        (("karate", "--show", "--format", "csv"), "expected --format with names of tables, got figures alone"),
        (("main", "--dry-run", "--format", "csv"), "expected --format with tables that are shown"),
        (("--list", "--format", "csv"), "expected --format with tables that are shown"),
        (("--list", "--model", "GCN"), "expected --dataset, --model, --training and --seed with names"),
        (("main", "--engine", "ray", "--cpus", "0"), "expected cpus > 0 and gpus >= 0, got 0.0 and 0"),
        (("main", "--threads", "-2", "--show"), "expected at least one thread of each process, got -2"),
    ],
)
def test_what_would_do_nothing_is_refused(store: Store, options: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run("reproduce", *options, "--store", str(store.root))


def test_the_page_has_what_was_run_and_nothing_else(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "page[bold].md"
    assert f"wrote {path}" in run("reproduce", "--page", str(path), "--store", str(store.root))
    lines = path.read_text(encoding="utf-8").splitlines()
    assert (
        "| `tab:results` | Citeseer: attacks and certificates, regular and adversarial training | strict |"
        in "\n".join(lines)
    )
    assert "| citeseer | GCN | regular | clean | 72.0 ± 2.5 | 72.0 ± 0.0 | 72.0 ± 0.0 | matched | matched |" in lines
    # Only clean accuracies are there: of the first table, and of others that have the same rows.
    cells = [line for line in lines if line.startswith("| citeseer | ")]
    assert cells
    assert all(" | clean | " in line for line in cells)


def test_a_dry_run_runs_nothing(store: Store) -> None:
    before = sorted(store.root.iterdir())
    shown = run("reproduce", "main", "--dry-run", "--model", "GAT", "--store", str(store.root), "--jobs", "2")
    assert "9 jobs" in shown
    assert "citeseer GAT, LRBCD 0.2, strict, seed 5" in shown
    assert "GPRGNN" not in shown
    only = run("reproduce", "main", "--dry-run", "--training", "LRBCD", "--store", str(store.root), "--jobs", "2")
    assert "citeseer GCN, LRBCD 0.2, strict, seed 0" in only
    assert " regular " not in only
    assert sorted(store.root.iterdir()) == before


def test_only_the_rows_asked_for_are_shown(store: Store) -> None:
    options = ("--show", "--format", "csv", "--store", str(store.root))
    lines = run("reproduce", "main", "1", "citeseer", "--model", "GAT", "--training", "self", *options).splitlines()
    assert {tuple(line.split(",")[:4]) for line in lines[1:]} == {
        ("tab:app_results_citeseer", "citeseer", "GAT", "self-trained")
    }
    assert sum(line.startswith("table,") for line in lines) == 1
    both = run("reproduce", "main", "1", "citeseer", *options).splitlines()[1:]
    assert len(both) == len(find("main").cells) + len(find("citeseer").cells)
    shown = run("reproduce", "main", "perfect-cora", "--model", "GAT", "--show", "--store", str(store.root))
    assert "perfect robustness" not in shown
    assert "GAT" in shown
    assert "GCN" not in shown


def test_the_smaller_version_is_told_apart(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for fast in (False, True):
        measure = next(one for one in find("main").measures(fast=fast) if one.kind == "clean")
        store.put(
            Record(measure.identity, {"accuracy": [[0.0, 0.5 + 0.2 * fast]]}, "a test", {"device": "cpu"}, 2.0, {})
        )
    options = ("--store", str(tmp_path))
    assert ",50.0," in run("results", *options, "--format", "csv").splitlines()[1]
    assert [",70.0," in line for line in run("results", *options, "--fast", "--format", "csv").splitlines()[1:]] == [
        True
    ]
    assert "regular and adversarial training, fast" in run("reproduce", "main", "--show", "--fast", *options)
    assert ", fast" not in run("reproduce", "main", "--show", *options)
    assert "standard errors / better / worse, fast" in run("reproduce", "--summary", "--fast", *options)
    assert "jobs, fast, about" in run("reproduce", "main", "--fast", "--dry-run", *options)


def test_what_is_of_several_models_is_told(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for kind, model in (("clean", "a" * 16), ("LRBCD", "b" * 16), ("PRBCD", "b" * 16)):
        measure = next(one for one in find("citeseer").measures() if one.kind == kind and one.recipe.row.model == "GAT")
        rows = [[epsilon, 0.5] for epsilon in measure.identity.get("epsilons", [0.0])]
        store.put(Record(measure.identity, {"accuracy": rows}, "a test", {"device": "cpu"}, 2.0, {"model": model}))
    for kind, notes in (("clean", {}), ("LRBCD", {"model": "c" * 16})):
        measure = next(
            one for one in find("citeseer").measures() if one.kind == kind and one.recipe.row.model == "APPNP"
        )
        rows = [[epsilon, 0.5] for epsilon in measure.identity.get("epsilons", [0.0])]
        store.put(Record(measure.identity, {"accuracy": rows}, "a test", {"device": "cpu"}, 2.0, notes))
    page = tmp_path / "page.md"
    run("reproduce", "--page", str(page), "--store", str(tmp_path))
    told = page.read_text(encoding="utf-8").splitlines()
    assert "- citeseer GAT, regular, strict, seed 0: LRBCD, PRBCD; clean" in told
    # Where it was not noted of which model a result is, it may be another one.
    assert "- citeseer APPNP, regular, strict, seed 0: LRBCD; clean (?)" in told
    options = ("--kind", "clean", "--model", "GAT", "--format", "csv")
    listed = run("results", "--store", str(tmp_path), *options).splitlines()
    assert listed[1].endswith(",aaaaaaaa")


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
    ("arguments", "problem"),
    [
        (["reproduce", "main", "--format", "pdf"], "expected one of csv, latex, markdown, got 'pdf'"),
        (["reproduce", "main", "--training", "LRBDC"], "unknown training 'LRBDC': did you mean 'LRBCD'"),
        (["reproduce", "main", "--dataset", "citseer"], "unknown dataset 'citseer': did you mean 'citeseer'"),
        (["reproduce", "main", "--model", "GNC"], "unknown model 'GNC': did you mean 'GCN'"),
        (["reproduce", "main", "--engine", "rai"], "unknown engine 'rai': did you mean 'ray'"),
        (["reproduce", "main", "--device", "tpux"], "expected a device of this machine"),
        (["reproduce", "main", "--store", "/proc/none"], "cannot write"),
        (["reproduce", "karate", "--out", "/proc/none"], "cannot write"),
        (["reproduce", "karate", "--training", "adversarial"], "unknown training 'adversarial'"),
        (["reproduce", "karate", "--image", "pdf"], "expected png or svg, got 'pdf'"),
        (["reproduce", "karate", "--protocol", "strikt"], "unknown protocol 'strikt': did you mean 'strict'"),
        (["reproduce", "karate", "--log-dir", "/proc/none"], "cannot write"),
        (["results", "--model", "GNC"], "unknown model 'GNC': did you mean 'GCN'"),
        (["results", "--store", "nowhere"], "expected a folder of results, got nowhere"),
        (["results", "--training", "adversarial"], "unknown training 'adversarial'"),
        (["reproduce", "main", "--show", "--store", "nowhere"], "expected a folder of results, got nowhere"),
        (["reproduce", "--summary", "--store", "nowhere"], "expected a folder of results, got nowhere"),
        (["reproduce", "--page", "page.md", "--store", "nowhere"], "expected a folder of results, got nowhere"),
        (["reproduce", "--figure-page", "page.md", "--store", "nowhere"], "expected a folder of results, got nowhere"),
        (["reproduce", "main", "--dry-run", "--store", "/dev/null"], "expected a folder of results, got /dev/null"),
    ],
)
def test_wrong_input_is_told_before_anything_runs(
    arguments: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("edgeproof.cli.reproduce._run", lambda *_: pytest.fail("ran"))
    with pytest.raises(ValueError, match=problem):
        run(*arguments)


def test_an_unknown_name_is_told_apart() -> None:
    with pytest.raises(ValueError, match="unknown table or figure 'mian': did you mean 'main'"):
        run("reproduce", "mian")
    with pytest.raises(ValueError, match="unknown table or figure 'fig:karat': did you mean 'fig:karate'"):
        run("reproduce", "fig:karat")


def test_figures_are_drawn_from_the_store(store: Store, tmp_path: Path) -> None:
    measure = next(one for one in find_figure("gamma").measures() if one.recipe.row.attack is None)
    found = {"gamma": [0.6, 0.4], "self_loops": True, "density": [1 / BINS] * BINS, "mean_frequency": 0.7}
    store.put(Record(measure.identity, found, "a test", {"device": "cpu"}, 1.0, {}))
    out = tmp_path / "pictures"
    options = ("--store", str(store.root), "--out", str(out))
    shown = run("reproduce", "fig6", "karate", "--show", "--image", "svg", *options)
    assert [path.name for path in out.iterdir()] == ["gamma.svg"]
    assert "missing: citeseer GPRGNN, regular: filter (2 of 3 seeds)" in shown
    assert "fig:karate: nothing to draw yet" in shown
    assert "9 jobs" not in run("reproduce", "gamma", "--dry-run", *options)
    only = run("reproduce", "gamma", "--dry-run", "--seed", "5", "--protocol", "as_released", *options)
    assert "3 jobs" in only
    assert "citeseer GPRGNN, LRBCD 0.2, as_released, seed 5" in only
    assert "1 jobs" in run("reproduce", "gamma", "--dry-run", "--seed", "5", "--training", "PRBCD", *options)


def test_the_page_of_figures(store: Store, tmp_path: Path) -> None:
    page = tmp_path / "site" / "drawn.md"
    page.parent.mkdir()
    run("reproduce", "--figure-page", str(page), "--store", str(store.root))
    text = page.read_text(encoding="utf-8")
    # Clean accuracies alone make no curve: panels say that nothing has been run.
    assert "](drawn/curves-citeseer.png)" in text
    assert sorted(path.name for path in (tmp_path / "site" / "drawn").iterdir()) == [
        "curves-citeseer.png",
        "curves-citeseer.svg",
    ]
    assert text.count("\n## ") == len(FIGURES)


def test_a_graph_that_is_another_one_spoils_its_own_figures_alone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = next(one for one in find_figure("gamma").measures() if one.recipe.row.attack is None)
    values = {"best_epoch": 3, "epochs": 5, "stopped": "patience"}
    store.put(Record(measure.recipe.identity, values, "a test", {"device": "cpu"}, 1.0, {"gamma": [0.6, 0.4]}))

    def refuse(self: Recipe) -> None:
        raise ValueError(f"expected {self.row.dataset} to be the graph that results are of")

    monkeypatch.setattr(Recipe, "data", refuse)
    page = tmp_path / "drawn.md"
    run("reproduce", "--figure-page", str(page), "--store", str(store.root))
    assert "](drawn/curves-citeseer.png)" in page.read_text(encoding="utf-8")
    assert store.get(measure.identity) is None


def test_nothing_comes_between_what_is_for_programs(store: Store, tmp_path: Path) -> None:
    options = ["--show", "--format", "csv", "--store", str(store.root), "--out", str(tmp_path / "pictures")]
    result = CliRunner().invoke(app, ["reproduce", "main", "karate", *options], catch_exceptions=False)
    assert {line.partition(",")[0] for line in result.stdout.splitlines()} == {"table", "tab:results"}
    assert "fig:karate: nothing to draw yet" in result.stderr


def test_fast_figures_say_so(store: Store, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    run("reproduce", "--page", str(page), "--fast", "--store", str(store.root))
    assert "**The fast version: few epochs, weak attacks, one seed.**" in page.read_text(encoding="utf-8")
    titles = run("reproduce", "main", "--show", "--fast", "--format", "csv", "--store", str(store.root)).splitlines()[0]
    assert '"as released, fast","strict, fast"' in titles


def test_what_is_complete_is_shown_from_a_store_that_cannot_be_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(f"cannot write {path}")

    monkeypatch.setattr("edgeproof.cli.reproduce.check_writable", refuse)
    options = ("--store", str(store.root))
    with pytest.raises(OSError, match="cannot write"):
        run("reproduce", "main", *options)
    rest = [one for one in find("main").measures() if one.kind != "clean"]
    for one in rest:
        if one.kind == "smoothing":
            grid = [[added, deleted, 0.5] for added in range(5) for deleted in range(8)]
            values = {"certified_accuracy": grid, "average_certifiable_radius": [1.0, 1.0], "abstained": 0.0}
        else:
            values = {"accuracy": [[epsilon, 0.5] for epsilon in one.epsilons]}
        store.put(Record(one.identity, values, "a test", {"device": "cpu"}, 2.0, {}))
    assert "72.0 ± 2.5" in run("reproduce", "main", *options)


def test_a_damaged_file_is_told_of_once_in_one_line(store: Store) -> None:
    broken = next(store.root.glob("*.json"))
    broken.write_text("{")
    command = [sys.executable, "-m", "edgeproof", "reproduce", "main", "--show", "--store", str(store.root)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert [line for line in told.splitlines() if "damaged" in line] == [
        line for line in told.splitlines() if line.startswith(f"warning: {broken} is damaged and is not used: ")
    ]
    assert told.count(str(broken)) == 1


def test_what_means_something_to_latex_is_escaped() -> None:
    text = as_text(["share"], [["5 % & a_b ± 1"]], "latex")
    assert text.splitlines()[2] == r"5 \% \& a\_b $\pm$ 1 \\"
