"""Sparse features: the same logits, gradients, attacks and certificates as with dense ones."""

from __future__ import annotations

from copy import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn.models import GCN as PygGCN

import edgeproof as ep
from edgeproof._features import for_model, is_sparse, repeat_rows, take_nodes, take_rows, to_dense
from edgeproof._tensors import fingerprint
from edgeproof.propagation import EdgeGradientEngine
from edgeproof.propagation.autograd_path import nodes_interact
from edgeproof.training import Memorizing
from edgeproof.training.safeguards import divide_features, feature_scale


def sparse(data: Data) -> Data:
    result = copy(data)
    result.x = data.x.to_sparse_csr()
    return result


@pytest.fixture(scope="module")
def words() -> Data:
    return ep.datasets.attributed_sbm(150, 3, num_features=40, features="counts", seed=0)


def build(name: str, data: Data, dtype: torch.dtype = torch.float64) -> nn.Module:
    return ep.models.build(name, data.num_features, 3, seed=0).to(dtype)


@pytest.mark.parametrize("name", ep.models.available())
def test_logits_and_gradients_equal_those_of_dense_features(name: str, words: Data) -> None:
    data = copy(words)
    data.x = data.x.double()
    model = build(name, data).eval()
    found = []
    for graph in (data, sparse(data)):
        logits = model(graph.x, graph.edge_index)
        gradient = torch.autograd.grad(logits.square().sum(), list(model.parameters()))
        found.append([logits, *gradient])
    for dense_value, sparse_value in zip(*found, strict=True):
        torch.testing.assert_close(sparse_value, dense_value, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["GCN", "GPRGNN", "GAT", "MLP", "GRAND"])
def test_edge_gradients_equal_those_of_dense_features(name: str, words: Data) -> None:
    data = copy(words)
    data.x = data.x.double()
    model, nodes = build(name, data).eval(), torch.arange(0, 150, 3)
    pairs = torch.tensor([[0, 1, 5, 9], [3, 8, 100, 30]])
    gradients = [
        EdgeGradientEngine(model, graph, nodes, loss=ep.losses.get("tanh_margin"))().at(pairs)
        for graph in (data, sparse(data))
    ]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-9, atol=1e-12)


def test_splits_select_rows_of_sparse_features(words: Data) -> None:
    settings = {"train_per_class": 5, "val_per_class": 5}
    split, expected = (ep.splits.inductive(graph, **settings) for graph in (sparse(words), words))
    for view, dense_view in ((split.train, expected.train), (split.val, expected.val), (split.test, expected.test)):
        assert is_sparse(view.data.x)
        assert torch.equal(view.data.x.to_dense(), dense_view.data.x)
        assert torch.equal(view.data.edge_index, dense_view.data.edge_index)
        assert sorted(view.data.keys()) == sorted(dense_view.data.keys())
    assert split.fingerprint == ep.splits.inductive(sparse(words), **settings).fingerprint


@pytest.mark.parametrize("name", ["GCN", "GPRGNN", "GRAND"])
def test_training_attack_evaluation_and_certificate_keep_features_sparse(name: str, words: Data) -> None:
    split = ep.splits.inductive(sparse(words), train_per_class=10, val_per_class=10)
    model, view = build(name, words, torch.float32), split.test
    attack = ep.attacks.PRBCD(steps=3, block_size=500)
    history = ep.train(
        model, split, attack=attack, epsilon=0.1, self_training=True, max_epochs=5, max_restarts=0, progress=False
    )
    assert history.epochs
    result = attack(model, view.data, view.nodes, ep.Budget.from_epsilon(view.data, view.nodes, 0.1), seed=0)
    assert is_sparse(result.data.x)
    dense_view = for_model(view.data, nn.Identity())
    same = attack(model, dense_view, view.nodes, ep.Budget.from_epsilon(dense_view, view.nodes, 0.1), seed=0)
    assert result.clean_accuracy == same.clean_accuracy
    scores = ep.evaluate(model, view.data, view.nodes, [0.1], ["FGSM", "DICE", "GreedyRBCD"])
    assert scores.accuracy(0.1) <= scores.clean_accuracy == result.clean_accuracy
    certificates = [
        ep.certificates.SparseSmoothing(p_add=0.01, p_del=0.6).certify(
            model, graph, view.nodes, samples=200, choosing_samples=50
        )
        for graph in (view.data, dense_view)
    ]
    assert torch.equal(certificates[0].prediction, certificates[1].prediction)


