from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import edgeproof as ep
from edgeproof.cli._options import parse_device, parse_settings
from edgeproof.evaluation import clean_accuracy
from edgeproof.evaluation.result import Result
from edgeproof.training import Epoch, loop

Run = Callable[..., tuple[int, str, str]]


TRAIN = ("train", "--dataset", "csbm", "--model", "GPRGNN", "--max-epochs", "20", "--quiet")


def test_train_writes_a_model_and_a_result(run: Run) -> None:
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


def test_every_option_reaches_the_run(run: Run) -> None:
    """The same run by hand, seed and settings included, gives the same parameters."""
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


def test_names_with_brackets_are_only_names(run: Run) -> None:
    code, out, _ = run(*TRAIN, "--out", "a[/b] [red].json")
    assert code == 0
    assert "a[/b] [red].json.json" in out
    assert ep.load("a[/b] [red].json").settings["K"] == 10


def test_mistakes_are_noticed_before_a_download(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object, **__: object) -> None:
        raise AssertionError("downloaded")

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
        (*start, "GCN", "--train-set", "odd=1"),
        (*start, "GCN", "--lr", "-1"),
        (*start, "GCN", "--attack", "LRBCD", "--epsilon", "0.1", "--count", "odd"),
        (*start, "GCN", "--attack", "LRBCD", "--epsilon", "0.1", "--local", "-1"),
    ):
        assert run(*arguments)[0] == 1
    # What would have no effect is a mistake, too.
    for arguments, message in (
        (("--train-set", "seed=7"), "expected seed as --seed, got it in --train-set"),
        (("--train-set", "max_epochs=7"), "expected max_epochs as --max-epochs"),
        (("--train-set", "averaging=0.5", "--train-set", "averaging=0.2"), "expected one value of averaging, got two"),
        (("--split-index", "1"), "expected --test-on-val and --split-index with --split provided only, got inductive"),
        (("--test-on-val", "--split", "transductive"), "with --split provided only, got transductive"),
        (("--count", "half_degree"), "expected an attack to train against with count='half_degree'"),
        (("--local", "0.5"), "(--attack LRBCD)"),
        (("--preset", "sturdy", "--max-epochs", "40"), "settings that are not given are those of preset 'sturdy'"),
        (("--preset", "sturdy", "--lr", "-1"), "expected lr to be a finite number >= 0, got -1.0\n"),
    ):
        code, _, err = run(*start, "GCN", *arguments)
        assert code == 1
        assert message in err


