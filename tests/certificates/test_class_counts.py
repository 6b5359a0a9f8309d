"""Tests of joining, merging, storing and resuming class counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn.models import GCN as PyGGCN

import edgeproof as ep
from edgeproof.certificates import Certificate, ClassCounts, CountsPart, SparseSmoothing, join_parts, merge_counts


@pytest.fixture
def smoothing() -> SparseSmoothing:
    return SparseSmoothing(p_add=0.02, p_del=0.5)


@pytest.fixture
def untrained() -> nn.Module:
    return ep.models.build("GCN", 21, 2, {"hidden_channels": 8}, seed=0).eval()


@pytest.fixture
def model() -> nn.Module:
    return ep.models.build("GPRGNN", 21, 2, {"hidden_channels": 8}, seed=0).eval()


class Interrupted(nn.Module):
    """Counts its calls and raises KeyboardInterrupt at a given one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = PyGGCN(21, 8, 2, 2)
        self.calls, self.interrupt_at = 0, -1

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        self.calls += 1
        if self.calls == self.interrupt_at:
            raise KeyboardInterrupt
        logits: Tensor = self.net(x, edge_index, edge_weight)
        return logits


def test_merged_counts_add_up(
    smoothing: SparseSmoothing, model: nn.Module, untrained: nn.Module, split: ep.splits.Split, tmp_path: Path
) -> None:
    graph, nodes = split.test.data, split.test.nodes
    options: dict[str, Any] = {"choosing_samples": 10, "progress": False}
    counts = [smoothing.sample_counts(model, graph, nodes, 100, seed, **options) for seed in (1, 2)]
    for index, each in enumerate(counts):
        each.save(tmp_path / f"{index}.counts")
    total = merge_counts([ClassCounts.load(tmp_path / f"{index}.counts") for index in (0, 1)])
    assert total.samples == 200
    assert torch.equal(total.bounding, counts[0].bounding + counts[1].bounding)
    assert torch.equal(total.choosing, counts[0].choosing + counts[1].choosing)
    assert smoothing.certify_counts(total).samples == 200
    with pytest.raises(ValueError, match=r"expected class counts of different seeds, got seeds \[1\] more than once"):
        merge_counts([counts[0], counts[0]])
    other_noise = SparseSmoothing(0.05, 0.5).sample_counts(model, graph, nodes, 100, 3, **options)
    with pytest.raises(ValueError, match=r"expected class counts for noise \[0.02, 0.5\], got noise \[0.05, 0.5\]"):
        merge_counts([counts[0], other_noise])
    with pytest.raises(ValueError, match="expected class counts for noise"):
        smoothing.certify_counts(other_noise)
    other_model = smoothing.sample_counts(untrained, graph, nodes, 100, 3, **options)
    message = r"expected class counts for the same model, got another model in the class counts of seeds \[3\]"
    with pytest.raises(ValueError, match=message):
        merge_counts([counts[0], other_model])
    fewer_edges = Data(x=graph.x, edge_index=graph.edge_index[:, (graph.edge_index > 50).all(dim=0)], y=graph.y)
    for key, arguments in (("graph", (fewer_edges, nodes)), ("nodes", (graph, nodes[:-1]))):
        other = smoothing.sample_counts(model, *arguments, 100, 3, **options)
        other = replace(other, run={**other.run, "logits": counts[0].run["logits"]})
        with pytest.raises(ValueError, match=f"expected class counts for the same {key}"):
            merge_counts([counts[0], other])
    with pytest.raises(ValueError, match="expected class counts to merge, got none"):
        merge_counts([])
    with pytest.raises(TypeError, match="expected ClassCounts to merge, got ClassCounts, int"):
        merge_counts([counts[0], 1])  # type: ignore[list-item]


