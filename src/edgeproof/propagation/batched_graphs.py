"""Several copies of a graph as one, so that a GPU runs a model on all of them with the launches of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof._modules import eval_mode
from edgeproof.propagation.adjacency import Adjacency

# Nodes of all copies together.
_SIDE_BY_SIDE = 1 << 17


@runtime_checkable
class EncodeDiffuse(Protocol):
    """A model in two halves, as :class:`edgeproof.models.GraphModel` is."""

    def encode(self, x: Tensor) -> Tensor: ...

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor: ...


class BatchedGraphs:
    """A model on copies of a graph, each with whole flips of its own.

    Args:
        model: a module in two halves.
        data: the graph.
    """

    def __init__(self, model: nn.Module, data: Data) -> None:
        self.model, self.data = model, data
        self._graphs: dict[int, Adjacency] = {}

    @property
    def most(self) -> int:
        """How many copies may run at once."""
        return max(1, _SIDE_BY_SIDE // int(self.data.x.size(0)))

    def logits(self, encoded: Tensor, sets: Sequence[Tensor]) -> Tensor:
        """Logits under each set of flips, shape ``[sets, nodes, classes]``.

        Args:
            encoded: the encoded features of one copy.
            sets: flips, shape ``[2, m]`` each; not checked.
        """
        assert isinstance(self.model, EncodeDiffuse)
        n = int(self.data.x.size(0))
        sizes = torch.tensor([flips.size(1) for flips in sets]).to(self.data.x.device)
        joined = torch.cat(list(sets), dim=1)
        copy = torch.arange(len(sets), device=sizes.device).repeat_interleave(sizes, output_size=joined.size(1))
        pairs = joined + copy * n
        with torch.no_grad(), eval_mode(self.model):
            graph = self._graph(len(sets)).perturbed(pairs, self.data.x.new_ones(pairs.size(1)))
            logits = self.model.diffuse(encoded.repeat(len(sets), 1), graph)
        return logits.view(len(sets), n, -1)

    def are_apart(
        self, encoded: Tensor, alone: Callable[[Tensor], Tensor], some: Callable[[], Tensor], tolerance: float
    ) -> bool:
        """Whether the model answers on two copies as it does on one, as long as no edge joins them; found out once.

        Args:
            encoded: the encoded features of one copy.
            alone: logits on one graph with some flips.
            some: gives flips to try it with.
            tolerance: how far the answers may differ, relative to the largest.
        """
        if self.model in _LOOKS_ACROSS or self.most < 2:
            return False
        if self.model not in _APART:
            # Two that differ: the mean over two equal ones would be that of one.
            flips = some()
            sets = [flips[:, :0], flips]
            expected = torch.stack([alone(flips) for flips in sets])
            try:
                far = (self.logits(encoded, sets) - expected).abs().max()
                near = bool(far <= tolerance * expected.abs().max() + 1e-12)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:
                # Something in the model has the size of the graph.
                near = False
            (_APART if near else _LOOKS_ACROSS).add(self.model)
        return self.model in _APART

    def _graph(self, count: int) -> Adjacency:
        """The graph so many times, side by side; remembered for the counts asked for."""
        if count not in self._graphs:
            n, edge_index = int(self.data.x.size(0)), self.data.edge_index
            offset = torch.arange(count, device=edge_index.device).repeat_interleave(edge_index.size(1))
            self._graphs[count] = Adjacency.from_edge_index(
                edge_index.repeat(1, count) + offset * n,
                num_nodes=count * n,
                dtype=self.data.x.dtype,
                symmetric=True,
            )
        return self._graphs[count]


# Models that were seen to answer on copies of a graph as on one; and those that do not, for they look across all nodes.
_APART: WeakSet[nn.Module] = WeakSet()
_LOOKS_ACROSS: WeakSet[nn.Module] = WeakSet()
