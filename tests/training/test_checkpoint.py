"""Checkpoints: resumed runs, damaged files and files of other runs."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from instrumented_models import interrupt_at, untrainable
from safetensors import SafetensorError
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof import serialization
from edgeproof.splits import Split

OPTIONS = {
    "preset": "paper",
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


def check_equals_uninterrupted_run(split: Split, path: Path, **options: int) -> None:
    whole, resumed = build(), build()
    expected = ep.train(whole, split, **{**OPTIONS, **options})  # type: ignore[arg-type]
    history = ep.train(resumed, split, checkpoint=path, **{**OPTIONS, **options})  # type: ignore[arg-type]
    assert history == expected
    for name, tensor in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], tensor), name


def check_resumes_after(epoch: int, split: Split, path: Path, **options: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        ep.train(
            build(),
            split,
            checkpoint=path,
            observe=interrupt_at(epoch + 1),
            **{**OPTIONS, **options},  # type: ignore[arg-type]
        )
    header, _ = serialization.read_tensors(path)
    assert header["next_epoch"] == epoch + 1
    check_equals_uninterrupted_run(split, path, **options)


@pytest.mark.parametrize("epoch", [-9, -1, 0, 1, 17])
def test_interrupted_run_resumes_with_same_result(epoch: int, split: Split, path: Path) -> None:
    check_resumes_after(epoch, split, path)


def test_run_interrupted_past_its_best_epoch_resumes_with_same_result(split: Split, path: Path) -> None:
    options = {"patience": 5, "max_epochs": 500}
    history = ep.train(build(), split, **{**OPTIONS, **options})  # type: ignore[arg-type]
    check_resumes_after(history.best_epoch + 2, split, path, **options)


def test_killed_run_resumes_with_same_result(split: Split, path: Path) -> None:
    """The process gets SIGKILL at an arbitrary moment."""
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
    check_equals_uninterrupted_run(split, path)


def test_finished_run_is_not_repeated(split: Split, path: Path) -> None:
    check_equals_uninterrupted_run(split, path)
    written = path.stat().st_mtime_ns
    check_equals_uninterrupted_run(split, path)
    assert path.stat().st_mtime_ns == written


def test_failed_write_keeps_previous_checkpoint(split: Split, path: Path) -> None:
    """A file size limit makes writes fail as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit_file_size(record: ep.training.Epoch) -> None:
        if record.epoch == -2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))

    try:
        with pytest.raises((OSError, SafetensorError), match="too large"):
            ep.train(build(), split, checkpoint=path, observe=limit_file_size, **OPTIONS)  # type: ignore[arg-type]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert serialization.read_tensors(path)[0]["next_epoch"] == -2
    check_equals_uninterrupted_run(split, path)


def test_checkpoint_of_another_run_is_refused(split: Split, sbm: Data, path: Path) -> None:
    options = {**OPTIONS, "max_epochs": 3}
    ep.train(build(), split, checkpoint=path, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"belongs to another run, with config .*'seed': 0.* instead of .*'seed': 1"):
        ep.train(build(), split, checkpoint=path, seed=1, **options)  # type: ignore[arg-type]
    other_seed = ep.models.build("ChebNetII", 21, 2, {"hidden_channels": 16}, seed=1)
    with pytest.raises(
        ValueError, match=r"another run, with initial parameters .*build a new model with the same seed"
    ):
        ep.train(other_seed, split, checkpoint=path, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"another run, with model 'ChebNetII.* instead of 'GCN"):
        ep.train(ep.models.GCN(21, 2), split, checkpoint=path, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"another run, with split .* delete this one"):
        ep.train(build(), ep.splits.inductive(sbm, 1), checkpoint=path, **options)  # type: ignore[arg-type]


def test_damaged_checkpoint_is_refused(split: Split, path: Path) -> None:
    options = {**OPTIONS, "max_epochs": 3}
    path.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="damaged or not a safetensors file"):
        ep.train(build(), split, checkpoint=path, **options)  # type: ignore[arg-type]
    ep.save(build(), path)
    with pytest.raises(ValueError, match="is not a training checkpoint"):
        ep.train(build(), split, checkpoint=path, **options)  # type: ignore[arg-type]
    path.unlink()
    ep.train(build(), split, checkpoint=path, **options)  # type: ignore[arg-type]
    header, tensors = serialization.read_tensors(path)
    serialization.write_tensors(path, {"model.gamma": tensors["model.gamma"]}, header)
    with pytest.raises(ValueError, match="is a damaged checkpoint"):
        ep.train(build(), split, checkpoint=path, **options)  # type: ignore[arg-type]


def test_checkpoint_of_another_run_raises_before_training(split: Split, path: Path) -> None:
    options = {**OPTIONS, "max_epochs": 3, "separate_warmup": True}
    model = untrainable("ChebNetII")(21, 2, hidden_channels=16)
    path.write_bytes(b"nonsense")
    for self_training in (False, True):
        with pytest.raises(ValueError, match="damaged or not a safetensors file"):
            ep.train(model, split, checkpoint=path, self_training=self_training, **options)  # type: ignore[arg-type]
    path.unlink()
    ep.train(build(), split, checkpoint=path, self_training=True, label_models=2, **options)  # type: ignore[arg-type]
    # Any single file of another run is refused.
    for name in (path.name, "run.checkpoint.warmup", "run.checkpoint.labels0"):
        with pytest.raises(ValueError, match=rf"{name} belongs to another run, with config"):
            ep.train(model, split, checkpoint=path, seed=1, self_training=True, **options)  # type: ignore[arg-type]
        path.with_name(name).unlink()


def test_remove_checkpoints_keeps_other_files(tmp_path: Path) -> None:
    own = ["run", "run.labels0", "run.labels12", "run.warmup"]
    temporary = [".run.abc_1.tmp", ".run.labels0.x9.tmp"]
    others = ["run.labels", "run.labels.csv", "run.labels_true.npy", "run2.warmup", ".run.other.x9.tmp", "arun.labels0"]
    for name in own + temporary + others:
        (tmp_path / name).write_text("")
    os.utime(tmp_path / ".run.other.x9.tmp", (0, 0))
    # Recent temporary files may belong to a running process.
    ep.training.remove_checkpoints(tmp_path / "run")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(temporary + others)
    for name in temporary:
        os.utime(tmp_path / name, (0, 0))
    ep.training.remove_checkpoints(tmp_path / "run")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)
    ep.training.remove_checkpoints(tmp_path / "nowhere" / "run")