def test_the_same_command_gives_the_same_result(run: Run) -> None:
    run(*TRAIN, "--out", "one.safetensors")
    run(*TRAIN, "--out", "two.safetensors")
    assert Path("one.safetensors").read_bytes() == Path("two.safetensors").read_bytes()
    assert Result.read("one.safetensors.json").scores == Result.read("two.safetensors.json").scores


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--split", "transductive"), None),
        (("--split", "provided"), "expected data with test_mask, got none"),
        (("--split", "provided", "--test-on-val"), None),
        (("--split", "provded"), "unknown split 'provded': did you mean 'provided'"),
        (("--protocol", "as_released"), None),
        (("--protocol", "as_relased"), "unknown protocol 'as_relased': did you mean 'as_released'"),
        (("--protocol", "as_released", "--split", "transductive"), "as_released with inductive splits only"),
    ],
)
def test_splits_can_be_chosen(run: Run, arguments: tuple[str, ...], message: str | None) -> None:
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
        ((*TRAIN, "--set", "K=0"), "expected K to be a whole number >= 1, got 0"),
        ((*TRAIN, "--lr", "-1"), "expected lr to be a finite number >= 0"),
        ((*TRAIN, "--loss", "hinge"), "unknown loss 'hinge'"),
        ((*TRAIN, "--device", "gpu"), "expected a device of this machine, such as 'cpu', got 'gpu'"),
        ((*TRAIN, "--out", "/dev/null/model"), "cannot write /dev/null/model"),
        (("train", "--dataset", "karate", "--model", "GCN"), "nodes of each class"),
    ],
)
def test_mistakes_are_one_line_before_any_work(run: Run, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = run(*arguments)
    assert code == 1
    assert message in err
    assert "Traceback" not in err
    assert out == ""
    assert not Path("model.safetensors").exists()


def test_unknown_options_and_verbs_are_usage_errors(run: Run) -> None:
    assert run("trian")[0] == 2
    assert run(*TRAIN, "--sed", "1")[0] == 2
    assert "Usage" in run()[1]


def test_an_interrupt_says_how_to_go_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    describe, longer = loop._progress_text, (*TRAIN, "--max-epochs", "40")

    def interrupted(record: Epoch) -> str:
        if record.epoch == 30:
            raise KeyboardInterrupt
        return describe(record)

    monkeypatch.setattr(loop, "_progress_text", interrupted)
    code, _, err = run(*longer)
    assert code == 130
    assert "the same command goes on from model.safetensors.checkpoint" in err
    assert Path("model.safetensors.checkpoint").exists()
    monkeypatch.setattr(loop, "_progress_text", describe)
    assert run(*longer)[0] == 0
    resumed = Path("model.safetensors").read_bytes()
    assert not Path("model.safetensors.checkpoint").exists()
    run(*longer)
    assert Path("model.safetensors").read_bytes() == resumed


def test_datasets_lists_what_is_here(run: Run, tmp_path: Path) -> None:
    data = ep.datasets.csbm()
    ep.datasets.write_npz(data, tmp_path / "cora.npz")
    code, out, _ = run("datasets", "--root", str(tmp_path))
    assert code == 0
    for name in ep.datasets.available():
        assert name in out
    assert "982" in out
    assert "unusable: expected cora" in out
    assert "downloaded on first use" in out


def test_info_shows_the_kernels(run: Run) -> None:
    code, out, _ = run("info")
    assert code == 0
    assert "reference" in out
    assert ep.__version__ in out


def test_help_teaches(run: Run) -> None:
    for verb in ("demo", "train", "report", "datasets", "info"):
        code, out, _ = run(verb, "--help")
        assert code == 0
        assert "Usage" in out
    assert "Example: edgeproof train" in run("train", "--help")[1]
    assert "edgeproof[logging]" in run("train", "--help")[1]
    assert run("--version")[1] == f"edgeproof {ep.__version__}\n"


def test_the_installed_command_works(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("edgeproof")
    if not command.exists():
        pytest.skip("edgeproof is not installed beside this Python")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"edgeproof {ep.__version__}\n"


def test_importing_needs_nothing_optional() -> None:
    script = "import sys, json, edgeproof;print(json.dumps([name for name in ('ogb', 'ray') if name in sys.modules]))"
    environment = {**os.environ, "PYTHONPATH": "src"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert json.loads(done.stdout) == []


def test_options_parse() -> None:
    assert parse_settings(["a=1", "b=x=y", "c=[1, 2]", "d=true", "e="]) == {
        "a": 1,
        "b": "x=y",
        "c": [1, 2],
        "d": True,
        "e": "",
    }
    assert parse_device("cpu").type == "cpu"
    assert parse_device("auto").type in ("cpu", "cuda")


def test_adversarial_training_from_the_command_line(run: Run) -> None:
    attack = ("--attack", "LRBCD", "--attack-set", "steps=2", "--attack-set", "block_size=5000", "--local", "0.5")
    code, _, err = run(*TRAIN, *attack, "--epsilon", "0.1", "--self-training", "--train-set", "averaging=0.5")
    assert code == 0, err
    result = Result.read("model.safetensors.json")
    expected = ep.attacks.LRBCD(steps=2, block_size=5000, lr=2000.0)
    assert result.training["attack"] == repr(expected)
    assert (result.training["epsilon"], result.training["local"]) == (0.1, 0.5)
    assert result.training["averaging"] == 0.5
    assert result.training["label_accuracy"] > 0.4
    assert result.split["test_nodes_seen"] == 0
    # What was kept while it ran is gone.
    assert sorted(path.name for path in Path().iterdir()) == ["model.safetensors", "model.safetensors.json"]


def test_the_attack_of_a_preset_may_have_other_settings(run: Run) -> None:
    preset = ("--preset", "sturdy", "--no-self-training", "--train-set", "min_epochs=0")
    code, _, err = run(*TRAIN, *preset, "--attack-set", "steps=2", "--attack-set", "block_size=5000")
    assert code == 0, err
    training = Result.read("model.safetensors.json").training
    assert training["attack"] == repr(ep.attacks.GreedyRBCD(steps=2, block_size=5000, loss="log_margin"))
    assert (training["epsilon"], training["local"], training["weight_decay"]) == (1.5, 2.0, 5e-3)


def test_the_label_models_of_a_preset_may_have_other_settings(run: Run) -> None:
    preset = ("--preset", "sturdy", "--train-set", "min_epochs=0", "--train-set", "label_models=1")
    attack = ("--attack", "DICE", "--epsilon", "0.1")
    code, _, err = run(*TRAIN, *preset, *attack, "--label-set", "dropout=0.5", "--label-set", "hidden_channels=8")
    assert code == 0, err
    labeller = Result.read("model.safetensors.json").training["labeller"]
    assert all(part in labeller for part in ("GPRGNN(", "dropout=0.5", "alpha=0.1", "hidden_channels=8"))


def test_models_of_another_kind_label(run: Run) -> None:
    assert run(*TRAIN, "--label-model", "GCN", "--label-set", "hidden_channels=8")[0] == 0
    assert "GCN(" in Result.read("model.safetensors.json").training["labeller"]
    assert "hidden_channels=8" in Result.read("model.safetensors.json").training["labeller"]
    for wrong, message in (
        (("--label-model", "GCM"), "unknown model 'GCM': did you mean 'GCN'"),
        (("--label-model", "GCN", "--label-set", "hiden_channels=8"), "unknown setting of GCN 'hiden_channels'"),
        (("--label-set", "dropout=0.8"), "expected --label-model beside --label-set dropout=0.8"),
        (("--label-model", "GCN", "--no-self-training"), "expected no label models with --no-self-training, got GCN"),
    ):
        code, _, err = run(*TRAIN, *wrong)
        assert code == 1
        assert message in err


def test_a_model_trained_as_released_is_evaluated_on_the_same_nodes(run: Run) -> None:
    run(*TRAIN, "--protocol", "as_released")
    trained = Result.read("model.safetensors.json")
    assert trained.split["rule"] == "as_released"
    assert trained.split["test_nodes_seen"] > 0
    code, _, err = run("attack", "--model", "model.safetensors", "--attack", "DICE", "-e", "0.1")
    assert code == 0, err
    attacked = Result.read("attack.json")
    assert attacked.split == trained.split
    assert attacked.score() == trained.score()


def test_a_run_that_breaks_down_leaves_its_best_model_and_that_of_others(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(*TRAIN)[0] == 0
    files = [Path("model.safetensors"), Path("model.safetensors.json")]
    before = [path.read_bytes() for path in files]
    # Before anything was learned: there is nothing to keep.
    code, _, err = run(*TRAIN, "--lr", "1e30", "--self-training")
    assert code == 1
    assert "label model 1 of 1" in err
    assert "no longer finite" in err
    assert "named below" not in err

    def breaks_down(network: ep.models.GPRGNN, *_: object, **__: object) -> None:
        network.gamma.data.fill_(3)
        raise FloatingPointError("the model has the parameters of its best epoch, 4")

    monkeypatch.setattr(ep, "train", breaks_down)
    code, _, err = run(*TRAIN)
    assert code == 1
    assert "the parameters named below are in model.safetensors.last-good" in err
    assert bool((ep.load("model.safetensors.last-good").gamma == 3).all())  # type: ignore[operator]
    assert [path.read_bytes() for path in files] == before


def test_named_splits_are_compared_with_what_the_model_has_seen(run: Run) -> None:
    run(*TRAIN, "--protocol", "as_released")
    seen = Result.read("model.safetensors.json").split["test_nodes_seen"]
    run("attack", "--model", "model.safetensors", "--attack", "DICE", "-e", "0.1", "--split-seed", "0")
    assert Result.read("attack.json").split["test_nodes_seen"] == seen > 0
    run("attack", "--model", "model.safetensors", "--attack", "DICE", "-e", "0.1", "--split-seed", "5")
    assert Result.read("attack.json").split["test_nodes_seen"] > 0


def test_labels_of_no_worth_are_one_line_and_in_the_result(run: Run) -> None:
    code, _, err = run(*TRAIN, "--self-training", "--lr", "0")
    assert code == 0
    assert err.startswith("warning: EP101: the pseudo-labels are hardly better than a constant prediction")
    assert "hardly better than a constant prediction" in Result.read("model.safetensors.json").warnings[0]
