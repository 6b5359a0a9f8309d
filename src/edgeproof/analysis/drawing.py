"""Figures of total diffusion matrices on small graphs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import shortest_path
from torch import Tensor
from torch_geometric.data import Data

from edgeproof._checks import check_data
from edgeproof._plotting import MARKERS, empty_figure, require_matplotlib, write_figure
from edgeproof.graph import UNKNOWN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

_MAX_NODES = 200
# Pairs below this fraction of the panel's strongest are not drawn, because they would hide the others.
_MIN_STRENGTH = 0.1
_POSITIVE, _NEGATIVE = "#b35806", "#542788"


def diffusion_figure(matrices: Mapping[str, Tensor], data: Data) -> Figure:
    r"""Draw total diffusion matrices as graphs, side by side, as in the paper's figure of the Karate club.

    Each matrix is divided by its largest absolute entry, because only proportions are meaningful. The width of the line between
    :math:`u` and :math:`v` is proportional to :math:`|T_{uv}|`, relative to the strongest pair of the panel, whose value is in
    the title; colour and line style show the sign. The colour of node :math:`u` shows :math:`T_{uu}`, its marker the class. The
    edges of the graph are thin and grey.

    Args:
        matrices: Full matrices from :func:`diffusion` by panel title.
        data: Graph of 2 to 200 nodes. The layout is deterministic; nodes few steps apart are near each other.
    """
    check_data(data, labels=False)
    _check_matrices(matrices, data.x.size(0))
    require_matplotlib()
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.lines import Line2D

    colours = ScalarMappable(Normalize(-1, 1), "PuOr_r")
    position = layout(data)
    width, height = (position.amax(dim=0) - position.amin(dim=0)).tolist()
    columns = len(matrices) if len(matrices) < 4 else math.ceil(math.sqrt(len(matrices)))
    rows = math.ceil(len(matrices) / columns)
    figure = empty_figure(3.6 * columns + 0.8, (3.6 * min(max(height / width, 0.4), 1.2) + 0.3) * rows)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes in panels:
        axes.set_axis_off()
    for axes, (title, matrix) in zip(panels, matrices.items(), strict=False):
        scaled = (matrix / matrix.abs().max()).cpu()
        strongest = float(scaled.triu(1).abs().max())
        axes.set_title(f"{title}\nstrongest pair {strongest:.2f}", fontsize="medium")
        _draw_matrix(axes, scaled, strongest, position, data, colours)
    figure.colorbar(colours, ax=panels, label="nodes: $T_{uu}$, largest entry 1")
    lines = [Line2D([], [], color=_POSITIVE), Line2D([], [], color=_NEGATIVE, linestyle="--")]
    figure.legend(lines, ["$T_{uv} > 0$", "$T_{uv} < 0$"], loc="outside lower right", ncols=2, frameon=False)
    return figure


def plot_diffusion(matrices: Mapping[str, Tensor], data: Data, path: str | Path) -> None:
    """Write :func:`diffusion_figure` to a PNG or SVG file."""
    write_figure(diffusion_figure(matrices, data), path)


def layout(data: Data, *, steps: int = 200) -> Tensor:
    r"""Return node positions in the plane whose distances approximate shortest-path distances, shape ``[nodes, 2]``.

    Minimizes the stress :math:`\sum_{u < v} d_{uv}^{-2} (\lVert x_u - x_v \rVert - d_{uv})^2` by majorization (de Leeuw 1977),
    starting at classical scaling; deterministic. The distance between different connected components is one more than the
    largest distance within a component.

    >>> edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> position = layout(Data(x=torch.zeros(3, 1), edge_index=edges))
    >>> torch.cdist(position, position).round(decimals=3)
    tensor([[0., 1., 2.],
            [1., 0., 1.],
            [2., 1., 0.]], dtype=torch.float64)
    """
    num_nodes = data.x.size(0)
    row, col = data.edge_index.cpu().numpy()
    adjacency = coo_array((torch.ones(row.size).numpy(), (row, col)), shape=(num_nodes, num_nodes)).tocsr()
    target: Tensor = torch.from_numpy(shortest_path(adjacency, unweighted=True))
    target[target.isinf()] = target[target.isfinite()].max() + 1
    centring = torch.eye(num_nodes, dtype=torch.float64) - 1 / num_nodes
    values, vectors = torch.linalg.eigh(-centring @ target.square() @ centring / 2)
    values, vectors = values[-2:].flip(0), vectors[:, -2:].flip(1)
    # Fix the arbitrary sign of each eigenvector.
    vectors = vectors * vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True)).sign()
    position: Tensor = vectors * values.clamp(min=0).sqrt()
    weight = torch.where(target > 0, target, torch.inf).pow(-2)
    inverse = torch.linalg.pinv(torch.diag(weight.sum(dim=1)) - weight)
    for _ in range(steps):
        distance = torch.cdist(position, position)
        pull = torch.where(distance > 1e-12, weight * target / distance, 0.0)
        position = inverse @ (torch.diag(pull.sum(dim=1)) - pull) @ position
    return position


def _check_matrices(matrices: Mapping[str, Tensor], num_nodes: int) -> None:
    if not 2 <= num_nodes <= _MAX_NODES:
        raise ValueError(f"expected 2 to {_MAX_NODES} nodes to draw, got {num_nodes}")
    if not matrices:
        raise ValueError("expected at least one matrix to draw, got an empty mapping")
    for title, matrix in matrices.items():
        if tuple(matrix.shape) != (num_nodes, num_nodes):
            raise ValueError(
                f"expected {title!r} as a matrix of shape [{num_nodes}, {num_nodes}], got {list(matrix.shape)}"
            )


def _draw_matrix(
    axes: Axes, matrix: Tensor, strongest: float, position: Tensor, data: Data, colours: ScalarMappable
) -> None:
    from matplotlib.collections import LineCollection

    axes.set_aspect("equal")
    edges = list(position[data.edge_index.cpu().T].numpy())
    axes.add_collection(LineCollection(edges, linewidths=0.4, colors="0.8", zorder=0))
    u, v = torch.triu_indices(matrix.size(0), matrix.size(0), offset=1)
    entry = matrix[u, v]
    # All entries are 0 if strongest is 0.
    strength = entry.abs() / (strongest or 1.0)
    # Ascending, so that the strongest pairs are drawn on top.
    order = strength.argsort()
    order = order[strength[order] > _MIN_STRENGTH]
    u, v, entry, strength = u[order], v[order], entry[order], strength[order]
    axes.add_collection(
        LineCollection(
            list(torch.stack([position[u], position[v]], dim=1).numpy()),
            linewidths=(4 * strength).tolist(),
            colors=[_POSITIVE if value > 0 else _NEGATIVE for value in entry.tolist()],
            alpha=0.7,
            linestyles=["-" if value > 0 else "--" for value in entry.tolist()],
            zorder=1,
        )
    )
    classes = torch.zeros(matrix.size(0), dtype=torch.long) if data.y is None else data.y.cpu()
    fill = colours.to_rgba(matrix.diagonal().numpy())
    for label in classes.unique().tolist():
        members = classes == label
        marker = "." if label == UNKNOWN else MARKERS[label % len(MARKERS)]
        x, y = position[members].T
        axes.scatter(x, y, s=45, c=fill[members.numpy()], marker=marker, edgecolors="black", linewidths=0.8, zorder=2)
    axes.margins(0.06)
