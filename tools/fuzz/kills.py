"""Long-running commands that are killed or interrupted at a random time and run again, against uninterrupted runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import edgeproof as ep
from edgeproof.certificates import Certificate
from edgeproof.cli import main
from edgeproof.evaluation.result import Result
from edgeproof.experiments import Store
from fuzz.trial import Violation

_MODEL = ("--dataset", "csbm", "--device", "cpu", "--quiet")
_TRAIN = ("train", *_MODEL, "--model", "GCN", "--set", "hidden_channels=16")
_TEST = ("--model", "model.safetensors", "--device", "cpu", "--quiet")
_ATTACK = ("--attack", "LRBCD", "--attack-set", "steps=2", "--attack-set", "block_size=2000", "--epsilon", "0.1")
COMMANDS = {
    "train": (*_TRAIN, "--max-epochs", "120", "--patience", "120"),
    "adversarial training": (*_TRAIN, "--max-epochs", "40", "--patience", "40", "--min-epochs", "0", *_ATTACK),
    "evaluate": ("evaluate", *_TEST, "--effort", "quick", "-e", "0.05", "-e", "0.1"),
    "certify": ("certify", *_TEST, "--samples", "5000", "--choosing-samples", "100"),
    "sweep": ("sweep", "sweep.toml", "--store", "store", "--jobs", "1"),
}
_SWEEP = """
seeds = [0, 1]
[[dataset]]
name = "csbm"
[[model]]
name = "GCN"
settings = { hidden_channels = 8 }
[[training]]
name = "regular"
config = { max_epochs = 20 }
[[measurement]]
kind = "clean"
"""
_LIMIT = 300.0
_OUTPUT = "output.txt"
# Imported once: most of the run time of a short command are its imports.
_IMPORTS = [
    *(f"edgeproof.cli.{name}" for name in ("train", "evaluate", "certify", "sweep", "_target")),
    *(
        "edgeproof.certificates",
        "edgeproof.evaluation.evaluate",
        "edgeproof.experiments",
        "edgeproof.report",
        "fuzz.kills",
    ),
]


class Run(NamedTuple):
    """Result of an uninterrupted command.

    Args:
        content: Its results, without times.
        seconds: Run time.
    """

    content: str
    seconds: float


def killed_command(random: np.random.Generator, folder: Path) -> str:
    """Kill or interrupt a random command once or twice, run it to its end, and compare its results.

    Returns:
        Command and signal.

    Raises:
        Violation: If the command fails, prints a traceback, leaves a damaged file or gives other results.
    """
    name = list(COMMANDS)[int(random.integers(len(COMMANDS)))]
    expected = _uninterrupted(name)
    _prepare(folder)
    sent = signal.SIGKILL if random.random() < 0.6 else signal.SIGINT
    outcome = "ended before the signal"
    for _ in range(int(random.integers(1, 3))):
        process = _start(name, folder)
        process.join(float(random.uniform(0.05, 1.0)) * expected.seconds)
        if process.exitcode is None:
            outcome = f"{sent.name}, resumed to the same result"
            assert process.pid is not None
            if sent == signal.SIGKILL:
                # Processes that the command has started are killed, too.
                os.killpg(process.pid, sent)
            else:
                os.kill(process.pid, sent)
        status, errors = _end(process, folder)
        if "Traceback" in errors or (sent == signal.SIGINT and status not in (0, 130)):
            raise Violation(f"{name} after {sent.name}: status {status}, {errors}")
        _check_readable(name, folder)
    status, errors = _end(_start(name, folder), folder)
    if status:
        raise Violation(f"{name}: run again after {sent.name}, it fails: {errors}")
    if _content(name, folder) != expected.content:
        raise Violation(f"{name}: run again after {sent.name}, it gives another result")
    return f"{name}: {outcome}"


def _start(name: str, folder: Path) -> BaseProcess:
    """Start a command in a process of its own group, in which the imports are done."""
    context = get_context("forkserver")
    context.set_forkserver_preload(_IMPORTS)
    process: Any = context.Process(target=_run, args=(COMMANDS[name], folder))
    process.start()
    return process  # type: ignore[no-any-return]


def _run(command: tuple[str, ...], folder: Path) -> None:
    os.setsid()
    os.chdir(folder)
    output = os.open(_OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    sys.argv = ["edgeproof", *command]
    main()


def _end(process: BaseProcess, folder: Path) -> tuple[int, str]:
    """Wait for a command; return its exit status and its output."""
    process.join(_LIMIT)
    if process.exitcode is None:
        process.kill()
        raise Violation(f"no end within {_LIMIT:.0f} seconds")
    output = folder / _OUTPUT
    return process.exitcode, output.read_text(encoding="utf-8") if output.exists() else ""


@cache
def _uninterrupted(name: str) -> Run:
    folder = Path(tempfile.mkdtemp(prefix="edgeproof-fuzz-"))
    try:
        _prepare(folder)
        start = time.perf_counter()
        status, errors = _end(_start(name, folder), folder)
        if status:
            raise Violation(f"{name} fails without a signal: {errors}")
        return Run(_content(name, folder), time.perf_counter() - start)
    finally:
        shutil.rmtree(folder)


def _prepare(folder: Path) -> None:
    (folder / "sweep.toml").write_text(_SWEEP)
    for name, content in _trained().items():
        (folder / name).write_bytes(content)


@cache
def _trained() -> dict[str, bytes]:
    """Return the files of a model."""
    folder = Path(tempfile.mkdtemp(prefix="edgeproof-fuzz-"))
    try:
        command = [sys.executable, "-m", "edgeproof", *_TRAIN, "--max-epochs", "20"]
        subprocess.run(command, cwd=folder, capture_output=True, check=True)
        return {path.name: path.read_bytes() for path in folder.iterdir()}
    finally:
        shutil.rmtree(folder)


def _check_readable(name: str, folder: Path) -> None:
    """Raise if a file is neither complete nor absent; readers raise for damaged files."""
    try:
        _content(name, folder)
    except FileNotFoundError:
        return
    except ValueError as error:
        raise Violation(f"{name}: after a signal, {error}") from error


def _content(name: str, folder: Path) -> str:
    """Return the results of a command without times."""
    if name == "sweep":
        return json.dumps(sorted([record.key, record.values] for record in Store(folder / "store").records()))
    if name == "evaluate":
        return _scores(folder / "evaluation.json")
    if name == "certify":
        certificate = Certificate.load(folder / "certificate.safetensors")
        counted = [certificate.prediction, certificate.p_lower, certificate.p_upper, certificate.grid]
        return json.dumps([_scores(folder / "certificate.safetensors.json"), *(each.tolist() for each in counted)])
    parameters = ep.load(folder / "model.safetensors").state_dict()
    return json.dumps(
        [_scores(folder / "model.safetensors.json"), {key: value.tolist() for key, value in parameters.items()}]
    )


def _scores(path: Path) -> str:
    result: Any = Result.read(path)
    return json.dumps([[score.attack, score.epsilon, score.accuracy] for score in result.scores])
