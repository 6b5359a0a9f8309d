"""Convert stored experiment records to report runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgeproof.experiments.defaults import DEFAULTS
from edgeproof.experiments.identity import key_of
from edgeproof.experiments.spec import in_brackets
from edgeproof.experiments.store import Record, Store
from edgeproof.report import reading
from edgeproof.report.filters import Filter
from edgeproof.report.runs import AttackRow, AttackTable, CertificateSummary, Run

# Kinds of measurements not shown in the report.
_NOT_SHOWN = ("class_accuracy", "degrees", "diffusion", "margins", "memorizing", "pyg_prbcd", "worst_case")


def read_runs(paths: Sequence[str | Path]) -> list[Run]:
    """Read runs from result files of the commands, stored records, and folders of either.

    Args:
        paths: See :func:`edgeproof.report.read`; files and folders of a :class:`~edgeproof.experiments.store.Store` are
            accepted, too.

    Returns:
        Runs of the commands in the order of the paths, then stored runs by dataset, model and seed.
    """
    return sorted(reading.read(paths, readers=READERS), key=_order)


def input_files(paths: Sequence[str | Path]) -> set[Path]:
    """Return all files that :func:`read_runs` may open, and the models and certificates that they belong to."""
    return reading.input_files(paths, readers=READERS)


def read_file(file: Path) -> list[tuple[str, Run]]:
    """Read a stored record, or else a result file of a command."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not valid JSON: {error}") from error
    if not isinstance(content, dict) or "identity" not in content:
        return reading.read_result(file)
    return _keyed(Record.of(content))


def read_packed(file: Path) -> list[tuple[str, Run]]:
    """Read a packed file of a store."""
    return [entry for record in Store(file.parent).packed_records(file) for entry in _keyed(record)]


READERS: Mapping[str, reading.Reader] = {**reading.READERS, ".json": read_file, ".jsonl": read_packed}


def run_of(record: Record) -> Run | None:
    """Return the run of a record; None if the report does not show this kind of measurement.

    Raises:
        ValueError: If the kind of measurement is unknown, or if the record has no accuracies.
    """
    kind, entries, values = record.kind, record.run, record.values
    name, training = str(entries["model"]["name"]), _training(entries)
    split = {**DEFAULTS["split"], **entries.get("split", {})}
    run = Run(
        name=reading.default_name(name, training, split["protocol"]),
        dataset=str(entries["dataset"]["name"]),
        model={"name": name, "settings": {**DEFAULTS.get(name, {}), **entries["model"].get("settings", {})}},
        split={"setting": split["kind"], "protocol": split["protocol"], **_test_nodes(record.notes)},
        training=training,
        seed=int(entries["seed"]),
        commands=(record.command,),
        environment=record.environment,
    )
    if kind == "training":
        return run
    if kind in _NOT_SHOWN or record.identity.get("nodes", "test") != "test":
        return None
    if kind == "clean":
        return replace(run, clean=float(values["accuracy"][0][1]))
    if kind == "smoothing":
        return replace(run, certificate=_certificate(record))
    if kind == "filter":
        return replace(run, filter=Filter.read(values))
    if kind == "attack":
        attack = _attack_name(record.identity["attack"])
        rows = [(attack, epsilon, accuracy) for epsilon, accuracy in values["accuracy"]]
    elif kind == "evaluate":
        rows = values["attacks"]
    else:
        raise ValueError(f"unknown kind of measurement {kind!r}")
    if not rows:
        raise ValueError("expected at least one accuracy, got none")
    threat = {**DEFAULTS["threat"], **record.identity}
    shown = tuple(AttackRow(attack, float(epsilon), float(accuracy)) for attack, epsilon, accuracy in rows)
    return replace(run, attacks=(AttackTable(threat["local"], threat["count"], shown),))


def _keyed(record: Record) -> list[tuple[str, Run]]:
    """Return the run of a record with a key that is equal for all records of the same model."""
    run = run_of(record)
    return [] if run is None else [(key_of(record.run), run)]


def _training(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a training, defaults included."""
    training = entries.get("training", {})
    attack = training.get("attack")
    return {
        **DEFAULTS["TrainConfig"],
        **training.get("config", {}),
        "attack": None if attack is None else _attack_name(attack),
        "epsilon": training.get("epsilon"),
        **{name: training.get(name, default) for name, default in DEFAULTS["threat"].items()},
        "self_training": bool(training.get("self_training")),
    }


def _attack_name(attack: Mapping[str, Any]) -> str:
    return str(attack["name"]) + in_brackets(attack.get("settings", {}))


def _order(run: Run) -> tuple[str, str, str, int]:
    """Sort stored runs, whose files are named by hashes; keep all other runs first, in their order."""
    if "protocol" not in run.split:
        return "", "", "", 0
    return run.dataset, str(run.model["name"]), run.name, run.seed or 0


def _test_nodes(notes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of test nodes under the names of a result file."""
    names = {"test_nodes": "test", "test_nodes_seen": "test_nodes_seen"}
    return {names[key]: notes[key] for key in names if key in notes}


def _certificate(record: Record) -> CertificateSummary:
    settings = {**DEFAULTS["smoothing"], **record.identity}
    return CertificateSummary(
        fractions={(int(a), int(d)): float(fraction) for a, d, fraction in record.values["certified_accuracy"]},
        labelled=True,
        settings={name: settings[name] for name in ("p_add", "p_del", "samples", "alpha")},
        abstained=float(record.values["abstained"]),
    )
