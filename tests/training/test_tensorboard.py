"""TensorBoard logs, read back with TensorBoard."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import edgeproof as ep
from edgeproof.cli.app import app
from edgeproof.splits import Split
from edgeproof.training import Epoch, TensorBoardLog

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def read(folder: Path) -> dict[str, dict[int, float]]:
    """Return the values by tag and epoch."""
    events = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {tag: {scalar.step: scalar.value for scalar in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


def test_every_epoch_of_adversarial_run_is_logged(split: Split, tmp_path: Path) -> None:
    model = ep.models.build("GPRGNN", 21, 2, {"hidden_channels": 8}, seed=0)
    attack = ep.attacks.LRBCD(steps=2, block_size=2_000)
    with TensorBoardLog(tmp_path) as log:
        options = {"preset": "paper", "max_epochs": 4, "progress": False}
        history = ep.train(model, split, attack=attack, epsilon=0.1, local=0.5, observe=log, **options)  # type: ignore[arg-type]
    logged = read(tmp_path)
    graphs = ("train", "val", "clean_train", "clean_val")
    metrics = {f"{metric}/{graph}" for metric in ("loss", "accuracy") for graph in graphs}
    assert set(logged) == metrics | {f"gamma/{hop:02}" for hop in range(11)}
    assert list(logged["accuracy/val"]) == list(range(4))
    for record in history.epochs:
        assert record.gamma is not None
        assert logged["loss/train"][record.epoch] == pytest.approx(record.train_loss)
        assert logged["accuracy/clean_val"][record.epoch] == pytest.approx(record.clean_val_accuracy)
        assert logged["gamma/02"][record.epoch] == pytest.approx(record.gamma[2])


def test_missing_metrics_are_not_logged(tmp_path: Path) -> None:
    with TensorBoardLog(tmp_path) as log:
        log(Epoch(0, train_loss=0.5, train_accuracy=0.75))
    assert read(tmp_path) == {"loss/train": {0: 0.5}, "accuracy/train": {0: 0.75}}


def test_resumed_run_replaces_repeated_epochs(tmp_path: Path) -> None:
    for first, loss in ((0, 1.0), (2, 2.0)):
        with TensorBoardLog(tmp_path) as log:
            for epoch in range(first, 4):
                log(Epoch(epoch, train_loss=loss, train_accuracy=0.5))
    assert read(tmp_path)["loss/train"] == {0: 1.0, 1: 1.0, 2: 2.0, 3: 2.0}


def test_train_command_writes_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--dataset", "csbm", "--model", "GCN", "--max-epochs", "3", "--quiet", "--log-dir", "logs"]
    assert CliRunner().invoke(app, ["train", *options], catch_exceptions=False).exit_code == 0
    assert set(read(tmp_path / "logs")["loss/val"]) == set(range(3))


@pytest.mark.parametrize("verb", [["train", "--dataset", "csbm", "--model", "GCN"], ["reproduce", "run", "fig:karate"]])
def test_missing_tensorboard_raises_before_training(
    verb: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ImportError, match=r"pip install 'edgeproof\[logging\]'"):
        CliRunner().invoke(app, [*verb, "--log-dir", "logs"], catch_exceptions=False)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
