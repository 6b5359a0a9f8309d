from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

import edgeproof as ep
from edgeproof.cli._options import parse_device, parse_settings
from edgeproof.cli.app import COMMANDS
from edgeproof.evaluation import clean_accuracy
from edgeproof.evaluation.result import Result

Run = Callable[..., tuple[int, str, str]]


TRAIN = ("train", "--dataset", "csbm", "--model", "GPRGNN", "--max-epochs", "20", "--quiet")
# Long enough to be interrupted after the first checkpoint.
LONG_TRAIN = (*TRAIN[:-2], "150", "--patience", "150", "--device", "cpu", "--quiet")


def test_train_writes_model_and_result(run: Run) -> None:
    code, out, _ = run(*TRAIN, "--seed", "3", "--out", "out/model.safetensors", "--set", "K=4", "--set", "init=ppr")
    assert code == 0
    assert sorted(path.name for path in Path("out").iterdir()) == ["model.safetensors", "model.safetensors.json"]
    model = ep.load("out/model.safetensors")
    assert model.settings["K"] == 4
    assert model.settings["init"] == "ppr"
    result = Result.read("out/model.safetensors.json")
    assert result.command == "edgeproof " + " ".join(
        [*TRAIN, "--seed", "3", "--out", "out/model.safetensors", "--set", "K=4", "--set", "init=ppr"]
    )
    assert (result.seed, result.dataset, result.model["name"]) == (3, "csbm", "GPRGNN")
    assert result.training["max_epochs"] == 20
    split = ep.splits.inductive(ep.datasets.load("csbm"), 3)
    assert result.split["fingerprint"] == split.fingerprint
    assert result.score("test") == clean_accuracy(model, split.test.data, split.test.nodes)
    assert f"{result.score('test'):.1%}" in out


def test_train_options_match_python_api(run: Run) -> None:
    """``ep.train`` with the same seed and settings gives the same parameters."""
    options = ("--seed", "2", "--lr", "0.02", "--weight-decay", "0.1", "--patience", "5", "--warmup-epochs", "3")
    run(*TRAIN, *options, "--validate-every", "2", "--loss", "cross_entropy", "--all-nodes")
    data = ep.datasets.load("csbm", largest_component=False)
    model = ep.models.build("GPRGNN", data.num_features, 2, seed=2)
    ep.train(
        model,
        ep.splits.inductive(data, 2),
        max_epochs=20,
        seed=2,
        lr=0.02,
        weight_decay=0.1,
        patience=5,
        warmup_epochs=3,
        validate_every=2,
        loss="cross_entropy",
        progress=False,
    )
    saved = ep.load("model.safetensors").state_dict()
    assert all(torch.equal(saved[name], value) for name, value in model.state_dict().items())


def test_file_names_with_rich_markup(run: Run) -> None:
    code, out, _ = run(*TRAIN, "--out", "a[/b] [red].json")
    assert code == 0
    assert "a[/b] [red].json.json" in out
    assert ep.load("a[/b] [red].json").settings["K"] == 10


