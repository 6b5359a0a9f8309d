"""Evaluate the robustness of a PyG model and write a report.

Run: python examples/attack_my_model.py
"""

import torch
from torch import nn
from torch_geometric.nn import GCNConv

import edgeproof as ep


class Net(nn.Module):
    """Two-layer GCN as in the examples of PyG; it does not depend on edgeproof."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = GCNConv(channels, 16), GCNConv(16, classes)

    def forward(self, x, edge_index, edge_weight=None):
        return self.second(self.first(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


def main() -> None:
    data = ep.datasets.csbm("homophilous")  # or your own torch_geometric Data
    split = ep.splits.inductive(data, seed=0)
    torch.manual_seed(0)
    model, train = Net(data.num_features, ep.num_classes(data)), split.train
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(100):
        optimizer.zero_grad()
        logits = model(train.data.x, train.data.edge_index)[train.nodes]
        nn.functional.cross_entropy(logits, train.data.y[train.nodes]).backward()
        optimizer.step()
    model.eval()

    graph, nodes = split.test.data, split.test.nodes
    check = ep.evaluation.check_model(model, graph)  # are attacks on this model reliable?
    print(check)
    # Two fast attacks. Omit `attacks` for the standard suite, which takes minutes and is the one to report.
    attacks = [ep.attacks.GreedyRBCD(steps=20, block_size=20_000, loss="log_margin"), "DICE"]
    scores = ep.evaluate(model, graph, nodes, epsilons=[0.05, 0.1, 0.25], attacks=attacks, local=0.5)
    print(scores)
    run = ep.report.Run.of("my GCN", model, graph, nodes, evaluation=scores, split=split, dataset="my graph")
    ep.report.write([run], "attacked.html")
    print("attacked.html lists the misclassified nodes and the flips behind them")


if __name__ == "__main__":
    main()
