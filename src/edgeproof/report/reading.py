"""What the commands of the library have saved, as runs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgeproof.attacks import available
from edgeproof.certificates import Certificate
from edgeproof.evaluation.result import Result
from edgeproof.experiments.store import Record, key_of
from edgeproof.report.filters import Filter
from edgeproof.report.outcomes import Outcomes
from edgeproof.report.runs import Attacked, Certified, Row, Run, self_trained

NODES = ".nodes"
_MADE_BY = "edgeproof train, attack, evaluate, certify or reproduce"
# What the store keeps for figures of the paper, and this page has no place for.
_FIGURES_ONLY = ("diffusion", "degrees", "LRBCD-global-slow")
# Accuracies are kept in single precision.
_ROUNDING = 1e-6
_CERTIFIED = re.compile(r"certified, (\d+) added, (\d+) deleted")


def nodes_file(result_file: Path) -> Path:
    """Where the outcomes of single nodes lie: beside the result file."""
    return result_file.with_name(result_file.name + NODES)


def read(paths: Sequence[str | Path]) -> list[Run]:
    """Runs from files and folders; files about the same model become one run.

    Args:
        paths: result files, models or certificates with their result file beside them, or folders of such files; each may have
            a name in front, as in ``robust=runs/robust``, which the models in it are then called by.

    Raises:
        ValueError: if something is missing, damaged, or no result.
    """
    if not paths:
        raise ValueError("expected at least one file or folder to report on, got none")
    found: dict[str, Run] = {}
    names: dict[str, str] = {}
    for name, path in map(_named, paths):
        for file in _files(path):
            key, run = _read(file)
            if run is None:
                continue
            if name and names.setdefault(key, name) != name:
                raise ValueError(f"expected one name of the model of {file}, got {names[key]!r} and {name!r}")
            found[key] = found[key].joined(run) if key in found else run
    if not found:
        raise ValueError(f"nothing to report in {', '.join(map(str, paths))}")
    runs = [replace(run, name=names.get(key, run.name)) for key, run in found.items()]
    return sorted(runs, key=_order)


def inputs(paths: Sequence[str | Path]) -> set[Path]:
    """All files that :func:`read` looks at, or that its files are about."""
    files = [file for _, path in map(_named, paths) for file in _files(path)]
    return {one.resolve() for file in files for one in (file, nodes_file(file), _beside(file))}


def _order(run: Run) -> tuple[str, str, str, int]:
    """The files of the store are named by hashes, whose order means nothing; others stay as they were given."""
    if "protocol" not in run.split:
        return "", "", "", 0
    return run.dataset, str(run.model["name"]), run.name, run.seed or 0


def _named(path: str | Path) -> tuple[str, Path]:
    name, equals, rest = str(path).partition("=")
    if Path(path).exists() or not equals:
        return "", Path(path)
    return name, Path(rest)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(path.glob("*.json"))
        if not files:
            raise ValueError(f"no results in the folder {path}: expected .json files of {_MADE_BY}")
        return files
    if not path.exists():
        raise FileNotFoundError(f"no file or folder {path}; expected what {_MADE_BY} has saved")
    if path.suffix == ".json":
        return [path]
    beside = path.with_name(path.name + ".json")
    if not beside.exists():
        raise ValueError(f"{path} has no result file {beside.name} beside it, which says what it is about")
    return [beside]


def _beside(file: Path) -> Path:
    """The model or certificate that a result file is about."""
    return file.with_name(file.name.removesuffix(".json"))


def _read(file: Path) -> tuple[str, Run | None]:
    """A file's run, none if it holds nothing to report, and a key that is the same for all files about the same model."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{file} cannot be read as JSON: {error}") from error
    try:
        stored = isinstance(content, dict) and "identity" in content
        key, run = _of_record(content) if stored else _of_result(Result.read(file), file)
        if run is not None:
            _check(run)
        return key, run
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} is no file of {_MADE_BY}: {error!r}") from error
    except ValueError as error:
        shown = str(error) if str(file) in str(error) else f"{file}: {error}"
        raise ValueError(f"{shown}; expected a file of {_MADE_BY}") from error


