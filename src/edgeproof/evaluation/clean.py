"""Accuracy on the clean graph."""

from __future__ import annotations

from torch import nn
from torch_geometric.data import Data

from edgeproof import losses
from edgeproof._checks import Nodes, check_data, node_ids
from edgeproof.evaluation.result import Score
from edgeproof.models import predict
from edgeproof.splits import Split


def clean_accuracy(model: nn.Module, data: Data, nodes: Nodes) -> float:
    """Return the fraction of ``nodes`` that ``model`` classifies correctly on the clean graph.

    >>> from edgeproof import datasets, models, splits
    >>> split = splits.inductive(datasets.load("csbm"))
    >>> 0 <= clean_accuracy(models.GCN(21, 2), split.test.data, split.test.nodes) <= 1
    True
    """
    check_data(data)
    ids = node_ids(nodes, data, labelled=True)
    return float(losses.accuracy(predict(model, data)[ids], data.y[ids]))


def clean_scores(model: nn.Module, split: Split) -> tuple[Score, ...]:
    """Return the clean accuracy on the train, validation and test nodes, each on the graph of its own view."""
    views = {"train": split.train, "val": split.val, "test": split.test}
    return tuple(
        Score(name, "clean", 0.0, clean_accuracy(model, view.data, view.nodes)) for name, view in views.items()
    )
