"""Where attacks succeed: at nodes of which degree, and with how many changed edges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgeproof._checks import check_data
from edgeproof._plotting import COLOURS, empty_figure, integer_ticks, write_figure
from edgeproof.attacks.base import AttackResult
from edgeproof.graph import degree, flip_pairs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Degrees, and numbers of edges, from here on share the last row or column of a picture.
_LAST = 15


@dataclass(frozen=True, eq=False)
class AttackedDegrees:
    """For each target node its degree, the flips at it, and whether it fell.

    A node *fell* if the model was right about it before and is wrong after the attack; it *stands* if the model is right before
    and after. Nodes that were wrong from the start are neither. A tie of two classes is wrong.

    Args:
        nodes: the target nodes.
        degree: their degrees before the attack, same shape.
        flips: adversarial edges at them, added and removed ones together, same shape.
        fell: whether each fell, same shape.
        stands: whether each stands, same shape.
    """

    nodes: Tensor
    degree: Tensor
    flips: Tensor
    fell: Tensor
    stands: Tensor

    @property
    def counts(self) -> Tensor:
        """Nodes that fell, by degree and flips at them: shape ``[largest degree + 1, most flips + 1]``."""
        shape = int(self.degree.max()) + 1, int(self.flips.max()) + 1
        joint = (self.degree * shape[1] + self.flips)[self.fell]
        return joint.bincount(minlength=shape[0] * shape[1]).view(shape)

    @property
    def fell_by_degree(self) -> Tensor:
        """How many nodes of degree 0, 1, … fell."""
        return self.degree[self.fell].bincount(minlength=int(self.degree.max()) + 1)

    @property
    def stands_by_degree(self) -> Tensor:
        """How many nodes of degree 0, 1, … stand."""
        return self.degree[self.stands].bincount(minlength=int(self.degree.max()) + 1)

    @property
    def fell_by_flips(self) -> Tensor:
        """How many nodes with 0, 1, … flips at them fell."""
        return self.flips[self.fell].bincount(minlength=int(self.flips.max()) + 1)

    @property
    def stands_by_flips(self) -> Tensor:
        """How many nodes with 0, 1, … flips at them stand."""
        return self.flips[self.stands].bincount(minlength=int(self.flips.max()) + 1)

    @property
    def mean_degree_fell(self) -> float:
        """NaN if none fell."""
        return float(self.degree[self.fell].double().mean())

    @property
    def mean_degree_stands(self) -> float:
        """NaN if none stands."""
        return float(self.degree[self.stands].double().mean())

    @property
    def beyond_degree(self) -> float:
        """Share of the fallen nodes with more flips at them than they had edges; NaN if none fell."""
        return float((self.flips > self.degree)[self.fell].double().mean())

    def figure(self) -> Figure:
        """How many nodes fell, by degree and flips; above the line are those changed beyond their degree."""
        figure = empty_figure(5, 4.4)
        axes = figure.subplots()
        clamped = replace(self, degree=self.degree.clamp(max=_LAST), flips=self.flips.clamp(max=_LAST))
        draw_fallen(axes, clamped.counts)
        figure.legend(loc="outside upper right", fontsize="small", frameon=False)
        figure.suptitle("nodes that fell", x=0.02, ha="left", fontsize="medium")
        axes.set_xlabel("degree" + (f", {_LAST} stands for more" if int(self.degree.max()) > _LAST else ""))
        axes.set_ylabel("adversarial edges" + (f", {_LAST} stands for more" if int(self.flips.max()) > _LAST else ""))
        return figure

    def plot(self, path: str | Path) -> None:
        """:meth:`figure` as a PNG or SVG file."""
        write_figure(self.figure(), path)

    def __repr__(self) -> str:
        return (
            f"AttackedDegrees({int(self.fell.sum())} fell, {int(self.stands.sum())} stand, mean degree "
            f"{self.mean_degree_fell:.2f} and {self.mean_degree_stands:.2f}, {self.beyond_degree:.0%} beyond their degree)"
        )


def draw_fallen(axes: Axes, counts: Tensor) -> None:
    """How many nodes fell, by degree from left to right and by flips from bottom to top.

    Args:
        axes: where.
        counts: shape ``[degrees, flips]``.
    """
    from matplotlib.colors import PowerNorm

    most = int(counts.max())
    # The square root keeps small numbers visible beside large ones.
    axes.imshow(counts.T.numpy(), origin="lower", aspect="auto", cmap="Blues", norm=PowerNorm(0.5, 0, max(most, 1)))
    for x, y in counts.nonzero().tolist():
        count = int(counts[x, y])
        colour = "white" if 2 * count > most else "black"
        axes.text(x, y, str(count), ha="center", va="center", fontsize="small", color=colour)
    side = min(counts.shape) - 1
    axes.plot([0, side], [0, side], color=COLOURS[1], linestyle="--", linewidth=1.2, label="as many as its edges")
    for axis in (axes.xaxis, axes.yaxis):
        integer_ticks(axis)


def attacked_degrees(result: AttackResult, data: Data) -> AttackedDegrees:
    """Which target nodes of an attack fell, by their degree and by the adversarial edges at them.

    Args:
        result: what the attack found.
        data: the graph that was attacked, before it.

    >>> from edgeproof import Budget, datasets, models
    >>> from edgeproof.attacks import FixedFlips
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> attack = FixedFlips(flips=torch.tensor([[0, 0], [1, 2]]))
    >>> found = attacked_degrees(attack(models.build("MLP", 21, 2, seed=0), data, nodes, Budget(2)), data)
    >>> int(found.fell.sum()), found.flips[:4]
    (0, tensor([2, 1, 1, 0]))
    """
    check_data(data, labels=False)
    num_nodes = data.x.size(0)
    if result.data.x.size(0) != num_nodes:
        raise ValueError(f"expected the attacked graph of {result.data.x.size(0)} nodes, got one of {num_nodes}")
    # Flipping nothing brings the edges into the order that flip_pairs leaves them in.
    led_to, found = (
        flip_pairs(*each).edge_index for each in ((data, result.flips), (result.data, result.flips[:, :0]))
    )
    if not torch.equal(led_to, found):
        raise ValueError("expected the graph as it was before the attack, got one that the flips do not lead from")
    right, still = result.clean_margins > 0, result.margins > 0
    return AttackedDegrees(
        nodes=result.nodes.cpu(),
        degree=degree(data)[result.nodes].cpu(),
        flips=result.flips.flatten().bincount(minlength=num_nodes)[result.nodes].cpu(),
        fell=(right & ~still).cpu(),
        stands=(right & still).cpu(),
    )
