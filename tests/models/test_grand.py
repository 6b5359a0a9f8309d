"""GRAND against the equations of its paper with dense matrices."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof import losses
from edgeproof.models import GRAND
from edgeproof.models.grand import mixed_order, sharpen
from edgeproof.propagation import Adjacency


@pytest.fixture
def double(graph: Data) -> Data:
    graph.x = graph.x.double()
    return graph


def build(**settings: float) -> GRAND:
    torch.manual_seed(0)
    return GRAND(5, 3, hidden_channels=4, **settings).double()  # type: ignore[arg-type]


def propagation(data: Data, K: int) -> Tensor:
    """Mixed-order propagation as a dense matrix."""
    matrix = torch.eye(7, dtype=torch.float64)
    matrix[data.edge_index[0], data.edge_index[1]] = 1
    root = matrix.sum(dim=1) ** -0.5
    normalized = root[:, None] * matrix * root
    return torch.stack([torch.linalg.matrix_power(normalized, k) for k in range(K + 1)]).mean(dim=0)


def mlp(model: GRAND, x: Tensor) -> Tensor:
    hidden = x @ model.first.weight.T + model.first.bias
    return hidden.relu() @ model.last.weight.T + model.last.bias


@pytest.mark.parametrize("K", [1, 2, 8])
@pytest.mark.parametrize("dropnode", [0.0, 0.3])
def test_evaluation_matches_dense_matrices(K: int, dropnode: float, double: Data) -> None:
    model = build(K=K, dropnode=dropnode, input_dropout=0.5).eval()
    expected = mlp(model, propagation(double, K) @ ((1 - dropnode) * double.x))
    torch.testing.assert_close(model(double.x, double.edge_index), expected, rtol=1e-12, atol=1e-12)


def test_first_layer_commutes_with_propagation_in_training(double: Data) -> None:
    """The order of the paper and the faster one drop the same nodes."""
    model = build(dropout=0.0).train()
    # A tiny input dropout selects the order of operations of the paper.
    paper_order = build(dropout=0.0, input_dropout=1e-15).train()
    assert model.encode(double.x).shape == (7, 4)
    assert paper_order.encode(double.x).shape == (7, 5)
    for seed in range(5):
        torch.manual_seed(seed)
        mask = model.drop_nodes(torch.ones(7, 1, dtype=torch.float64))
        expected = mlp(model, propagation(double, 2) @ (mask * double.x))
        for variant in (model, paper_order):
            torch.manual_seed(seed)
            torch.testing.assert_close(variant(double.x, double.edge_index), expected, rtol=1e-12, atol=1e-12)


def test_input_dropout_applies_to_propagated_features(double: Data) -> None:
    model = build(dropnode=0.0, dropout=0.0, input_dropout=0.5).train()
    torch.manual_seed(1)
    logits = model(double.x, double.edge_index)
    torch.manual_seed(1)
    # DropNode draws random numbers even with probability 0.
    model.drop_nodes(double.x)
    expected = mlp(model, F.dropout(propagation(double, 2) @ double.x, 0.5))
    torch.testing.assert_close(logits, expected)


def test_dropout_applies_to_hidden_units(double: Data) -> None:
    model = build(dropnode=0.0, dropout=0.4).train()
    torch.manual_seed(1)
    logits = model(double.x, double.edge_index)
    torch.manual_seed(1)
    model.drop_nodes(double.x)
    hidden = F.dropout((propagation(double, 2) @ double.x @ model.first.weight.T + model.first.bias).relu(), 0.4)
    torch.testing.assert_close(logits, hidden @ model.last.weight.T + model.last.bias)


@pytest.mark.parametrize("dropnode", [0.2, 0.5])
def test_dropnode_drops_rows_at_its_rate(dropnode: float) -> None:
    torch.manual_seed(0)
    x = torch.rand(40_000, 3) + 1
    dropped = build(dropnode=dropnode).train().drop_nodes(x)
    zero = (dropped == 0).all(dim=1)
    assert torch.equal(dropped[~zero], x[~zero])
    # Five standard deviations.
    assert abs(float(zero.double().mean()) - dropnode) < 5 * (dropnode * (1 - dropnode) / 40_000) ** 0.5


def test_evaluation_equals_mean_over_all_dropnode_masks(double: Data) -> None:
    model = build(dropnode=0.3).eval()
    adjacency = Adjacency.from_data(double).normalized(self_loops=True)
    mean = torch.zeros_like(double.x)
    for kept in itertools.product([0.0, 1.0], repeat=7):
        mask = torch.tensor(kept, dtype=torch.float64)
        mean += torch.where(mask > 0, 0.7, 0.3).prod() * mixed_order(mask[:, None] * double.x, adjacency, 2)
    torch.testing.assert_close(mixed_order(model.drop_nodes(double.x), adjacency, 2), mean)


def test_evaluation_draws_no_random_numbers(double: Data) -> None:
    model = build(input_dropout=0.5).eval()
    state = torch.get_rng_state()
    assert torch.equal(model(double.x, double.edge_index), model(double.x, double.edge_index))
    assert torch.equal(torch.get_rng_state(), state)


def test_sharpen_matches_normalized_power() -> None:
    p = torch.tensor([[0.2, 0.3, 0.5], [0.0, 1.0, 0.0]], dtype=torch.float64)
    power = p ** (1 / 0.3)
    torch.testing.assert_close(sharpen(p, 0.3), power / power.sum(dim=1, keepdim=True))
    torch.testing.assert_close(sharpen(p, 1.0), p)


@pytest.mark.parametrize("loss", [losses.tanh_margin, losses.cross_entropy])
def test_objective_matches_definition(loss: losses.Loss, double: Data) -> None:
    """Value, logits and the gradient of every parameter; the sharpened mean is a constant."""
    model = build(samples=3, temperature=0.4, consistency=0.9, dropout=0.0).train()
    nodes = torch.tensor([0, 4, 5])
    torch.manual_seed(3)
    objective, logits = model.training_objective(double.x, double.edge_index, nodes, double.y[nodes], loss)
    gradients = torch.autograd.grad(objective, list(model.parameters()))

    torch.manual_seed(3)
    outputs = []
    for _ in range(3):
        mask = model.drop_nodes(torch.ones(7, 1, dtype=torch.float64))
        outputs.append(mlp(model, propagation(double, 2) @ (mask * double.x)))
    mean = sum(output.softmax(dim=1) for output in outputs) / 3
    power = mean.detach() ** (1 / 0.4)
    target = power / power.sum(dim=1, keepdim=True)
    expected = torch.zeros((), dtype=torch.float64)
    for output in outputs:
        expected = expected + loss(output[nodes], double.y[nodes]) / 3
        for node in range(7):
            distance = torch.linalg.vector_norm(target[node] - output.softmax(dim=1)[node])
            expected = expected + 0.9 * distance.square() / (3 * 7)
    torch.testing.assert_close(objective, expected)
    torch.testing.assert_close(logits, (sum(outputs) / 3)[nodes])
    for gradient, expected_gradient in zip(
        gradients, torch.autograd.grad(expected, list(model.parameters())), strict=True
    ):
        torch.testing.assert_close(gradient, expected_gradient)


def test_objective_of_one_sample_without_consistency_is_the_loss(double: Data) -> None:
    nodes = torch.tensor([0, 4, 5])
    for input_dropout in (0.0, 0.5):
        model = build(samples=1, consistency=0.0, input_dropout=input_dropout).train()
        torch.manual_seed(2)
        objective, logits = model.training_objective(
            double.x, double.edge_index, nodes, double.y[nodes], losses.cross_entropy
        )
        torch.manual_seed(2)
        expected = model(double.x, double.edge_index)[nodes]
        assert torch.equal(logits, expected)
        assert torch.equal(objective, losses.cross_entropy(expected, double.y[nodes]))


def test_consistency_uses_unlabelled_nodes(double: Data) -> None:
    """Only the consistency loss depends on the features of the isolated node 6."""
    nodes = torch.tensor([0, 1])
    for consistency in (0.0, 0.7):
        model = build(consistency=consistency).train()
        x = double.x.clone().requires_grad_()
        torch.manual_seed(1)
        objective, _ = model.training_objective(x, double.edge_index, nodes, double.y[nodes], losses.cross_entropy)
        (gradient,) = torch.autograd.grad(objective, x)
        assert bool(gradient[6].any()) == (consistency > 0)


def test_all_settings_round_trip(double: Data, tmp_path: Path) -> None:
    settings = {
        "K": 3,
        "dropnode": 0.1,
        "input_dropout": 0.2,
        "dropout": 0.3,
        "samples": 4,
        "temperature": 0.6,
        "consistency": 1.5,
    }
    model = build(**settings)
    ep.save(model, tmp_path / "model.safetensors")
    loaded = ep.load(tmp_path / "model.safetensors")
    assert loaded.settings == model.settings == {"in_channels": 5, "out_channels": 3, "hidden_channels": 4, **settings}
    assert torch.equal(ep.models.predict(loaded, double), ep.models.predict(model, double))


def test_defaults_are_those_for_citeseer() -> None:
    assert repr(GRAND(5, 3)) == (
        "GRAND(in_channels=5, out_channels=3, hidden_channels=32, K=2, dropnode=0.5, input_dropout=0.0, dropout=0.2, "
        "samples=2, temperature=0.3, consistency=0.7)"
    )


INVALID_SETTINGS = {
    "K": (0, "K to be an integer from 1 to 10000, got 0"),
    "samples": (1.5, "samples to be an integer from 1 to 10000, got 1.5"),
    "dropnode": (1.0, "0 <= dropnode < 1, got 1.0"),
    "input_dropout": (-0.1, "0 <= input_dropout < 1, got -0.1"),
    "temperature": (0.0, "0 < temperature <= 1, got 0.0"),
    "consistency": (float("inf"), "consistency to be a finite number >= 0, got inf"),
}


@pytest.mark.parametrize("name", INVALID_SETTINGS)
def test_invalid_settings_raise(name: str) -> None:
    value, message = INVALID_SETTINGS[name]
    with pytest.raises(ValueError, match=f"expected {message}"):
        build(**{name: value})
