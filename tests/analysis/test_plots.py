"""Tests of figures: readable files, labelled axes, no state left in pyplot."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.image import imread
from torch_geometric.data import Data
from torch_geometric.datasets import KarateClub

import edgeproof as ep
from edgeproof.analysis import (
    AttackedDegrees,
    Coefficients,
    attacked_degrees,
    coefficients,
    compare,
    diffusion,
    diffusion_figure,
    plot_diffusion,
    spectrum,
)
from edgeproof.analysis.drawing import layout


@pytest.fixture(scope="module")
def karate() -> Data:
    return KarateClub()[0]


@pytest.fixture
def attacked(sbm: Data) -> tuple[torch.nn.Module, ep.attacks.AttackResult]:
    model = ep.models.build("GCN", 21, 2, seed=0)
    return model, ep.attacks.GreedyRBCD(steps=3)(model, sbm, torch.arange(60), ep.Budget(40))


def labels(figure: Figure) -> list[tuple[str, str]]:
    return [(axes.get_xlabel(), axes.get_ylabel()) for axes in figure.axes]


def test_every_result_writes_a_figure(
    sbm: Data, attacked: tuple[torch.nn.Module, ep.attacks.AttackResult], tmp_path: Path
) -> None:
    model, result = attacked
    drawn = {
        "coefficients": coefficients(model),
        "spectrum": spectrum(model, sbm),
        "estimate": spectrum(model, sbm, max_exact=10),
        "degrees": attacked_degrees(result, sbm),
        "comparison": compare({"one": model, "other": ep.models.APPNP(21, 2)}, sbm),
    }
    for name, value in drawn.items():
        value.plot(tmp_path / f"{name}.png")
        image = imread(tmp_path / f"{name}.png")
        assert image.ndim == 3
        assert min(image.shape[:2]) > 300
        assert image[..., :3].std() > 0.02  # not blank
    coefficients(model).plot(str(tmp_path / "new" / "figure.svg"))
    assert ElementTree.parse(tmp_path / "new" / "figure.svg").getroot().tag.endswith("svg")


def test_coefficients_figure_has_bars() -> None:
    figure = Coefficients.of([1.0, -3.0], self_loops=True).figure()
    assert labels(figure) == [("steps k", r"$\gamma_k$, normalized to $\sum_k |\gamma_k| = 1$")]
    assert [bar.get_height() for bar in figure.axes[0].patches] == [0.25, -0.75]
    assert "normalized A + I" in figure.axes[0].get_title()


def test_spectrum_figure_has_response_and_density(cycle: Data) -> None:
    result = spectrum(Coefficients.of([1.0, -1.0], self_loops=False), cycle)
    above, below = result.figure().axes
    assert above.get_ylabel() == r"response $g(\lambda)$, maximum 1"
    assert (below.get_xlabel(), below.get_ylabel()) == (r"frequency $\lambda$", "eigenvalues, %")
    assert max(above.lines[0].get_ydata()) == pytest.approx(1)
    assert sum(bar.get_height() for bar in below.patches) == pytest.approx(100)


def test_degrees_figure_shows_counts() -> None:
    degree, flips = torch.tensor([1, 1, 2, 40]), torch.tensor([2, 2, 1, 0])
    misclassified = torch.ones(4, dtype=torch.bool)
    figure = AttackedDegrees(torch.arange(4), degree, flips, misclassified, ~misclassified).figure()
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("degree (15 = 15 or more)", "flips at the node")
    assert {(*text.get_position(), text.get_text()) for text in axes.texts} == {(1, 2, "2"), (2, 1, "1"), (15, 0, "1")}


def test_degrees_figure_without_misclassified_nodes() -> None:
    nodes, nowhere = torch.arange(3), torch.zeros(3, dtype=torch.bool)
    figure = AttackedDegrees(nodes, nodes, torch.zeros(3, dtype=torch.long), nowhere, ~nowhere).figure()
    assert not figure.axes[0].texts


def test_comparison_figure_shows_every_model(
    sbm: Data, attacked: tuple[torch.nn.Module, ep.attacks.AttackResult]
) -> None:
    model, result = attacked
    models = {"one": model, "other": ep.models.APPNP(21, 2)}
    figure = compare(models, sbm).figure()
    assert len(figure.axes) == 3
    assert all(x and y for x, y in labels(figure))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "other"]
    lines = figure.axes[0].lines[:2]
    assert len({line.get_color() for line in lines}) == len({line.get_linestyle() for line in lines}) == 2
    figure = compare(models, sbm, results={"one": result}).figure()
    assert labels(figure)[3] == ("degree (10 = 10 or more)", "misclassified nodes")
    assert len(figure.axes[3].lines) == 1


def test_diffusion_figure_of_karate_club(karate: Data, tmp_path: Path) -> None:
    matrices = {
        "adjacency": diffusion(Coefficients.of([0.0, 1.0], self_loops=True), karate),
        "no graph": diffusion(ep.models.MLP(34, 4), karate),
        "negative": -diffusion(Coefficients.of([0.0, 1.0], self_loops=False), karate),
        "pagerank": diffusion(ep.models.APPNP(34, 4), karate),
    }
    figure = diffusion_figure(matrices, karate)
    assert [axes.get_title().split("\n")[0] for axes in figure.axes] == [*matrices, ""]
    strongest = [axes.get_title().split("\n")[1] for axes in figure.axes[:3]]
    assert strongest == ["strongest pair 0.52", "strongest pair 0.00", "strongest pair 1.00"]
    assert "T_{uu}" in figure.axes[-1].get_ylabel()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["$T_{uv} > 0$", "$T_{uv} < 0$"]
    drawn = [[lines for lines in axes.collections if isinstance(lines, LineCollection)][1] for axes in figure.axes[:-1]]
    # One line per edge for the adjacency matrix, none for the MLP, one per connected pair for APPNP.
    assert [len(lines.get_segments()) for lines in drawn[:3]] == [78, 0, 78]
    assert len(drawn[3].get_segments()) > 78
    assert max(drawn[0].get_linewidths()) == max(drawn[2].get_linewidths()) == pytest.approx(4)
    # The sign determines colour and line style.
    (positive,), (negative,) = ({tuple(colour) for colour in drawn[one].get_colors()} for one in (0, 2))
    assert positive != negative
    dashed = [{offset_and_dashes[1] is not None for offset_and_dashes in drawn[one].get_linestyles()} for one in (0, 2)]
    assert dashed == [{False}, {True}]
    plot_diffusion(matrices, karate, tmp_path / "karate.png")
    assert imread(tmp_path / "karate.png")[..., :3].std() > 0.02


def test_layout_preserves_distances(karate: Data) -> None:
    position = layout(karate)
    assert torch.equal(position, layout(karate))
    assert position.isfinite().all()
    distance = torch.cdist(position, position)
    row, col = karate.edge_index
    near = distance[row, col].mean()
    far = distance.sum() / (34 * 33)
    assert near < 0.75 * far


def test_disconnected_graph_is_drawn(graph: Data) -> None:
    position = layout(graph)
    distance = torch.cdist(position, position)
    assert distance[0, 6] > distance[0, 1]
    assert diffusion_figure({"": diffusion(ep.models.APPNP(5, 2), graph)}, graph).axes


def test_invalid_arguments_raise(graph: Data, sbm: Data, tmp_path: Path) -> None:
    identity = Coefficients.of([1.0], self_loops=True)
    with pytest.raises(ValueError, match=r"expected a path that ends in \.png or \.svg, got 'picture.jpeg'"):
        identity.plot("picture.jpeg")
    with pytest.raises(ValueError, match="expected at least one matrix to draw, got an empty mapping"):
        diffusion_figure({}, graph)
    with pytest.raises(ValueError, match=r"expected 'rows' as a matrix of shape \[7, 7\], got \[2, 7\]"):
        diffusion_figure({"rows": diffusion(identity, graph, torch.tensor([0, 1]))}, graph)
    large = ep.datasets.csbm(num_nodes=201)
    with pytest.raises(ValueError, match="expected 2 to 200 nodes to draw, got 201"):
        plot_diffusion({"": diffusion(identity, large)}, large, tmp_path / "large.png")
    assert not list(tmp_path.iterdir())


def test_missing_matplotlib_raises_with_install_hint(monkeypatch: pytest.MonkeyPatch, karate: Data) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    identity = Coefficients.of([1.0], self_loops=True)
    for draw in (identity.figure, lambda: diffusion_figure({"": diffusion(identity, karate)}, karate)):
        with pytest.raises(ImportError, match=r"matplotlib is needed for plots: pip install 'edgeproof\[plot\]'"):
            draw()


def test_figures_are_not_registered_in_pyplot() -> None:
    Coefficients.of([1.0, 2.0], self_loops=True).figure()
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()