class DenseOnly(nn.Module):
    """Model that fails for sparse features."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        logits: Tensor = self.inner(x.relu() + x[:1] * 0, edge_index, edge_weight)
        return logits


def test_other_models_get_dense_features(words: Data) -> None:
    torch.manual_seed(0)
    data, nodes = sparse(words), torch.arange(30)
    pyg, own = PygGCN(40, 8, 2, out_channels=3), DenseOnly(build("GCN", words, torch.float32))
    assert torch.equal(ep.models.predict(pyg, data), ep.models.predict(pyg, words))
    split = ep.splits.inductive(data, train_per_class=10, val_per_class=10)
    for model in (pyg, own):
        ep.train(model, split, max_epochs=3, max_restarts=0, self_training=True, progress=False)
        assert ep.evaluation.check_model(model, data).ok
        scores = ep.evaluate(model, data, nodes, [0.1], ["FGSM"])
        assert scores.clean_accuracy == ep.evaluate(model, words, nodes, [0.1], ["FGSM"]).clean_accuracy
        ep.certificates.SparseSmoothing().certify(model, data, nodes, samples=100, choosing_samples=20)
    assert Memorizing(own, data).features.layout == torch.strided


def test_dense_form_larger_than_memory_raises(words: Data) -> None:
    with pytest.raises(ValueError, match=r"dense form of 150 x 40 features to fit into 0\.0 GB"):
        to_dense(words.x.to_sparse_csr(), available=1000)
    huge = Data(
        x=torch.sparse_csr_tensor(torch.zeros(10**7 + 1), torch.zeros(0), torch.zeros(0), (10**7, 10**7)),
        edge_index=torch.tensor([[0, 1], [1, 0]]),
    )
    with pytest.raises(ValueError, match="DenseOnly takes dense features only: expected the dense form"):
        for_model(huge, DenseOnly(nn.Identity()))


def test_feature_scale_of_sparse_features_equals_that_of_dense_ones(words: Data) -> None:
    x = words.x.clone() * 1000
    x[:, 0] = 1e5 * torch.arange(1, 151)
    x[:, 1] = 1
    scale = feature_scale(x.to_sparse_csr())
    assert scale is not None
    torch.testing.assert_close(scale, feature_scale(x))
    data = Data(x=x, edge_index=words.edge_index, y=words.y)
    split, expected = (
        divide_features(ep.splits.inductive(graph, train_per_class=5, val_per_class=5), scale)
        for graph in (sparse(data), data)
    )
    torch.testing.assert_close(split.test.data.x.to_dense(), expected.test.data.x)


def test_rows_and_nodes_of_sparse_features() -> None:
    x = torch.tensor([[0.0, 1.0], [0.0, 0.0], [2.0, 3.0]])
    present = torch.tensor([True, False, True])
    assert torch.equal(take_rows(x.to_sparse_csr(), present).to_dense(), x[present])
    assert torch.equal(repeat_rows(x.to_sparse_csr(), 2).to_dense(), x.repeat(2, 1))
    data = Data(x=x, edge_index=torch.tensor([[0, 2], [2, 0]]), y=torch.tensor([0, 1, 1]))
    taken, expected = take_nodes(sparse(data), present), take_nodes(data, present)
    assert torch.equal(taken.edge_index, expected.edge_index)
    assert sorted(taken.keys()) == sorted(expected.keys())


def test_sparse_features_are_checked(words: Data) -> None:
    data = sparse(words)
    values = data.x.values().clone()
    values[3] = torch.nan
    data.x = torch.sparse_csr_tensor(data.x.crow_indices(), data.x.col_indices(), values, data.x.shape)
    with pytest.raises(ValueError, match="NaN or Inf at 1 nodes, such as node 0"):
        ep.check_data(data)
    data.x = words.x.to_sparse_coo()
    with pytest.raises(ValueError, match=r"x\.to_sparse_csr\(\) converts other sparse layouts"):
        ep.check_data(data)


def test_fingerprint_depends_on_sparse_entries() -> None:
    x = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    prints = {fingerprint([matrix.to_sparse_csr()]) for matrix in (x, 2 * x, x.flip(1), x.flip(0))}
    assert len(prints) == 4
    assert fingerprint([x.to_sparse_csr()]) in prints


def test_interaction_of_nodes_is_found_with_sparse_features(words: Data) -> None:
    data = sparse(words)
    assert nodes_interact(build("GCN", words, torch.float32), data)
    assert not nodes_interact(build("MLP", words, torch.float32), data)


def test_models_of_sparse_features_are_saved(words: Data, tmp_path: Path) -> None:
    model = build("GCN", words, torch.float32)
    ep.save(model, tmp_path / "model.safetensors")
    restored = ep.load(tmp_path / "model.safetensors")
    assert torch.equal(ep.models.predict(restored, sparse(words)), ep.models.predict(model, sparse(words)))
