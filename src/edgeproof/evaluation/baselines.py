"""Baselines that do not depend on edges: no edge flip changes their accuracy."""

from __future__ import annotations

import warnings

from torch import Tensor
from torch_geometric.data import Data

from edgeproof import losses
from edgeproof._checks import Nodes, node_ids
from edgeproof.models import build
from edgeproof.models.base import predict
from edgeproof.splits import Split
from edgeproof.training import TrainingWarning, train

MAJORITY, MLP = "majority baseline", "MLP baseline"
BASELINES = (MAJORITY, MLP)


def majority(data: Data, nodes: Nodes, train_labels: Tensor, *, labels: Tensor | None = None) -> float:
    """Return the accuracy at ``nodes`` of always predicting the most frequent class of the training nodes.

    If several classes are equally frequent in training, as in splits with a fixed number of nodes per class, the one that is
    most frequent among ``nodes`` counts, so the baseline is never too low.

    Args:
        data: Graph with the labels of ``nodes``.
        nodes: Target nodes: ids, or a boolean mask.
        train_labels: Labels of the labelled training nodes.
        labels: Correct labels of ``nodes``; by default the labels of ``data``.

    >>> import torch
    >>> data = Data(x=torch.zeros(4, 1), edge_index=torch.empty(2, 0, dtype=torch.long), y=torch.tensor([0, 1, 1, 1]))
    >>> majority(data, torch.arange(4), torch.tensor([1, 1, 0])), majority(data, torch.arange(4), torch.tensor([0]))
    (0.75, 0.25)
    """
    ids = node_ids(nodes, data, labelled=labels is None)
    if train_labels.dim() != 1 or not train_labels.numel() or int(train_labels.min()) < 0:
        raise ValueError(f"expected the labels of at least one labelled training node, got {train_labels.tolist()}")
    truth = data.y[ids] if labels is None else labels
    trained, tested = train_labels.bincount(), truth.bincount(minlength=int(train_labels.max()) + 1)
    most_frequent = (trained == trained.max()).nonzero().squeeze(1)
    return int(tested[most_frequent].max()) / truth.numel()


def mlp_accuracy(split: Split, data: Data, nodes: Nodes, *, labels: Tensor | None = None, seed: int = 0) -> float:
    """Return the accuracy at ``nodes`` of an MLP trained on the labelled nodes of a split, with the default preset.

    Args:
        split: Split with labelled training and validation nodes, on the device of ``data``.
        data: Graph with the features of ``nodes``.
        nodes: Target nodes: ids, or a boolean mask.
        labels: Correct labels of ``nodes``; by default the labels of ``data``.
        seed: Seed of the initial parameters and the training.

    >>> from edgeproof import datasets, splits
    >>> split = splits.inductive(datasets.load("csbm"))
    >>> mlp_accuracy(split, split.test.data, split.test.nodes) > 0.5
    True
    """
    ids = node_ids(nodes, data, labelled=labels is None)
    features = split.train.data.x
    if (features.size(1), features.device) != (data.x.size(1), data.x.device):
        raise ValueError(
            f"expected a split of graphs like the evaluated one, with {data.x.size(1)} features on {data.x.device}, got "
            f"{features.size(1)} on {features.device}"
        )
    num_classes = int(max(view.data.y[view.nodes].max() for view in (split.train, split.val))) + 1
    model = build("MLP", features.size(1), num_classes, seed=seed).to(features.device, features.dtype)
    with warnings.catch_warnings():
        # Users would mistake them for warnings about the evaluated model.
        warnings.simplefilter("ignore", TrainingWarning)
        train(model, split, seed=seed, progress=False)
    return float(losses.accuracy(predict(model, data)[ids], data.y[ids] if labels is None else labels))


def baseline_accuracies(split: Split, data: Data, nodes: Tensor, labels: Tensor, *, seed: int) -> dict[str, float]:
    """Return the accuracies of all baselines by name."""
    return {
        MAJORITY: majority(data, nodes, split.train.data.y[split.train.nodes], labels=labels),
        MLP: mlp_accuracy(split, data, nodes, labels=labels, seed=seed),
    }
