"""Several models side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof._checks import check_data
from edgeproof._names import unknown_name
from edgeproof._plotting import COLOURS, LINES, MARKERS, empty_figure, integer_ticks, write_figure, zero_line
from edgeproof.analysis.coefficients import Coefficients, coefficients
from edgeproof.analysis.degrees import AttackedDegrees, attacked_degrees
from edgeproof.analysis.diffusion import diffusion, own_share
from edgeproof.analysis.spectrum import Spectrum, spectrum
from edgeproof.attacks.base import AttackResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The rows of so many random nodes stand for all on graphs of more than the other number.
_SOME_ROWS, _MAX_ROWS = 100, 3000
# Degrees from here on are counted together in the picture.
_LAST = 10


@dataclass(frozen=True, eq=False)
class Comparison:
    """What several models have learned, by name.

    Args:
        coefficients: the polynomial view.
        spectra: the spectral view.
        own_shares: the spatial view in one number, see :func:`own_share`.
        degrees: where attacks succeeded, for the models that came with an attack's result.
    """

    coefficients: dict[str, Coefficients]
    spectra: dict[str, Spectrum]
    own_shares: dict[str, float]
    degrees: dict[str, AttackedDegrees]

    @property
    def names(self) -> list[str]:
        return list(self.coefficients)

    def __str__(self) -> str:
        width = max(len("model"), *map(len, self.names)) + 2
        head = f"{'model':{width}}{'matrix':>8}{'gamma_0':>10}{'own share':>11}{'frequency':>11}"
        if self.degrees:
            head += f"{'fell':>7}{'stand':>7}{'degree fell':>13}{'stand':>8}{'beyond, %':>11}"
        return "\n".join([head, *(self._row(name, width) for name in self.names)])

    def _row(self, name: str, width: int) -> str:
        found = self.coefficients[name]
        line = f"{name:{width}}{'A + I' if found.self_loops else 'A':>8}{float(found.gamma[0]):10.3f}"
        line += f"{self.own_shares[name]:11.3f}{self.spectra[name].mean_frequency:11.3f}"
        if name in self.degrees:
            nodes = self.degrees[name]
            line += f"{int(nodes.fell.sum()):7}{int(nodes.stands.sum()):7}{nodes.mean_degree_fell:13.2f}"
            line += f"{nodes.mean_degree_stands:8.2f}{100 * nodes.beyond_degree:11.1f}"
        return line

    def figure(self) -> Figure:
        """Coefficients, responses, shares of the node itself, and, where models were attacked, fallen nodes by degree."""
        draw = [self._draw_coefficients, self._draw_spectra, self._draw_own_shares]
        if self.degrees:
            draw.append(self._draw_degrees)
        columns = 2 if self.degrees else 3
        rows = -(-len(draw) // columns)
        figure = empty_figure(4 * columns, 3 * rows + 0.4)
        for number, (axes, panel) in enumerate(zip(figure.subplots(rows, columns).flat, draw, strict=True)):
            panel(axes)
            axes.set_title("abcd"[number], loc="left", fontweight="bold", fontsize="medium")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 5), frameon=False)
        return figure

    def plot(self, path: str | Path) -> None:
        """:meth:`figure` as a PNG or SVG file."""
        write_figure(self.figure(), path)

    def _draw_coefficients(self, axes: Axes) -> None:
        for number, (name, found) in enumerate(self.coefficients.items()):
            _line(axes, torch.arange(found.gamma.numel()), found.gamma, number, name, with_markers=True)
        zero_line(axes)
        axes.set_xlabel("steps k")
        axes.set_ylabel(r"$\gamma_k$, sum of sizes 1")

    def _draw_spectra(self, axes: Axes) -> None:
        for number, (name, found) in enumerate(self.spectra.items()):
            _line(axes, found.frequency, found.relative, number, name)
        zero_line(axes)
        axes.set_xlim(0, 2)
        axes.set_xlabel(r"frequency $\lambda$")
        axes.set_ylabel(r"response $g(\lambda)$, largest 1")

    def _draw_own_shares(self, axes: Axes) -> None:
        shares = [100 * share for share in self.own_shares.values()]
        axes.barh(self.names, shares, color=[COLOURS[number % len(COLOURS)] for number in range(len(shares))])
        axes.invert_yaxis()
        axes.set_xlim(0, 100)
        axes.set_xlabel("heard from itself, %")
        axes.set_ylabel("model")

    def _draw_degrees(self, axes: Axes) -> None:
        for number, name in enumerate(self.names):
            if name in self.degrees:
                fell = self.degrees[name].degree[self.degrees[name].fell].clamp(max=_LAST).bincount(minlength=_LAST + 1)
                _line(axes, torch.arange(_LAST + 1), fell, number, name, with_markers=True)
        axes.set_xlabel(f"degree, {_LAST} stands for more")
        axes.set_ylabel("nodes that fell")
        integer_ticks(axes.yaxis)


def compare(
    models: Mapping[str, nn.Module | Coefficients],
    data: Data,
    *,
    results: Mapping[str, AttackResult] | None = None,
    max_exact: int = 3000,
    seed: int = 0,
) -> Comparison:
    """Analyse several models on one graph.

    Args:
        models: by name; see :func:`coefficients` for those that work.
        data: the graph.
        results: by the same names, what attacks on this graph found, for some or all of the models.
        max_exact: on graphs of more nodes, eigenvalues are estimated; see :func:`spectrum`.
        seed: for that estimate, and for the 100 nodes whose own shares stand for all on graphs of more than 3000.

    >>> from edgeproof import datasets, models
    >>> data = datasets.csbm("homophilous", num_nodes=200, p=0.05, q=0.01)
    >>> print(compare({"deaf": models.MLP(21, 2), "PageRank": models.APPNP(21, 2)}, data))
    model       matrix   gamma_0  own share  frequency
    deaf         A + I     1.000      1.000      0.831
    PageRank     A + I     0.100      0.153      0.449
    """
    check_data(data, labels=False)
    if not models:
        raise ValueError("expected at least one model to compare, got none")
    results = results or {}
    for name in results:
        if name not in models:
            raise unknown_name("model", name, models)
    found = {name: coefficients(model) for name, model in models.items()}
    degrees = {name: attacked_degrees(results[name], data) for name in models if name in results}
    graphs: dict[bool, Spectrum] = {}
    for one in found.values():
        if one.self_loops not in graphs:
            graphs[one.self_loops] = spectrum(one, data, max_exact=max_exact, seed=seed)
    nodes = _rows(data, seed)
    return Comparison(
        coefficients=found,
        spectra={name: graphs[one.self_loops].filtered_by(one) for name, one in found.items()},
        own_shares={name: own_share(diffusion(one, data, nodes), nodes) for name, one in found.items()},
        degrees=degrees,
    )


def _rows(data: Data, seed: int) -> Tensor:
    num_nodes = data.x.size(0)
    if num_nodes <= _MAX_ROWS:
        return torch.arange(num_nodes)
    return torch.randperm(num_nodes, generator=torch.Generator().manual_seed(seed))[:_SOME_ROWS]


def _line(axes: Axes, x: Tensor, y: Tensor, number: int, name: str, *, with_markers: bool = False) -> None:
    """One model's line, told from others by more than its colour."""
    axes.plot(
        x,
        y,
        label=name,
        color=COLOURS[number % len(COLOURS)],
        linestyle=LINES[number % len(LINES)],
        marker=MARKERS[number % len(MARKERS)] if with_markers else "",
        markersize=4,
    )
