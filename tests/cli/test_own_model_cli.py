"""Training and tests of a user's own model: ``--model module:factory``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import edgeproof as ep
from edgeproof.evaluation.result import Result
from edgeproof.models.factory import build_own, build_trained, load_factory

Run = Callable[..., tuple[int, str, str]]

MODULE = """
from torch_geometric.nn.models import GCN

def build(in_channels, out_channels, hidden=8):
    return GCN(in_channels, hidden, num_layers=2, out_channels=out_channels)

def fixed():
    return build(21, 2)

def narrow(in_channels, out_channels):
    return build(in_channels + 1, out_channels)

def number(in_channels, out_channels):
    return 7
"""
TRAIN = ("train", "--dataset", "csbm", "--max-epochs", "5", "--max-restarts", "0", "--quiet")
SMALL = ("--attack", "GreedyRBCD", "--set", "steps=2", "--set", "block_size=500", "--quiet")


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module of the current folder, which is imported again in each test."""
    monkeypatch.chdir(tmp_path)
    Path("own_for_training.py").write_text(MODULE)
    yield
    sys.modules.pop("own_for_training", None)


def test_own_model_is_trained_attacked_evaluated_and_certified(run: Run) -> None:
    code, out, err = run(*TRAIN, "--model", "own_for_training:build", "--set", "hidden=4")
    assert code == 0, err
    assert "GCN" in out
    trained = Result.read("model.safetensors.json")
    assert trained.model["factory"] == "own_for_training:build"
    assert trained.model["settings"] == {"hidden": 4}
    test = ("--model", "model.safetensors", "--factory", "own_for_training:build", "--quiet")
    for command in (
        ("attack", *test, *SMALL),
        ("evaluate", *test, "--attack", "DICE", "-e", "0.1"),
        ("certify", *test, "--samples", "200", "--choosing-samples", "20"),
    ):
        code, _, err = run(*command)
        assert code == 0, err
    assert Result.read("attack.json").split == trained.split
    assert Result.read("attack.json").score() == trained.score()
    code, _, err = run("report", "model.safetensors", "attack.json", "evaluation.json")
    assert code == 0, err


def test_file_alone_imports_no_code(run: Run) -> None:
    run(*TRAIN, "--model", "own_for_training:build")
    sys.modules.pop("own_for_training", None)
    code, _, err = run("attack", "--model", "model.safetensors", *SMALL)
    assert code == 1
    assert "pass --factory own_for_training:build" in err
    assert "own_for_training" not in sys.modules
    code, _, err = run("attack", "--model", "model.safetensors", "--factory", "own_for_training:narrow", *SMALL)
    assert code == 1
    assert "expected parameters of own_for_training:narrow, got those of own_for_training:build" in err
    code, _, err = run("attack", "--model", "own_for_training:fixed", "--factory", "own_for_training:build", *SMALL)
    assert code == 1
    assert "expected --factory together with a model file" in err


def test_initial_parameters_depend_on_the_seed(run: Run) -> None:
    models = [build_own("own_for_training:build", 21, 2, {"hidden": 4}, seed=seed) for seed in (0, 0, 1)]
    first = [max(model.parameters(), key=torch.numel) for model in models]
    assert torch.equal(first[0], first[1])
    assert not torch.equal(first[0], first[2])
    # A factory without parameters is called without the sizes.
    assert isinstance(build_own("own_for_training:fixed", 3, 4), torch.nn.Module)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "own_for_training.py:build",
            "name of a module, not of a file, got 'own_for_training.py:build': write own_for",
        ),
        ("own_for_training.py", "write own_for_training:build"),
        ("models/own.py:make", "write models.own:make"),
        ("own_for_training:", "expected a model as module:factory"),
        ("own_for_training:bild", "unknown function of own_for_training 'bild': did you mean 'build'"),
        ("no_such_module:build", "cannot import 'no_such_module'"),
        ("own_for_training:number", "to return a torch.nn.Module, got int"),
        ("own_for_training:narrow", "the model does not fit the graph of 21 features"),
    ],
)
def test_invalid_factories_are_one_line_errors(run: Run, name: str, message: str) -> None:
    code, _, err = run(*TRAIN, "--model", name)
    assert code == 1
    assert message in err
    assert len(err.splitlines()) == 1
    assert not Path("model.safetensors").exists()


def test_broken_modules_and_factories_name_their_error() -> None:
    Path("broken_for_training.py").write_text("def build(:\n")
    with pytest.raises(ImportError, match="SyntaxError"):
        load_factory("broken_for_training:build")
    with pytest.raises(ValueError, match=r"own_for_training:build failed: TypeError: .* 'width'"):
        build_own("own_for_training:build", 21, 2, {"width": 4})
    with pytest.raises(ValueError, match="a function of in_channels, out_channels; for a model of edgeproof train"):
        build_trained("own_for_training:build")


def test_own_models_are_saved_and_loaded_in_python() -> None:
    model = build_own("own_for_training:build", 21, 2, {"hidden": 4}, seed=0)
    ep.models.save_own(model, "own.safetensors", "own_for_training:build", 21, 2, {"hidden": 4})
    loaded = ep.models.load_own("own.safetensors", "own_for_training:build")
    assert not loaded.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name])
    with pytest.raises(ValueError, match="do not fit the model of own_for_training:build"):
        ep.models.load_own("own.safetensors", "own_for_training:build", lambda *sizes, hidden: torch.nn.Linear(3, 2))
    with pytest.raises(ValueError, match=r"parameters of a model of your own.*load_own"):
        ep.load("own.safetensors")


def test_pickles_and_source_files_get_helpful_errors(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(2)}, "model.pt")
    with pytest.raises(ValueError, match=r"model.pt is a pickle.*weights_only=True.*my_module:build"):
        ep.load("model.pt")
    with pytest.raises(ValueError, match="write own_for_training:build"):
        ep.load("own_for_training.py")
