"""Figures of the paper: their inputs, and drawings from complete and incomplete stores."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgeproof.attacks import LRBCD, PRBCD
from edgeproof.experiments import Job, Record, Store
from edgeproof.experiments.graphs import FINGERPRINTS, STAND_IN
from edgeproof.experiments.worker import Setup, keep, measure_without_model, run_job
from edgeproof.paper import (
    FIGURES,
    STAND_INS,
    TABLES,
    PaperFigure,
    PaperMeasurement,
    Recipe,
    find_figure,
    find_table,
    missing,
)
from edgeproof.paper.figures import figures_page, write_drawing
from edgeproof.paper.numbers import PaperRow

SETUP = Setup("cpu", 1, "a test")
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


def made_up(measurement: PaperMeasurement) -> dict[str, Any]:
    """Return random values in the format of the measurement."""
    draw = random.Random(repr(measurement))
    if measurement.kind == "filter":
        return {
            "gamma": [draw.uniform(-1, 1) for _ in range(11)],
            "self_loops": True,
            "density": [0.05] * 20 + [0.0] * 21,
            "mean_frequency": 0.5,
        }
    if measurement.kind == "diffusion":
        return {"matrix": [[1.0, 0.2], [0.2, 1.0]], "edges": [[0, 1]], "classes": [0, 1]}
    if measurement.kind == "degrees":
        return {"nodes": [[epsilon, [[1, 2, 3, 0], [4, 1, 2, 1], [40, 50, 1, 0]]] for epsilon in measurement.epsilons]}
    budgets = (0.0,) if measurement.kind == "clean" else measurement.epsilons
    return {"accuracy": [[epsilon, draw.uniform(0.4, 0.8)] for epsilon in budgets]}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def fill(store: Store, measurements: list[PaperMeasurement]) -> None:
    for measurement in measurements:
        store.put(Record(measurement.identity, made_up(measurement), "a test", {"device": "cpu"}, 1.0, {}))


def test_all_figures_of_the_paper_have_distinct_names() -> None:
    assert {figure.label for figure in FIGURES if figure.number} == PAPER
    assert sorted(figure.number for figure in FIGURES if figure.number) == list(range(1, 15))
    names = [name for shown in (*TABLES, *STAND_INS, *FIGURES) for name in (shown.label, shown.nickname)]
    assert len(names) == len(set(names))
    with pytest.raises(ValueError, match="unknown figure 'karat': did you mean 'karate'"):
        find_figure("karat")


def test_curves_of_a_table_need_only_measurements_of_the_table() -> None:
    assert set(find_figure("curves-citeseer").measurements()) <= set(find_table("citeseer").measurements())


def test_stand_in_has_the_settings_of_arxiv_and_one_seed() -> None:
    needed = [*find_figure("fig:arxiv").measurements(), *find_table("arxiv").measurements()]
    assert {measurement.recipe.seed for measurement in needed} == {0, 1, 5}
    real = [measurement for measurement in needed if measurement.recipe.seed == 0]
    other = [*find_figure("arxiv-stand-in").measurements(), *find_table("arxiv-table-stand-in").measurements()]
    graph = {"name": STAND_IN, "graph": FINGERPRINTS[STAND_IN, False, True], "largest_component": False}
    for arxiv, stand_in in zip(real, other, strict=True):
        run = {**arxiv.identity["run"], "dataset": graph}
        assert stand_in.identity == {**arxiv.identity, "run": run}
    assert "SYNTHETIC" in find_figure("arxiv-stand-in").draw(Store("nowhere")).note


def test_protocols_have_separate_measurements() -> None:
    figure = find_figure("gamma")
    released = PaperFigure("fig:x", None, "x", "x", figure.content, protocol="as_released")
    assert {measurement.recipe.protocol for measurement in released.measurements()} == {"as_released"}
    assert {measurement.recipe.protocol for measurement in figure.measurements()} == {"strict"}


def test_kinds_for_figures_are_attacks_with_other_settings() -> None:
    recipe = Recipe(PaperRow("inductive", "cora_ml", "GCN", True, None, None), 0)
    table, free = PaperMeasurement(recipe, "LRBCD"), PaperMeasurement(recipe, "LRBCD-global")
    assert isinstance(free.attack, LRBCD)
    assert (free.attack, free.epsilons, free.local, table.local) == (table.attack, table.epsilons, None, 0.5)
    slow = PaperMeasurement(recipe, "LRBCD-global-slow")
    assert (slow.attack, slow.local) == (replace(free.attack, lr=3.0), None)
    degrees = PaperMeasurement(recipe, "degrees")
    assert degrees.attack == PRBCD()
    assert (degrees.epsilons, degrees.local) == ((0.1, 0.25), None)
    kinds = ("clean", "LRBCD", "LRBCD-global", "LRBCD-global-slow", "PRBCD", "degrees", "filter", "diffusion")
    assert len({Store("x").path(PaperMeasurement(recipe, kind).identity) for kind in kinds}) == len(kinds)


@pytest.mark.parametrize("name", ["curves-citeseer", "arxiv-stand-in", "karate", "degrees", "gamma-all", "spectrum"])
def test_every_kind_of_figure_is_drawn(name: str, store: Store, tmp_path: Path) -> None:
    figure = find_figure(name)
    fill(store, figure.measurements(fast=True))
    drawing = figure.draw(store, fast=True)
    assert drawing.figure is not None
    assert (drawing.available, drawing.missing) == (drawing.wanted, ())
    # Inner panels share the labels of outer ones; the Karate club has the label of its colour bar.
    assert any(axes.get_ylabel() for axes in drawing.figure.axes)
    png, svg = write_drawing(drawing, tmp_path)
    assert (png.name, svg.name) == (f"{name}-fast.png", f"{name}-fast.svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert png.stat().st_size < 100_000
    assert "FAST VERSION" in svg.read_text(encoding="utf-8")


def test_drawing_is_deterministic(store: Store, tmp_path: Path) -> None:
    figure = find_figure("teaser")
    fill(store, figure.measurements())
    first, again = (write_drawing(figure.draw(store), tmp_path / name) for name in ("a", "b"))
    for path, same in zip(first, again, strict=True):
        assert path.read_bytes() == same.read_bytes()
    text = first[1].read_text(encoding="utf-8")
    assert "<dc:date>" not in text
    assert "FAST" not in text
    for words in ("test accuracy, %", "GPRGNN, LR-BCD-trained", "protocol strict", "seeds 0, 1, 5"):
        assert words in text


def test_curves_are_means_with_standard_errors(store: Store) -> None:
    figure = find_figure("perfect")
    for measurement in figure.measurements():
        accuracy = 0.5 + 0.1 * (0, 1, 5).index(measurement.recipe.seed)
        budgets = (0.0,) if measurement.kind == "clean" else measurement.epsilons
        values = {"accuracy": [[epsilon, accuracy] for epsilon in budgets]}
        store.put(Record(measurement.identity, values, "a test", {}, 1.0, {}))
    drawn = figure.draw(store).figure
    assert drawn is not None
    line, _, (bars,) = drawn.axes[0].containers[0]  # type: ignore[misc]
    assert line.get_xdata().tolist() == [0, 1, 5, 10, 25, 50, 100]
    assert line.get_ydata() == pytest.approx([60] * 7)
    error = 10 / 3**0.5
    for segment in bars.get_segments():
        assert segment[:, 1] == pytest.approx([60 - error, 60 + error])


def test_missing_measurements_are_named_and_the_rest_is_drawn(store: Store) -> None:
    figure = find_figure("attacks")
    nothing = figure.draw(store)
    assert nothing.figure is None
    assert (nothing.available, nothing.wanted) == (0, 45)
    gcn_only = [needed for needed in figure.measurements() if needed.recipe.row.model == "GCN"]
    fill(store, [needed for needed in gcn_only if "global" not in needed.kind][:-1])
    drawing = figure.draw(store)
    assert drawing.figure is not None
    assert "INCOMPLETE: 37 of 45 measurements are missing; seeds 0, 1, 5 are required." in drawing.note
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
    assert "`edgeproof reproduce run fig:app_comparison_att`: 8 of 45 measurements are stored." in page
    assert "pictures/karate" not in page
    assert "Not run yet." in page


def test_karate_club_is_run_logged_and_drawn(store: Store, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    figure = find_figure("karate")
    jobs = missing([figure], store, fast=True)
    assert [job.name for job in jobs][2] == "karate GPRGNN, LRBCD 0.2, transductive, seed 0, 60 epochs"
    # Two of the four trainings are enough.
    for job in (jobs[0], jobs[2]):
        for product in run_job(job, None, SETUP, store):
            keep(product, store, tmp_path / "logs")
    assert missing([figure], store, fast=True) == [jobs[1], jobs[3]]
    drawing = figure.draw(store, fast=True)
    assert drawing.figure is not None
    titles = [axes.get_title().split("\n")[0] for axes in drawing.figure.axes]
    assert titles[:3] == ["normalised adjacency", "regular", "LR-BCD-trained"]
    folders = sorted((tmp_path / "logs").iterdir())
    assert len(folders) == 2
    assert folders[0].name.startswith("karate-GPRGNN-LRBCD-0.2-transductive-seed-0-60-epochs-")
    events = accumulator.EventAccumulator(str(folders[0])).Reload()
    assert len(events.Scalars("accuracy/clean_val")) == 60


def test_filter_is_measured_without_the_model(store: Store) -> None:
    recipe = Recipe(PaperRow("inductive", "csbm", "GPRGNN", False, None, None), 0, fast=True)
    measurements = tuple(PaperMeasurement(recipe, kind).measurement for kind in ("filter", "clean"))
    job = Job(recipe.run, measurements)
    assert list(measure_without_model(job, store, "a test")) == []
    product, filtered, _ = run_job(job, None, SETUP, store)
    store.put(product.record)
    (again,) = measure_without_model(job, store, "a test")
    assert again.record.identity == filtered.record.identity
    assert again.record.values["gamma"] == pytest.approx(filtered.record.values["gamma"])
    assert again.record.values["density"] == filtered.record.values["density"]
    # The records of other models have no coefficients.
    other = Recipe(PaperRow("inductive", "csbm", "GCN", False, None, None), 0, fast=True)
    assert list(measure_without_model(Job(other.run, measurements[:1]), store, "a test")) == []