def test_train_checks_arguments_before_download(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object, **__: object) -> None:
        pytest.fail("loaded the dataset")

    monkeypatch.setattr(ep.datasets, "load", load)
    start = ("train", "--dataset", "cora_ml", "--model")
    for arguments in (
        (*start, "GCM"),
        (*start, "GCN", "--set", "K=1"),
        (*start, "GCN", "--split", "odd"),
        (*start, "GCN", "--protocol", "odd"),
        (*start, "GCN", "--preset", "odd"),
        (*start, "GCN", "--attack", "odd", "--epsilon", "0.1"),
        (*start, "GCN", "--attack", "LRBCD", "--attack-set", "odd=1", "--epsilon", "0.1"),
        (*start, "GCN", "--attack-set", "steps=1"),
        (*start, "GCN", "--epsilon", "0.1"),
        (*start, "GCN", "--attack", "LRBCD"),
        (*start, "GCN", "--label-set", "odd=1"),
        (*start, "GCN", "--lr", "-1"),
        (*start, "GCN", "--attack", "LRBCD", "--epsilon", "0.1", "--count", "odd"),
        (*start, "GCN", "--attack", "LRBCD", "--epsilon", "0.1", "--local", "-1"),
    ):
        assert run(*arguments)[0] == 1
    # Options without effect are errors, too.
    for arguments, message in (
        (("--set", "dropout=0.5", "--set", "dropout=0.2"), "expected one value of dropout, got two"),
        (("--averaging", "1.5"), "expected 0 <= averaging < 1, got 1.5"),
        (("--split-index", "1"), "expected --split-index with --split provided only, got inductive"),
        (("--test-on-val", "--split", "transductive"), "with --split provided only, got transductive"),
        (("--count", "half_degree"), "expected an attack to train against with count='half_degree'"),
        (("--local", "0.5"), "(--attack LRBCD)"),
        (("--preset", "sturdy", "--max-epochs", "40"), "settings that are not given are those of preset 'sturdy'"),
        (("--preset", "sturdy", "--lr", "-1"), "expected lr to be a finite number >= 0, got -1.0\n"),
    ):
        code, _, err = run(*start, "GCN", *arguments)
        assert code == 1
        assert message in err


def test_train_is_deterministic(run: Run) -> None:
    run(*TRAIN, "--out", "one.safetensors")
    run(*TRAIN, "--out", "two.safetensors")
    assert Path("one.safetensors").read_bytes() == Path("two.safetensors").read_bytes()
    assert Result.read("one.safetensors.json").scores == Result.read("two.safetensors.json").scores


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--split", "transductive"), None),
        (("--split", "provided"), "expected data with test_mask, got None"),
        (("--split", "provided", "--test-on-val"), None),
        (("--split", "provded"), "unknown split 'provded': did you mean 'provided'"),
        (("--protocol", "as_released"), None),
        (("--protocol", "as_relased"), "unknown protocol 'as_relased': did you mean 'as_released'"),
        (("--protocol", "as_released", "--split", "transductive"), "as_released with inductive splits only"),
    ],
)
def test_split_options(run: Run, arguments: tuple[str, ...], message: str | None) -> None:
    code, _, err = run(*TRAIN, *arguments)
    assert code == (0 if message is None else 1)
    assert (message or "") in err
    if message is None:
        split = Result.read("model.safetensors.json").split
        assert any(arguments[1] in str(value) for value in split.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "--dataset", "csmb", "--model", "GCN"), "error: unknown dataset 'csmb': did you mean 'csbm'?"),
        (("train", "--dataset", "csbm", "--model", "GCM"), "error: unknown model 'GCM': did you mean 'GCN'?"),
        ((*TRAIN, "--set", "KK=4"), "unknown setting of GPRGNN 'KK'"),
        ((*TRAIN, "--set", "dropout=abc"), "0 <= dropout < 1, got 'abc'"),
        ((*TRAIN, "--set", "init=5"), "unknown init 5"),
        ((*TRAIN, "--set", "K"), "expected a setting as name=value"),
        ((*TRAIN, "--set", "K=0"), "expected K to be an integer from 1 to 10000, got 0"),
        ((*TRAIN, "--lr", "-1"), "expected lr to be a finite number >= 0"),
        ((*TRAIN, "--loss", "hinge"), "unknown loss 'hinge'"),
        ((*TRAIN, "--device", "gpu"), "expected a device of this machine, such as 'cpu', got 'gpu'"),
        ((*TRAIN, "--out", "/dev/null/model"), "cannot write /dev/null/model"),
        (("train", "--dataset", "karate", "--model", "GCN"), "nodes of each class"),
    ],
)
def test_invalid_train_options_are_one_line_errors(run: Run, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = run(*arguments)
    assert code == 1
    assert message in err
    assert "Traceback" not in err
    assert out == ""
    assert not Path("model.safetensors").exists()


def test_unknown_options_and_commands_are_usage_errors(run: Run) -> None:
    code, _, err = run("trian")
    assert code == 2
    assert "Did you mean 'train'?" in err
    assert run(*TRAIN, "--sed", "1")[0] == 2
    assert "Usage" in run()[1]


def test_interrupted_training_resumes_to_the_same_model(run: Run) -> None:
    """The process starts with SIGINT ignored, as background processes of shells do."""
    command = [sys.executable, "-m", "edgeproof", *LONG_TRAIN]
    ignore = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=ignore)
    checkpoint = Path("model.safetensors.checkpoint")
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "interrupted; the same command resumes from model.safetensors.checkpoint"
    assert "Traceback" not in err
    assert run(*LONG_TRAIN)[0] == 0
    assert not checkpoint.exists()
    resumed = Path("model.safetensors").read_bytes()
    assert run(*LONG_TRAIN, "--force")[0] == 0
    assert Path("model.safetensors").read_bytes() == resumed


