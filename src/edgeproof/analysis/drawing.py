"""Pictures of the total diffusion on small graphs."""

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
from edgeproof._plotting import MARKERS, empty_figure, write_figure
from edgeproof.graph import UNKNOWN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

_MAX_NODES = 200
# Pairs below this share of the panel's strongest would hide the others.
_FAINT = 0.1
_POSITIVE, _NEGATIVE = "#b35806", "#542788"


def diffusion_figure(matrices: Mapping[str, Tensor], data: Data) -> Figure:
    r"""Total diffusion matrices as graphs, side by side, as the paper draws them on the Karate club.

    The width of the line between :math:`u` and :math:`v` shows the size of :math:`T_{uv}`, beside that of the panel's strongest
    pair; its colour shows the sign, and negative entries are dashed. The colour of node :math:`u` shows :math:`T_{uu}`. Each
    matrix is divided by the size of its largest entry, for only proportions mean something, and titles say what the strongest
    pair then comes to. The graph's own edges are thin and grey; nodes of different classes have different shapes.

    Args:
        matrices: by title, whole matrices from :func:`diffusion`.
        data: the graph, of at most 200 nodes; a deterministic layout puts nodes near each other that are few steps apart.
    """
    check_data(data, labels=False)
    num_nodes = data.x.size(0)
    if not 2 <= num_nodes <= _MAX_NODES:
        raise ValueError(f"expected 2 to {_MAX_NODES} nodes to draw, got {num_nodes}")
    if not matrices:
        raise ValueError("expected at least one matrix to draw, got none")
    for title, matrix in matrices.items():
        if tuple(matrix.shape) != (num_nodes, num_nodes):
            raise ValueError(
                f"expected {title!r} as a matrix of shape [{num_nodes}, {num_nodes}], got {list(matrix.shape)}"
            )
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.lines import Line2D

    colours = ScalarMappable(Normalize(-1, 1), "PuOr_r")
    place = layout(data)
    wide, high = (place.amax(dim=0) - place.amin(dim=0)).tolist()
    columns = len(matrices) if len(matrices) < 4 else math.ceil(math.sqrt(len(matrices)))
    rows = math.ceil(len(matrices) / columns)
    figure = empty_figure(3.6 * columns + 0.8, (3.6 * min(max(high / wide, 0.4), 1.2) + 0.3) * rows)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes in panels:
        axes.set_axis_off()
    for axes, (title, matrix) in zip(panels, matrices.items(), strict=False):
        scaled = (matrix / matrix.abs().max()).cpu()
        strongest = float(scaled.triu(1).abs().max())
        axes.set_title(f"{title}\nstrongest pair {strongest:.2f}", fontsize="medium")
        _draw(axes, scaled, strongest, place, data, colours)
    figure.colorbar(colours, ax=panels, label="nodes: $T_{uu}$, largest entry 1")
    lines = [Line2D([], [], color=_POSITIVE), Line2D([], [], color=_NEGATIVE, linestyle="--")]
    figure.legend(lines, ["$T_{uv} > 0$", "$T_{uv} < 0$"], loc="outside lower right", ncols=2, frameon=False)
    return figure


def plot_diffusion(matrices: Mapping[str, Tensor], data: Data, path: str | Path) -> None:
    """:func:`diffusion_figure` as a PNG or SVG file."""
    write_figure(diffusion_figure(matrices, data), path)


def layout(data: Data, *, steps: int = 200) -> Tensor:
    r"""Places in the plane whose distances are close to the numbers of steps between nodes, shape ``[nodes, 2]``.

    Lowers the stress :math:`\sum_{u < v} d_{uv}^{-2} (\lVert x_u - x_v \rVert - d_{uv})^2` by majorisation (de Leeuw 1977),
    from classical scaling. Nothing is random. Parts of the graph that no path joins stand one step further apart than any two
    nodes within them.

    >>> edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> place = layout(Data(x=torch.zeros(3, 1), edge_index=edges))
    >>> torch.cdist(place, place).round(decimals=3)
    tensor([[0., 1., 2.],
            [1., 0., 1.],
            [2., 1., 0.]], dtype=torch.float64)
    """
    num_nodes = data.x.size(0)
    row, col = data.edge_index.cpu().numpy()
    links = coo_array((torch.ones(row.size).numpy(), (row, col)), shape=(num_nodes, num_nodes)).tocsr()
    distance: Tensor = torch.from_numpy(shortest_path(links, unweighted=True))
    distance[distance.isinf()] = distance[distance.isfinite()].max() + 1
    centre = torch.eye(num_nodes, dtype=torch.float64) - 1 / num_nodes
    values, vectors = torch.linalg.eigh(-centre @ distance.square() @ centre / 2)
    values, vectors = values[-2:].flip(0), vectors[:, -2:].flip(1)
    # The sign of an eigenvector is arbitrary.
    vectors = vectors * vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True)).sign()
    place: Tensor = vectors * values.clamp(min=0).sqrt()
    weight = torch.where(distance > 0, distance, torch.inf).pow(-2)
    inverse = torch.linalg.pinv(torch.diag(weight.sum(dim=1)) - weight)
    for _ in range(steps):
        apart = torch.cdist(place, place)
        pull = torch.where(apart > 1e-12, weight * distance / apart, 0.0)
        place = inverse @ (torch.diag(pull.sum(dim=1)) - pull) @ place
    return place


def _draw(axes: Axes, matrix: Tensor, strongest: float, place: Tensor, data: Data, colours: ScalarMappable) -> None:
    from matplotlib.collections import LineCollection

    axes.set_aspect("equal")
    own = list(place[data.edge_index.cpu().T].numpy())
    axes.add_collection(LineCollection(own, linewidths=0.4, colors="0.8", zorder=0))
    one, two = torch.triu_indices(matrix.size(0), matrix.size(0), offset=1)
    entry = matrix[one, two]
    # Without any pair all are 0.
    size = entry.abs() / (strongest or 1.0)
    # The strongest come last, on top.
    order = size.argsort()
    order = order[size[order] > _FAINT]
    one, two, entry, size = one[order], two[order], entry[order], size[order]
    axes.add_collection(
        LineCollection(
            list(torch.stack([place[one], place[two]], dim=1).numpy()),
            linewidths=(4 * size).tolist(),
            colors=[_POSITIVE if value > 0 else _NEGATIVE for value in entry.tolist()],
            alpha=0.7,
            linestyles=["-" if value > 0 else "--" for value in entry.tolist()],
            zorder=1,
        )
    )
    classes = torch.zeros(matrix.size(0), dtype=torch.long) if data.y is None else data.y.cpu()
    inside = colours.to_rgba(matrix.diagonal().numpy())
    for label in classes.unique().tolist():
        member = classes == label
        marker = "." if label == UNKNOWN else MARKERS[label % len(MARKERS)]
        x, y = place[member].T
        axes.scatter(x, y, s=45, c=inside[member.numpy()], marker=marker, edgecolors="black", linewidths=0.8, zorder=2)
    axes.margins(0.06)
