"""Comparison of the filters of several models on one graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof._checks import check_data, check_seed
from edgeproof._names import unknown_name
from edgeproof._plotting import COLOURS, LINES, MARKERS, empty_figure, integer_ticks, write_figure, zero_line
from edgeproof._tables import Layout, Record, TabularResult
from edgeproof.analysis.coefficients import Coefficients, coefficients
from edgeproof.analysis.degrees import AttackedDegrees, attacked_degrees
from edgeproof.analysis.diffusion import diffusion, self_influence
from edgeproof.analysis.spectrum import Spectrum, spectrum
from edgeproof.attacks.base import AttackResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# On graphs of more than _MAX_ROWS nodes, _SAMPLED_ROWS random rows of the diffusion matrix estimate the mean over all.
_SAMPLED_ROWS, _MAX_ROWS = 100, 3000
# Larger degrees are counted together in the figure.
_MAX_DEGREE = 10


@dataclass(frozen=True, eq=False)
class ModelComparison(TabularResult):
    """Filters and misclassified nodes of several models, by model name.

    Args:
        coefficients: Filter coefficients.
        spectra: Spectral responses.
        self_influence: Mean fraction of a node's output that depends on the node itself, see :func:`self_influence`.
        degrees: Degrees of misclassified nodes, for the models with an attack result.
    """

    coefficients: dict[str, Coefficients]
    spectra: dict[str, Spectrum]
    self_influence: dict[str, float]
    degrees: dict[str, AttackedDegrees]

    @property
    def names(self) -> list[str]:
        """Names of the models."""
        return list(self.coefficients)

    def summary(self) -> Record:
        """Return the values that occur once, as numbers, text, lists and dictionaries."""
        return {}

    def _records(self) -> list[Record]:
        return [self._record(name) for name in self.names]

    def _record(self, name: str) -> Record:
        model_filter, degrees = self.coefficients[name], self.degrees.get(name)
        record = {
            "model": name,
            "matrix": "A + I" if model_filter.self_loops else "A",
            "gamma": model_filter.gamma.tolist(),
            "self_influence": self.self_influence[name],
            "mean_frequency": self.spectra[name].mean_frequency,
        }
        return record if degrees is None else {**record, **degrees.summary()}

    def _layout(self) -> Layout:
        header = ["model", "matrix", "gamma_0", "self-influence", "frequency"]
        if self.degrees:
            header += ["misclassified", "robust", "degree misclassified", "degree robust", "beyond degree, %"]
        return Layout("", header, [self._line(name) for name in self.names])

    def _line(self, name: str) -> list[str]:
        model_filter, degrees = self.coefficients[name], self.degrees.get(name)
        line = [name, "A + I" if model_filter.self_loops else "A", f"{float(model_filter.gamma[0]):.3f}"]
        line += [f"{self.self_influence[name]:.3f}", f"{self.spectra[name].mean_frequency:.3f}"]
        if degrees is not None:
            line += [str(int(degrees.misclassified.sum())), str(int(degrees.robust.sum()))]
            line += [f"{degrees.mean_degree_misclassified:.2f}", f"{degrees.mean_degree_robust:.2f}"]
            line += [f"{100 * degrees.beyond_degree:.1f}"]
        elif self.degrees:
            line += ["-"] * 5
        return line

    def figure(self) -> Figure:
        """Draw coefficients, responses, self-influence and, if models were attacked, misclassified nodes by degree."""
        panels = [self._draw_coefficients, self._draw_spectra, self._draw_self_influence]
        if self.degrees:
            panels.append(self._draw_degrees)
        columns = 2 if self.degrees else 3
        rows = -(-len(panels) // columns)
        figure = empty_figure(4 * columns, 3 * rows + 0.4)
        for number, (axes, draw) in enumerate(zip(figure.subplots(rows, columns).flat, panels, strict=True)):
            draw(axes)
            axes.set_title("abcd"[number], loc="left", fontweight="bold", fontsize="medium")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 5), frameon=False)
        return figure

    def plot(self, path: str | Path) -> None:
        """Write :meth:`figure` to a PNG or SVG file."""
        write_figure(self.figure(), path)

    def _draw_coefficients(self, axes: Axes) -> None:
        for number, (name, model_filter) in enumerate(self.coefficients.items()):
            gamma = model_filter.gamma
            _plot_line(axes, torch.arange(gamma.numel()), gamma, number, name, with_markers=True)
        zero_line(axes)
        axes.set_xlabel("steps k")
        axes.set_ylabel(r"$\gamma_k$, normalized to $\sum_k |\gamma_k| = 1$")

    def _draw_spectra(self, axes: Axes) -> None:
        for number, (name, response) in enumerate(self.spectra.items()):
            _plot_line(axes, response.frequency, response.relative, number, name)
        zero_line(axes)
        axes.set_xlim(0, 2)
        axes.set_xlabel(r"frequency $\lambda$")
        axes.set_ylabel(r"response $g(\lambda)$, maximum 1")

    def _draw_self_influence(self, axes: Axes) -> None:
        percentages = [100 * fraction for fraction in self.self_influence.values()]
        colours = [COLOURS[number % len(COLOURS)] for number in range(len(percentages))]
        axes.barh(self.names, percentages, color=colours)
        axes.invert_yaxis()
        axes.set_xlim(0, 100)
        axes.set_xlabel("self-influence, %")
        axes.set_ylabel("model")

    def _draw_degrees(self, axes: Axes) -> None:
        for number, name in enumerate(self.names):
            if name in self.degrees:
                degrees = self.degrees[name]
                clamped = degrees.degree[degrees.misclassified].clamp(max=_MAX_DEGREE)
                counts = clamped.bincount(minlength=_MAX_DEGREE + 1)
                _plot_line(axes, torch.arange(_MAX_DEGREE + 1), counts, number, name, with_markers=True)
        axes.set_xlabel(f"degree ({_MAX_DEGREE} = {_MAX_DEGREE} or more)")
        axes.set_ylabel("misclassified nodes")
        integer_ticks(axes.yaxis)


def compare(
    models: Mapping[str, nn.Module | Coefficients],
    data: Data,
    *,
    results: Mapping[str, AttackResult] | None = None,
    max_exact: int = 3000,
    seed: int = 0,
) -> ModelComparison:
    """Compare the filters of several models on one graph.

    Args:
        models: Models by name; see :func:`coefficients` for the supported classes.
        data: Graph.
        results: Results of attacks on this graph by the same names, for some or all of the models.
        max_exact: Largest number of nodes for which the eigenvalues are computed; see :func:`spectrum`.
        seed: Random seed of the estimated spectrum, and of the 100 nodes that estimate the self-influence on graphs of more
            than 3000 nodes.

    >>> from edgeproof import datasets, models
    >>> data = datasets.csbm("homophilous", num_nodes=200, p=0.05, q=0.01)
    >>> print(compare({"MLP": models.MLP(21, 2), "PageRank": models.APPNP(21, 2)}, data))
    model     matrix  gamma_0  self-influence  frequency
    MLP        A + I    1.000           1.000      0.831
    PageRank   A + I    0.100           0.153      0.449
    """
    check_data(data, labels=False)
    seed = check_seed(seed)
    if not models:
        raise ValueError("expected at least one model to compare, got an empty mapping")
    results = results or {}
    for name in results:
        if name not in models:
            raise unknown_name("model", name, models)
    filters = {name: coefficients(model) for name, model in models.items()}
    degrees = {name: attacked_degrees(results[name], data) for name in models if name in results}
    # One spectrum per matrix: the filters of all models are evaluated at the same frequencies.
    spectra: dict[bool, Spectrum] = {}
    for model_filter in filters.values():
        if model_filter.self_loops not in spectra:
            spectra[model_filter.self_loops] = spectrum(model_filter, data, max_exact=max_exact, seed=seed)
    nodes = _sample_rows(data, seed)
    return ModelComparison(
        coefficients=filters,
        spectra={name: spectra[each.self_loops].with_filter(each) for name, each in filters.items()},
        self_influence={name: self_influence(diffusion(each, data, nodes), nodes) for name, each in filters.items()},
        degrees=degrees,
    )


def _sample_rows(data: Data, seed: int) -> Tensor:
    num_nodes = data.x.size(0)
    if num_nodes <= _MAX_ROWS:
        return torch.arange(num_nodes)
    return torch.randperm(num_nodes, generator=torch.Generator().manual_seed(seed))[:_SAMPLED_ROWS]


def _plot_line(axes: Axes, x: Tensor, y: Tensor, number: int, name: str, *, with_markers: bool = False) -> None:
    """Draw the line of one model, which differs from others by colour, line style and marker."""
    axes.plot(
        x,
        y,
        label=name,
        color=COLOURS[number % len(COLOURS)],
        linestyle=LINES[number % len(LINES)],
        marker=MARKERS[number % len(MARKERS)] if with_markers else "",
        markersize=4,
    )