def test_datasets_lists_local_and_missing_datasets(run: Run, tmp_path: Path) -> None:
    data = ep.datasets.csbm()
    ep.datasets.write_npz(data, tmp_path / "cora.npz")
    code, out, _ = run("datasets", "--root", str(tmp_path))
    assert code == 0
    for name in ep.datasets.available():
        assert name in out
    assert "982" in out
    assert "unusable: expected cora" in out
    assert "downloaded on first use" in out


def test_info_shows_versions_and_kernels(run: Run) -> None:
    code, out, _ = run("info")
    assert code == 0
    assert "reference" in out
    assert ep.__version__ in out


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("reproduce", "results")])
def test_help_has_usage_and_example(run: Run, command: str) -> None:
    code, out, _ = run(command, "--help")
    assert code == 0
    assert f"edgeproof {command}" in out
    assert "Example" in out


def test_train_help(run: Run) -> None:
    out = run("train", "--help")[1]
    assert "edgeproof[logging]" in out
    assert run("--version")[1] == f"edgeproof {ep.__version__}\n"


def test_parse_options() -> None:
    assert parse_settings(["a=1", "b=x=y", "c=[1, 2]", "d=true", "e="]) == {
        "a": 1,
        "b": "x=y",
        "c": [1, 2],
        "d": True,
        "e": "",
    }
    assert parse_device("cpu").type == "cpu"
    assert parse_device("auto").type in ("cpu", "cuda")


def test_adversarial_training(run: Run) -> None:
    attack = ("--attack", "LRBCD", "--attack-set", "steps=2", "--attack-set", "block_size=5000", "--local", "0.5")
    code, _, err = run(*TRAIN, *attack, "--epsilon", "0.1", "--self-training", "--averaging", "0.5")
    assert code == 0, err
    result = Result.read("model.safetensors.json")
    expected = ep.attacks.LRBCD(steps=2, block_size=5000, lr=2000.0)
    assert result.training["attack"] == repr(expected)
    assert (result.training["epsilon"], result.training["local"]) == (0.1, 0.5)
    assert result.training["averaging"] == 0.5
    assert result.training["label_accuracy"] > 0.4
    assert result.split["test_nodes_seen"] == 0
    # The checkpoint is removed.
    assert sorted(path.name for path in Path().iterdir()) == ["model.safetensors", "model.safetensors.json"]


def test_attack_set_changes_the_attack_of_a_preset(run: Run) -> None:
    preset = ("--preset", "sturdy", "--no-self-training", "--min-epochs", "0")
    code, _, err = run(*TRAIN, *preset, "--attack-set", "steps=2", "--attack-set", "block_size=5000")
    assert code == 0, err
    training = Result.read("model.safetensors.json").training
    assert training["attack"] == repr(ep.attacks.GreedyRBCD(steps=2, block_size=5000, loss="log_margin"))
    assert (training["epsilon"], training["local"], training["weight_decay"]) == (1.5, 2.0, 5e-3)


