"""Degrees of the nodes that an attack misclassifies, and the number of flips at them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgeproof._checks import check_data
from edgeproof._plotting import COLOURS, empty_figure, integer_ticks, write_figure
from edgeproof._tables import Layout, Record, TabularResult, records
from edgeproof.attacks.base import AttackResult
from edgeproof.graph import degree, flip_pairs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Larger degrees and numbers of flips share the last row or column of a figure.
_MAX_SHOWN = 15


@dataclass(frozen=True, eq=False)
class AttackedDegrees(TabularResult):
    """Degree, number of flips and outcome of each target node of an attack.

    A node is *misclassified* if the model classifies it correctly before the attack and not after it, and *robust* if the model
    classifies it correctly before and after. Nodes that were misclassified before the attack are neither. A tie of two classes
    counts as misclassified.

    Args:
        nodes: Target nodes, shape ``[targets]``.
        degree: Degree of each before the attack, shape ``[targets]``.
        flips: Number of edges added or removed at each, shape ``[targets]``.
        misclassified: Whether the attack misclassified each, shape ``[targets]``.
        robust: Whether each is classified correctly before and after, shape ``[targets]``.
    """

    nodes: Tensor
    degree: Tensor
    flips: Tensor
    misclassified: Tensor
    robust: Tensor

    @property
    def counts(self) -> Tensor:
        """Number of misclassified nodes by degree and number of flips, shape ``[max degree + 1, max flips + 1]``."""
        shape = int(self.degree.max()) + 1, int(self.flips.max()) + 1
        joint = (self.degree * shape[1] + self.flips)[self.misclassified]
        return joint.bincount(minlength=shape[0] * shape[1]).view(shape)

    @property
    def misclassified_by_degree(self) -> Tensor:
        """Number of misclassified nodes of degree 0, 1, …"""
        return self.degree[self.misclassified].bincount(minlength=int(self.degree.max()) + 1)

    @property
    def robust_by_degree(self) -> Tensor:
        """Number of robust nodes of degree 0, 1, …"""
        return self.degree[self.robust].bincount(minlength=int(self.degree.max()) + 1)

    @property
    def misclassified_by_flips(self) -> Tensor:
        """Number of misclassified nodes with 0, 1, … flips."""
        return self.flips[self.misclassified].bincount(minlength=int(self.flips.max()) + 1)

    @property
    def robust_by_flips(self) -> Tensor:
        """Number of robust nodes with 0, 1, … flips."""
        return self.flips[self.robust].bincount(minlength=int(self.flips.max()) + 1)

    @property
    def mean_degree_misclassified(self) -> float:
        """Mean degree of the misclassified nodes; NaN if there are none."""
        return float(self.degree[self.misclassified].double().mean())

    @property
    def mean_degree_robust(self) -> float:
        """Mean degree of the robust nodes; NaN if there are none."""
        return float(self.degree[self.robust].double().mean())

    @property
    def beyond_degree(self) -> float:
        """Fraction of the misclassified nodes with more flips than edges; NaN if there are none."""
        return float((self.flips > self.degree)[self.misclassified].double().mean())

    def figure(self) -> Figure:
        """Draw the number of misclassified nodes by degree and flips; nodes above the line have more flips than edges."""
        figure = empty_figure(5, 4.4)
        axes = figure.subplots()
        clamped = replace(self, degree=self.degree.clamp(max=_MAX_SHOWN), flips=self.flips.clamp(max=_MAX_SHOWN))
        draw_misclassified(axes, clamped.counts)
        figure.legend(loc="outside upper right", fontsize="small", frameon=False)
        figure.suptitle("misclassified nodes", x=0.02, ha="left", fontsize="medium")
        axes.set_xlabel(_label("degree", self.degree))
        axes.set_ylabel(_label("flips at the node", self.flips))
        return figure

    def plot(self, path: str | Path) -> None:
        """Write :meth:`figure` to a PNG or SVG file."""
        write_figure(self.figure(), path)

    def __repr__(self) -> str:
        return (
            f"AttackedDegrees({int(self.misclassified.sum())} misclassified, {int(self.robust.sum())} robust, mean degree "
            f"{self.mean_degree_misclassified:.2f} and {self.mean_degree_robust:.2f}, "
            f"{self.beyond_degree:.0%} beyond their degree)"
        )

    def summary(self) -> Record:
        """Return the numbers of misclassified and robust nodes, their mean degrees, and :attr:`beyond_degree`."""
        return {
            "misclassified": int(self.misclassified.sum()),
            "robust": int(self.robust.sum()),
            "mean_degree_misclassified": self.mean_degree_misclassified,
            "mean_degree_robust": self.mean_degree_robust,
            "beyond_degree": self.beyond_degree,
        }

    def _records(self) -> list[Record]:
        names = ("degree", "flips", "misclassified", "robust")
        return records({"node": self.nodes.tolist(), **{name: getattr(self, name).tolist() for name in names}})

    def _layout(self) -> Layout:
        lines = [
            ("misclassified", str(int(self.misclassified.sum())), f"{self.mean_degree_misclassified:.2f}"),
            ("robust", str(int(self.robust.sum())), f"{self.mean_degree_robust:.2f}"),
        ]
        note = f"{self.beyond_degree:.0%} of the misclassified nodes have more flips than edges"
        return Layout("", ("nodes", "number", "mean degree"), lines, notes=[note])


def _label(name: str, values: Tensor) -> str:
    return f"{name} ({_MAX_SHOWN} = {_MAX_SHOWN} or more)" if int(values.max()) > _MAX_SHOWN else name


def draw_misclassified(axes: Axes, counts: Tensor) -> None:
    """Draw the number of misclassified nodes by degree (left to right) and number of flips (bottom to top).

    Args:
        axes: Axes to draw on.
        counts: Number of nodes, shape ``[degrees, flips]``.
    """
    from matplotlib.colors import PowerNorm

    largest = int(counts.max())
    # The square root keeps small counts visible beside large ones.
    axes.imshow(counts.T.numpy(), origin="lower", aspect="auto", cmap="Blues", norm=PowerNorm(0.5, 0, max(largest, 1)))
    for x, y in counts.nonzero().tolist():
        count = int(counts[x, y])
        colour = "white" if 2 * count > largest else "black"
        axes.text(x, y, str(count), ha="center", va="center", fontsize="small", color=colour)
    side = min(counts.shape) - 1
    axes.plot([0, side], [0, side], color=COLOURS[1], linestyle="--", linewidth=1.2, label="as many flips as edges")
    for axis in (axes.xaxis, axes.yaxis):
        integer_ticks(axis)


def attacked_degrees(result: AttackResult, data: Data) -> AttackedDegrees:
    """Return degree, number of flips and outcome of each target node of an attack.

    Args:
        result: Result of the attack.
        data: Graph before the attack.

    Raises:
        ValueError: If ``data`` is not the graph that was attacked.

    >>> from edgeproof import Budget, datasets, models
    >>> from edgeproof.attacks import FixedFlips
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> attack = FixedFlips(flips=torch.tensor([[0, 0], [1, 2]]))
    >>> degrees = attacked_degrees(attack(models.build("MLP", 21, 2, seed=0), data, nodes, Budget(2)), data)
    >>> int(degrees.misclassified.sum()), degrees.flips[:4]
    (0, tensor([2, 1, 1, 0]))
    """
    check_data(data, labels=False)
    num_nodes = data.x.size(0)
    if result.data.x.size(0) != num_nodes:
        raise ValueError(f"expected the attacked graph of {result.data.x.size(0)} nodes, got one of {num_nodes}")
    # flip_pairs without flips puts the edges into the same order.
    expected = flip_pairs(data, result.flips).edge_index
    perturbed = flip_pairs(result.data, result.flips[:, :0]).edge_index
    if not torch.equal(expected, perturbed):
        raise ValueError(
            "expected the graph before the attack, got a graph to which applying the flips does not give the attacked graph"
        )
    correct_before, correct_after = result.clean_margins > 0, result.margins > 0
    return AttackedDegrees(
        nodes=result.nodes.cpu(),
        degree=degree(data)[result.nodes].cpu(),
        flips=result.flips.flatten().bincount(minlength=num_nodes)[result.nodes].cpu(),
        misclassified=(correct_before & ~correct_after).cpu(),
        robust=(correct_before & correct_after).cpu(),
    )
