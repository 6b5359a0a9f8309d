"""Sizes of splits and masks in files on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import edgeproof as ep
from edgeproof.evaluation.result import Result

Run = Callable[..., tuple[int, str, str]]

TRAIN = ("train", "--dataset", "csbm", "--model", "MLP", "--max-epochs", "2", "--max-restarts", "0", "--quiet")
ATTACK = ("attack", "--attack", "RandomFlips", "--quiet", "--force", "--model", "model.safetensors")


def test_sizes_of_sampled_splits(run: Run) -> None:
    sizes = ("--train-per-class", "30", "--val-per-class", "10", "--test-share", "0.2")
    code, _, err = run(*TRAIN, *sizes)
    assert code == 0, err
    data = ep.datasets.load("csbm")
    expected = ep.splits.inductive(data, train_per_class=30, val_per_class=10, test_share=0.2)
    trained = Result.read("model.safetensors.json").split
    assert trained["fingerprint"] == expected.fingerprint
    assert trained["sizes"] == {"train_per_class": 30, "val_per_class": 10, "test_share": 0.2}
    # The split of the training is the default of all tests of the model.
    assert run(*ATTACK)[0] == 0
    assert Result.read("attack.json").split == trained
    assert run(*ATTACK, "--split", "transductive", "--train-per-class", "30")[0] == 0
    attacked = Result.read("attack.json").split
    assert attacked["fingerprint"] == ep.splits.transductive(data, train_per_class=30).fingerprint
    assert attacked["sizes"] == {"train_per_class": 30}


@pytest.mark.parametrize("suffix", ["txt", "npz"])
def test_masks_in_a_file(run: Run, suffix: str) -> None:
    whole = ep.datasets.csbm()
    n, part = whole.num_nodes, np.arange(whole.num_nodes) % 5
    path = Path(f"masks.{suffix}")
    if suffix == "txt":
        path.write_text("".join(f"{['train', 'val', 'test', '', ''][number]}\n" for number in part))
    else:
        np.savez(path, train_mask=part == 0, val_mask=part == 1, test_mask=part == 2)
    code, _, err = run(*TRAIN, "--masks", str(path))
    assert code == 0, err
    trained = Result.read("model.safetensors.json").split
    assert (trained["rule"], trained["masks"]) == ("provided[0]", str(path.resolve()))
    for name, number in (("train_mask", 0), ("val_mask", 1), ("test_mask", 2)):
        whole[name] = torch.from_numpy(part == number)
    expected = ep.splits.provided(ep.datasets.keep_largest_component(whole))
    assert trained["fingerprint"] == expected.fingerprint
    assert run(*ATTACK)[0] == 0
    assert Result.read("attack.json").split == trained
    assert expected.test.nodes.numel() < n / 4
    # An output is never a file of masks.
    code, _, err = run(*ATTACK, "--out", str(path))
    assert code == 1
    assert f"expected an output file other than {path}" in err


def test_changed_masks_raise(run: Run) -> None:
    n = ep.datasets.csbm().num_nodes
    path = Path("masks.txt")
    path.write_text("".join(f"{['train', 'val', 'test'][number % 3]}\n" for number in range(n)))
    assert run(*TRAIN, "--masks", "masks.txt")[0] == 0
    path.write_text("".join(f"{['val', 'train', 'test'][number % 3]}\n" for number in range(n)))
    code, _, err = run(*ATTACK)
    assert code == 1
    assert "cannot reconstruct the split" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--split", "transductive", "--masks", "masks.txt"), "expected --masks with --split provided only"),
        (("--split", "transductive", "--test-share", "0.2"), "expected no --test-share with transductive splits"),
        (("--split", "provided", "--train-per-class", "5"), "expected no --train-per-class with provided splits"),
        (("--protocol", "as_released", "--train-per-class", "5"), "with their default sizes, got --train-per-class"),
        (("--split-index", "1"), "expected --split-index with --split provided only, got inductive"),
        (("--masks", "gone.txt"), "no such file of masks: gone.txt"),
        (("--masks", "masks.txt"), "expected one line for each of 1000 nodes, got 2 lines"),
        (("--train-per-class", "0"), "expected train_per_class to be an integer >= 1"),
        (("--test-share", "1"), "expected 0 < test_share < 1"),
    ],
)
def test_options_without_effect_and_invalid_values_raise(run: Run, options: tuple[str, ...], message: str) -> None:
    Path("masks.txt").write_text("train\nval\n")
    code, _, err = run(*TRAIN, *options)
    assert code == 1
    assert message in err


def test_misspelt_parts_and_other_arrays_raise(tmp_path: Path) -> None:
    from edgeproof.datasets.masks import with_masks

    data = ep.datasets.load("karate")
    path = tmp_path / "masks.txt"
    path.write_text("trian\n" * data.num_nodes)
    with pytest.raises(ValueError, match="did you mean 'train'"):
        with_masks(data, path)
    np.savez(tmp_path / "masks.npz", train_mask=np.arange(data.num_nodes))
    with pytest.raises(ValueError, match="expected boolean train_mask of shape"):
        with_masks(data, tmp_path / "masks.npz")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="neither a text file nor an"):
        with_masks(data, path)
