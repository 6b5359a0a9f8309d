"""Result of a certification."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from edgeproof._checks import check_int
from edgeproof._plotting import empty_figure, write_figure
from edgeproof._tables import Layout, Record, TabularResult
from edgeproof.certificates.regions import Noise
from edgeproof.serialization import read_tensors, write_tensors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Version of the file format.
_FORMAT = 1
# Largest radius in printed tables, plus one.
_SHOWN = 8


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(TabularResult):
    """Predictions of a smoothed model and the perturbations that provably cannot change them.

    Args:
        prediction: Predicted class of each node, shape ``[nodes]``.
        grid: Whether the prediction is certified by number of added and of deleted edges, shape
            ``[nodes, r_add + 1, r_del + 1]``. Larger radii are not certified; radii above 256 are not considered.
        p_lower: Lower bound of the probability of the predicted class on random graphs, shape ``[nodes]``.
        p_upper: Upper bound of the probability of any other class, shape ``[nodes]``.
        labels: True classes, shape ``[nodes]``, or None.
        alpha: Significance level: upper bound on the probability that the certificate of a node is wrong.
        samples: Number of random graphs from which the bounds were estimated.
        p_add: Probability of adding a pair that is not an edge.
        p_del: Probability of deleting an edge.
    """

    prediction: Tensor
    grid: Tensor
    p_lower: Tensor
    p_upper: Tensor
    labels: Tensor | None
    alpha: float
    samples: int
    p_add: float
    p_del: float

    @property
    def abstained(self) -> Tensor:
        """Mask of nodes whose predicted class is not certified to be the most probable one, shape ``[nodes]``."""
        return ~self.grid[:, 0, 0]

    def certified(self, r_add: int = 0, r_del: int = 0) -> Tensor:
        """Return for each node whether no perturbation of at most ``r_add`` additions and ``r_del`` deletions changes it."""
        check_int(0, r_add=r_add, r_del=r_del)
        if r_add >= self.grid.size(1) or r_del >= self.grid.size(2):
            return torch.zeros(self.grid.size(0), dtype=torch.bool)
        return self.grid[:, r_add, r_del]

    def accuracy(self, r_add: int = 0, r_del: int = 0) -> float:
        """Return the certified accuracy: the fraction of nodes with a correct and certified prediction. Needs labels."""
        return float((self.certified(r_add, r_del) & self._correct()).double().mean())

    @property
    def average_certifiable_radius(self) -> tuple[float, float]:
        """Mean largest certified number of added edges (without deletions) and of deleted edges (without additions).

        Nodes that abstain, or are misclassified if there are labels, count as 0.
        """
        grid = self._counted_grid()
        added, deleted = grid[:, 1:, 0].sum(dim=1), grid[:, 0, 1:].sum(dim=1)
        return float(added.double().mean()), float(deleted.double().mean())

    def __repr__(self) -> str:
        abstained = int(self.abstained.sum())
        return (
            f"Certificate({self.prediction.numel()} nodes, {abstained} abstained, p_add={self.p_add}, p_del={self.p_del}, "
            f"samples={self.samples}, alpha={self.alpha})"
        )

    def summary(self) -> Record:
        """Return the values that occur once, as numbers, text, lists and dictionaries."""
        added, deleted = self.average_certifiable_radius
        return {
            "nodes": self.prediction.numel(),
            "abstained": int(self.abstained.sum()),
            "average_certifiable_radius": {"added": added, "deleted": deleted},
            "p_add": self.p_add,
            "p_del": self.p_del,
            "samples": self.samples,
            "alpha": self.alpha,
        }

    def _records(self) -> list[Record]:
        certified, counted = (grid.double().mean(dim=0) for grid in (self.grid, self._counted_grid()))
        return [
            {
                "r_add": r_add,
                "r_del": r_del,
                "certified": float(certified[r_add, r_del]),
                "accuracy": None if self.labels is None else float(counted[r_add, r_del]),
            }
            for r_add in range(certified.size(0))
            for r_del in range(certified.size(1))
        ]

    def _layout(self) -> Layout:
        percentages = 100 * self._counted_grid().double().mean(dim=0)[:_SHOWN, :_SHOWN]
        what = "certified accuracy, %" if self.labels is not None else "certified nodes, %"
        more = [f"larger radii, up to {max(self.grid.shape[1:]) - 1}, are in to_dict()"]
        return Layout(
            title=f"{what}: added edges down, deleted edges across",
            header=("", *map(str, range(percentages.size(1)))),
            lines=[(str(r_add), *(f"{value:.1f}" for value in row)) for r_add, row in enumerate(percentages.tolist())],
            notes=[
                f"{int(self.abstained.sum())} of {self.prediction.numel()} nodes abstained, {self.samples:,} samples",
                *(more if max(self.grid.shape[1:]) > _SHOWN else []),
            ],
        )

    def figure(self) -> Figure:
        """Draw the certified accuracy, or without labels the fraction of certified nodes, by both radii."""
        figure = empty_figure(5, 3.5)
        from matplotlib.ticker import MaxNLocator

        percentages = 100 * self._counted_grid().double().mean(dim=0)
        axes = figure.subplots()
        image = axes.imshow(percentages.numpy(), origin="lower", aspect="auto", cmap="viridis", vmin=0, vmax=100)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_xlabel("deleted edges")
        axes.set_ylabel("added edges")
        label = "certified accuracy, %" if self.labels is not None else "certified nodes, %"
        figure.colorbar(image, ax=axes, label=label)
        return figure

    def plot(self, path: str | Path) -> None:
        """Write :meth:`figure` to a PNG or SVG file."""
        write_figure(self.figure(), path)

    def save(self, path: str | Path) -> None:
        """Write the certificate to a file, atomically."""
        tensors = {"prediction": self.prediction, "grid": self.grid, "p_lower": self.p_lower, "p_upper": self.p_upper}
        if self.labels is not None:
            tensors["labels"] = self.labels
        settings = {"alpha": self.alpha, "samples": self.samples, "p_add": self.p_add, "p_del": self.p_del}
        header = {"certificate": _FORMAT, **settings}
        write_tensors(path, {name: tensor.contiguous() for name, tensor in tensors.items()}, header)

    @classmethod
    def load(cls, path: str | Path) -> Certificate:
        """Read a certificate written by :meth:`save`.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If the file is damaged or of another kind or version.
        """
        header, tensors = read_tensors(path)
        if header.get("certificate") != _FORMAT:
            raise ValueError(
                f"expected a certificate of format {_FORMAT} in {path}, got another kind or version of file"
            )
        try:
            certificate = cls(
                prediction=tensors["prediction"],
                grid=tensors["grid"],
                p_lower=tensors["p_lower"],
                p_upper=tensors["p_upper"],
                labels=tensors.get("labels"),
                alpha=float(header["alpha"]),
                samples=int(header["samples"]),
                p_add=float(header["p_add"]),
                p_del=float(header["p_del"]),
            )
            certificate._check()
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is damaged: {error}") from error
        return certificate

    def _check(self) -> None:
        if self.grid.dim() != 3 or self.grid.dtype != torch.bool or not self.grid.shape[1:].numel():
            raise ValueError(
                f"expected a boolean grid of shape [nodes, r_add + 1, r_del + 1], got {self.grid.dtype} of shape "
                f"{list(self.grid.shape)}"
            )
        labels = [] if self.labels is None else [self.labels]
        if any(t.shape != self.grid.shape[:1] for t in (self.prediction, self.p_lower, self.p_upper, *labels)):
            raise ValueError(f"expected one prediction, bound and label for each of {self.grid.size(0)} nodes")
        if not 0 < self.alpha < 1 or self.samples < 1:
            raise ValueError(f"expected 0 < alpha < 1 and samples >= 1, got {self.alpha} and {self.samples}")
        Noise(self.p_add, self.p_del)

    def _correct(self) -> Tensor:
        if self.labels is None:
            raise ValueError("expected labels to compute an accuracy, got None: the graph had no y")
        return self.prediction == self.labels

    def _counted_grid(self) -> Tensor:
        """Return the grid without misclassified nodes, if there are labels."""
        return self.grid if self.labels is None else self.grid & self._correct()[:, None, None]
