"""Evaluation on the command line: effort, baselines, threshold, resume and warnings."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edgeproof.evaluation.result import Result

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def model(run: Run) -> str:
    """A trained model in the folder that the commands run in."""
    code, _, _ = run("train", "--dataset", "csbm", "--model", "GCN", "--seed", "2", "--max-epochs", "20", "--quiet")
    assert code == 0
    return "model.safetensors"


def test_fail_below_exits_with_its_own_status_after_writing_the_result(run: Run, model: str) -> None:
    evaluate = ("evaluate", "--model", model, "-e", "0.04", "-e", "0.01", "--attack", "FGSM", "-q")
    code, out, err = run(*evaluate, "--fail-below", "99.5")
    lowest = Result.read("evaluation.json").score("test", "worst", 0.04)
    assert code == 3
    (line,) = err.splitlines()
    assert line == f"error: accuracy {lowest:.1%} at epsilon 0.04 is below the 99.5% of --fail-below"
    assert "result: evaluation.json" in out
    for percent in (100 * lowest, 0):
        assert run(*evaluate, "--fail-below", str(percent))[0] == 0
    for percent in ("-1", "101", "nan"):
        code, _, err = run(*evaluate, "--fail-below", percent)
        assert code == 1
        assert "expected 0 <= --fail-below <= 100, a percentage" in err


def test_baselines_and_effort_are_printed_and_stored(run: Run, model: str) -> None:
    code, out, err = run("evaluate", "--model", model, "-e", "0.005", "--effort", "quick", "--baselines", "-q")
    assert code == 0, err
    result = Result.read("evaluation.json")
    assert result.threat["effort"] == "quick"
    for name in ("majority baseline", "MLP baseline"):
        (line,) = (line for line in out.splitlines() if name in line)
        assert f"{result.score('test', name, 0.0):.1%}" in line
    assert "worst (quick effort)" in out
    for wrong, message in (
        (("--effort", "quik"), "unknown effort 'quik': did you mean 'quick'"),
        (("--effort", "quick", "--attack", "FGSM"), "expected no --effort with --attack"),
    ):
        code, _, err = run("evaluate", "--model", model, *wrong)
        assert code == 1
        assert message in err


def test_interrupted_evaluation_resumes_to_the_same_result(run: Run, model: str) -> None:
    evaluate = ("evaluate", "--model", model, "-e", "0.1", "-e", "0.05", "--effort", "quick", "--device", "cpu", "-q")
    process = subprocess.Popen([sys.executable, "-m", "edgeproof", *evaluate], stderr=subprocess.PIPE, text=True)
    checkpoint = Path("evaluation.json.checkpoint")
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == f"interrupted; the same command resumes from {checkpoint}"
    assert not Path("evaluation.json").exists()
    code, _, err = run(*evaluate[:-3], "--seed", "1", "-q")
    assert code == 1
    assert "belongs to another evaluation, with seed 0 instead of 1" in err
    code, _, err = run(*evaluate)
    assert code == 0
    assert f"resuming from {checkpoint}" in err
    assert not checkpoint.exists()
    resumed = Result.read("evaluation.json")
    assert run(*evaluate)[0] == 0
    assert Result.read("evaluation.json").scores == resumed.scores


@pytest.mark.parametrize("command", [("evaluate", "--attack", "DICE"), ("attack", "--attack", "DICE")])
def test_budgets_without_flips_and_above_all_edges_give_warnings(
    run: Run, model: str, command: tuple[str, ...]
) -> None:
    code, _, err = run(*command, "--model", model, "-e", "0.00001", "-e", "5", "-q")
    assert code == 0
    assert "warning: EP007: at epsilon 1e-05, the budget allows no flip" in err
    assert "warning: EP008: epsilon 5 allows more flips" in err
    assert "did you mean 0.05?" in err
    stored = Result.read(f"{command[0]}.json" if command[0] == "attack" else "evaluation.json").warnings
    assert [warning[:5] for warning in stored if warning[:5] in ("EP007", "EP008")] == ["EP007", "EP008"]
