"""Every error of a command is one line that names the file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from full_disk import small_files_only

import edgeproof as ep
from edgeproof.cli._errors import describe_error
from edgeproof.evaluation.result import Result
from edgeproof.training.checkpoint import Checkpoint, CheckpointError, RunState

Run = Callable[..., tuple[int, str, str]]

ATTACK = ("--attack", "RandomFlips", "--quiet")


@pytest.fixture
def model(run: Run) -> str:
    """A model beside its result file."""
    code, _, err = run("train", "--dataset", "csbm", "--model", "MLP", "--max-epochs", "2", "--quiet")
    assert code == 0, err
    return "model.safetensors"


def one_line(result: tuple[int, str, str]) -> str:
    """Return the error of a failed command, which must be one line."""
    code, _, err = result
    assert code == 1
    (line,) = err.splitlines()
    return line.removeprefix("error: ")


@pytest.mark.parametrize("command", ["attack", "evaluate"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-e", "1e308"), "expected an epsilon that allows at most 4611686018427387904 flips, got 1e+308 of "),
        (("-e", "0.1", "--local", "1e308"), "expected local budgets of at most 4611686018427387904 flips"),
        (("-e", "0.1", "--seed", "-1"), "expected seed to be an integer from 0 to 4294967295, got -1"),
        (("-e", "0.1", "--split-seed", "-1"), "expected seed to be an integer from 0 to 4294967295, got -1"),
    ],
)
def test_numbers_out_of_range(run: Run, model: str, command: str, options: tuple[str, ...], message: str) -> None:
    assert one_line(run(command, "--model", model, *options, *ATTACK)).startswith(message)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({}, "expected the setting of a split, got 'none'"),
        ({"rule": 3}, "expected the rule of a split, got 3"),
        ({"seed": "0"}, "expected the seed of a split, got '0'"),
        ({"file": "graph.npz", "fixes": ["rm"]}, "expected changes of edges among to_undirected, .*, got 'rm'"),
    ],
)
def test_result_file_without_a_valid_split(run: Run, model: str, split: dict[str, object], message: str) -> None:
    trained = Result.read(f"{model}.json")
    replace(trained, split={**trained.split, **split} if split else {}).write(f"{model}.json")
    for command in ("attack", "evaluate", "certify"):
        with pytest.raises(ValueError, match=rf"^{model}\.json is not a result file of edgeproof train: {message}"):
            raise ValueError(one_line(run(command, "--model", model, "--quiet")))
    code, _, err = run("attack", "--model", model, "--dataset", "csbm", *ATTACK)
    assert code == 0, err


MODULES = {
    "syntax": ("def build(:\n", "SyntaxError: invalid syntax (syntax.py, line 1)"),
    "exits": ("import sys\nsys.exit('bye')\n", "SystemExit: bye ("),
    "raises": ("\nraise KeyError('x')\n", "KeyError: 'x' ("),
    "zeros": ("x = 1\0\n", "SyntaxError: source code string cannot contain null bytes"),
}


@pytest.mark.parametrize("name", MODULES)
def test_module_that_cannot_be_imported(run: Run, name: str) -> None:
    content, message = MODULES[name]
    Path(f"{name}.py").write_text(content)
    line = one_line(run("attack", "--model", f"{name}:build", "--dataset", "csbm", *ATTACK))
    assert line.startswith(f"cannot import '{name}' of '{name}:build': {message}")
    if name in ("exits", "raises"):
        assert line.endswith(f"{name}.py, line 2)")


@pytest.mark.parametrize("model", ["..:build", ":build", "module:", "a b:build", "module:a:b"])
def test_models_that_are_no_module_and_factory(run: Run, model: str) -> None:
    line = one_line(run("attack", "--model", model, "--dataset", "csbm", *ATTACK))
    assert line == f"expected a model as module:factory, such as my_module:build, got {model!r}"


def test_report_of_a_folder_with_looping_links(run: Run) -> None:
    Path("runs").mkdir()
    Path("runs/loop.json").symlink_to("loop.json")
    Path("runs/folder").symlink_to("../runs")
    line = one_line(run("report", "runs"))
    assert line.startswith("cannot read runs/loop.json: Too many levels of symbolic links")
    Path("self").symlink_to("self")
    assert one_line(run("report", "self")).startswith("no file or folder self")
    assert one_line(run("attack", "--model", "self", "--dataset", "csbm")).startswith("no model at self")


def test_names_with_control_characters_and_markup_stay_in_one_line(run: Run) -> None:
    for name in ("new\nline", "\x1b[31mred", "[bold]markup[/]", "<script>", "ünïcödé", "a\x00b"[:1]):
        line = one_line(run("attack", "--model", f"{name}.safetensors", "--dataset", "csbm"))
        shown = name.replace("\n", " ").replace("\x1b", "\\x1b")
        assert line.startswith(f"no model at {shown}.safetensors")


@pytest.mark.skipif(sys.platform == "win32", reason="names are text")
def test_names_and_streams_that_are_not_utf8(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff.safetensors")
    train = ("train", "--dataset", "csbm", "--model", "MLP", "--max-epochs", "2", "-q", "--out", name)
    process = subprocess.run(
        [sys.executable, "-m", "edgeproof", *train],
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert (tmp_path / name).exists()
    assert rb"model: \udcff.safetensors" in process.stdout


def test_damaged_tensor_name_in_a_checkpoint(tmp_path: Path) -> None:
    path, model = tmp_path / "checkpoint", ep.models.MLP(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    checkpoint = Checkpoint(path, {"seed": 0}, 1)
    checkpoint.save(RunState(1), model, optimizer, None)
    for old, new in ((b'"model.layers', b'"medel.layers'), (b'"random.cpu', b'"random.\xffpu')):
        content = path.read_bytes()
        assert old in content
        path.write_bytes(content.replace(old, new, 1))
        with pytest.raises(CheckpointError, match="is damaged"):
            checkpoint.restore(model, optimizer, None)
        path.write_bytes(content)


def test_full_disk_is_one_line_and_keeps_the_model(run: Run, model: str) -> None:
    before = {path: path.read_bytes() for path in Path().iterdir()}
    train = ("train", "--dataset", "csbm", "--model", "MLP", "--max-epochs", "2", "--force", "--quiet")
    for command in (train, ("attack", "--model", model, *ATTACK)):
        with small_files_only(300):
            code, _, err = run(*command)
        assert code == 1
        (line,) = (line for line in err.splitlines() if not line.startswith("warning:"))
        assert line.startswith("error: cannot write ")
        assert "File too large" in line
        assert {path: path.read_bytes() for path in Path().iterdir()} == before


def description(function: Callable[[], object]) -> str:
    """Return the description of the error that a function raises."""
    try:
        function()
    except Exception as error:
        return describe_error(error)
    raise AssertionError("no error")


@pytest.mark.parametrize("function", [lambda: torch.ones(2, 3) @ torch.ones(2, 3), lambda: {}["rule"], lambda: 1 / 0])
def test_unexpected_errors_name_file_and_line_and_the_way_to_the_traceback(function: Callable[[], object]) -> None:
    line = description(function)
    assert line.startswith(("RuntimeError: ", "KeyError: ", "ZeroDivisionError: "))
    assert f" (in {__file__}, line " in line
    assert line.endswith("; EDGEPROOF_DEBUG=1 shows the traceback")


def test_errors_of_the_library_and_of_files_are_their_messages() -> None:
    assert description(lambda: ep.Budget(-1)).startswith("expected total to be an integer >= 0, got -1")
    assert description(lambda: Path("nowhere").read_bytes()) == "cannot access nowhere: No such file or directory"
    assert "not enough memory" in describe_error(MemoryError())


def test_debug_variable_shows_the_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEPROOF_DEBUG", "1")
    with pytest.raises(ValueError, match="unknown dataset"):
        run("train", "--dataset", "csmb", "--model", "GCN")
