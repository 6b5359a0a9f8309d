"""Every epoch of training, read back from what TensorBoard reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import edgeproof as ep
from edgeproof.cli.app import app
from edgeproof.splits import Split
from edgeproof.training import Epoch, TensorBoardLog

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def read(folder: Path) -> dict[str, dict[int, float]]:
    """Values by tag and epoch."""
    events = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {tag: {one.step: one.value for one in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


def test_an_adversarial_run_is_logged_epoch_by_epoch(split: Split, tmp_path: Path) -> None:
    model = ep.models.build("GPRGNN", 21, 2, {"hidden_channels": 8}, seed=0)
    attack = ep.attacks.LRBCD(steps=2, block_size=2_000)
    with TensorBoardLog(tmp_path) as log:
        history = ep.train(
            model, split, attack=attack, epsilon=0.1, local=0.5, max_epochs=4, progress=False, observe=log
        )
    found = read(tmp_path)
    measured = {f"{what}/{on}" for what in ("loss", "accuracy") for on in ("train", "val", "clean_train", "clean_val")}
    assert set(found) == measured | {f"gamma/{step:02}" for step in range(11)}
    assert list(found["accuracy/val"]) == list(range(4))
    for one in history.epochs:
        assert one.gamma is not None
        assert found["loss/train"][one.epoch] == pytest.approx(one.train_loss)
        assert found["accuracy/clean_val"][one.epoch] == pytest.approx(one.clean_val_accuracy)
        assert found["gamma/02"][one.epoch] == pytest.approx(one.gamma[2])


def test_what_was_not_measured_is_not_logged(tmp_path: Path) -> None:
    with TensorBoardLog(tmp_path) as log:
        log(Epoch(0, train_loss=0.5, train_accuracy=0.75))
    assert read(tmp_path) == {"loss/train": {0: 0.5}, "accuracy/train": {0: 0.75}}


def test_a_run_that_goes_on_replaces_what_it_repeats(tmp_path: Path) -> None:
    for first, loss in ((0, 1.0), (2, 2.0)):
        with TensorBoardLog(tmp_path) as log:
            for epoch in range(first, 4):
                log(Epoch(epoch, train_loss=loss, train_accuracy=0.5))
    assert read(tmp_path)["loss/train"] == {0: 1.0, 1: 1.0, 2: 2.0, 3: 2.0}


def test_the_command_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--dataset", "csbm", "--model", "GCN", "--max-epochs", "3", "--quiet", "--log-dir", "logs"]
    assert CliRunner().invoke(app, ["train", *options], catch_exceptions=False).exit_code == 0
    assert set(read(tmp_path / "logs")["loss/val"]) == set(range(3))


@pytest.mark.parametrize("verb", [["train", "--dataset", "csbm", "--model", "GCN"], ["reproduce", "run", "fig:karate"]])
def test_a_missing_tensorboard_is_told_before_anything_runs(
    verb: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("edgeproof.training.tensorboard.find_spec", lambda name: None)
    monkeypatch.setattr(ep.datasets, "load", lambda *_, **__: pytest.fail("loaded a graph"))
    with pytest.raises(ImportError, match=r"pip install 'edgeproof\[logging\]'"):
        CliRunner().invoke(app, [*verb, "--log-dir", "logs"], catch_exceptions=False)
