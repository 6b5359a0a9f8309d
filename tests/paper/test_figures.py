"""Figures of the paper: what they are made from, that they are drawn as far as there are results, and say what is missing."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from edgeproof.experiments.figures import figures_page, write_drawing
from edgeproof.experiments.measure import Measure
from edgeproof.experiments.paper import STAND_IN, Row
from edgeproof.experiments.recipe import GRAPHS, Recipe
from edgeproof.experiments.work import keep, read_off, work

from edgeproof.attacks import LRBCD, PRBCD
from edgeproof.experiments import (
    FIGURES,
    STAND_INS,
    TABLES,
    Job,
    PaperFigure,
    Record,
    Store,
    find,
    find_figure,
    missing,
)

PAPER = {
    "fig:starplot",
    "fig:self_training_causes_rob",
    "fig:adv_trn_causes_overfitting",
    "fig:karate",
    "fig:pert_per_node",
    "fig:inductive_gammas",
    "fig:inductive_spectrum",
    "fig:arxiv",
    "fig:app_selftrn_cora_eps01",
    "fig:app_selftrn_cora_eps05",
    "fig:app_selftrn_citeseer_eps01",
    "fig:app_gammas",
    "fig:app_gammas_spectral",
    "fig:app_comparison_att",
}


def made_up(measure: Measure) -> dict[str, Any]:
    """Something of the form that the measurement has."""
    draw = random.Random(repr(measure))
    if measure.kind == "filter":
        return {
            "gamma": [draw.uniform(-1, 1) for _ in range(11)],
            "self_loops": True,
            "density": [0.05] * 20 + [0.0] * 21,
            "mean_frequency": 0.5,
        }
    if measure.kind == "diffusion":
        return {"matrix": [[1.0, 0.2], [0.2, 1.0]], "edges": [[0, 1]], "classes": [0, 1]}
    if measure.kind == "degrees":
        return {"nodes": [[epsilon, [[1, 2, 3, 0], [4, 1, 2, 1], [40, 50, 1, 0]]] for epsilon in measure.epsilons]}
    budgets = (0.0,) if measure.kind == "clean" else measure.epsilons
    return {"accuracy": [[epsilon, draw.uniform(0.4, 0.8)] for epsilon in budgets]}


def fill(store: Store, measures: list[Measure]) -> None:
    for measure in measures:
        store.put(Record(measure.identity, made_up(measure), "a test", {"device": "cpu"}, 1.0, {}))


def test_all_figures_of_the_paper_are_there_under_names_of_their_own() -> None:
    assert {figure.label for figure in FIGURES if figure.number} == PAPER
    assert sorted(figure.number for figure in FIGURES if figure.number) == list(range(1, 15))
    names = [name for one in (*TABLES, *STAND_INS, *FIGURES) for name in (one.label, one.nickname)]
    assert len(names) == len(set(names))
    with pytest.raises(ValueError, match="unknown figure 'karat': did you mean 'karate'"):
        find_figure("karat")


def test_curves_of_a_table_need_nothing_that_the_table_does_not() -> None:
    assert set(find_figure("curves-citeseer").measures()) <= set(find("citeseer").measures())


def test_the_stand_in_has_the_settings_of_arxiv_one_seed_and_another_name() -> None:
    asked = [*find_figure("fig:arxiv").measures(), *find("arxiv").measures()]
    assert {measure.recipe.seed for measure in asked} == {0, 1, 5}
    real = [measure for measure in asked if measure.recipe.seed == 0]
    other = [*find_figure("arxiv-stand-in").measures(), *find("arxiv-table-stand-in").measures()]
    for one, two in zip(real, other, strict=True):
        assert two.recipe.row.dataset == STAND_IN
        named = {"dataset": STAND_IN, "graph": GRAPHS[STAND_IN]}
        assert two.identity["training"] == {**one.identity["training"], **named}
        assert {**two.identity, "training": None} == {**one.identity, "training": None}
    assert "SYNTHETIC" in find_figure("arxiv-stand-in").draw(Store("nowhere")).note


def test_protocols_have_results_of_their_own() -> None:
    figure = find_figure("gamma")
    released = PaperFigure("fig:x", None, "x", "x", figure.content, protocol="as_released")
    assert {measure.recipe.protocol for measure in released.measures()} == {"as_released"}
    assert {measure.recipe.protocol for measure in figure.measures()} == {"strict"}


def test_kinds_for_figures_are_attacks_by_another_name() -> None:
    recipe = Recipe(Row("inductive", "cora_ml", "GCN", True, None, None), 0)
    table, free = Measure(recipe, "LRBCD"), Measure(recipe, "LRBCD-global")
    assert isinstance(free.attack, LRBCD)
    assert (free.attack, free.epsilons, free.local, table.local) == (table.attack, table.epsilons, None, 0.5)
    slow = Measure(recipe, "LRBCD-global-slow")
    assert (slow.attack, slow.local) == (replace(free.attack, lr=3.0), None)
    degrees = Measure(recipe, "degrees")
    assert degrees.attack == PRBCD()
    assert (degrees.epsilons, degrees.local) == ((0.1, 0.25), None)
    kinds = ("clean", "LRBCD", "LRBCD-global", "LRBCD-global-slow", "PRBCD", "degrees", "filter", "diffusion")
    assert len({Store("x").path(Measure(recipe, kind).identity) for kind in kinds}) == len(kinds)


@pytest.mark.parametrize("name", ["curves-citeseer", "arxiv-stand-in", "karate", "degrees", "gamma-all", "spectrum"])
def test_every_kind_of_figure_is_drawn(name: str, store: Store, tmp_path: Path) -> None:
    figure = find_figure(name)
    fill(store, figure.measures(fast=True))
    drawing = figure.draw(store, fast=True)
    assert drawing.figure is not None
    assert (drawing.there, drawing.missing) == (drawing.wanted, ())
    # Inner panels share the labels of outer ones; the Karate club's is that of its colours.
    assert any(axes.get_ylabel() for axes in drawing.figure.axes)
    png, svg = write_drawing(drawing, tmp_path)
    assert (png.name, svg.name) == (f"{name}-fast.png", f"{name}-fast.svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert png.stat().st_size < 100_000
    assert "FAST VERSION" in svg.read_text(encoding="utf-8")


def test_the_same_figure_is_the_same_file(store: Store, tmp_path: Path) -> None:
    figure = find_figure("teaser")
    fill(store, figure.measures())
    first, again = (write_drawing(figure.draw(store), tmp_path / name) for name in ("a", "b"))
    for one, two in zip(first, again, strict=True):
        assert one.read_bytes() == two.read_bytes()
    text = first[1].read_text(encoding="utf-8")
    assert "<dc:date>" not in text
    assert "FAST" not in text
    for words in ("test accuracy, %", "GPRGNN, LR-BCD-trained", "protocol strict", "seeds 0, 1, 5"):
        assert words in text


def test_curves_are_means_with_standard_errors(store: Store) -> None:
    figure = find_figure("perfect")
    for measure in figure.measures():
        accuracy = 0.5 + 0.1 * (0, 1, 5).index(measure.recipe.seed)
        budgets = (0.0,) if measure.kind == "clean" else measure.epsilons
        values = {"accuracy": [[epsilon, accuracy] for epsilon in budgets]}
        store.put(Record(measure.identity, values, "a test", {}, 1.0, {}))
    drawn = figure.draw(store).figure
    assert drawn is not None
    line, _, (bars,) = drawn.axes[0].containers[0]  # type: ignore[misc]
    assert line.get_xdata().tolist() == [0, 1, 5, 10, 25, 50, 100]
    assert line.get_ydata() == pytest.approx([60] * 7)
    error = 10 / 3**0.5
    for segment in bars.get_segments():
        assert segment[:, 1] == pytest.approx([60 - error, 60 + error])


def test_what_is_missing_is_said_and_the_rest_is_drawn(store: Store) -> None:
    figure = find_figure("attacks")
    nothing = figure.draw(store)
    assert nothing.figure is None
    assert (nothing.there, nothing.wanted) == (0, 45)
    there = [one for one in figure.measures() if one.recipe.row.model == "GCN" and "global" not in one.kind]
    fill(store, there[:-1])
    drawing = figure.draw(store)
    assert drawing.figure is not None
    assert "INCOMPLETE: 37 of 45 measurements are missing; seeds 0, 1, 5 are wanted." in drawing.note
    assert drawing.missing == (
        "cora_ml GPRGNN, self-trained: clean, PRBCD, LRBCD-global, LRBCD, LRBCD-global-slow",
        "cora_ml APPNP, self-trained: clean, PRBCD, LRBCD-global, LRBCD, LRBCD-global-slow",
        "cora_ml GCN, self-trained: LRBCD-global, LRBCD (1 of 3 seeds), LRBCD-global-slow",
    )
    gprgnn, _, gcn = drawing.figure.axes
    assert [text.get_text() for text in gprgnn.texts] == ["not run yet"]
    assert len(gcn.containers) == 2
    page = figures_page([(figure, drawing), (find_figure("karate"), find_figure("karate").draw(store))], "pictures")
    assert "![Figure 14: Cora-ML: PR-BCD and LR-BCD on self-trained models](pictures/attacks.png)" in page
    assert "`edgeproof reproduce run fig:app_comparison_att`: 8 of 45 measurements are there." in page
    assert "pictures/karate" not in page
    assert "Not run yet." in page


def test_the_karate_club_is_run_logged_and_drawn_for_real(store: Store, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    figure = find_figure("karate")
    jobs = missing([figure], store, fast=True)
    assert [job.name for job in jobs][2] == "karate GPRGNN, LRBCD 0.2, transductive, seed 0, fast"
    # Two of the four trainings are enough to see that everything fits together.
    for job in (jobs[0], jobs[2]):
        for product in work(job, None, "cpu", 1, "a test", store):
            keep(product, store, tmp_path / "logs")
    assert missing([figure], store, fast=True) == [jobs[1], jobs[3]]
    drawing = figure.draw(store, fast=True)
    assert drawing.figure is not None
    titles = [axes.get_title().split("\n")[0] for axes in drawing.figure.axes]
    assert titles[:3] == ["normalised adjacency", "regular", "LR-BCD-trained"]
    folders = sorted((tmp_path / "logs").iterdir())
    assert len(folders) == 2
    assert folders[0].name.startswith("karate-GPRGNN-LRBCD-0.2-transductive-seed-0-fast-")
    events = accumulator.EventAccumulator(str(folders[0])).Reload()
    assert len(events.Scalars("accuracy/clean_val")) == 60


def test_what_training_wrote_down_needs_no_model(store: Store) -> None:
    recipe = Recipe(Row("inductive", "csbm", "GPRGNN", False, None, None), 0, fast=True)
    job = Job(recipe, (Measure(recipe, "filter"), Measure(recipe, "clean")))
    assert list(read_off(job, store, "a test")) == []
    product, filtered, _ = work(job, None, "cpu", 1, "a test", store)
    store.put(product.record)
    (again,) = read_off(job, store, "a test")
    assert again.record.identity == filtered.record.identity
    assert again.record.values["gamma"] == pytest.approx(filtered.record.values["gamma"])
    assert again.record.values["density"] == filtered.record.values["density"]
    # Of other models nothing is written down.
    other = Recipe(Row("inductive", "csbm", "GCN", False, None, None), 0, fast=True)
    assert list(read_off(Job(other, (Measure(other, "filter"),)), store, "a test")) == []


def test_filters_and_degrees_are_measured_for_real() -> None:
    recipe = Recipe(Row("inductive", "csbm", "GPRGNN", False, None, None), 0, fast=True)
    split = recipe.split(recipe.data())
    model, _ = recipe.train(split, "cpu")
    found = Measure(recipe, "filter").run(model, split)
    assert sum(map(abs, found["gamma"])) == pytest.approx(1)
    assert sum(found["density"]) == pytest.approx(1, abs=1e-4)
    nodes = Measure(recipe, "degrees").run(model, split)["nodes"]
    assert [epsilon for epsilon, _ in nodes] == [0.1, 0.25]
    with torch.no_grad():
        logits = model(split.test.data.x, split.test.data.edge_index)[split.test.nodes]
    right = int((logits.argmax(1) == split.test.data.y[split.test.nodes]).sum())
    degree = split.test.data.edge_index[0].bincount(minlength=split.test.data.num_nodes)[split.test.nodes]
    for _, lines in nodes:
        # Whoever was right either fell or stands.
        assert sum(fell + stands for _, _, fell, stands in lines) == right
        # Degrees are those of test nodes; with a tenth or a quarter of all edges changed, there are fewer at any of them.
        assert {line[0] for line in lines} <= set(degree.tolist())
        assert max(line[1] for line in lines) < int(degree.max())