def test_label_set_changes_the_label_models_of_a_preset(run: Run) -> None:
    preset = ("--preset", "sturdy", "--min-epochs", "0", "--label-models", "1")
    attack = ("--attack", "DICE", "--epsilon", "0.1")
    code, _, err = run(*TRAIN, *preset, *attack, "--label-set", "dropout=0.5", "--label-set", "hidden_channels=8")
    assert code == 0, err
    label_model = Result.read("model.safetensors.json").training["label_model"]
    assert all(part in label_model for part in ("GPRGNN(", "dropout=0.5", "alpha=0.1", "hidden_channels=8"))


def test_label_model_option(run: Run) -> None:
    assert run(*TRAIN, "--label-model", "GCN", "--label-set", "hidden_channels=8")[0] == 0
    assert "GCN(" in Result.read("model.safetensors.json").training["label_model"]
    assert "hidden_channels=8" in Result.read("model.safetensors.json").training["label_model"]
    for wrong, message in (
        (("--label-model", "GCM"), "unknown model 'GCM': did you mean 'GCN'"),
        (("--label-model", "GCN", "--label-set", "hiden_channels=8"), "unknown setting of GCN 'hiden_channels'"),
        (
            ("--preset", "paper", "--label-set", "dropout=0.8"),
            "expected --label-model together with --label-set dropout=0.8",
        ),
        (("--label-model", "GCN", "--no-self-training"), "expected no --label-model with --no-self-training, got GCN"),
    ):
        code, _, err = run(*TRAIN, *wrong, "--force")
        assert code == 1
        assert message in err


def test_model_trained_as_released_is_attacked_on_the_same_split(run: Run) -> None:
    run(*TRAIN, "--protocol", "as_released")
    trained = Result.read("model.safetensors.json")
    assert trained.split["rule"] == "as_released"
    assert trained.split["test_nodes_seen"] > 0
    code, _, err = run("attack", "--model", "model.safetensors", "--attack", "DICE", "-e", "0.1")
    assert code == 0, err
    attacked = Result.read("attack.json")
    assert attacked.split == trained.split
    assert attacked.score() == trained.score()


def test_diverged_training_saves_last_good_parameters_and_keeps_older_files(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(*TRAIN)[0] == 0
    files = [Path("model.safetensors"), Path("model.safetensors.json")]
    before = [path.read_bytes() for path in files]
    # Without a finished epoch there is nothing to save.
    code, _, err = run(*TRAIN, "--preset", "paper", "--lr", "1e30", "--self-training", "--force")
    assert code == 1
    assert "label model 1 of 1" in err
    assert "no longer finite" in err
    assert "named below" not in err

    def diverge(network: ep.models.GPRGNN, *_: object, **__: object) -> None:
        network.gamma.data.fill_(3)
        raise FloatingPointError("the model has the parameters of its best epoch, 4")

    monkeypatch.setattr(ep, "train", diverge)
    code, _, err = run(*TRAIN, "--force")
    assert code == 1
    assert "saved the restored parameters to model.safetensors.last-good" in err
    assert bool((ep.load("model.safetensors.last-good").gamma == 3).all())  # type: ignore[operator]
    assert [path.read_bytes() for path in files] == before


def test_num_seen_of_other_splits(run: Run) -> None:
    run(*TRAIN, "--protocol", "as_released")
    seen = Result.read("model.safetensors.json").split["test_nodes_seen"]
    run("attack", "--model", "model.safetensors", "--attack", "DICE", "-e", "0.1", "--split-seed", "0")
    assert Result.read("attack.json").split["test_nodes_seen"] == seen > 0
    run("attack", "--model", "model.safetensors", "--attack", "DICE", "-e", "0.1", "--split-seed", "5")
    assert Result.read("attack.json").split["test_nodes_seen"] > 0


def test_label_warning_is_one_line_and_stored(run: Run) -> None:
    code, _, err = run(*TRAIN, "--preset", "paper", "--self-training", "--lr", "0")
    assert code == 0
    assert err.startswith("warning: EP101: the pseudo-labels are hardly better than a constant prediction")
    assert "hardly better than a constant prediction" in Result.read("model.safetensors.json").warnings[0]
