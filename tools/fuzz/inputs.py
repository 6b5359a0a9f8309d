"""Bad values of arguments, which must be accepted or rejected by an error with a message; and hostile names of files."""

from __future__ import annotations

import contextlib
import io
import math
import sys
import warnings
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import edgeproof as ep
from edgeproof.cli import main
from fuzz.files import random_graph
from fuzz.trial import Violation

_VALUES: list[Any] = [
    *(0, -1, 1, 1.5, 10**6, 10**30, 1e308, -0.0, 1e-320, math.nan, math.inf, -math.inf, True, None),
    *("", "0", "nan", "../..", "\0", b"x", [], [0], [0, 0], {}, (1, 2), object()),
    *(
        torch.tensor([]),
        torch.tensor([0.5]),
        torch.tensor([[0], [1]]),
        torch.tensor(3),
        torch.ones(20, dtype=torch.bool),
    ),
    *(np.array([1, 2]), np.array(["a"]), np.float32(2), np.int64(3), nn.Linear(4, 3), ep.Budget(1)),
]
# Errors of arguments. Others are accidents.
_EXPECTED = (ValueError, TypeError, OSError, FloatingPointError)


def _evaluate(**changed: Any) -> object:
    data = random_graph(0)
    model = ep.models.build("GCN", 4, 3, {"hidden_channels": 4}, seed=0)
    arguments = {"model": model, "data": data, "nodes": [0, 1], "epsilons": [0.1], "attacks": ["RandomFlips"]}
    return ep.evaluate(**{**arguments, **changed})


def _attack(**changed: Any) -> object:
    model = ep.models.build("GCN", 4, 3, {"hidden_channels": 4}, seed=0)
    arguments = {"model": model, "data": random_graph(0), "nodes": [0, 1], "budget": ep.Budget(2)}
    return ep.attacks.LRBCD(steps=1, block_size=50)(**{**arguments, **changed})


def _certify(**changed: Any) -> object:
    model = ep.models.build("GCN", 4, 3, {"hidden_channels": 4}, seed=0)
    arguments = {"model": model, "data": random_graph(0), "nodes": [0], "samples": 30, "choosing_samples": 5}
    if any(name in changed and _is_large(changed[name]) for name in ("samples", "choosing_samples")):
        return None
    return ep.certificates.SparseSmoothing().certify(**{**arguments, **changed})


def _is_large(value: object) -> bool:
    return isinstance(value, (int, float)) and value > 1000


_CALLS: Mapping[str, tuple[Callable[..., object], tuple[str, ...]]] = {
    "evaluate": (
        _evaluate,
        ("model", "data", "nodes", "epsilons", "attacks", "effort", "local", "count", "labels", "seed"),
    ),
    "attack": (_attack, ("model", "data", "nodes", "budget", "allowed", "costs", "labels", "seed", "backend")),
    "certify": (_certify, ("model", "data", "nodes", "samples", "alpha", "seed", "memory")),
    "budget": (
        lambda **changed: ep.Budget.from_epsilon(**{"data": random_graph(0), "nodes": [0], "epsilon": 0.5, **changed}),
        ("data", "nodes", "epsilon", "local", "count"),
    ),
    "split": (
        lambda **changed: ep.splits.inductive(
            **{"data": random_graph(0), "train_per_class": 1, "val_per_class": 1, **changed}
        ),
        ("data", "seed", "train_per_class", "val_per_class", "test_share", "rule"),
    ),
    "build": (
        lambda **changed: ep.models.build(**{"name": "GPRGNN", "in_channels": 4, "out_channels": 3, **changed}),
        ("name", "in_channels", "out_channels", "seed"),
    ),
    "settings": (
        lambda **changed: ep.models.GPRGNN(4, 3, **changed),
        ("hidden_channels", "num_layers", "K", "init", "alpha", "init_seed", "dropout"),
    ),
    "attack settings": (
        lambda **changed: ep.attacks.PRBCD(**changed),
        ("steps", "fine_tune_steps", "block_size", "lr", "samples", "keep_best", "loss"),
    ),
    "load": (lambda **changed: ep.load(**changed), ("path",)),
    "dataset": (lambda **changed: ep.datasets.load(**changed), ("name",)),
}


