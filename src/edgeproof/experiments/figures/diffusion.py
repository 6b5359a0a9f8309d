"""Who hears whom in a small graph, after different trainings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch_geometric.data import Data

from edgeproof.analysis import diffusion_figure
from edgeproof.analysis.polynomial import normalized_adjacency
from edgeproof.experiments.figures.base import Found, Need
from edgeproof.experiments.paper import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Diffusions:
    """Total diffusion of one model for each training, beside the graph's own normalised adjacency matrix.

    Args:
        trainings: by title.
    """

    trainings: tuple[tuple[str, Row], ...]
    over: ClassVar[str] = "the first of"

    @property
    def needs(self) -> tuple[Need, ...]:
        return tuple(Need(row, "diffusion") for _, row in self.trainings)

    def draw(self, found: Found) -> Figure:
        """A panel for each training that is there, of its first seed."""
        there = {title: found.of(row, "diffusion")[0] for title, row in self.trainings if found.of(row, "diffusion")}
        about = next(iter(there.values()))
        edges, classes = torch.tensor(about["edges"]).T, torch.tensor(about["classes"])
        graph = Data(
            x=torch.zeros(classes.numel(), 1), edge_index=torch.cat([edges, edges.flip(0)], dim=1), y=classes
        ).coalesce()
        matrices = {"normalised adjacency": normalized_adjacency(graph, self_loops=True).dense()}
        matrices |= {title: torch.tensor(one["matrix"], dtype=torch.float64) for title, one in there.items()}
        return diffusion_figure(matrices, graph)
