from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import edgeproof as ep
from edgeproof.attacks.suite import Entry
from edgeproof.evaluation.result import Result

Run = Callable[..., tuple[int, str, str]]

OWN_MODEL = """
import torch
from torch_geometric.nn import GCN

def build():
    torch.manual_seed(0)
    return GCN(21, 8, 2, 2)

def narrow():
    return GCN(5, 8, 2, 2)

def number():
    return 3
"""


@pytest.fixture
def model(run: Run) -> str:
    """A trained model in the folder that the commands run in."""
    code, _, _ = run("train", "--dataset", "csbm", "--model", "GCN", "--seed", "2", "--max-epochs", "20", "--quiet")
    assert code == 0
    return "model.safetensors"


def test_attack_writes_result_and_graphs(run: Run, model: str) -> None:
    arguments = ("attack", "--model", model, "--attack", "LRBCD", "-e", "0.1", "-e", "0.25", "--local", "0.5")
    code, out, _ = run(*arguments, "--set", "steps=5", "--graph", "graphs/perturbed.npz", "--quiet")
    assert code == 0
    assert "LRBCD on GCN, csbm" in out
    result = Result.read("attack.json")
    assert result.threat["local"] == 0.5
    assert result.threat["attacks"] == {"LRBCD": repr(ep.attacks.LRBCD(steps=5))}
    assert result.training["max_epochs"] == 20
    # The default split is that of the model's result file.
    split = ep.splits.inductive(ep.datasets.load("csbm"), 2)
    assert result.split["fingerprint"] == split.fingerprint
    for epsilon in (0.1, 0.25):
        graph = ep.datasets.read_npz(f"graphs/perturbed-{epsilon}.npz")
        budget = ep.Budget.from_epsilon(split.test.data, split.test.nodes, epsilon, local=0.5)
        assert result.threat["budgets"][str(epsilon)] == budget.total
        accuracy = ep.evaluation.clean_accuracy(ep.load(model), graph, split.test.nodes)
        assert result.score("test", "LRBCD", epsilon) == accuracy


def test_constraints_of_attack_and_evaluate(run: Run, model: str) -> None:
    split = ep.splits.inductive(ep.datasets.load("csbm"), 2)
    edges = set(map(tuple, split.test.data.edge_index.T.tolist()))
    allowed = [(int(node), other) for node in split.test.nodes[:20] for other in range(5) if other != int(node)]
    Path("pairs.csv").write_text("# pairs\n" + "".join(f"{u},{v}\n" for u, v in allowed), encoding="utf-8")
    common = ("--model", model, "-e", "0.05", "--additions-only", "--allowed", "pairs.csv", "--quiet")
    assert run("attack", "--attack", "FGSM", "--graph", "perturbed.npz", *common)[0] == 0
    changed = set(map(tuple, ep.datasets.read_npz("perturbed.npz").edge_index.T.tolist())) ^ edges
    assert changed
    assert changed.isdisjoint(edges)
    assert {pair for pair in changed if pair in allowed or pair[::-1] in allowed} == changed
    assert Result.read("attack.json").threat["constraints"].startswith("allowed: additions, 100 pairs")
    assert run("evaluate", "--attack", "FGSM", *common)[0] == 0
    assert Result.read("evaluation.json").score("test", "FGSM", 0.05) == Result.read("attack.json").score(
        "test", "FGSM", 0.05
    )
    # Another threat model, so the report does not merge it with an attack without constraints.
    assert run("attack", "--model", model, "--attack", "FGSM", "-e", "0.05", "--out", "free.json", "--quiet")[0] == 0
    (merged,) = ep.report.read(["attack.json", "free.json"])
    assert [table.constraints[:18] for table in merged.attacks] == ["allowed: additions", ""]
    assert "Constraints on the flips: allowed: additions, 100 pairs" in ep.report.render(merged)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--additions-only", "--deletions-only"), "--additions-only or --deletions-only, got both"),
        (("--allowed", "nowhere.csv"), "nowhere.csv"),
        (("--allowed", "words.csv"), "two node ids in line 1 of words.csv, got 'one two'"),
        (("--allowed", "far.csv"), "ids of nodes in the graph under attack, got 1 others, such as 99999"),
    ],
)
def test_invalid_constraints_are_reported(run: Run, model: str, arguments: tuple[str, ...], message: str) -> None:
    Path("words.csv").write_text("one two\n", encoding="utf-8")
    Path("far.csv").write_text("0 99999\n", encoding="utf-8")
    code, _, err = run("attack", "--model", model, "--quiet", *arguments)
    assert code == 1
    assert message in err


def test_evaluate_runs_chosen_attacks(run: Run, model: str) -> None:
    code, out, _ = run(
        "evaluate", "--model", model, "-e", "0.1", "--attack", "FGSM", "--attack", "DICE", "--graph", "worst.npz", "-q"
    )
    assert code == 0
    assert "worst" in out
    result = Result.read("evaluation.json")
    assert {score.attack for score in result.scores} == {"clean", "FGSM", "DICE", "worst"}
    assert result.score("test", "worst", 0.1) <= result.score("test", "FGSM", 0.1)
    graph = ep.datasets.read_npz("worst.npz")
    split = ep.splits.inductive(ep.datasets.load("csbm"), 2)
    assert ep.evaluation.clean_accuracy(ep.load(model), graph, split.test.nodes) == result.score("test", "worst", 0.1)