def bad_argument(random: np.random.Generator, folder: Path) -> str:
    """Call a random function with a random value of a random argument.

    Returns:
        Function and outcome.

    Raises:
        Violation: If the error is of an unexpected type or has no message.
    """
    function = list(_CALLS)[int(random.integers(len(_CALLS)))]
    call, names = _CALLS[function]
    name, value = names[int(random.integers(len(names)))], _VALUES[int(random.integers(len(_VALUES)))]
    if name in ("allowed", "costs") and callable(value):
        # It would be called.
        value = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call(**{name: value})
        except _EXPECTED as error:
            if not str(error):
                raise Violation(f"{function}, {name}={value!r}: {type(error).__name__} without a message") from error
            return f"{function}: rejected"
        except Exception as error:
            raise Violation(f"{function}, {name}={value!r}: {type(error).__name__}: {error}") from error
    return f"{function}: accepted"


_PARTS = [
    *("\n", "\r", "\t", "\x1b[31m", "\x7f", "\u202e", "\udcff"),
    *("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "&amp;", '"', "'"),
    *("[bold]", "[/]", ":smile:", "%s", "{0}", "$(id)", "`id`", ";", "|", "\\", " ", "--out", "=", "*", "?", "~"),
    *("ünïcödé", "模型", "🦊", "a", ".", ".."),
]


def hostile_name(random: np.random.Generator, folder: Path) -> str:
    """Use a random name for a model file, in an error message and in a report.

    Raises:
        Violation: If the file cannot be read again, an error is not one line, or the name becomes an element of the page.
    """
    name = "".join(_PARTS[int(random.integers(len(_PARTS)))] for _ in range(int(random.integers(1, 6))))
    path = folder / f"x{name.replace('/', '')}.safetensors"
    model = ep.models.build("MLP", 4, 3, seed=0)
    ep.save(model, path)
    if [entry.name for entry in folder.iterdir()] != [path.name] or repr(ep.load(path)) != repr(model):
        raise Violation(f"{name!r}: the saved model cannot be read")
    status, output = _command("attack", "--model", f"{path}.missing", "--dataset", "csbm")
    lines = output.splitlines()
    if status != 1 or len(lines) != 1 or not lines[0].startswith("error: ") or not lines[0].isprintable():
        raise Violation(f"{name!r}: expected one line, got {output!r}")
    data = random_graph(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = ep.evaluate(model, data, [0, 1, 2], [0.1], ["RandomFlips"])
        run = ep.report.Run.of(
            f"x{name}", model, data, [0, 1, 2], evaluation=scores, dataset=f"y{name}", command=f"edgeproof {name}"
        )
    page = folder / "report.html"
    ep.report.write([run], page, title=f"z{name}")
    counts = _Elements.of(page.read_text(encoding="utf-8"))
    if counts != _elements_of_harmless_report():
        raise Violation(f"{name!r}: the report has other elements than with a harmless name")
    return "read again, one line, escaped"


class _Elements(HTMLParser):
    """Counts the elements of a page that can run code."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = {"script": 0, "img": 0, "iframe": 0, "on": 0}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Count an element and its event handlers."""
        if tag in self.counts:
            self.counts[tag] += 1
        self.counts["on"] += sum(name.startswith("on") for name, _ in attrs)

    @classmethod
    def of(cls, page: str) -> dict[str, int]:
        """Return the counts of a page."""
        parser = cls()
        parser.feed(page)
        return parser.counts


_HARMLESS: dict[str, int] = {}


def _elements_of_harmless_report() -> dict[str, int]:
    if not _HARMLESS:
        data, model = random_graph(0), ep.models.build("MLP", 4, 3, seed=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scores = ep.evaluate(model, data, [0, 1, 2], [0.1], ["RandomFlips"])
            run = ep.report.Run.of("x", model, data, [0, 1, 2], evaluation=scores, dataset="y", command="edgeproof")
        _HARMLESS.update(_Elements.of(ep.report.render([run], title="z")))
    return _HARMLESS


def _command(*arguments: str) -> tuple[int, str]:
    """Run a command in this process and return its exit status and standard error."""
    before, errors, status = sys.argv, io.StringIO(), 0
    sys.argv = ["edgeproof", *arguments]
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            main()
    except SystemExit as stop:
        status = int(stop.code or 0)
    finally:
        sys.argv = before
    return status, errors.getvalue()
