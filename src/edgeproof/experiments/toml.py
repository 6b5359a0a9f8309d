"""Sweeps as TOML files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from edgeproof import attacks
from edgeproof._checks import check_seed
from edgeproof._files import is_graph_file
from edgeproof._names import unknown_name
from edgeproof.budget import check_epsilon
from edgeproof.datasets import Fixes
from edgeproof.experiments import analyses, comparisons, measurements, worst_case  # noqa: F401 - registers the kinds
from edgeproof.experiments.graphs import available, check_dataset
from edgeproof.experiments.spec import AttackSpec, DatasetSpec, ModelSpec, SplitSpec, TrainingSpec, as_settings
from edgeproof.experiments.sweep import KINDS, Measurement, Sweep, measurement_class

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

T = TypeVar("T")


def read_sweep(path: str | Path) -> Sweep:
    """Read a sweep from a TOML file.

    ``seeds`` and ``restarts`` are lists of integers. The tables ``[[dataset]]``, ``[[split]]``, ``[[model]]``,
    ``[[training]]`` and ``[[measurement]]`` are combined with each other; ``split`` and ``training`` may be left out. Paths of
    datasets are relative to the file.

    Args:
        path: The file.

    Raises:
        ValueError: If the file is invalid. The message names the entry and, for an unknown key, the nearest known one.

    >>> path = getfixture("tmp_path") / "sweep.toml"
    >>> _ = path.write_text('''
    ... seeds = [0, 1]
    ... [[dataset]]
    ... name = "csbm"
    ... [[model]]
    ... name = "GCN"
    ... settings = { hidden_channels = 16 }
    ... [[measurement]]
    ... kind = "attack"
    ... attack = "LRBCD"
    ... epsilons = [0.05, 0.1]
    ... local = 0.5
    ... ''')
    >>> [job.name for job in read_sweep(path).jobs()]
    ['csbm GCN, regular, strict, seed 0, 1000 epochs', 'csbm GCN, regular, strict, seed 1, 1000 epochs']
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"expected a TOML file that declares a sweep, got {path}, which does not exist")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from error
    try:
        return parse_sweep(content, path.parent)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def parse_sweep(content: Mapping[str, Any], folder: Path) -> Sweep:
    """Return the sweep declared by the content of a TOML file.

    Args:
        content: The parsed file.
        folder: Folder that paths of datasets are relative to.
    """
    parsers: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        "dataset": lambda table: _dataset(table, folder),
        "split": _split,
        "model": _model,
        "training": _training,
        "measurement": _measurement,
    }
    _check_keys("key", content, ("seeds", "restarts", *parsers))
    content = {"training": [{}], **content}
    parsed = {f"{name}s": _tables(content, name, parse) for name, parse in parsers.items() if name in content}
    for name in ("dataset", "model", "measurement"):
        if name not in content:
            raise ValueError(f"expected at least one [[{name}]], got none")
    return Sweep(**parsed, seeds=_seeds(content, "seeds"), restarts=_seeds(content, "restarts"))


def _seeds(content: Mapping[str, Any], name: str) -> tuple[int, ...]:
    seeds = content.get(name, [0])
    if not isinstance(seeds, list):
        raise ValueError(f"expected {name} as a list, such as [0, 1], got {seeds!r}")
    for seed in seeds:
        check_seed(seed)
    return tuple(seeds)


def _tables(content: Mapping[str, Any], name: str, parse: Callable[[Mapping[str, Any]], T]) -> tuple[T, ...]:
    tables, found = content[name], []
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ValueError(f"expected tables [[{name}]], got {tables!r}")
    for number, table in enumerate(tables, start=1):
        try:
            found.append(parse(table))
        except (TypeError, ValueError, OSError) as error:
            raise ValueError(f"[[{name}]] {number}: {error}") from error
    return tuple(found)


def _dataset(table: Mapping[str, Any], folder: Path) -> DatasetSpec:
    names = [entry.name for entry in fields(Fixes)]
    _check_keys("key", table, ("name", "largest_component", *names))
    name = _required(table, "name", str)
    if name not in available() and (is_graph_file(name) or (folder / name).exists()):
        name = str(folder / name)
    fixes = Fixes(**{key: table[key] for key in names if key in table})
    dataset = DatasetSpec(name, table.get("largest_component", True), fixes=fixes)
    check_dataset(dataset)
    return dataset


def _split(table: Mapping[str, Any]) -> SplitSpec:
    _check_keys("key", table, [entry.name for entry in fields(SplitSpec)])
    return SplitSpec(**table)


def _model(table: Mapping[str, Any]) -> ModelSpec:
    _check_keys("key", table, ("name", "settings"))
    return ModelSpec(_required(table, "name", str), as_settings(_settings(table, "settings")))


def _training(table: Mapping[str, Any]) -> TrainingSpec:
    nested = ("attack", "attack_settings", "label_model", "label_model_settings")
    _check_keys("key", table, [*(entry.name for entry in fields(TrainingSpec)), *nested])
    given = {"preset": "default", **{name: value for name, value in table.items() if name not in nested}}
    given |= {name: as_settings(_settings(table, name)) for name in ("config", "label_config")}
    if "attack" in table:
        attack = _required(table, "attack", str)
        given["attack"] = AttackSpec.for_training(attack, _settings(table, "attack_settings"))
    elif "attack_settings" in table:
        raise ValueError("expected an attack beside attack_settings, got none")
    if "label_model" in table:
        settings = as_settings(_settings(table, "label_model_settings"))
        given["label_model"] = ModelSpec(_required(table, "label_model", str), settings)
    elif "label_model_settings" in table:
        raise ValueError("expected a label_model beside label_model_settings, got none")
    return TrainingSpec(**given)


def _measurement(table: Mapping[str, Any]) -> Measurement:
    if "kind" not in table:
        raise ValueError(f"expected the key 'kind', one of {', '.join(KINDS)}")
    cls = measurement_class(table["kind"])
    names = [entry.name for entry in fields(cls)]  # type: ignore[arg-type]
    _check_keys(f"key of kind {table['kind']}", table, ["kind", *names, *(["settings"] if "attack" in names else [])])
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in table.items() if name in names
    }
    if "attack" in names:
        attack = _required(table, "attack", str)
        given["attack"] = AttackSpec.of(attacks.build(attack, _settings(table, "settings")))
    if "epsilons" in names:
        epsilons = _required(table, "epsilons", list)
        for epsilon in epsilons:
            check_epsilon(epsilon)
        given["epsilons"] = tuple(map(float, epsilons))
    return cls(**given)


def _required(table: Mapping[str, Any], name: str, kind: type[T]) -> T:
    value = table.get(name)
    if not isinstance(value, kind):
        raise ValueError(f"expected {name} as a {kind.__name__}, got {value!r}")
    return value


def _settings(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = table.get(name, {})
    if not isinstance(value, dict):
        raise ValueError(f"expected {name} as a table, such as {{ steps = 20 }}, got {value!r}")
    return value


def _check_keys(kind: str, table: Mapping[str, Any], known: Any) -> None:
    for name in table:
        if name not in known:
            raise unknown_name(kind, name, known)