@pytest.mark.parametrize("parts", [1, 3, 16, 120])
def test_joined_parts_equal_all_counts(
    parts: int, smoothing: SparseSmoothing, model: nn.Module, split: ep.splits.Split
) -> None:
    graph, nodes = split.test.data, split.test.nodes
    settings: dict[str, Any] = {"samples": 100, "seed": 4, "choosing_samples": 10}
    each = [smoothing.sample_part(model, graph, nodes, part, parts, **settings) for part in range(parts)]
    expected = smoothing.sample_counts(model, graph, nodes, **settings, progress=False)
    joined = join_parts(reversed(each))
    assert joined.streams == expected.streams == {4: (10, 100)}
    assert torch.equal(joined.choosing, expected.choosing)
    assert torch.equal(joined.bounding, expected.bounding)
    sizes = [len(part.samples[1]) for part in each]
    assert sum(sizes) == 100
    assert max(sizes) - min(sizes) <= 1


def test_join_of_incompatible_parts_raises(
    smoothing: SparseSmoothing, model: nn.Module, untrained: nn.Module, split: ep.splits.Split
) -> None:
    graph, nodes = split.test.data, split.test.nodes

    def part(index: int, seed: int = 4, model: nn.Module = model, samples: int = 60) -> CountsPart:
        return smoothing.sample_part(model, graph, nodes, index, 3, samples, seed, choosing_samples=9)

    with pytest.raises(ValueError, match="expected at least one part to join, got none"):
        join_parts([])
    with pytest.raises(ValueError, match="expected a part that begins at sample 3, got samples 6 to 9"):
        join_parts([part(0), part(2)])
    with pytest.raises(ValueError, match=r"expected parts of \(9, 60\) samples in total, got only the first \(6, 40\)"):
        join_parts([part(0), part(1)])
    with pytest.raises(ValueError, match=r"expected parts of the same total, got \(9, 60\) and \(9, 90\) samples"):
        join_parts([part(0), part(1), part(2, samples=90)])
    with pytest.raises(TypeError, match="expected CountsPart objects to join, got CountsPart, int"):
        join_parts([part(0), 1])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="expected a part that begins at sample 3, got samples 0 to 3"):
        join_parts([part(0), part(0), part(1), part(2)])
    with pytest.raises(ValueError, match="expected a part that begins at sample 0, got samples 3 to 6"):
        join_parts([part(1), part(2)])
    with pytest.raises(ValueError, match="expected parts of one seed, got 4 and 5: use merge_counts"):
        join_parts([part(0), part(1, seed=5)])
    with pytest.raises(ValueError, match="expected class counts for the same model"):
        join_parts([part(0), part(1, model=untrained)])
    with pytest.raises(ValueError, match="expected part to be an integer from 0 to 2, got 3"):
        part(3)


@pytest.mark.parametrize("checkpoint_seconds", [0.0, 30.0])
def test_interrupted_sampling_continues_from_checkpoint(
    checkpoint_seconds: float, smoothing: SparseSmoothing, untrained: nn.Module, split: ep.splits.Split, tmp_path: Path
) -> None:
    """An interrupt writes the checkpoint, even if none is due."""
    graph, nodes = split.test.data, split.test.nodes
    path, model = tmp_path / "counts", Interrupted()
    options: dict[str, Any] = {"choosing_samples": 30, "progress": False, "memory": 0.003}
    options["checkpoint_seconds"] = checkpoint_seconds
    expected = smoothing.sample_counts(model, graph, nodes, 200, 5, **options)
    assert model.calls > 10
    model.interrupt_at = 2 * model.calls - 2
    with pytest.raises(KeyboardInterrupt):
        smoothing.sample_counts(model, graph, nodes, 200, 5, checkpoint=path, **options)
    assert 0 < ClassCounts.load(path).samples < 200
    resumed = smoothing.sample_counts(model, graph, nodes, 200, 5, checkpoint=path, **options)
    assert torch.equal(resumed.bounding, expected.bounding)
    assert torch.equal(resumed.choosing, expected.choosing)
    with pytest.raises(ValueError, match=r"expected class counts of seed 6 in .*counts, got seeds \[5\]"):
        smoothing.sample_counts(model, graph, nodes, 200, 6, checkpoint=path, **options)
    with pytest.raises(
        ValueError, match=r"expected class counts for the same model, got another model in .*counts: delete it"
    ):
        smoothing.sample_counts(untrained, graph, nodes, 200, 5, checkpoint=path, **options)


