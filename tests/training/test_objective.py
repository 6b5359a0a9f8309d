"""Models that say themselves what training lowers: on which graph they are asked, and that nothing else changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof import losses
from edgeproof.attacks import LRBCD, FixedFlips
from edgeproof.graph import flip_pairs
from edgeproof.models import GRAND, WithObjective
from edgeproof.splits import Split
from edgeproof.training import loop
from edgeproof.training.stage import Stage

SHORT: dict[str, Any] = {
    "warmup_epochs": 2,
    "separate_warmup": False,
    "max_epochs": 6,
    "patience": 6,
    "progress": False,
}
AGAINST: dict[str, Any] = {"attack": LRBCD(steps=3, block_size=2_000, samples=2), "epsilon": 0.1, "local": 0.5}
WAYS: dict[str, dict[str, Any]] = {
    "clean": {},
    "self-trained": {"self_training": True},
    "adversarial": {**AGAINST, "self_training": True, "clean_share": 0.3},
}


def build(**settings: float) -> GRAND:
    torch.manual_seed(0)
    return GRAND(21, 2, hidden_channels=8, **settings)  # type: ignore[arg-type]


def same_state(one: nn.Module, two: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))


class Counting(nn.Module):
    """A user's model whose objective is the number of edges that it sees; it notes down what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(21, 2)
        self.given: list[tuple[Tensor, Tensor, losses.Loss, bool]] = []

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.linear(x)
        return out

    def training_objective(
        self, x: Tensor, graph: Tensor, nodes: Tensor, labels: Tensor, loss: losses.Loss
    ) -> tuple[Tensor, Tensor]:
        self.given.append((nodes, labels, loss, self.training))
        logits = self.linear(x)
        return logits.sum() * 0 + graph.size(1), logits[nodes]


def test_a_users_own_objective_is_lowered(split: Split) -> None:
    model = Counting()
    assert isinstance(model, WithObjective)
    history = ep.train(model, split, weight_decay=0.0, **SHORT)
    assert [record.train_loss for record in history.epochs] == [split.train.data.num_edges] * 8
    # Validation is by the plain loss.
    assert all(record.val_loss is not None and abs(record.val_loss) < 2 for record in history.epochs)
    for nodes, labels, _, training in model.given:
        assert training
        assert torch.equal(nodes, split.train.nodes)
        assert torch.equal(labels, split.train.data.y[split.train.nodes])
    assert [loss for _, _, loss, _ in model.given] == [losses.cross_entropy] * 2 + [losses.tanh_margin] * 6


def test_the_clean_graph_has_its_share(split: Split) -> None:
    edges = split.train.data.num_edges
    row, col = split.train.data.edge_index
    touching = torch.isin(row, split.train.nodes) & (row < col)
    flips = split.train.data.edge_index[:, touching][:, :1]
    attack = FixedFlips(flips=flips)
    for share in (0.0, 0.25):
        history = ep.train(Counting(), split, attack=attack, epsilon=0.5, clean_share=share, **SHORT)
        assert [record.train_loss for record in history.epochs] == [edges] * 2 + [edges - 2 + 2 * share] * 6


@pytest.mark.parametrize("count", [0, 3])
def test_the_objective_is_that_on_the_attacked_graph(count: int, sbm: Data) -> None:
    model, nodes = build().train(), torch.arange(0, 200, 5)
    flips = sbm.edge_index[:, sbm.edge_index[0] < sbm.edge_index[1]][:, :count]
    stage = Stage(model, sbm, nodes, sbm.y[nodes], None, seed=0)
    torch.manual_seed(4)
    found, logits = stage.objective(losses.cross_entropy, flips)
    torch.manual_seed(4)
    attacked = flip_pairs(sbm, flips)
    expected = model.training_objective(sbm.x, attacked.edge_index, nodes, sbm.y[nodes], losses.cross_entropy)
    torch.testing.assert_close((found, logits), expected)


class Plain(nn.Module):
    """A model without its objective."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.model(x, edge_index, edge_weight)
        return out


def test_one_sample_without_consistency_trains_as_any_model(split: Split) -> None:
    one, other = build(samples=1, consistency=0.0), build(samples=1, consistency=0.0)
    history, plain = ep.train(one, split, **SHORT), ep.train(Plain(other), split, **SHORT)
    assert [record.val_loss for record in history.epochs] == pytest.approx([record.val_loss for record in plain.epochs])
    for mine, expected in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, expected)
    different = ep.train(build(samples=1, consistency=1.0), split, **SHORT)
    assert [record.val_loss for record in history.epochs] != [record.val_loss for record in different.epochs]


def test_consistency_makes_random_propagations_agree(split: Split) -> None:
    graph = split.test.data
    spread = []
    for consistency in (0.0, 5.0):
        model = build(consistency=consistency)
        ep.train(model, split, warmup_epochs=100, max_epochs=1, progress=False)
        model.train()
        torch.manual_seed(0)
        answers = torch.stack([model(graph.x, graph.edge_index).softmax(dim=1) for _ in range(20)])
        spread.append(float(answers.std(dim=0).mean()))
    assert spread[1] < 0.8 * spread[0]


@pytest.mark.parametrize("way", WAYS)
def test_the_same_seed_gives_the_same_run(way: str, split: Split) -> None:
    one, two, other = build(), build(), build()
    first, second = (ep.train(model, split, seed=1, **WAYS[way], **SHORT) for model in (one, two))
    third = ep.train(other, split, seed=2, **WAYS[way], **SHORT)
    assert first.epochs == second.epochs
    assert same_state(one, two)
    assert first.epochs != third.epochs


@pytest.mark.parametrize("epoch", [-2, 0, 3])
@pytest.mark.parametrize("way", WAYS)
def test_an_interrupted_run_goes_on_to_the_same_end(
    way: str, epoch: int, split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**WAYS[way], **SHORT}
    if "self_training" in options:
        options["self_training"] = ep.training.pseudo_labels(build(), split, **SHORT)
    path = tmp_path / "run.checkpoint"
    whole, resumed = build(), build()
    expected = ep.train(whole, split, **options)

    def interrupted(record: ep.training.Epoch) -> str:
        if record.epoch == epoch:
            raise KeyboardInterrupt
        return ""

    monkeypatch.setattr(loop, "_describe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ep.train(build(), split, checkpoint=path, checkpoint_every=1, **options)
    monkeypatch.undo()
    history = ep.train(resumed, split, checkpoint=path, checkpoint_every=1, **options)
    assert history.epochs == expected.epochs
    assert same_state(whole, resumed)
