"""What every model of the library has in common."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor, nn

from edgeproof.losses import Loss
from edgeproof.propagation import Adjacency, as_adjacency


class GraphModel(nn.Module, ABC):
    """A node classifier with PyG's signature, in two halves: ``diffuse(encode(x), adjacency)``.

    ``encode`` is all that happens before the first message, so whoever changes only edges needs it only once.
    A subclass keeps each constructor argument as an attribute of the same name; ``repr`` and
    :func:`edgeproof.save` rest on that.

    Args:
        in_channels: features per node.
        out_channels: classes.
        hidden_channels: width of the hidden layers.
        num_layers: number of linear layers.
        dropout: share of units dropped while training.
    """

    # Whether several graphs as one cost no more than one after the other.
    side_by_side: ClassVar[bool] = True

    def __init__(
        self, in_channels: int, out_channels: int, hidden_channels: int, num_layers: int, dropout: float
    ) -> None:
        super().__init__()
        check_positive(
            in_channels=in_channels, out_channels=out_channels, hidden_channels=hidden_channels, num_layers=num_layers
        )
        check_share(dropout=dropout)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.hidden_channels, self.num_layers, self.dropout = hidden_channels, num_layers, dropout

    @property
    def layer_sizes(self) -> list[tuple[int, int]]:
        """Width before and after each of ``num_layers`` linear layers."""
        hidden = [self.hidden_channels] * (self.num_layers - 1)
        return list(pairwise([self.in_channels, *hidden, self.out_channels]))

    @abstractmethod
    def encode(self, x: Tensor) -> Tensor:
        """Features to hidden states, node by node: shape ``[nodes, in_channels]`` to ``[nodes, ...]``."""

    @abstractmethod
    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        """Hidden states to logits, along the edges: shape ``[nodes, ...]`` to ``[nodes, out_channels]``."""

    def forward(self, x: Tensor, edge_index: Tensor | Adjacency, edge_weight: Tensor | None = None) -> Tensor:
        """Logits of every node.

        Args:
            x: features, shape ``[nodes, in_channels]``.
            edge_index: edges, shape ``[2, edges]``, or a prepared :class:`~edgeproof.propagation.Adjacency`.
            edge_weight: weight of each edge, shape ``[edges]``; 1 by default, and 0 means no edge.

        Returns:
            Logits, shape ``[nodes, out_channels]``.
        """
        if x.dim() != 2 or x.size(1) != self.in_channels:
            raise ValueError(f"expected features x of shape [nodes, {self.in_channels}], got {list(x.shape)}")
        adjacency = as_adjacency(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype)
        return self.diffuse(self.encode(x), adjacency)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Parameters for the optimizer; a group may ask for an ``lr`` or ``weight_decay`` of its own."""
        return [{"params": list(self.parameters())}]

    @property
    def settings(self) -> dict[str, Any]:
        """The constructor's arguments: ``type(model)(**model.settings)`` is the same architecture."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        return f"{type(self).__name__}({arguments})"


@runtime_checkable
class WithObjective(Protocol):
    """A model that says itself what training lowers; any other is trained on the loss alone."""

    def training_objective(
        self, x: Tensor, graph: Tensor | Adjacency, nodes: Tensor, labels: Tensor, loss: Loss
    ) -> tuple[Tensor, Tensor]:
        """What one step of training lowers; called in training mode, with torch's global generator seeded.

        Args:
            x: features, shape ``[nodes, in_channels]``.
            graph: what the model takes as its ``edge_index``, under attack if there is one.
            nodes: the nodes that count.
            labels: their labels, in the same order.
            loss: the loss of training at this moment.

        Returns:
            The objective, a number to differentiate; and logits of the nodes that count, to take accuracy from.
        """
        ...


def check_positive(**values: int) -> None:
    """Raise unless every value is a whole number of at least 1."""
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"expected {name} to be a whole number >= 1, got {value!r}")


def check_share(**values: float) -> None:
    """Raise unless every value lies in [0, 1)."""
    for name, value in values.items():
        if not isinstance(value, (int, float)) or not 0 <= value < 1:
            raise ValueError(f"expected 0 <= {name} < 1, got {value!r}")
