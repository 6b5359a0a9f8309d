"""Read result files of the commands as report runs."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgeproof.certificates import Certificate
from edgeproof.evaluation.baselines import BASELINES
from edgeproof.evaluation.explanation import Explanation
from edgeproof.evaluation.result import Result, Score
from edgeproof.report.filters import Filter
from edgeproof.report.outcomes import Outcomes
from edgeproof.report.runs import (
    AttackRow,
    AttackTable,
    CertificateSummary,
    FragilityCounts,
    ProvenRow,
    Run,
    is_self_trained,
)

# Reads the runs of one file, each with a key that is equal for all runs of the same model.
Reader = Callable[[Path], Iterable[tuple[str, Run]]]

NODES = ".nodes"
_EXPECTED = "a result file of an edgeproof command"
# Accuracies are stored in single precision.
_ROUNDING = 1e-6
# Kind of the threat of a result file of ``edgeproof certify --worst-case``.
WORST_CASE = "worst case"
_CERTIFIED = re.compile(r"certified, (\d+) added, (\d+) deleted")


def nodes_file(result_file: Path) -> Path:
    """Return the path of the per-node outcomes that belong to a result file."""
    return result_file.with_name(result_file.name + NODES)


def read_result(file: Path) -> list[tuple[str, Run]]:
    """Read a result file of ``edgeproof train``, ``attack``, ``evaluate`` or ``certify``."""
    result = Result.read(file)
    model = {name: value for name, value in result.model.items() if name != "filter"}
    identity = model.get("fingerprint") or json.dumps([model, result.training], sort_keys=True)
    run = Run(
        name=default_name(str(model["name"]), result.training, result.split.get("rule")),
        dataset=result.dataset,
        model=model,
        split=result.split,
        training=result.training,
        seed=result.training.get("seed"),
        filter=Filter.read(result.model["filter"]) if "filter" in result.model else None,
        commands=(result.command,),
        environment=result.environment,
    )
    key = f"{result.dataset} {result.split.get('fingerprint')} {identity}"
    return [(key, replace(run, **_measurements(result, file)))]


# Readers by file suffix.
READERS: Mapping[str, Reader] = {".json": read_result}


def read(paths: Sequence[str | Path], *, readers: Mapping[str, Reader] = READERS) -> list[Run]:
    """Read runs from files and folders; results of the same model are merged into one run.

    Args:
        paths: Result files, models or certificates with their result file beside them, or folders of result files. A name
            may precede a path, as in ``"robust=runs/robust"``: it becomes the name of the models read from that path.
        readers: Readers by file suffix. Default: result files of the commands.

    Raises:
        FileNotFoundError: If a path does not exist.
        ValueError: If a file is damaged or not a result file, or if there is nothing to report.
    """
    if not paths:
        raise ValueError("expected at least one file or folder to report on, got none")
    runs: dict[str, Run] = {}
    names: dict[str, str] = {}
    for name, path in map(_split_name, paths):
        for file in _files(path, readers):
            for key, run in _read_checked(file, readers[file.suffix]):
                if name and names.setdefault(key, name) != name:
                    raise ValueError(f"expected one name for the model of {file}, got {names[key]!r} and {name!r}")
                runs[key] = runs[key].merge(run) if key in runs else run
    if not runs:
        raise ValueError(f"nothing to report in {', '.join(map(str, paths))}")
    return [replace(run, name=names.get(key, run.name)) for key, run in runs.items()]


def input_files(paths: Sequence[str | Path], *, readers: Mapping[str, Reader] = READERS) -> set[Path]:
    """Return all files that :func:`read` may open, and the models and certificates that they belong to."""
    files = [file for _, path in map(_split_name, paths) for file in _files(path, readers)]
    # Unlike Path.resolve, realpath does not raise for links that form a loop.
    return {Path(os.path.realpath(path)) for file in files for path in (file, nodes_file(file), _subject(file))}


def default_name(model: str, training: Mapping[str, Any], rule: object) -> str:
    """Return a model's name with its kind of training.

    >>> default_name("GCN", {"attack": "LRBCD(steps=20)", "epsilon": 0.2, "self_training": True}, None)
    'GCN, self-trained, adversarial (LRBCD 0.2)'
    """
    attack = training.get("attack")
    parts = [
        model,
        "self-trained" if is_self_trained(training) else "",
        f"adversarial ({str(attack).partition('(')[0]} {training['epsilon']:g})" if attack else "",
        "as released" if rule == "as_released" else "",
    ]
    return ", ".join(filter(None, parts))


def _split_name(path: str | Path) -> tuple[str, Path]:
    """Split ``name=path``; an existing path that contains an equals sign has no name."""
    name, equals, rest = str(path).partition("=")
    if Path(path).exists() or not equals:
        return "", Path(path)
    return name, Path(rest)


def _files(path: Path, readers: Mapping[str, Reader]) -> list[Path]:
    if path.is_dir():
        files = sorted(file for file in path.glob("*") if file.suffix in readers)
        if not files:
            raise ValueError(f"no results in the folder {path}: expected files ending in {' or '.join(readers)}")
        return files
    if not path.exists():
        raise FileNotFoundError(f"no file or folder {path}: expected {_EXPECTED}, or a folder of them")
    if path.suffix in readers:
        return [path]
    result_file = path.with_name(path.name + ".json")
    if not result_file.exists():
        raise ValueError(f"{path} has no result file {result_file.name} beside it: pass the folder that holds both")
    return [result_file]


def _subject(result_file: Path) -> Path:
    """Return the path of the model or certificate that a result file describes."""
    return result_file.with_name(result_file.name.removesuffix(".json"))


def _read_checked(file: Path, reader: Reader) -> list[tuple[str, Run]]:
    try:
        found = list(reader(file))
        for _, run in found:
            _check_values(run)
    except OSError as error:
        raise ValueError(
            f"cannot read {error.filename or file}: {error.strerror or error}; expected {_EXPECTED}"
        ) from error
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} is not {_EXPECTED}: {error!r}") from error
    except ValueError as error:
        message = str(error) if str(file) in str(error) else f"{file}: {error}"
        raise ValueError(f"{message}; expected {_EXPECTED}") from error
    return found


def _check_values(run: Run) -> None:
    """Raise for values of a wrong type or outside their range; unknown values may be None."""
    rows = [row for table in run.attacks for row in table.rows]
    integer, number = (int, type(None)), (int, float, type(None))
    entries: list[tuple[str, object, type | tuple[type, ...]]] = [
        ("dataset", run.dataset, str),
        ("environment", run.environment, dict),
        *(("command", command, str) for command in run.commands),
        ("name of the model", run.model["name"], str),
        ("settings of the model", run.model.get("settings", {}), dict),
        ("parameters of the model", run.model.get("parameters"), integer),
        ("number of test nodes", run.split.get("test"), integer),
        ("number of test nodes seen", run.split.get("test_nodes_seen"), integer),
        ("seed", run.seed, integer),
        ("epsilon of the training", run.training.get("epsilon"), number),
        ("local budget of the training", run.training.get("local"), number),
        ("accuracy", run.clean, number),
        *(("local budget", table.local, (*number, str)) for table in run.attacks),
        *(("count", table.count, str) for table in run.attacks),
        *(("constraints", table.constraints, str) for table in run.attacks),
        *(("effort", effort, str) for table in run.attacks for effort in table.efforts),
        *(("tier", tier, str) for table in run.attacks for tier in table.tiers),
        *(("epsilon", row.epsilon, number) for row in rows),
        *(("accuracy", row.accuracy, number) for row in rows),
        *(("budget", row.total, integer) for row in rows),
        *(("number of flips", row.flips, integer) for row in rows),
        *(("seconds", row.seconds, number) for row in rows),
    ]
    for name, value, kind in entries:
        maximum = 1.0 if name == "accuracy" else sys.float_info.max
        if not isinstance(value, kind) or (isinstance(value, (int, float)) and not 0 <= value <= maximum):
            raise ValueError(f"invalid {name}: {value!r}")


def _measurements(result: Result, file: Path) -> dict[str, Any]:
    """Return the fields of a run that this result file measured."""
    scores = [score for score in result.scores if score.nodes == "test"]
    if any(_CERTIFIED.fullmatch(score.attack) for score in scores):
        certificate = _subject(file)
        if not certificate.exists():
            raise ValueError(f"{file} describes the certificate {certificate}, which does not exist")
        loaded = Certificate.load(certificate)
        _check_certificate(loaded, scores, certificate)
        return {"certificate": CertificateSummary.of(loaded), "warnings": result.warnings}
    clean = next((score.accuracy for score in scores if score.attack == "clean"), None)
    baselines = {score.attack: score.accuracy for score in scores if score.attack in BASELINES}
    threat = result.threat
    if threat.get("kind") == WORST_CASE:
        return {"clean": clean, "proven": _proven(scores), "warnings": result.warnings}
    if not threat:
        return {"clean": clean, "warnings": result.warnings}
    if "explanation" in threat:
        return {"explanations": (Explanation.of_dict(threat["explanation"]),)}
    details = {(row["attack"], row["epsilon"]): row for row in threat.get("rows", [])}
    rows = tuple(
        AttackRow(
            score.attack,
            score.epsilon,
            score.accuracy,
            threat["budgets"].get(str(score.epsilon)),
            *(details.get((score.attack, score.epsilon), {}).get(name) for name in ("flips", "seconds")),
        )
        for score in scores
        if score.attack not in ("clean", "worst", *BASELINES)
    )
    table = AttackTable(
        local=threat["local"],
        count=threat["count"],
        rows=rows,
        outcomes=_outcomes(nodes_file(file), {(row.attack, row.epsilon): row.accuracy for row in rows}),
        warnings=result.warnings,
        # Only an evaluation runs self-checks, and only an evaluation stores the worst case.
        checked=any(score.attack == "worst" for score in scores),
        # Lists of attacks, single attacks and older files have no effort.
        efforts=() if threat.get("effort") is None else (threat["effort"],),
        constraints=threat.get("constraints") or "",
        # Older files have no tier.
        tiers=() if threat.get("tier") is None else (threat["tier"],),
    )
    fragility = FragilityCounts.read(threat["fragility"]) if "fragility" in threat else None
    return {"clean": clean, "baselines": baselines, "attacks": (table,) if rows else (), "fragility": fragility}


def _check_certificate(certificate: Certificate, scores: Sequence[Score], file: Path) -> None:
    """Raise if a certificate contradicts the certified accuracies in its result file."""
    for score in scores:
        match = _CERTIFIED.fullmatch(score.attack)
        if match is None:
            continue
        radii = int(match[1]), int(match[2])
        if abs(certificate.accuracy(*radii) - score.accuracy) > _ROUNDING:
            raise ValueError(
                f"{file} belongs to another result: its certified accuracy at the radii {radii} is different"
            )


def _proven(scores: Sequence[Score]) -> tuple[ProvenRow, ...]:
    """Return the computed worst cases; a guaranteed accuracy may come with one that was attained."""
    attained = {(score.attack, score.epsilon): score.accuracy for score in scores}
    rows = []
    for score in scores:
        bound, _, kind = score.attack.partition(", ")
        if bound == "guaranteed":
            budget = (
                f"ε = {score.epsilon:g}, {kind.replace('local None', 'no local budget')}" if score.epsilon else kind
            )
            rows.append(ProvenRow(budget, score.accuracy, attained.get((f"attained, {kind}", score.epsilon))))
    return tuple(rows)


def _outcomes(file: Path, accuracies: Mapping[tuple[str, float], float]) -> tuple[Outcomes, ...]:
    """Load the per-node outcomes, if stored; raise if they contradict the accuracies."""
    if not file.exists():
        return ()
    outcomes = Outcomes.load(file)
    for key, margins in zip(outcomes.keys, outcomes.margins, strict=True):
        # A node with margin 0 may count as correct or as misclassified.
        low, high = (float(correct.double().mean()) for correct in (margins > 0, margins >= 0))
        if key not in accuracies or not low - _ROUNDING <= accuracies[key] <= high + _ROUNDING:
            raise ValueError(
                f"{file} belongs to another result: its accuracy under {key[0]} at epsilon {key[1]:g} is different"
            )
    return (outcomes,)