def _check(run: Run) -> None:
    """Raise for what no command writes, before it gets into sums and charts; what is not known may be missing."""
    rows = [row for one in run.attacked for row in one.rows]
    whole, number = (int, type(None)), (int, float, type(None))
    entries: list[tuple[str, object, type | tuple[type, ...]]] = [
        ("dataset", run.dataset, str),
        ("environment", run.environment, dict),
        *(("command", command, str) for command in run.commands),
        ("name of the model", run.model["name"], str),
        ("settings of the model", run.model.get("settings", {}), dict),
        ("parameters of the model", run.model.get("parameters"), whole),
        ("number of test nodes", run.split.get("test"), whole),
        ("number of test nodes seen", run.split.get("test_nodes_seen"), whole),
        ("seed", run.seed, whole),
        ("epsilon of the training", run.training.get("epsilon"), number),
        ("local budget of the training", run.training.get("local"), number),
        ("accuracy", run.clean, number),
        *(("local budget", one.local, (*number, str)) for one in run.attacked),
        *(("count", one.count, str) for one in run.attacked),
        *(("epsilon", row.epsilon, number) for row in rows),
        *(("accuracy", row.accuracy, number) for row in rows),
        *(("budget", row.total, whole) for row in rows),
        *(("number of changes", row.flips, whole) for row in rows),
        *(("seconds", row.seconds, number) for row in rows),
    ]
    for name, value, kind in entries:
        most = 1.0 if name == "accuracy" else sys.float_info.max
        if not isinstance(value, kind) or (isinstance(value, (int, float)) and not 0 <= value <= most):
            raise ValueError(f"it is damaged: {name} = {value!r}")


def _of_result(result: Result, file: Path) -> tuple[str, Run]:
    model = {name: value for name, value in result.model.items() if name != "filter"}
    about = (result.dataset, result.split.get("fingerprint"))
    identity = model.get("fingerprint") or key_of({"model": model, "training": result.training})
    run = Run(
        name=_call(str(model["name"]), result.training, result.split.get("rule")),
        dataset=result.dataset,
        model=model,
        split=result.split,
        training=result.training,
        seed=result.training.get("seed"),
        filter=Filter.read(result.model["filter"]) if "filter" in result.model else None,
        commands=(result.command,),
        environment=result.environment,
    )
    return f"{about} {identity}", replace(run, **_measured(result, file))


def _measured(result: Result, file: Path) -> dict[str, Any]:
    """What this file adds to what is known about its model."""
    tested = [score for score in result.scores if score.nodes == "test"]
    if any(_CERTIFIED.fullmatch(score.attack) for score in tested):
        certificate = _beside(file)
        if not certificate.exists():
            raise ValueError(f"{file} is about the certificate {certificate}, which is not there")
        return {"certified": Certified.of(Certificate.load(certificate)), "warnings": result.warnings}
    clean = next((score.accuracy for score in tested if score.attack == "clean"), None)
    threat = result.threat
    if not threat:
        return {"clean": clean, "warnings": result.warnings}
    more = {(row["attack"], row["epsilon"]): row for row in threat.get("rows", [])}
    rows = tuple(
        Row(
            score.attack,
            score.epsilon,
            score.accuracy,
            threat["budgets"].get(str(score.epsilon)),
            *(more.get((score.attack, score.epsilon), {}).get(name) for name in ("flips", "seconds")),
        )
        for score in tested
        if score.attack not in ("clean", "worst")
    )
    attacked = Attacked(
        local=threat["local"],
        count=threat["count"],
        rows=rows,
        outcomes=_outcomes(nodes_file(file), {(row.attack, row.epsilon): row.accuracy for row in rows}),
        warnings=result.warnings,
        # Only an evaluation, which also checks itself, says what the worst case was.
        checked=any(score.attack == "worst" for score in tested),
    )
    return {"clean": clean, "attacked": (attacked,) if rows else ()}


