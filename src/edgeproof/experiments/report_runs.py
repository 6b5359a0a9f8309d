"""Convert stored experiment records to report runs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgeproof.attacks import available
from edgeproof.experiments.store import Record, key_of
from edgeproof.report import reading
from edgeproof.report.filters import Filter
from edgeproof.report.runs import AttackRow, AttackTable, CertificateSummary, Run

# Measurements for the paper's figures, which the report does not show.
_FIGURES_ONLY = ("diffusion", "degrees", "LRBCD-global-slow")


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
    record = Record.of(content)
    run = run_of(record)
    return [] if run is None else [(key_of(_training_identity(record)), run)]


READERS: Mapping[str, reading.Reader] = {**reading.READERS, ".json": read_file}


def run_of(record: Record) -> Run | None:
    """Return the run of a record; None if the report does not show this kind of measurement.

    Raises:
        ValueError: If the kind of measurement is unknown, or if the record has no accuracies.
    """
    kind, identity, values = str(record.identity["kind"]), _training_identity(record), record.values
    name = str(identity["model"])
    training = {**identity["config"], **{key: identity[key] for key in ("attack", "epsilon", "local", "count")}}
    training["self_training"] = identity["label_config"] is not None
    run = Run(
        name=reading.default_name(name, training, identity["protocol"]),
        dataset=str(identity["dataset"]),
        model={"name": name, "settings": identity["model_settings"]},
        split={**{key: identity[key] for key in ("setting", "protocol")}, **_test_nodes(record.notes)},
        training=training,
        seed=int(identity["seed"]),
        commands=(record.command,),
        environment=record.environment,
    )
    if kind == "training":
        return run
    if kind in _FIGURES_ONLY:
        return None
    if kind == "clean":
        return replace(run, clean=float(values["accuracy"][0][1]))
    if kind == "smoothing":
        return replace(run, certificate=_certificate(record))
    if kind == "filter":
        return replace(run, filter=Filter.read(values))
    attack = kind.removesuffix("-global")
    if attack not in available():
        raise ValueError(f"unknown kind of measurement {kind!r}")
    rows = tuple(AttackRow(attack, float(epsilon), float(accuracy)) for epsilon, accuracy in values["accuracy"])
    if not rows:
        raise ValueError("expected at least one accuracy, got none")
    return replace(run, attacks=(AttackTable(record.identity["local"], record.identity["count"], rows),))


def _order(run: Run) -> tuple[str, str, str, int]:
    """Sort stored runs, whose files are named by hashes; keep all other runs first, in their order."""
    if "protocol" not in run.split:
        return "", "", "", 0
    return run.dataset, str(run.model["name"]), run.name, run.seed or 0


def _training_identity(record: Record) -> Mapping[str, Any]:
    identity = record.identity
    training: Mapping[str, Any] = identity if identity["kind"] == "training" else identity["training"]
    return training


def _test_nodes(notes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of test nodes under the names of a result file."""
    names = {"test_nodes": "test", "test_nodes_seen": "test_nodes_seen"}
    return {names[key]: notes[key] for key in names if key in notes}


def _certificate(record: Record) -> CertificateSummary:
    noise = dict(re.findall(r"(p_add|p_del)=([\d.e-]+)", str(record.identity["smoothing"])))
    return CertificateSummary(
        fractions={(int(a), int(d)): float(fraction) for a, d, fraction in record.values["certified_accuracy"]},
        labelled=True,
        settings={
            **{name: float(value) for name, value in noise.items()},
            "samples": int(record.identity["samples"]),
            "alpha": float(record.identity["alpha"]),
        },
        abstained=float(record.values["abstained"]),
    )
