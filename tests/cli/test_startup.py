"""Startup: modules imported by the command line and by ``import edgeproof``; errors, interrupts and completion."""

from __future__ import annotations

import ast
import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import edgeproof as ep
from edgeproof import _catalog
from edgeproof.cli._lazy import LazyCommand, lazy_app
from edgeproof.cli._train_options import config_fields
from edgeproof.experiments.export import FORMATS
from edgeproof.experiments.sweep import KINDS
from edgeproof.paper import FIGURES, STAND_INS, TABLES
from edgeproof.paper.recipes import TRAININGS
from edgeproof.training import PRESETS, TrainConfig

# Imported only by commands that need them; matplotlib, ogb, ray and tensorboard are optional dependencies.
HEAVY = ("torch", "torch_geometric", "numba", "scipy", "matplotlib", "ogb", "ray", "tensorboard")

RUN = """
import sys
sys.argv = ["edgeproof", *sys.argv[1:]]
import edgeproof.cli
try:
    edgeproof.cli.main()
finally:
    print("IMPORTED", [name for name in {names!r} if name in sys.modules], file=sys.stderr)
"""


def run_python(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--version",),
        ("--help",),
        ("trian",),
        ("train", "--help"),
        ("train", "--epsilonn", "0.1"),
        ("attack", "--help"),
        ("reproduce", "--help"),
        ("reproduce", "run", "--help"),
        ("results", "--help"),
        ("results", "show", "--help"),
        ("sweep", "--help"),
    ],
    ids=" ".join,
)
def test_help_and_usage_errors_do_not_import_torch(arguments: tuple[str, ...]) -> None:
    process = run_python(RUN.format(names=HEAVY), *arguments)
    assert process.returncode in (0, 2)
    assert "Usage" in process.stdout + process.stderr or process.stdout == f"edgeproof {ep.__version__}\n"
    assert process.stderr.splitlines()[-1] == "IMPORTED []"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("re", ["report", "reproduce", "results"]),
        ("train --dataset cora", ["cora_ml", "cora"]),
        ("train --lr 0.1 --model G", ["GAT", "GCN", "GPRGNN", "GRAND"]),
        ("attack --attack P", ["PGD", "PRBCD"]),
        ("train --averag", ["--averaging"]),
        ("reproduce run main --model GR", ["GRAND"]),
        ("results ", ["show", "export", "pack"]),
        ("results show --dataset cs", ["csbm"]),
        ("sweep my.toml --engine l", ["local"]),
        ("results show --kind LR", ["LRBCD"]),
        ("sweep my.toml --format m", ["markdown"]),
        ("reproduce show perf", ["perfect-cora", "perfect-cora-ml", "perfect-citeseer"]),
        ("reproduce summary main o", ["other-graphs"]),
        ("reproduce figures ka", ["karate"]),
        ("reproduce run --fast attacks al", ["all"]),
        ("evaluate --model ", ["robust.safetensors", "runs/"]),
    ],
)
def test_completion_does_not_import_torch(
    line: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for name in ("robust.safetensors", "robust.safetensors.json", ".hidden.safetensors"):
        (tmp_path / name).touch()
    words = f"edgeproof {line}"
    completion = {"_EDGEPROOF_COMPLETE": "complete_bash", "COMP_WORDS": words}
    process = run_python(RUN.format(names=HEAVY), **completion, COMP_CWORD=str(len(words.split(" ")) - 1))
    assert process.stdout.split() == expected
    assert process.stderr.splitlines()[-1] == "IMPORTED []"


def test_catalog_matches_registries() -> None:
    assert list(_catalog.DATASETS) == ep.datasets.available()
    assert list(_catalog.MODELS) == ep.models.available()
    assert list(_catalog.ATTACKS) == ep.attacks.available()
    assert list(_catalog.PRESETS) == list(PRESETS)
    assert _catalog.TRAININGS == TRAININGS
    assert set(_catalog.MEASUREMENTS) <= set(KINDS)
    assert _catalog.FORMATS == FORMATS
    assert tuple(table.nickname for table in (*TABLES, *STAND_INS)) == _catalog.TABLES
    assert tuple(figure.nickname for figure in FIGURES) == _catalog.FIGURES


def test_train_options_match_train_config() -> None:
    fields = config_fields()
    default = PRESETS["default"].config
    assert [(field.name, field.default, field.paper) for field in fields] == [
        (field.name, getattr(default, field.name), field.default) for field in dataclasses.fields(TrainConfig)
    ]
    assert all(isinstance(field.default, field.type) for field in fields)
    assert [field.help for field in fields] == [
        field.metadata.get("help", "") for field in dataclasses.fields(TrainConfig)
    ]


BLOCKED = """
import sys
for name in ("matplotlib", "rich", "typer", "ray", "ogb", "tensorboard"):
    sys.modules[name] = None
import edgeproof as ep
data = ep.datasets.load("csbm")
for name in ep.__all__:
    getattr(ep, name)
split = ep.splits.inductive(data)
model = ep.models.build("GCN", data.num_features, ep.num_classes(data), seed=0)
ep.train(model, split, max_epochs=2, progress=False)
attack = ep.attacks.LRBCD(steps=1, block_size=500)
ep.evaluate(model, split.test.data, split.test.nodes, [0.1], [attack], progress=False)
ep.certificates.SparseSmoothing().certify(model, data, split.test.nodes, 200, choosing_samples=20, progress=False)
"""


def test_library_needs_no_optional_or_command_line_packages() -> None:
    process = run_python(BLOCKED)
    assert process.returncode == 0, process.stderr


def test_import_edgeproof_is_lazy() -> None:
    program = f"import sys, edgeproof; print([name for name in {HEAVY!r} if name in sys.modules], dir(edgeproof))"
    loaded, _, names = run_python(program).stdout.partition("] ")
    assert loaded == "["
    assert set(ep.__all__) <= set(ast.literal_eval(names))


def test_unknown_attributes_of_the_package_raise() -> None:
    with pytest.raises(AttributeError, match="module 'edgeproof' has no attribute 'trian'"):
        ep.trian  # type: ignore[attr-defined]  # noqa: B018


def fail_with_key_error() -> None:
    raise KeyError("missing")


def interrupt() -> None:
    raise KeyboardInterrupt


def interrupt_with_message() -> None:
    raise KeyboardInterrupt("interrupted; run it again")


@pytest.mark.parametrize(
    ("function", "code", "message"),
    [
        (
            "fail_with_key_error",
            1,
            "error: KeyError: 'missing' (in {file}, line {line}); EDGEPROOF_DEBUG=1 shows the traceback",
        ),
        ("interrupt", 130, "interrupted"),
        ("interrupt_with_message", 130, "interrupted; run it again"),
    ],
)
def test_errors_and_interrupts_are_one_line(
    function: str, code: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = {"fail": LazyCommand(f"{__name__}:{function}", "Fail.")}
    app = lazy_app("edgeproof", "Test.", commands, add_completion=False)
    app.callback()(lambda: None)
    monkeypatch.setattr("edgeproof.cli.app.app", app)
    monkeypatch.setattr(sys, "argv", ["edgeproof", "fail"])
    with pytest.raises(SystemExit) as stop:
        ep.cli.main()  # type: ignore[attr-defined]
    assert stop.value.code == code
    line = fail_with_key_error.__code__.co_firstlineno + 1
    assert capsys.readouterr().err == message.format(file=__file__, line=line) + "\n"


def test_installed_command() -> None:
    command = Path(sys.executable).with_name("edgeproof")
    if not command.exists():
        pytest.skip("edgeproof is not installed in this environment")
    process = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert process.stdout == f"edgeproof {ep.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "--learning-rate", "1"), "Did you mean --lr?"),
        (("train", "--epochs", "5"), "Did you mean --max-epochs?"),
        (("train", "--hidden", "5"), "Settings of models and attacks: --set name=value"),
        (("evaluate", "--eps", "0.1"), "Did you mean --epsilon?"),
        (("certify", "--n-samples", "10"), "Did you mean --samples?"),
        (("sweep", "--output", "x"), "--out"),
        (("report", "--overwrite"), "Did you mean --force?"),
    ],
)
def test_unknown_options_suggest_the_option_that_was_meant(
    run: Callable[..., tuple[int, str, str]], arguments: tuple[str, ...], message: str
) -> None:
    code, _, err = run(*arguments)
    assert code == 2
    assert message in " ".join(err.replace("│", " ").split())
    assert "Possible options" not in err
