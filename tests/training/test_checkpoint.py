from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof import serialization
from edgeproof.splits import Split
from edgeproof.training import Epoch, loop
from edgeproof.training import checkpoint as checkpoints

PAST_BEST = 45
OPTIONS = {
    "separate_warmup": False,
    "max_epochs": 60,
    "patience": 40,
    "lr": 0.05,
    "progress": False,
    "checkpoint_every": 1,
}


def build() -> ep.models.GraphModel:
    return ep.models.build("ChebNetII", 21, 2, {"hidden_channels": 16}, seed=0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.checkpoint"


def check_same_as_uninterrupted(split: Split, path: Path) -> None:
    whole, resumed = build(), build()
    expected = ep.train(whole, split, **OPTIONS)  # type: ignore[arg-type]
    history = ep.train(resumed, split, checkpoint=path, **OPTIONS)  # type: ignore[arg-type]
    assert history == expected
    for name, tensor in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], tensor), name


def test_the_cases_below_cover_a_run_past_its_best_epoch(split: Split) -> None:
    history = ep.train(build(), split, **OPTIONS)  # type: ignore[arg-type]
    assert history.best_epoch < PAST_BEST < history.epochs[-1].epoch


@pytest.mark.parametrize("epoch", [-9, -1, 0, 1, 17, PAST_BEST])
def test_an_interrupted_run_goes_on_to_the_same_end(
    epoch: int, split: Split, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle of an epoch: the last checkpoint stays, and the rest of the run follows from it."""
    describe = loop._describe

    def interrupted(record: Epoch) -> str:
        if record.epoch == epoch:
            raise KeyboardInterrupt
        return describe(record)

    monkeypatch.setattr(loop, "_describe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ep.train(build(), split, checkpoint=path, **OPTIONS)  # type: ignore[arg-type]
    monkeypatch.undo()
    header, _ = serialization.read_tensors(path)
    assert header["next_epoch"] == epoch + 1
    check_same_as_uninterrupted(split, path)


def test_a_killed_run_goes_on_to_the_same_end(split: Split, path: Path) -> None:
    """kill -9 at a moment of its own choosing."""
    script = f"""
import edgeproof as ep
data = ep.datasets.csbm("homophilous", num_nodes=200, p=0.05, q=0.01, K=4.0, seed=3)
split = ep.splits.inductive(data, seed=0, train_per_class=20, val_per_class=20, test_share=0.2)
model = ep.models.build("ChebNetII", 21, 2, {{"hidden_channels": 16}}, seed=0)
ep.train(model, split, checkpoint={str(path)!r}, **{OPTIONS!r})
"""
    process = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": "src"})
    while not path.exists() and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    check_same_as_uninterrupted(split, path)


def test_a_finished_run_is_not_repeated(split: Split, path: Path) -> None:
    check_same_as_uninterrupted(split, path)
    written = path.stat().st_mtime_ns
    check_same_as_uninterrupted(split, path)
    assert path.stat().st_mtime_ns == written


def test_a_full_disk_leaves_the_last_checkpoint(split: Split, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = checkpoints.write_tensors
    calls = []

    def full(*arguments: object) -> None:
        calls.append(arguments)
        if len(calls) > 8:
            raise OSError(28, "No space left on device")
        save(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoints, "write_tensors", full)
    with pytest.raises(OSError, match="No space left"):
        ep.train(build(), split, checkpoint=path, **OPTIONS)  # type: ignore[arg-type]
    monkeypatch.undo()
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    check_same_as_uninterrupted(split, path)


def test_a_checkpoint_serves_no_other_run(split: Split, sbm: Data, path: Path) -> None:
    options = {**OPTIONS, "max_epochs": 3}
    ep.train(build(), split, checkpoint=path, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"belongs to another run, with config .*'seed': 0.* instead of .*'seed': 1"):
        ep.train(build(), split, checkpoint=path, seed=1, **options)  # type: ignore[arg-type]
    other = ep.models.build("ChebNetII", 21, 2, {"hidden_channels": 16}, seed=1)
    with pytest.raises(
        ValueError, match=r"another run, with initial parameters .*build the model anew with the same seed"
    ):
        ep.train(other, split, checkpoint=path, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"another run, with model 'ChebNetII.* instead of 'GCN"):
        ep.train(ep.models.GCN(21, 2), split, checkpoint=path, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"another run, with split .* delete this one"):
        ep.train(build(), ep.splits.inductive(sbm, 1), checkpoint=path, **options)  # type: ignore[arg-type]


def test_damaged_checkpoints_are_refused(split: Split, path: Path) -> None:
    options = {**OPTIONS, "max_epochs": 3}
    path.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="damaged or not a safetensors file"):
        ep.train(build(), split, checkpoint=path, **options)  # type: ignore[arg-type]
    ep.save(build(), path)
    with pytest.raises(ValueError, match="is no training checkpoint"):
        ep.train(build(), split, checkpoint=path, **options)  # type: ignore[arg-type]
    path.unlink()
    ep.train(build(), split, checkpoint=path, **options)  # type: ignore[arg-type]
    header, tensors = serialization.read_tensors(path)
    serialization.write_tensors(path, {"model.gamma": tensors["model.gamma"]}, header)
    with pytest.raises(ValueError, match="is a damaged checkpoint"):
        ep.train(build(), split, checkpoint=path, **options)  # type: ignore[arg-type]


def test_a_file_of_another_run_is_noticed_before_anything_is_labelled(
    split: Split, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**OPTIONS, "max_epochs": 3, "separate_warmup": True}
    monkeypatch.setattr("edgeproof.training.self_training.run_epochs", lambda *_, **__: pytest.fail("labelled"))
    monkeypatch.setattr("edgeproof.training.warm_up.run_epochs", lambda *_, **__: pytest.fail("warmed up"))
    path.write_bytes(b"nonsense")
    for self_training in (False, True):
        with pytest.raises(ValueError, match="damaged or not a safetensors file"):
            ep.train(build(), split, checkpoint=path, self_training=self_training, **options)  # type: ignore[arg-type]
    monkeypatch.undo()
    path.unlink()
    ep.train(build(), split, checkpoint=path, self_training=True, label_models=2, **options)  # type: ignore[arg-type]
    monkeypatch.setattr("edgeproof.training.self_training.run_epochs", lambda *_, **__: pytest.fail("labelled"))
    monkeypatch.setattr("edgeproof.training.warm_up.run_epochs", lambda *_, **__: pytest.fail("warmed up"))
    # Each of the files alone would do.
    for left in (path.name, "run.checkpoint.warmup", "run.checkpoint.labels0"):
        with pytest.raises(ValueError, match=rf"{left} belongs to another run, with config"):
            ep.train(build(), split, checkpoint=path, seed=1, self_training=True, **options)  # type: ignore[arg-type]
        path.with_name(left).unlink()


def test_only_files_of_the_run_are_removed(tmp_path: Path) -> None:
    ours = ["run", "run.labels0", "run.labels12", "run.warmup"]
    unfinished = [".run.abc_1.tmp", ".run.labels0.x9.tmp"]
    others = ["run.labels", "run.labels.csv", "run.labels_true.npy", "run2.warmup", ".run.other.x9.tmp", "arun.labels0"]
    for name in ours + unfinished + others:
        (tmp_path / name).write_text("")
    os.utime(tmp_path / ".run.other.x9.tmp", (0, 0))
    # Somebody else may be writing them.
    ep.training.remove_checkpoints(tmp_path / "run")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(unfinished + others)
    for name in unfinished:
        os.utime(tmp_path / name, (0, 0))
    ep.training.remove_checkpoints(tmp_path / "run")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)
    ep.training.remove_checkpoints(tmp_path / "nowhere" / "run")