def test_evaluate_runs_the_standard_suite(run: Run, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = [Entry("few steps", ep.attacks.PRBCD(steps=5, fine_tune_steps=1, block_size=10_000))]
    plan = sys.modules["edgeproof.evaluation.plan"]
    monkeypatch.setattr(plan, "standard", lambda *_: suite)
    monkeypatch.setattr(plan, "exact", lambda *_: [])
    code, _, _ = run("evaluate", "--model", model, "-e", "0.005", "-q")
    assert code == 0
    result = Result.read("evaluation.json")
    assert result.threat["attacks"] == "standard"
    assert {score.attack for score in result.scores} == {
        *("clean", "few steps", "transfer", "local search", "exact search", "worst"),
    }


def test_evaluation_warnings_are_printed_and_stored(run: Run) -> None:
    run("train", "--dataset", "csbm", "--model", "MLP", "--max-epochs", "5", "--quiet")
    code, _, err = run("evaluate", "--model", "model.safetensors", "-e", "0.1", "--attack", "FGSM", "-q")
    assert code == 0
    assert "warning: EP002: the gradient is (nearly) zero" in err
    assert "does not use the graph" in json.loads(Path("evaluation.json").read_text())["warnings"][0]


def test_user_model_from_module_and_factory(run: Run) -> None:
    Path("own_model_for_cli.py").write_text(OWN_MODEL)
    arguments = (
        "--dataset",
        "csbm",
        "--attack",
        "GreedyRBCD",
        "--set",
        "steps=3",
        "--set",
        "block_size=1000",
        "-q",
        "--force",
    )
    code, out, _ = run("attack", "--model", "own_model_for_cli:build", *arguments)
    assert code == 0
    assert "GreedyRBCD on GCN, csbm" in out
    code, _, err = run("attack", "--model", "own_model_for_cli:bild", *arguments)
    assert code == 1
    assert "did you mean 'build'" in err
    code, _, err = run("attack", "--model", "own_model_for_cli:narrow", *arguments)
    assert code == 1
    assert "the model does not fit the graph of 21 features" in err
    code, _, err = run("attack", "--model", "own_model_for_cli:number", *arguments)
    assert code == 1
    assert "to return a torch.nn.Module, got int" in err
    code, _, err = run("attack", "--model", "no_such_module:build", *arguments)
    assert code == 1
    assert "cannot import 'no_such_module'" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--attack", "LRBC"), "did you mean 'LRBCD'"),
        (("--set", "step=3"), "unknown setting of PRBCD 'step': did you mean 'steps'"),
        (("-e", "-0.1"), "epsilon to be a finite number >= 0"),
        (("-e", "0.1", "-e", "0.1"), "distinct epsilons"),
        (("--dataset", "coraml"), "did you mean 'cora_ml'"),
        (("--split", "inductve"), "did you mean 'inductive'"),
        (("--count", "half"), "did you mean 'half_degree'"),
        (("--graph", "graph.txt"), "ends in .npz"),
        (("--out", "."), "expected a file to write"),
        (("--device", "gpu9"), "expected a device of this machine"),
    ],
)
def test_invalid_attack_options_are_one_line_errors(
    run: Run, model: str, arguments: tuple[str, ...], message: str
) -> None:
    code, _, err = run("attack", "--model", model, "--quiet", *arguments)
    assert code == 1
    assert message in err
    assert not Path("attack.json").exists()


def test_missing_and_damaged_models(run: Run, model: str) -> None:
    code, _, err = run("attack", "--model", "nowhere.safetensors")
    assert code == 1
    assert "no model at nowhere.safetensors" in err
    Path(model).write_bytes(Path(model).read_bytes()[:100])
    code, _, err = run("attack", "--model", model)
    assert code == 1
    assert "damaged" in err
    Path(model + ".json").unlink()
    code, _, err = run("attack", "--model", model)
    assert code == 1
    assert "expected --dataset" in err


def test_model_that_differs_from_its_result_file_is_rejected(run: Run, model: str) -> None:
    """Otherwise its accuracies would be printed beside the settings of another model."""
    changed = ep.load(model)
    with torch.no_grad():
        next(changed.parameters()).mul_(-1)
    ep.save(changed, model)
    for command in ("attack", "evaluate", "certify"):
        code, _, err = run(command, "--model", model, "-q")
        assert code == 1
        assert "model.safetensors is not the model that its result file model.safetensors.json describes" in err
    Path(model + ".json").unlink()
    assert run("attack", "--model", model, "--dataset", "csbm", "--attack", "RandomFlips", "-q")[0] == 0


def test_unknown_training_split_is_rejected(run: Run, model: str) -> None:
    """Test nodes of another split may be training nodes of the model."""
    trained = Result.read(model + ".json")
    replace(trained, split={**trained.split, "fingerprint": "0" * 16}).write(model + ".json")
    code, _, err = run("attack", "--model", model, "--set", "steps=2")
    assert code == 1
    assert "cannot reconstruct the split of csbm that the model was trained on" in err
    code, _, _ = run("attack", "--model", model, "--dataset", "csbm", "--set", "steps=2", "--quiet")
    assert code == 0


def test_model_trained_on_the_whole_graph_is_attacked_on_it(run: Run) -> None:
    run("train", "--dataset", "csbm", "--model", "GCN", "--max-epochs", "5", "--all-nodes", "--quiet")
    code, _, _ = run("attack", "--model", "model.safetensors", "--attack", "RandomFlips", "--quiet")
    assert code == 0
    whole = ep.datasets.load("csbm", largest_component=False)
    assert Result.read("attack.json").split["fingerprint"] == ep.splits.inductive(whole, 0).fingerprint
    assert torch.is_tensor(whole.x)