def test_checkpoint_is_written_while_sampling(
    smoothing: SparseSmoothing, split: ep.splits.Split, tmp_path: Path
) -> None:
    """The model reads the checkpoint at every call: with an interval of 0 it grows, with a long one it does not exist."""
    graph, nodes = split.test.data, split.test.nodes

    class Reader(Interrupted):
        def __init__(self, path: Path) -> None:
            super().__init__()
            self.path = path
            self.seen: list[int] = []

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
            if self.path.exists():
                self.seen.append(sum(ClassCounts.load(self.path).streams[0]))
            return super().forward(x, edge_index, edge_weight)

    options: dict[str, Any] = {"choosing_samples": 10, "progress": False, "memory": 0.01}
    often, rarely = Reader(tmp_path / "often"), Reader(tmp_path / "rarely")
    for model, seconds in ((often, 0.0), (rarely, 3600.0)):
        smoothing.sample_counts(model, graph, nodes, 50, checkpoint=model.path, checkpoint_seconds=seconds, **options)
    assert len(set(often.seen)) > 2
    assert not rarely.seen
    assert ClassCounts.load(rarely.path).samples == 50


def test_damaged_files_raise(tmp_path: Path) -> None:
    counts = ClassCounts(torch.ones(2, 2, dtype=torch.long), torch.ones(2, 2, dtype=torch.long), {0: (2, 2)}, {})
    good, bad = tmp_path / "good", tmp_path / "bad"
    counts.save(good)
    assert ClassCounts.load(good).samples == 2
    replace(counts, streams={0: (2, 3)}).save(bad)
    with pytest.raises(ValueError, match="damaged: expected bounding counts >= 0 that sum to 3 at every node"):
        ClassCounts.load(bad)
    replace(counts, choosing=torch.ones(3, 2, dtype=torch.long)).save(bad)
    with pytest.raises(ValueError, match=r"damaged: expected choosing and bounding counts of one shape"):
        ClassCounts.load(bad)
    with pytest.raises(ValueError, match=r"expected a certificate of format 1 in .*good"):
        Certificate.load(good)
    bad.write_bytes(good.read_bytes()[:-20])
    with pytest.raises(ValueError, match=str(bad)):
        ClassCounts.load(bad)


def test_models_with_different_settings_have_different_fingerprints(
    smoothing: SparseSmoothing, split: ep.splits.Split
) -> None:
    """The models have equal parameters."""
    graph, nodes = split.test.data, split.test.nodes
    options: dict[str, Any] = {"choosing_samples": 10, "progress": False}
    models = [ep.models.build("APPNP", 21, 2, {"hidden_channels": 8, "alpha": alpha}, seed=0) for alpha in (0.1, 0.9)]
    counts = [smoothing.sample_counts(model, graph, nodes, 50, seed, **options) for seed, model in enumerate(models)]
    with pytest.raises(ValueError, match="expected class counts for the same model"):
        merge_counts(counts)
    # The activation is not part of the repr of PyG's models, but of the logits.
    relu, tanh = PyGGCN(21, 8, 2, 2, act="relu"), PyGGCN(21, 8, 2, 2, act="tanh")
    tanh.load_state_dict(relu.state_dict())
    counts = [smoothing.sample_counts(model, graph, nodes, 50, i, **options) for i, model in enumerate((relu, tanh))]
    with pytest.raises(ValueError, match="same model, got those of a model with other logits in"):
        merge_counts(counts)