def _outcomes(file: Path, accuracies: Mapping[tuple[str, float], float]) -> tuple[Outcomes, ...]:
    """What became of single nodes, if it was kept; refused where it does not give these accuracies."""
    if not file.exists():
        return ()
    found = Outcomes.load(file)
    for key, margins in zip(found.keys, found.margins, strict=True):
        # A node at which two classes lead may count as right or as wrong.
        low, high = (float(right.double().mean()) for right in (margins > 0, margins >= 0))
        if key not in accuracies or not low - _ROUNDING <= accuracies[key] <= high + _ROUNDING:
            raise ValueError(f"{file} belongs to another result: other accuracies under {key[0]} at epsilon {key[1]:g}")
    return (found,)


def _of_record(content: dict[str, Any]) -> tuple[str, Run | None]:
    """What ``edgeproof reproduce`` has stored."""
    record = Record.of(content)
    kind, training = str(record.identity["kind"]), record.identity
    training = training if kind == "training" else training["training"]
    values, name = record.values, str(training["model"])
    about = {**training["config"], **{key: training[key] for key in ("attack", "epsilon", "local", "count")}}
    about["self_training"] = training["label_config"] is not None
    run = Run(
        name=_call(name, about, training["protocol"]),
        dataset=str(training["dataset"]),
        model={"name": name, "settings": training["model_settings"]},
        split={**{name: training[name] for name in ("setting", "protocol")}, **_tested(record.notes)},
        training=about,
        seed=int(training["seed"]),
        commands=(record.command,),
        environment=record.environment,
    )
    if kind == "clean":
        run = replace(run, clean=float(values["accuracy"][0][1]))
    elif kind == "smoothing":
        run = replace(run, certified=_of_smoothing(record))
    elif kind == "filter":
        run = replace(run, filter=Filter.read(values))
    elif (attack := kind.removesuffix("-global")) in available():
        rows = tuple(Row(attack, float(epsilon), float(accuracy)) for epsilon, accuracy in values["accuracy"])
        if not rows:
            raise ValueError("it holds no accuracies")
        run = replace(run, attacked=(Attacked(record.identity["local"], record.identity["count"], rows),))
    elif kind in _FIGURES_ONLY:
        return key_of(training), None
    elif kind != "training":
        raise ValueError(f"it holds a measurement of an unknown kind, {kind!r}")
    return key_of(training), run


def _tested(notes: Mapping[str, Any]) -> dict[str, Any]:
    """How many nodes were tested, and how many of them training has seen, by the names that a result has for them."""
    names = {"test_nodes": "test", "test_nodes_seen": "test_nodes_seen"}
    return {ours: notes[theirs] for theirs, ours in names.items() if theirs in notes}


def _of_smoothing(record: Record) -> Certified:
    noise = dict(re.findall(r"(p_add|p_del)=([\d.e-]+)", str(record.identity["smoothing"])))
    return Certified(
        shares={(int(a), int(d)): float(share) for a, d, share in record.values["certified_accuracy"]},
        labelled=True,
        settings={
            **{name: float(value) for name, value in noise.items()},
            "samples": int(record.identity["samples"]),
            "alpha": float(record.identity["alpha"]),
        },
        abstained=float(record.values["abstained"]),
    )


def _call(model: str, training: Mapping[str, Any], rule: object) -> str:
    attack = training.get("attack")
    against = f" against {str(attack).partition('(')[0]} {training['epsilon']:g}" if attack else ""
    labelled = " self-trained" if self_trained(training) else ""
    return f"{model}{labelled}{against}" + (", as released" if rule == "as_released" else "")
