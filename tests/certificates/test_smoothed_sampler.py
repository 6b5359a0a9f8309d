"""Tests of sampled class counts: independent of the batch size, for any model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn.models import GCN as PyGGCN

import edgeproof as ep
from edgeproof._memory import free_main_memory
from edgeproof.certificates import SparseSmoothing
from edgeproof.certificates.sampling import Sampler
from edgeproof.certificates.smoothed_sampler import SmoothedSampler, default_batch_bytes

OPTIONS: dict[str, Any] = {"choosing_samples": 10, "progress": False}


@pytest.fixture
def smoothing() -> SparseSmoothing:
    return SparseSmoothing(p_add=0.02, p_del=0.5)


@pytest.fixture
def trained(split: ep.splits.Split) -> nn.Module:
    model = ep.models.build("GPRGNN", 21, 2, {"hidden_channels": 8}, seed=0).eval()
    ep.train(model, split, max_epochs=60, progress=False)
    return model


class UserModel(nn.Module):
    """A user's model that counts its calls.

    Args:
        centred: Whether logits are centred over all nodes, which mixes the graphs of a batch.
        max_nodes: Largest number of nodes of a call; larger ones raise OutOfMemoryError.
    """

    def __init__(self, *, centred: bool = False, max_nodes: float = float("inf")) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net, self.centred, self.max_nodes, self.calls = PyGGCN(21, 8, 2, 2), centred, max_nodes, 0

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        self.calls += 1
        if x.size(0) > self.max_nodes:
            raise torch.OutOfMemoryError
        logits: Tensor = self.net(x, edge_index, edge_weight)
        return logits - logits.mean(dim=0) if self.centred else logits


class NodeParameters(nn.Module):
    """Has a parameter per node of one graph; with ``nan``, nodes without edges get NaN logits."""

    def __init__(self, num_nodes: int, *, nan: bool = False) -> None:
        super().__init__()
        self.bias, self.net, self.nan = nn.Parameter(torch.randn(num_nodes, 2)), PyGGCN(21, 8, 2, 2), nan

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        logits: Tensor = self.net(x, edge_index, edge_weight) + self.bias
        if self.nan:
            logits[torch.bincount(edge_index[0], minlength=len(x)) == 0] = torch.nan
        return logits


class NegatedGCN(ep.models.GCN):
    """Logits are not those of ``diffuse(encode(x))``."""

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        return -super().forward(x, edge_index, edge_weight)


class RecordingSoftMedian(ep.models.SoftMedianGDC):
    """Records the number of nodes of each call instead of convolving."""

    sizes: list[int]

    def convolve(self, h: Tensor, values: Tensor, index: Tensor) -> Tensor:
        self.sizes.append(h.size(0))
        return h[:, :2]


def test_counts_match_predictions_on_single_samples(
    smoothing: SparseSmoothing, trained: nn.Module, split: ep.splits.Split
) -> None:
    graph, nodes = split.test.data, split.test.nodes
    counts = smoothing.sample_counts(
        trained, graph, nodes, 60, seed=3, choosing_samples=20, progress=False, memory=0.001
    )
    assert counts.streams == {3: (20, 60)}
    sampler = Sampler.of(graph, smoothing.noise, seed=3)
    for actual, first, samples in ((counts.bounding, 0, 60), (counts.choosing, 1 << 48, 20)):
        expected = torch.zeros_like(actual)
        for index in range(samples):
            adjacency = sampler.draw(first + index, 1)
            with torch.no_grad():
                prediction = trained(graph.x, adjacency)[nodes].argmax(dim=1)
            expected[torch.arange(nodes.numel()), prediction] += 1
        assert torch.equal(actual, expected)


def test_graph_dependent_diffusion_runs_one_graph_at_a_time(smoothing: SparseSmoothing, split: ep.splits.Split) -> None:
    """A batch would make personalized PageRank solve for every node over all graphs."""
    graph, nodes = split.test.data, split.test.nodes
    torch.manual_seed(0)
    model = RecordingSoftMedian(21, 2, hidden_channels=8)
    model.sizes = []
    smoothing.certify(model, graph, nodes, 50, alpha=0.3, **OPTIONS)
    assert set(model.sizes) == {graph.num_nodes}
    assert len(model.sizes) >= 60


@pytest.mark.parametrize("centred", [False, True])
def test_user_model_is_batched_unless_graphs_interact(
    centred: bool, smoothing: SparseSmoothing, split: ep.splits.Split
) -> None:
    graph, nodes = split.test.data, split.test.nodes
    model = UserModel(centred=centred)
    counts = smoothing.sample_counts(model, graph, nodes, 100, **OPTIONS)
    assert (model.calls > 110) == centred
    unbatched = smoothing.sample_counts(model, graph, nodes, 100, memory=1e-6, **OPTIONS)
    assert torch.equal(counts.bounding, unbatched.bounding)
    assert torch.equal(counts.choosing, unbatched.choosing)


def test_encode_and_diffuse_are_used_only_if_they_give_the_logits(
    smoothing: SparseSmoothing, split: ep.splits.Split
) -> None:
    graph, nodes = split.test.data, split.test.nodes
    torch.manual_seed(0)
    negated = NegatedGCN(21, 2, hidden_channels=8)
    plain = ep.models.GCN(21, 2, hidden_channels=8)
    plain.load_state_dict(negated.state_dict())
    counts, opposite = (smoothing.sample_counts(model, graph, nodes, 50, **OPTIONS) for model in (plain, negated))
    assert torch.equal(counts.bounding.flip(1), opposite.bounding)


def test_model_with_node_parameters_runs_one_graph_at_a_time(
    smoothing: SparseSmoothing, split: ep.splits.Split
) -> None:
    graph, nodes = split.test.data, split.test.nodes
    torch.manual_seed(0)
    assert smoothing.sample_counts(NodeParameters(graph.num_nodes), graph, nodes, 50, **OPTIONS).samples == 50


def test_nan_logits_on_random_graph_raise(smoothing: SparseSmoothing, split: ep.splits.Split) -> None:
    graph, connected = split.test.data, split.test.data.edge_index[0].unique()
    torch.manual_seed(0)
    with pytest.raises(ValueError, match="expected finite logits from NodeParameters, got NaN or Inf on a random gr"):
        smoothing.sample_counts(NodeParameters(graph.num_nodes, nan=True), graph, connected, 200, **OPTIONS)


def test_out_of_memory_error_reduces_batch_size(smoothing: SparseSmoothing, split: ep.splits.Split) -> None:
    graph, nodes = split.test.data, split.test.nodes
    expected = smoothing.sample_counts(UserModel(), graph, nodes, 100, **OPTIONS)
    limited = UserModel(max_nodes=7 * graph.num_nodes)
    sampler = SmoothedSampler(limited, graph, nodes, Sampler.of(graph, smoothing.noise, 0), None)
    assert sampler.batch_size > 7
    counts = smoothing.sample_counts(limited, graph, nodes, 100, **OPTIONS)
    assert torch.equal(counts.bounding, expected.bounding)
    limited.max_nodes = 0
    with pytest.raises(torch.OutOfMemoryError):
        list(sampler.counts(range(100), 2, choosing=False))
    assert sampler.batch_size == 1


def test_batch_size_is_proportional_to_memory(
    smoothing: SparseSmoothing, trained: nn.Module, split: ep.splits.Split
) -> None:
    graph, nodes = split.test.data, split.test.nodes
    sampler = Sampler.of(graph, smoothing.noise, seed=0)
    small, large, default = (
        SmoothedSampler(trained, graph, nodes, sampler, memory).batch_size for memory in (0.001, 0.002, None)
    )
    assert 1 < small < large < default
    assert large == pytest.approx(2 * small, abs=1)


def test_default_memory_is_half_of_free_memory_up_to_a_limit() -> None:
    cpu = torch.device("cpu")
    assert default_batch_bytes(cpu, free=2e6) == 1e6
    assert default_batch_bytes(cpu, free=4e6) == 2e6
    assert default_batch_bytes(cpu, free=1e12) == 1 << 28
    assert default_batch_bytes(torch.device("cuda"), free=1e12) == 5e11
    assert 1e6 < free_main_memory() < 1e14


def test_batch_size_of_user_model_accounts_for_hidden_states(
    smoothing: SparseSmoothing, split: ep.splits.Split
) -> None:
    graph, nodes = split.test.data, split.test.nodes
    sampler = Sampler.of(graph, smoothing.noise, seed=0)
    narrow, wide = (SmoothedSampler(PyGGCN(21, hidden, 2, 2), graph, nodes, sampler, 0.1) for hidden in (4, 256))
    # The hidden states of one graph alone take at least 4 tensors of 256 float32 columns.
    graph_bytes = graph.num_nodes * 256 * 4 * 4
    assert wide.batch_size <= 0.1e9 / graph_bytes
    assert narrow.batch_size > 4 * wide.batch_size
