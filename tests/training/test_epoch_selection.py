"""Selection of the best epoch by validation loss, accuracy and clean accuracy."""

from __future__ import annotations

from dataclasses import replace

import pytest

import edgeproof as ep
from edgeproof.splits import Split
from edgeproof.training import Epoch, TrainConfig
from edgeproof.training.loop import selection_loss


def epoch(loss: float, accuracy: float, clean: float | None = None) -> Epoch:
    return Epoch(0, 0.1, 0.9, val_loss=loss, val_accuracy=accuracy, clean_val_accuracy=clean)


def test_loss_breaks_ties_of_accuracy_and_never_outweighs_a_node() -> None:
    config = TrainConfig(select="accuracy")
    assert selection_loss(epoch(0.5, 0.8), config, None) < selection_loss(epoch(0.9, 0.8), config, None)
    assert selection_loss(epoch(1e9, 0.80001), config, None) < selection_loss(epoch(0.1, 0.8), config, None)
    by_loss = replace(config, select="loss")
    assert selection_loss(epoch(0.1, 0.1), by_loss, None) < selection_loss(epoch(0.2, 0.9), by_loss, None)


@pytest.mark.parametrize("select", ["accuracy", "loss"])
def test_epochs_below_the_lowest_clean_accuracy_lose_against_all_others(select: str) -> None:
    config = TrainConfig(select=select)
    within, below, far_below = epoch(2.0, 0.1, 0.9), epoch(0.1, 0.9, 0.89), epoch(0.1, 0.9, 0.5)
    losses = [selection_loss(found, config, 0.9) for found in (within, below, far_below)]
    assert losses == sorted(losses)
    assert selection_loss(below, config, None) < selection_loss(within, config, None)


def test_drop_by_one_validation_node_is_allowed(split: Split) -> None:
    """With 40 validation nodes, one is 2.5 percent; a limit of 0 then allows as much as one of 0.025."""
    attack = ep.attacks.LRBCD(steps=2, block_size=5_000)
    histories = []
    for limit in (0.0, 1 / split.val.nodes.numel()):
        model = ep.models.build("GCN", 21, 2, seed=0)
        options = {"max_epochs": 20, "warmup_epochs": 20, "label_models": 1, "max_clean_drop": limit}
        histories.append(
            ep.train(model, split, attack=attack, epsilon=0.3, preset="default", progress=False, **options)  # type: ignore[arg-type]
        )
    assert histories[0].best == histories[1].best
