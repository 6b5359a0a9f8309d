"""Ctrl-C ends every command with one line and status 130, and keeps finished work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import edgeproof as ep
from edgeproof.attacks.base import AttackTrace, Target
from edgeproof.cli._demo import DemoSettings, run_demo
from edgeproof.cli._interrupts import run_interruptible
from edgeproof.evaluation.result import Result

Run = Callable[..., tuple[int, str, str]]

INTERRUPTED_IMPORT = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
sys.argv = ["edgeproof", *{arguments!r}]
from edgeproof.cli import main
main()
"""
EVALUATE = ("evaluate", "--model", "model.safetensors", "--dataset", "csbm")


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("typer", ("--help",)),
        ("edgeproof.cli.evaluate", EVALUATE),
        ("torch", EVALUATE),
        ("scipy.sparse", ("certify", *EVALUATE[1:])),
        ("numba", ("demo",)),
    ],
)
def test_interrupt_during_imports(module: str, arguments: tuple[str, ...], tmp_path: Path) -> None:
    program = INTERRUPTED_IMPORT.format(module=module, arguments=arguments)
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False
    )
    assert process.stderr == "interrupted\n"
    assert process.returncode == 130
    assert not list(tmp_path.iterdir())


SLOW_IMPORT = """
import os, signal, time
os.kill(os.getpid(), signal.SIGINT)
{then}
print("imported", flush=True)
"""


@pytest.mark.parametrize(
    ("then", "printed"),
    [("time.sleep(0.3)", "imported\n"), ("os.kill(os.getpid(), signal.SIGINT); time.sleep(30)", "")],
    ids=["one", "two"],
)
def test_imports_end_before_an_interrupt_unless_there_is_a_second_one(then: str, printed: str, tmp_path: Path) -> None:
    """Triton aborts the process if it is imported again after an exception."""
    (tmp_path / "own.py").write_text(SLOW_IMPORT.format(then=then))
    command = ("attack", "--model", "own:build", "--dataset", "csbm")
    process = subprocess.run(
        [sys.executable, "-m", "edgeproof", *command], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert (process.returncode, process.stdout, process.stderr) == (130, printed, "interrupted\n")


@dataclass(frozen=True, kw_only=True)
class InterruptedFlips(ep.attacks.RandomFlips):
    """Attack that the user interrupts in its second call, or later."""

    calls: list[int]
    at: int = 2

    def run(self, target: Target, budget: ep.Budget, *, generator: torch.Generator, trace: AttackTrace) -> torch.Tensor:
        self.calls.append(budget.total)
        if len(self.calls) == self.at:
            os.kill(os.getpid(), signal.SIGINT)
        return super().run(target, budget, generator=generator, trace=trace)


def test_interrupted_attack_keeps_the_finished_budgets(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = run("train", "--dataset", "csbm", "--model", "MLP", "--max-epochs", "2", "--quiet")
    assert code == 0, err
    attack = ("attack", "--model", "model.safetensors", "-e", "0.05", "-e", "0.1", "--graph", "graph.npz", "-q")
    monkeypatch.setattr(ep.attacks, "build", lambda name, settings=None: InterruptedFlips(calls=[]))
    code, out, err = run(*attack)
    assert (code, err) == (130, "interrupted; the results of epsilon 0.05 are in attack.json\n")
    assert "result:" not in out
    result = Result.read("attack.json")
    assert [score.epsilon for score in result.scores] == [0, 0.05]
    assert list(result.threat["budgets"]) == ["0.05"]
    assert Path("graph-0.05.npz").exists()
    assert not Path("graph-0.1.npz").exists()
    # Nothing is finished yet.
    for file in ("attack.json", "attack.json.nodes", "graph-0.05.npz"):
        Path(file).unlink()
    monkeypatch.setattr(ep.attacks, "build", lambda name, settings=None: InterruptedFlips(calls=[], at=1))
    code, _, err = run(*attack)
    assert (code, err) == (130, "interrupted\n")
    assert not Path("attack.json").exists()


def test_interrupted_demo_reports_the_finished_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report.html"
    settings = DemoSettings(
        training_attack=ep.attacks.RandomFlips(),
        # Three budgets of each model.
        attacks=(InterruptedFlips(calls=[], at=7),),
        regular_epochs=2,
        adversarial_epochs=2,
        samples=40,
    )
    with pytest.raises(SystemExit) as stop:
        run_interruptible(lambda: run_demo(out, settings, progress=False), lambda error: pytest.fail(str(error)))
    assert stop.value.code == 130
    captured = capsys.readouterr()
    message = f"interrupted; the report {out} has GCN, regular, GCN, adversarial"
    assert captured.err.splitlines()[-1] == message
    assert "edgeproof demo: 2 models under attack" in out.read_text()


def replaced_by_another_exception() -> None:
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt as interrupt:
        # Compiled modules do this.
        raise ImportError("cannot import name") from interrupt


def ignored_in_a_callback() -> None:
    class Interrupting:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    Interrupting()
    time.sleep(30)
    raise AssertionError("the interrupt was lost")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("function", [replaced_by_another_exception, ignored_in_a_callback])
def test_interrupts_that_python_would_lose(function: Callable[[], None], capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit) as stop:
        run_interruptible(function, lambda error: pytest.fail(str(error)))
    assert stop.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert signal.getsignal(signal.SIGINT) == before


def test_full_disk_after_an_interrupt_is_reported() -> None:
    def write() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise OSError("cannot write out") from None

    errors: list[Exception] = []
    run_interruptible(write, errors.append)
    assert [str(error) for error in errors] == ["cannot write out"]
