"""Base class of models, and functions that call any model."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof._checks import check_data, check_fraction, check_int, describe
from edgeproof._features import for_model
from edgeproof.losses import Loss
from edgeproof.models.adapt import adapt
from edgeproof.propagation import Adjacency, as_adjacency
from edgeproof.propagation.autograd_path import eval_mode


class GraphModel(nn.Module, ABC):
    """Node classifier with PyG's signature, in two parts: ``diffuse(encode(x), adjacency)``.

    ``encode`` is everything before the first message, so it runs only once if only edges change. A subclass stores each
    constructor argument as an attribute of the same name, for ``repr`` and :func:`edgeproof.save`.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        hidden_channels: Width of the hidden layers.
        num_layers: Number of linear layers.
        dropout: Dropout probability.
    """

    # Whether a batch of graphs costs at most as much as the single graphs.
    side_by_side: ClassVar[bool] = True
    # Whether features may be a sparse CSR tensor: :meth:`encode` then only multiplies them by a matrix.
    takes_sparse: ClassVar[bool] = False

    def __init__(
        self, in_channels: int, out_channels: int, hidden_channels: int, num_layers: int, dropout: float
    ) -> None:
        super().__init__()
        check_int(
            1,
            in_channels=in_channels,
            out_channels=out_channels,
            hidden_channels=hidden_channels,
            num_layers=num_layers,
        )
        check_fraction(dropout=dropout)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.hidden_channels, self.num_layers, self.dropout = hidden_channels, num_layers, dropout

    @property
    def layer_sizes(self) -> list[tuple[int, int]]:
        """Input and output width of each of the ``num_layers`` linear layers."""
        hidden = [self.hidden_channels] * (self.num_layers - 1)
        return list(pairwise([self.in_channels, *hidden, self.out_channels]))

    @abstractmethod
    def encode(self, x: Tensor) -> Tensor:
        """Map features to hidden states, node by node: shape ``[nodes, in_channels]`` to ``[nodes, ...]``."""

    @abstractmethod
    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        """Map hidden states to logits, along the edges: shape ``[nodes, ...]`` to ``[nodes, out_channels]``."""

    def forward(self, x: Tensor, edge_index: Tensor | Adjacency, edge_weight: Tensor | None = None) -> Tensor:
        """Return the logits of every node.

        Args:
            x: Features, shape ``[nodes, in_channels]``.
            edge_index: Edges, shape ``[2, edges]``, or a prepared :class:`~edgeproof.propagation.Adjacency`.
            edge_weight: Weight of each edge, shape ``[edges]``. Weight 0 equals no edge. Default: 1.

        Returns:
            Logits, shape ``[nodes, out_channels]``.
        """
        if x.dim() != 2 or x.size(1) != self.in_channels:
            raise ValueError(f"expected features x of shape [nodes, {self.in_channels}], got {list(x.shape)}")
        adjacency = as_adjacency(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype)
        return self.diffuse(self.encode(x), adjacency)

    def input_weights(self) -> list[Tensor]:
        """Return the weights that the features are multiplied with first, as views of shape ``[in_channels, ...]``.

        Training scales features by scaling these weights. A model without such weights returns an empty list.
        """
        return []

    def alternative_starts(self) -> list[dict[str, Tensor]]:
        """Return alternative initial values of some parameters by name, for training with ``try_starts``.

        The best initial values can depend on the graph.
        """
        return []

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the parameters for the optimizer. A group may set its own ``lr`` or ``weight_decay``."""
        return [{"params": list(self.parameters())}]

    @property
    def settings(self) -> dict[str, Any]:
        """Constructor arguments: ``type(model)(**model.settings)`` has the same architecture."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        return f"{type(self).__name__}({arguments})"


@runtime_checkable
class WithObjective(Protocol):
    """Model with its own training objective. Other models are trained on the loss of their logits."""

    def training_objective(
        self, x: Tensor, graph: Tensor | Adjacency, nodes: Tensor, labels: Tensor, loss: Loss
    ) -> tuple[Tensor, Tensor]:
        """Compute the objective of one training step. Called in training mode, with torch's global generator seeded.

        Args:
            x: Features, shape ``[nodes, in_channels]``.
            graph: Graph in the form of the model's ``edge_index`` argument; perturbed in adversarial training.
            nodes: Ids of the training nodes.
            labels: Label of each training node.
            loss: Current loss function.

        Returns:
            Objective to minimize, a scalar, and logits of the training nodes, for the training accuracy.
        """
        ...


def graph_of(model: nn.Module, data: Data) -> Tensor | Adjacency:
    """Return the graph to pass to ``model`` as its ``edge_index``, in a form that can be reused over many calls.

    Models of this library take a prepared :class:`~edgeproof.propagation.Adjacency`, which is sorted and normalized only once.
    Other models take the edge list.
    """
    return Adjacency.from_data(data) if isinstance(model, GraphModel) else data.edge_index


def predict(model: nn.Module, data: Data) -> Tensor:
    """Return the logits of every node, in evaluation mode and without gradients. The model's mode is restored.

    >>> from edgeproof.models import MLP
    >>> data = Data(x=torch.ones(2, 3), edge_index=torch.tensor([[0, 1], [1, 0]]))
    >>> predict(MLP(3, 2), data).shape
    torch.Size([2, 2])
    """
    check_data(data, labels=False)
    model = adapt(model, data)
    data = for_model(data, model)
    with eval_mode(model), torch.no_grad():
        logits: Tensor = model(data.x, graph_of(model, data))
    if not isinstance(logits, Tensor) or logits.dim() != 2 or logits.size(0) != data.x.size(0):
        name = type(model).__name__
        raise ValueError(f"expected logits of shape [{data.x.size(0)}, classes] from {name}, got {describe(logits)}")
    return logits
