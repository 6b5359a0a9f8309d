"""Figures of the total diffusion of trained models on a small graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch_geometric.data import Data

from edgeproof.analysis import diffusion_figure
from edgeproof.analysis.polynomial import normalized_adjacency
from edgeproof.paper.figures.base import FigureData, FigureInput
from edgeproof.paper.numbers import PaperRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Diffusions:
    """Total diffusion of one model per training, beside the normalised adjacency matrix of the graph.

    Args:
        trainings: Title and row of each training.
    """

    trainings: tuple[tuple[str, PaperRow], ...]
    over: ClassVar[str] = "the first of"

    @property
    def inputs(self) -> tuple[FigureInput, ...]:
        return tuple(FigureInput(row, "diffusion") for _, row in self.trainings)

    def draw(self, data: FigureData) -> Figure:
        """Draw one panel per available training, from its first seed."""
        values = {title: data.of(row, "diffusion")[0] for title, row in self.trainings if data.of(row, "diffusion")}
        first = next(iter(values.values()))
        edges, classes = torch.tensor(first["edges"]).T, torch.tensor(first["classes"])
        graph = Data(
            x=torch.zeros(classes.numel(), 1), edge_index=torch.cat([edges, edges.flip(0)], dim=1), y=classes
        ).coalesce()
        matrices = {"normalised adjacency": normalized_adjacency(graph, self_loops=True).dense()}
        matrices |= {title: torch.tensor(each["matrix"], dtype=torch.float64) for title, each in values.items()}
        return diffusion_figure(matrices, graph)
