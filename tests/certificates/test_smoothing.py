"""Tests of certification and prediction with the smoothed model."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn.models import GCN as PyGGCN

import edgeproof as ep
from edgeproof.certificates import ABSTAIN, Certificate, ClassCounts, SparseSmoothing, samples_needed
from edgeproof.certificates.confidence import clopper_pearson
from edgeproof.certificates.regions import Noise, certified_grid


@pytest.fixture
def smoothing() -> SparseSmoothing:
    return SparseSmoothing(p_add=0.02, p_del=0.5)


@pytest.fixture
def untrained() -> nn.Module:
    return ep.models.build("GCN", 21, 2, {"hidden_channels": 8}, seed=0).eval()


@pytest.fixture
def trained(split: ep.splits.Split) -> nn.Module:
    model = ep.models.build("GPRGNN", 21, 2, {"hidden_channels": 8}, seed=0).eval()
    ep.train(model, split, max_epochs=60, progress=False)
    return model


@pytest.mark.parametrize("noise", [(0.2, 0.3), (0.1, 0.6), (0.0, 0.5)])
@pytest.mark.parametrize("seed", range(3))
def test_certificates_hold_on_exhaustively_enumerated_graphs(noise: tuple[float, float], seed: int) -> None:
    """All graphs of five nodes with their exact smoothed probabilities, and all perturbations within each radius."""
    generator = torch.Generator().manual_seed(seed)
    n, classes = 5, 3
    pairs = list(combinations(range(n), 2))
    x = torch.randn(n, 4, generator=generator)
    model = ep.models.build("GCN", 4, classes, {"hidden_channels": 8}, seed=seed).double().eval()
    graphs = list(product([0, 1], repeat=len(pairs)))
    # All graphs in one disconnected graph.
    graph, pair = np.nonzero(np.array(graphs))
    u, v = np.array(pairs)[pair].T + graph * n
    edges = torch.from_numpy(np.stack([np.append(u, v), np.append(v, u)]))
    predictions = model(3 * x.double().repeat(len(graphs), 1), edges).argmax(dim=1).view(-1, n).numpy()
    onehot = np.eye(classes)[predictions]

    # Probability of each graph under the noise around each other: a product over the pairs.
    transition = np.array([[1 - noise[0], noise[0]], [noise[1], 1 - noise[1]]])
    bits = np.array(graphs)
    probability = np.ones((len(graphs), len(graphs)))
    for index in range(len(pairs)):
        probability *= transition[bits[:, index][:, None], bits[:, index][None]]
    smoothed = np.einsum("gh,hnc->gnc", probability, onehot)
    ordered = np.sort(smoothed, axis=2)
    best = smoothed.argmax(axis=2)
    num_certified = 0
    for index in np.random.default_rng(seed).choice(len(graphs), 40, replace=False):
        grid = certified_grid(Noise(*noise), ordered[index, :, -1], ordered[index, :, -2], max_radius=6)
        added = ((bits == 1) & (bits[index] == 0)).sum(axis=1)
        deleted = ((bits == 0) & (bits[index] == 1)).sum(axis=1)
        for r_add, r_del in product(range(grid.shape[1]), range(grid.shape[2])):
            within_radius = best[(added <= r_add) & (deleted <= r_del)]
            certified = grid[:, r_add, r_del]
            assert (within_radius[:, certified] == best[index][certified]).all()
            num_certified += int(certified.sum()) if r_add + r_del else 0
    assert num_certified > 0


def test_certificate_bounds_are_wrong_at_most_with_probability_alpha(smoothing: SparseSmoothing) -> None:
    random = np.random.default_rng(0)
    samples, alpha = 200, 0.05
    for truth in ([0.7, 0.1, 0.1, 0.1], [0.4, 0.35, 0.2, 0.05], [0.98, 0.01, 0.005, 0.005]):
        bounding = torch.from_numpy(random.multinomial(samples, truth, size=1000))
        choosing = torch.tensor([[9, 1, 0, 0]]).repeat(1000, 1)
        counts = ClassCounts(choosing, bounding, {0: (10, samples)}, {"noise": [0.02, 0.5]})
        certificate = smoothing.certify_counts(counts, alpha)
        wrong = (certificate.p_lower > truth[0]) | (certificate.p_upper < max(truth[1:]))
        assert float(wrong.double().mean()) <= alpha


def test_bound_of_second_class_certifies_more_than_its_complement(smoothing: SparseSmoothing) -> None:
    """With five classes the second class can be far below one minus the probability of the first."""
    counts = torch.tensor([[520, 120, 120, 120, 120]])
    class_counts = ClassCounts(counts, counts, {0: (1000, 1000)}, {"noise": [0.02, 0.5]})
    certificate = smoothing.certify_counts(class_counts, 0.05)
    assert not certificate.abstained.any()
    p_lower = certificate.p_lower.numpy()
    assert not certified_grid(smoothing.noise, p_lower, 1 - p_lower).any()


def test_attacks_within_certified_radius_do_not_change_predictions(
    smoothing: SparseSmoothing, trained: nn.Module, split: ep.splits.Split
) -> None:
    """Nodes where the smoothed model abstains on the attacked graph are not compared."""
    graph, nodes = split.test.data, split.test.nodes
    certificate = smoothing.certify(trained, graph, nodes, 3000, progress=False)
    assert float(certificate.certified(1, 1).double().mean()) > 0.3
    cheaper = {"steps": 5, "fine_tune_steps": 2, "block_size": 5000, "population": 20, "generations": 10}
    edges = {tuple(pair) for pair in graph.edge_index.T.tolist()}
    for name, total in product(ep.attacks.available(), (1, 2)):
        attack = ep.attacks.build(name)
        settings = {setting: value for setting, value in cheaper.items() if hasattr(attack, setting)}
        result = replace(attack, **settings)(trained, graph, nodes, ep.Budget(total))
        deleted = sum(tuple(pair) in edges for pair in result.flips.T.tolist())
        added = result.flips.size(1) - deleted
        attacked = smoothing.certify(trained, result.data, nodes, 500, seed=1, choosing_samples=100, progress=False)
        compared = certificate.certified(added, deleted) & ~attacked.abstained
        assert bool(compared.any()) or total > 1
        assert torch.equal(attacked.prediction[compared], certificate.prediction[compared])


def test_certified_accuracy_of_trained_model(
    smoothing: SparseSmoothing, trained: nn.Module, split: ep.splits.Split, tmp_path: Path
) -> None:
    graph, nodes = split.test.data, split.test.nodes
    certificate = smoothing.certify(trained, graph, nodes, 2000, progress=False)
    correct = certificate.prediction == graph.y[nodes]
    for r_add, r_del in ((0, 0), (0, 1), (1, 0), (1, 2)):
        expected = float((correct & certificate.certified(r_add, r_del)).double().mean())
        assert certificate.accuracy(r_add, r_del) == expected
    assert certificate.accuracy() > 0.7
    assert torch.equal(certificate.abstained, ~certificate.certified())
    added, deleted = certificate.average_certifiable_radius
    _, max_add, max_del = certificate.grid.shape
    assert added == pytest.approx(sum(certificate.accuracy(radius, 0) for radius in range(1, max_add)))
    assert deleted == pytest.approx(sum(certificate.accuracy(0, radius) for radius in range(1, max_del)))
    assert deleted > added
    certificate.save(tmp_path / "certificate.safetensors")
    restored = Certificate.load(tmp_path / "certificate.safetensors")
    assert torch.equal(restored.grid, certificate.grid)
    assert (restored.alpha, restored.samples, restored.accuracy(1, 1)) == (0.05, 2000, certificate.accuracy(1, 1))


@pytest.mark.parametrize("name", ["GAT", "APPNP", "ChebNetII", "GRAND", "MLP", "SoftMedianGDC"])
def test_every_model_can_be_certified(name: str, smoothing: SparseSmoothing, split: ep.splits.Split) -> None:
    model = ep.models.build(name, 21, 2, {"hidden_channels": 8}, seed=0).eval()
    certificate = smoothing.certify(
        model, split.test.data, split.test.nodes, 50, alpha=0.3, choosing_samples=10, progress=False
    )
    assert certificate.prediction.shape == split.test.nodes.shape
    if name == "MLP":
        # All samples agree, because the MLP ignores the edges.
        assert bool(certificate.certified(0, 1).all())


def test_pyg_model_can_be_certified(smoothing: SparseSmoothing, split: ep.splits.Split) -> None:
    torch.manual_seed(0)
    model = PyGGCN(21, 8, 2, 2).eval()
    certificate = smoothing.certify(
        model, split.test.data, split.test.nodes, 50, alpha=0.3, choosing_samples=10, progress=False
    )
    assert certificate.grid.size(0) == split.test.nodes.numel()


def test_unlabelled_graph_can_be_certified(smoothing: SparseSmoothing, untrained: nn.Module, sbm: Data) -> None:
    unlabelled = Data(x=sbm.x, edge_index=sbm.edge_index)
    certificate = smoothing.certify(
        untrained, unlabelled, torch.arange(4), 50, alpha=0.3, choosing_samples=5, progress=False
    )
    assert certificate.labels is None
    assert isinstance(certificate.p_lower, Tensor)


def test_numpy_settings_are_accepted(trained: nn.Module, split: ep.splits.Split, tmp_path: Path) -> None:
    graph, nodes = split.test.data, split.test.nodes
    certificate = SparseSmoothing(np.float32(0.02), np.float32(0.5)).certify(
        *(trained, graph, nodes, np.int64(100), np.float32(0.05), np.int64(3)),
        choosing_samples=np.int64(10),
        checkpoint=tmp_path / "counts",
        progress=False,
    )
    certificate.save(tmp_path / "certificate")
    assert Certificate.load(tmp_path / "certificate").samples == ClassCounts.load(tmp_path / "counts").samples == 100


def test_predict_follows_binomial_test(
    smoothing: SparseSmoothing, untrained: nn.Module, split: ep.splits.Split
) -> None:
    graph, nodes = split.test.data, split.test.nodes
    prediction = smoothing.predict(untrained, graph, nodes, samples=40, alpha=0.1, seed=2, progress=False)
    counts = smoothing.sample_counts(untrained, graph, nodes, 40, 2, choosing_samples=1, progress=False).bounding
    for predicted, row in zip(prediction.tolist(), counts.tolist(), strict=True):
        n_B, n_A = sorted(row)[-2:]
        expected = row.index(n_A) if binomtest(n_A, n_A + n_B, 0.5).pvalue <= 0.1 else ABSTAIN
        assert predicted == expected


def test_predict_abstains_less_with_more_samples(
    smoothing: SparseSmoothing, untrained: nn.Module, split: ep.splits.Split
) -> None:
    graph, nodes = split.test.data, split.test.nodes
    few, many = (smoothing.predict(untrained, graph, nodes, n, alpha=0.01, progress=False) for n in (20, 1000))
    assert int((few == ABSTAIN).sum()) > int((many == ABSTAIN).sum())
    certain = (few != ABSTAIN) & (many != ABSTAIN)
    assert torch.equal(few[certain], many[certain])
    # Too few samples for any test to be significant.
    assert (smoothing.predict(untrained, graph, nodes, 3, alpha=0.01, progress=False) == ABSTAIN).all()


def test_predict_agrees_with_certify(smoothing: SparseSmoothing, trained: nn.Module, split: ep.splits.Split) -> None:
    graph, nodes = split.test.data, split.test.nodes
    certificate = smoothing.certify(trained, graph, nodes, 1000, progress=False)
    prediction = smoothing.predict(trained, graph, nodes, 1000, seed=1, progress=False)
    certain = (prediction != ABSTAIN) & ~certificate.abstained
    assert float(certain.double().mean()) > 0.8
    assert torch.equal(prediction[certain], certificate.prediction[certain])


def test_samples_needed_is_the_least_number_that_certifies() -> None:
    noise = Noise(0.02, 0.5)
    needed = samples_needed(noise, 0.05, 3)

    def grid(samples: int) -> np.ndarray[Any, Any]:
        lower = clopper_pearson(np.array([samples]), samples, 0.05 / 3)[0]
        return certified_grid(noise, lower, 1 - lower)

    assert grid(needed).shape != (1, 1, 1)
    assert grid(needed - 1).shape == (1, 1, 1)
    # With p_add = 1 - p_del the noise does not depend on the graph: all radii are certified, or none.
    assert samples_needed(Noise(0.5, 0.5), 0.05, 2) > 0


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (torch.full((100,), -1), "expected labels >= 0, got -1"),
        (torch.zeros(7, dtype=torch.long), "expected labels y of shape"),
        (torch.zeros(100), "expected one int64 label for each of 5 nodes"),
        ([0] * 100, "expected labels y of shape"),
    ],
)
def test_invalid_labels_raise_before_the_model_runs(
    y: Any, message: str, smoothing: SparseSmoothing, sbm: Data
) -> None:
    class NeverCalled(nn.Module):
        def forward(self, *args: Any) -> Tensor:
            pytest.fail("the model was called")

    graph = sbm.clone()
    graph.y = y[:1].repeat(graph.num_nodes) if isinstance(y, Tensor) and len(y) == 100 else y
    with pytest.raises(ValueError, match=message):
        smoothing.certify(NeverCalled(), graph, torch.arange(5), 100, progress=False)


def test_labels_of_other_nodes_raise(smoothing: SparseSmoothing, sbm: Data) -> None:
    counts = ClassCounts(torch.tensor([[9, 1]]), torch.tensor([[90, 10]]), {0: (10, 100)}, {"noise": [0.02, 0.5]})
    with pytest.raises(ValueError, match="expected one int64 label for each of 1 nodes"):
        smoothing.certify_counts(counts, labels=sbm.y)


def test_invalid_models_raise(smoothing: SparseSmoothing, untrained: nn.Module, sbm: Data) -> None:
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module, got str"):
        smoothing.certify("GCN", sbm, torch.arange(5), 100)  # type: ignore[arg-type]
    for output in (lambda x: (x, x), lambda x: x[:, 0], lambda x: x[:, :1], lambda x: x[:5]):
        untrained.forward = lambda x, *_, output=output: output(x)  # type: ignore[method-assign]
        with pytest.raises(ValueError, match=r"expected logits of shape \[\d+, classes\] from GCN.*, got"):
            smoothing.certify(untrained, sbm, torch.arange(5), 100)
    with pytest.raises(ValueError, match="GCN contains GCNConv with cached=True"):
        smoothing.certify(PyGGCN(21, 8, 2, 2, cached=True), sbm, torch.arange(5), 100)
    untrained.forward = lambda x, *_: x[:, :2] * torch.nan  # type: ignore[method-assign]
    for function in (smoothing.certify, smoothing.predict):
        with pytest.raises(ValueError, match="expected finite logits from GCN, got NaN or Inf on the clean graph"):
            function(untrained, sbm, torch.arange(5), 100)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0.0}, "expected 0 < alpha < 1, got 0.0"),
        ({"alpha": 1.0}, "expected 0 < alpha < 1"),
        ({"alpha": float("nan")}, "expected 0 < alpha < 1, got nan"),
        ({"alpha": "x"}, "expected 0 < alpha < 1, got 'x'"),
        ({"samples": 0}, "expected samples to be an integer >= 1, got 0"),
        ({"seed": -1}, "expected seed to be an integer from 0 to 4294967295, got -1"),
        ({"seed": 2**63}, "expected seed to be an integer from 0 to 4294967295, got 9223372036854775808"),
        ({"memory": 0}, "expected memory to be a finite number > 0, got 0"),
        ({"memory": True}, "expected memory to be a finite number > 0, got True"),
    ],
)
def test_invalid_settings_raise(
    options: dict[str, Any], message: str, smoothing: SparseSmoothing, untrained: nn.Module, sbm: Data
) -> None:
    for function in (smoothing.certify, smoothing.predict):
        with pytest.raises(ValueError, match=message):
            function(untrained, sbm, torch.arange(5), **{"samples": 100, "progress": False, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 3}, "samples to certify anything at alpha=0.05 with 2 classes"),
        ({"choosing_samples": 0}, "expected choosing_samples to be an integer >= 1, got 0"),
    ],
)
def test_invalid_certification_settings_raise(
    options: dict[str, Any], message: str, smoothing: SparseSmoothing, untrained: nn.Module, sbm: Data
) -> None:
    with pytest.raises(ValueError, match=message):
        smoothing.certify(untrained, sbm, torch.arange(5), **{"samples": 100, "progress": False, **options})


def test_invalid_noise_raises() -> None:
    with pytest.raises(ValueError, match="expected 0 <= p_del < 1"):
        SparseSmoothing(0.1, 1.0)
