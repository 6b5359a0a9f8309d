"""Plain training, the reference for the preset ``"default"``: cross-entropy, Adam, early stopping on validation accuracy.

Architectures are PyG's where it has them. For one model: ``python -m edgeproof.experiments.plain_training citeseer GCN``.
"""

from __future__ import annotations

import argparse
import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric import nn as gnn

from edgeproof import datasets, models, splits
from edgeproof._checks import check_seed
from edgeproof.graph import num_classes
from edgeproof.losses import accuracy
from edgeproof.splits import Split


class PyGAPPNP(nn.Module):
    """APPNP from PyG's layer: an MLP with dropout before every layer, then personalized PageRank."""

    def __init__(self, in_channels: int, out_channels: int, hidden_channels: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Linear(in_channels, hidden_channels)
        self.second = nn.Linear(hidden_channels, out_channels)
        self.propagate = gnn.APPNP(K=10, alpha=0.1)
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the logits of every node."""
        h = F.dropout(x, self.dropout, self.training)
        h = F.dropout(self.first(h).relu(), self.dropout, self.training)
        logits: Tensor = self.propagate(self.second(h), edge_index)
        return logits


class _WithoutEdges(nn.Module):
    """Module of features alone, called with edges."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        logits: Tensor = self.module(x)
        return logits


def build_plain(name: str, in_channels: int, out_channels: int, seed: int = 0) -> nn.Module:
    """Return an untrained model: PyG's for GCN, GAT, APPNP and MLP, otherwise the library's.

    Args:
        name: One of :func:`edgeproof.models.available`.
        in_channels: Number of features.
        out_channels: Number of classes.
        seed: Seed of the initial parameters.

    >>> build_plain("GCN", 10, 3)
    GCN(10, 3, num_layers=2)
    """
    check_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: nn.Module
        if name == "GCN":
            model = gnn.GCN(in_channels, 64, 2, out_channels, dropout=0.5)
        elif name == "GAT":
            model = gnn.GAT(in_channels, 64, 2, out_channels, dropout=0.5)
        elif name == "APPNP":
            model = PyGAPPNP(in_channels, out_channels, 64, dropout=0.2)
        elif name == "MLP":
            model = _WithoutEdges(gnn.MLP([in_channels, 64, out_channels], norm=None, dropout=0.2))
        else:
            model = models.build(name, in_channels, out_channels, seed=seed)
        return model


def train_plainly(
    model: nn.Module,
    split: Split,
    *,
    lr: float = 1e-2,
    weight_decay: float = 5e-4,
    max_epochs: int = 1000,
    patience: int = 200,
    seed: int = 0,
) -> float:
    """Train on the labelled nodes, keep the epoch with the highest validation accuracy, and return the test accuracy.

    Args:
        model: Model, trained in place.
        split: Split.
        lr: Learning rate of Adam.
        weight_decay: Weight decay of Adam.
        max_epochs: Maximum number of epochs.
        patience: Number of epochs without a higher validation accuracy after which training stops.
        seed: Seed of dropout.
    """
    check_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay)
    train, nodes = split.train.data, split.train.nodes
    best, best_epoch, best_state = -1.0, 0, copy.deepcopy(model.state_dict())
    with torch.random.fork_rng(devices=[nodes.device] if nodes.is_cuda else []):
        torch.manual_seed(seed)
        for epoch in range(max_epochs):
            model.train()
            optimizer.zero_grad()
            F.cross_entropy(model(train.x, train.edge_index)[nodes], train.y[nodes]).backward()
            optimizer.step()
            found = _accuracy(model, split, "val")
            if found > best:
                best, best_epoch, best_state = found, epoch, copy.deepcopy(model.state_dict())
            elif epoch >= best_epoch + patience:
                break
    model.load_state_dict(best_state)
    return _accuracy(model, split, "test")


@torch.no_grad()
def _accuracy(model: nn.Module, split: Split, name: str) -> float:
    view = getattr(split, name)
    model.eval()
    return float(accuracy(model(view.data.x, view.data.edge_index)[view.nodes], view.data.y[view.nodes]))


def main() -> None:
    """Print the test accuracy of one model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dataset", help="name of a dataset")
    parser.add_argument("model", choices=models.available(), help="name of a model")
    parser.add_argument("--seed", type=int, default=0, help="seed of split, initial parameters and dropout")
    arguments = parser.parse_args()
    data = datasets.load(arguments.dataset)
    model = build_plain(arguments.model, data.num_features, num_classes(data), arguments.seed)
    found = train_plainly(model, splits.inductive(data, arguments.seed), seed=arguments.seed)
    print(f"{arguments.dataset}, {arguments.model}, seed {arguments.seed}: test accuracy {found:.1%}")


if __name__ == "__main__":
    main()
