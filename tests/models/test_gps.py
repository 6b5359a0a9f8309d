"""Graph transformers with encodings that depend on the perturbed graph."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.models import GPS, random_walk_encoding, tier_of
from edgeproof.propagation import EdgeGradientEngine


@pytest.fixture(scope="module")
def split() -> ep.splits.Split:
    data = ep.datasets.csbm("homophilous", num_nodes=100, p=0.1, q=0.02, seed=0)
    return ep.splits.inductive(data, seed=0, train_per_class=10, val_per_class=10, test_share=0.3)


@pytest.fixture
def data(graph: Data) -> Data:
    graph.x = graph.x.double()
    return graph


def test_encoding_equals_powers_of_the_walk_matrix(data: Data) -> None:
    matrix = torch.zeros(7, 7, dtype=torch.float64)
    matrix[data.edge_index[0], data.edge_index[1]] = 1
    walk = matrix / matrix.sum(dim=1, keepdim=True).clamp(min=1)
    expected = torch.stack([torch.linalg.matrix_power(walk, k).diagonal() for k in range(1, 6)], dim=1)
    torch.testing.assert_close(random_walk_encoding(data.edge_index, 7, 5, dtype=torch.float64), expected)


class RelaxedTransformer(nn.Module):
    """Takes no edge weights, and computes attention biased by a dense matrix of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = pyg.GPSConv(8, pyg.GINConv(nn.Linear(8, 8)), heads=2, norm="layer_norm")
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        encoding = random_walk_encoding(edge_index, x.size(0), 3, dtype=x.dtype)
        out: Tensor = self.last(self.layer(self.first(torch.cat([x, encoding], dim=1)), edge_index))
        return out


@pytest.mark.parametrize(
    "build", [lambda: GPS(5, 3, hidden_channels=8, heads=2, walk_steps=3), RelaxedTransformer], ids=["GPS", "relaxed"]
)
def test_gradient_follows_encodings_and_discrete_logits_are_exact(build: type[nn.Module], data: Data) -> None:
    torch.manual_seed(0)
    model = build().double().eval()
    engine = EdgeGradientEngine(model, data, torch.arange(7))
    assert engine.path == "autograd"
    flips = torch.tensor([[0, 0, 3], [1, 4, 6]])
    flipped = ep.graph.flip_pairs(data, flips)
    torch.testing.assert_close(engine(flips, torch.ones(3)).logits, model(flipped.x, flipped.edge_index))
    weight = torch.tensor([0.3, 0.6, 0.2], dtype=torch.float64)
    gradient = engine(flips, weight).at(flips)
    for position in range(3):
        step = torch.zeros_like(weight).index_fill(0, torch.tensor(position), 1e-6)
        quotient = (engine(flips, weight + step).loss - engine(flips, weight - step).loss) / 2e-6
        torch.testing.assert_close(gradient[position], quotient, rtol=1e-4, atol=1e-8)


@pytest.mark.filterwarnings("ignore::edgeproof.training.TrainingWarning")
def test_transformer_end_to_end(split: ep.splits.Split) -> None:
    torch.manual_seed(0)
    model, data, nodes = GPS(21, 2, hidden_channels=16, heads=2, walk_steps=4), split.test.data, split.test.nodes
    attack = ep.attacks.LRBCD(steps=2, block_size=1_000)
    ep.train(model, split, attack=attack, epsilon=0.1, max_epochs=3, preset="paper", progress=False)
    assert tier_of(model, data).tier == "autograd"
    scores = ep.evaluate(model, data, nodes, [0.1], ["FGSM", "DICE"])
    assert scores.tier == "autograd"
    assert scores.accuracy(0.1) <= scores.clean_accuracy
    smoothing = ep.certificates.SparseSmoothing(p_add=0.01, p_del=0.5)
    certificate = smoothing.certify(model, data, nodes, samples=20, choosing_samples=10, progress=False)
    assert certificate.prediction.numel() == nodes.numel()


def test_invalid_settings_raise() -> None:
    with pytest.raises(ValueError, match="expected hidden_channels to be a multiple of heads=3, got 64"):
        GPS(5, 2, heads=3)
