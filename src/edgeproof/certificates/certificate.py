"""What a certificate says."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from pathlib import Path

import torch
from torch import Tensor

from edgeproof.certificates.regions import Noise
from edgeproof.serialization import read_tensors, write_tensors

_FORMAT = 1


@dataclass(frozen=True, eq=False)
class Certificate:
    """For every node the answer of the smoothed model, and which changes of the graph cannot alter it.

    Args:
        prediction: the class chosen at each node, shape ``[nodes]``.
        grid: whether it is certified, by edges added and edges deleted, shape ``[nodes, r_add + 1, r_del + 1]``; beyond it
            nothing is, or, from 256 edges on, nothing was looked for.
        p_lower: at least so probable is that class on random graphs, shape ``[nodes]``.
        p_upper: at most so probable is any other, shape ``[nodes]``.
        labels: the true classes, where they are known.
        alpha: how often each node's statement may be wrong.
        samples: random graphs behind the bounds.
        p_add: the noise: how likely a pair is added,
        p_del: and an edge deleted.
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
        """Nodes where the votes do not even tell which class is the most probable one."""
        return ~self.grid[:, 0, 0]

    def certified(self, r_add: int = 0, r_del: int = 0) -> Tensor:
        """For each node whether no ``r_add`` added and ``r_del`` deleted edges, or fewer, change its answer."""
        for name, radius in (("r_add", r_add), ("r_del", r_del)):
            if not isinstance(radius, Integral) or isinstance(radius, bool) or radius < 0:
                raise ValueError(f"expected {name} to be a whole number >= 0, got {radius!r}")
        if r_add >= self.grid.size(1) or r_del >= self.grid.size(2):
            return torch.zeros(self.grid.size(0), dtype=torch.bool)
        return self.grid[:, r_add, r_del]

    def accuracy(self, r_add: int = 0, r_del: int = 0) -> float:
        """Share of the nodes that are answered correctly and certified; needs labels."""
        return float((self.certified(r_add, r_del) & self._correct()).double().mean())

    @property
    def average_certifiable_radius(self) -> tuple[float, float]:
        """Mean over nodes of the largest number of added and of deleted edges, each alone, that is certified.

        Nodes that are wrong, where labels are known, or abstain count 0.
        """
        counts = self.grid if self.labels is None else self.grid & self._correct()[:, None, None]
        added, deleted = counts[:, 1:, 0].sum(dim=1), counts[:, 0, 1:].sum(dim=1)
        return float(added.double().mean()), float(deleted.double().mean())

    def plot(self, path: str | Path) -> None:
        """A heatmap of the certified accuracy, or share of nodes where there are no labels, by both radii, as an image file."""
        # Drawing is no part of certifying, and takes its time to import.
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        shares = (self.grid if self.labels is None else self.grid & self._correct()[:, None, None]).double().mean(dim=0)
        figure = Figure(figsize=(5, 3.5), layout="constrained")
        axes = figure.subplots()
        image = axes.imshow(100 * shares.numpy(), origin="lower", aspect="auto", cmap="viridis", vmin=0, vmax=100)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_xlabel("deleted edges")
        axes.set_ylabel("added edges")
        title = "certified accuracy, %" if self.labels is not None else "certified nodes, %"
        figure.colorbar(image, ax=axes, label=title)
        figure.savefig(path, dpi=150)

    def save(self, path: str | Path) -> None:
        """Write it; the file appears whole or not at all."""
        tensors = {"prediction": self.prediction, "grid": self.grid, "p_lower": self.p_lower, "p_upper": self.p_upper}
        if self.labels is not None:
            tensors["labels"] = self.labels
        numbers = {"alpha": self.alpha, "samples": self.samples, "p_add": self.p_add, "p_del": self.p_del}
        header = {"certificate": _FORMAT, **numbers}
        write_tensors(path, {name: tensor.contiguous() for name, tensor in tensors.items()}, header)

    @classmethod
    def load(cls, path: str | Path) -> Certificate:
        """Read what :meth:`save` wrote; raises ``ValueError`` for anything else."""
        header, tensors = read_tensors(path)
        if header.get("certificate") != _FORMAT:
            raise ValueError(f"{path} holds no certificate of this version")
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
        nodes = self.grid.shape[:1]
        if self.grid.dim() != 3 or self.grid.dtype != torch.bool or not self.grid.shape[1:].numel():
            raise ValueError(f"a grid of shape {list(self.grid.shape)} and type {self.grid.dtype}")
        labels = [] if self.labels is None else [self.labels]
        if any(one.shape != nodes for one in (self.prediction, self.p_lower, self.p_upper, *labels)):
            raise ValueError(f"not one prediction, bound and label for each of {nodes[0]} nodes")
        if not 0 < self.alpha < 1 or self.samples < 1:
            raise ValueError(f"alpha {self.alpha} and {self.samples} samples")
        Noise(self.p_add, self.p_del)

    def _correct(self) -> Tensor:
        if self.labels is None:
            raise ValueError("expected labels to judge the answers by, got none: the graph had no y")
        return self.prediction == self.labels
