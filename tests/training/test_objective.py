"""Models that define their training objective."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from instrumented_models import interrupt_at
from torch import Tensor, nn
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof import losses
from edgeproof.attacks import LRBCD, FixedFlips
from edgeproof.graph import flip_pairs
from edgeproof.models import GRAND, WithObjective
from edgeproof.splits import Split
from edgeproof.training.adversarial import Stage

SHORT: dict[str, Any] = {
    "preset": "paper",
    "warmup_epochs": 2,
    "separate_warmup": False,
    "max_epochs": 6,
    "patience": 6,
    "progress": False,
}
AGAINST: dict[str, Any] = {"attack": LRBCD(steps=3, block_size=2_000, samples=2), "epsilon": 0.1, "local": 0.5}
SCHEMES: dict[str, dict[str, Any]] = {
    "clean": {},
    "self-trained": {"self_training": True},
    "adversarial": {**AGAINST, "self_training": True, "clean_weight": 0.3},
}


def build(**settings: float) -> GRAND:
    torch.manual_seed(0)
    return GRAND(21, 2, hidden_channels=8, **settings)  # type: ignore[arg-type]


def same_state(first: nn.Module, second: nn.Module) -> bool:
    states = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in states)


class EdgeCount(nn.Module):
    """Model whose objective is the number of edges of the graph; it records the arguments of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(21, 2)
        self.calls: list[tuple[Tensor, Tensor, losses.Loss, bool]] = []

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.linear(x)
        return out

    def training_objective(
        self, x: Tensor, graph: Tensor, nodes: Tensor, labels: Tensor, loss: losses.Loss
    ) -> tuple[Tensor, Tensor]:
        self.calls.append((nodes, labels, loss, self.training))
        logits = self.linear(x)
        return logits.sum() * 0 + graph.size(1), logits[nodes]


def test_objective_of_model_is_minimized(split: Split) -> None:
    model = EdgeCount()
    assert isinstance(model, WithObjective)
    history = ep.train(model, split, weight_decay=0.0, **SHORT)
    assert [record.train_loss for record in history.epochs] == [split.train.data.num_edges] * 8
    # Validation uses the loss.
    assert all(record.val_loss is not None and abs(record.val_loss) < 2 for record in history.epochs)
    for nodes, labels, _, training in model.calls:
        assert training
        assert torch.equal(nodes, split.train.nodes)
        assert torch.equal(labels, split.train.data.y[split.train.nodes])
    assert [loss for _, _, loss, _ in model.calls] == [losses.cross_entropy] * 2 + [losses.tanh_margin] * 6


def test_clean_weight_mixes_objectives(split: Split) -> None:
    edges = split.train.data.num_edges
    row, col = split.train.data.edge_index
    touching = torch.isin(row, split.train.nodes) & (row < col)
    flips = split.train.data.edge_index[:, touching][:, :1]
    attack = FixedFlips(flips=flips)
    for share in (0.0, 0.25):
        history = ep.train(EdgeCount(), split, attack=attack, epsilon=0.5, clean_weight=share, **SHORT)
        assert [record.train_loss for record in history.epochs] == [edges] * 2 + [edges - 2 + 2 * share] * 6


@pytest.mark.parametrize("count", [0, 3])
def test_objective_uses_perturbed_graph(count: int, sbm: Data) -> None:
    model, nodes = build().train(), torch.arange(0, 200, 5)
    flips = sbm.edge_index[:, sbm.edge_index[0] < sbm.edge_index[1]][:, :count]
    stage = Stage(model, sbm, nodes, sbm.y[nodes], None, seed=0)
    torch.manual_seed(4)
    objective, logits = stage.objective(losses.cross_entropy, flips)
    torch.manual_seed(4)
    perturbed = flip_pairs(sbm, flips)
    expected = model.training_objective(sbm.x, perturbed.edge_index, nodes, sbm.y[nodes], losses.cross_entropy)
    torch.testing.assert_close((objective, logits), expected)


class Plain(nn.Module):
    """Wrapper that hides the objective of a model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.model(x, edge_index, edge_weight)
        return out


def test_grand_without_consistency_trains_on_plain_loss(split: Split) -> None:
    model, reference = build(samples=1, consistency=0.0), build(samples=1, consistency=0.0)
    history, plain = ep.train(model, split, **SHORT), ep.train(Plain(reference), split, **SHORT)
    assert [record.val_loss for record in history.epochs] == pytest.approx([record.val_loss for record in plain.epochs])
    for parameter, expected in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected)
    different = ep.train(build(samples=1, consistency=1.0), split, **SHORT)
    assert [record.val_loss for record in history.epochs] != [record.val_loss for record in different.epochs]


def test_consistency_reduces_variance_of_random_propagation(split: Split) -> None:
    graph = split.test.data
    spread = []
    for consistency in (0.0, 5.0):
        model = build(consistency=consistency)
        ep.train(model, split, preset="paper", loss="cross_entropy", max_epochs=100, progress=False)
        model.train()
        torch.manual_seed(0)
        probabilities = torch.stack([model(graph.x, graph.edge_index).softmax(dim=1) for _ in range(20)])
        spread.append(float(probabilities.std(dim=0).mean()))
    assert spread[1] < 0.8 * spread[0]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_same_seed_gives_same_run(scheme: str, split: Split) -> None:
    models = [build(), build(), build()]
    first, second, other = (
        ep.train(model, split, seed=seed, **SCHEMES[scheme], **SHORT)
        for model, seed in zip(models, (1, 1, 2), strict=True)
    )
    assert first.epochs == second.epochs
    assert same_state(models[0], models[1])
    assert first.epochs != other.epochs


@pytest.mark.parametrize("epoch", [-2, 0, 3])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_resumed_run_equals_uninterrupted_run(scheme: str, epoch: int, split: Split, tmp_path: Path) -> None:
    options = {**SCHEMES[scheme], **SHORT}
    if "self_training" in options:
        options["self_training"] = ep.training.pseudo_labels(build(), split, **SHORT)
    path = tmp_path / "run.checkpoint"
    model, resumed = build(), build()
    expected = ep.train(model, split, **options)
    with pytest.raises(KeyboardInterrupt):
        ep.train(build(), split, checkpoint=path, checkpoint_every=1, observe=interrupt_at(epoch + 1), **options)
    history = ep.train(resumed, split, checkpoint=path, checkpoint_every=1, **options)
    assert history.epochs == expected.epochs
    assert same_state(model, resumed)
