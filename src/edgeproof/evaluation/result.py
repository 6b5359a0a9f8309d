"""Result files: one JSON file per run, with its settings, scores and environment.

The schema is documented in ``docs/results.md``.
"""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch_geometric
from torch import nn

from edgeproof._checks import check_non_negative
from edgeproof._files import is_graph_file, write_text
from edgeproof._tables import Layout, Record, TabularResult
from edgeproof._tensors import fingerprint
from edgeproof._version import __version__
from edgeproof.models import GraphModel
from edgeproof.serialization import json_digest
from edgeproof.splits import Split

if TYPE_CHECKING:
    from edgeproof.datasets.simplify import Fixes

SCHEMA = 3
# Keys missing from each schema; they take their defaults. Without a digest, only types and ranges of values are checked.
_MISSING_KEYS = {1: {"threat", "warnings", "digest"}, 2: {"digest"}, 3: set[str]()}
_TYPES = {
    **dict.fromkeys(("command", "dataset"), str),
    **dict.fromkeys(("split", "model", "training", "environment", "threat"), dict),
    **dict.fromkeys(("scores", "warnings"), list),
}


@dataclass(frozen=True)
class Score:
    """Accuracy of one set of nodes under one attack.

    Args:
        nodes: Set of nodes: ``"train"``, ``"val"`` or ``"test"``.
        attack: Name of the attack; ``"clean"`` for the clean graph.
        epsilon: Budget as a fraction of the edges; 0 for the clean graph.
        accuracy: Fraction of the nodes that are classified correctly.
    """

    nodes: str
    attack: str
    epsilon: float
    accuracy: float

    def __post_init__(self) -> None:
        check_non_negative(epsilon=self.epsilon)
        if not 0 <= self.accuracy <= 1:
            raise ValueError(f"expected 0 <= accuracy <= 1, got {self.accuracy}")


@dataclass(frozen=True)
class Result(TabularResult):
    """Settings and scores of one run.

    Args:
        command: Command that reproduces the run.
        dataset: Name of the dataset.
        split: Split; see :func:`describe_split`.
        model: Model; see :func:`describe_model`.
        training: Training; see :meth:`edgeproof.training.History.summary`.
        seed: Seed of the run.
        scores: Measured accuracies.
        environment: Software and hardware; see :func:`describe_environment`.
        threat: Threat model: ``local``, ``count``, the ``budgets`` by epsilon, and the ``attacks`` with all their settings;
            empty without attacks.
        warnings: Warnings about the scores.
        schema: Version of the file format.
    """

    command: str
    dataset: str
    split: dict[str, Any]
    model: dict[str, Any]
    training: dict[str, Any]
    seed: int
    scores: tuple[Score, ...]
    environment: dict[str, str] = field(default_factory=dict)
    threat: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    schema: int = SCHEMA

    def score(self, nodes: str = "test", attack: str = "clean", epsilon: float = 0.0) -> float:
        """Return one accuracy; raise ``KeyError`` if it was not measured."""
        for score in self.scores:
            if (score.nodes, score.attack, score.epsilon) == (nodes, attack, epsilon):
                return score.accuracy
        raise KeyError(f"no accuracy of {nodes} nodes under {attack} at epsilon {epsilon}")

    def summary(self) -> Record:
        """Return the values that occur once, as numbers, text, lists and dictionaries."""
        return {name: value for name, value in asdict(self).items() if name != "scores"}

    def _records(self) -> list[Record]:
        return [asdict(score) for score in self.scores]

    def _layout(self) -> Layout:
        lines = [(s.nodes, s.attack, f"{s.epsilon:g}", f"{s.accuracy:.1%}") for s in self.scores]
        return Layout(
            title=f"{self.model.get('name', 'model')}, {self.dataset}, seed {self.seed}",
            header=("nodes", "attack", "epsilon", "accuracy"),
            lines=lines,
            left=2,
            notes=[f"warning: {warning}" for warning in self.warnings],
        )

    def write(self, path: str | Path) -> None:
        """Write a JSON file with a digest of all entries, atomically."""
        entries = {**asdict(self), "schema": SCHEMA}
        write_text(Path(path), json.dumps({**entries, "digest": json_digest(entries)}, indent=2) + "\n")

    @classmethod
    def read(cls, path: str | Path) -> Result:
        """Read a JSON file; raise ``ValueError`` if it is not a valid result file, or has changed since it was written."""
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is not a JSON file: {error}") from error
        keys = set(values) if isinstance(values, dict) else set()
        schema = values.get("schema", SCHEMA) if isinstance(values, dict) else SCHEMA
        if not isinstance(schema, int) or schema not in _MISSING_KEYS:
            raise ValueError(f"{path} has schema {schema}, expected at most {SCHEMA}")
        expected = {*(entry.name for entry in fields(cls)), "digest"} - _MISSING_KEYS[schema]
        if keys != expected:
            missing, unexpected = sorted(expected - keys), sorted(keys - expected)
            raise ValueError(f"{path} is not a result file: missing {missing}, unexpected {unexpected}")
        digest = values.pop("digest", None)
        if digest != json_digest(values) and "digest" in expected:
            raise ValueError(f"{path} is damaged or was edited: its content does not match its digest")
        for name, expected_type in _TYPES.items():
            if name in values and not isinstance(values[name], expected_type):
                raise ValueError(
                    f"{path} is not a result file: expected {name} as a {expected_type.__name__}, got {values[name]!r}"
                )
        if not all(isinstance(warning, str) for warning in values.get("warnings", ())):
            raise ValueError(f"{path} is not a result file: expected warnings as strings, got {values['warnings']!r}")
        try:
            scores = tuple(Score(**score) for score in values["scores"])
            return cls(**{**values, "scores": scores, "warnings": tuple(values.get("warnings", ())), "schema": SCHEMA})
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a result file: {error}") from error


def describe_split(split: Split) -> dict[str, Any]:
    """Return setting, rule, seed, sizes and fingerprint of a split."""
    return {
        "setting": split.setting,
        "rule": split.rule,
        "seed": split.seed,
        "train": split.train.nodes.numel(),
        "unlabeled": split.train.unlabeled.numel(),
        "val": split.val.nodes.numel(),
        "test": split.test.nodes.numel(),
        "test_nodes_seen": split.num_seen,
        "fingerprint": split.fingerprint,
    }


def describe_file(dataset: str, fixes: Fixes) -> dict[str, Any]:
    """Return the absolute path of a graph file and the changes of its edges, or nothing for a named dataset."""
    if not is_graph_file(dataset):
        return {}
    return {"file": str(Path(dataset).resolve()), "fixes": fixes.names}


def describe_model(model: nn.Module) -> dict[str, Any]:
    """Return name, settings, number of parameters and fingerprint of a model."""
    return {
        "name": type(model).__name__,
        "settings": model.settings if isinstance(model, GraphModel) else {},
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "fingerprint": fingerprint(model.state_dict().values()),
    }


def describe_environment(device: torch.device | str = "cpu") -> dict[str, str]:
    """Describe versions, device, threads and code: rounding, and therefore training, depends on them."""
    device = torch.device(device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_name()
    return {
        "edgeproof": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "platform": platform.platform(),
        "device": f"{device.type} ({name})",
        "threads": str(torch.get_num_threads()),
        "source": SOURCE,
    }


def _source_hash() -> str:
    """Return a hash of the library's source files."""
    root, digest = Path(__file__).parent.parent, hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(f"{file.relative_to(root)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:12]


# Computed at import: the files may be edited during a long run.
SOURCE = _source_hash()


def _cpu_name() -> str:
    """Return model name and instruction set of the CPU; rounding depends on both."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    name = next(names, "") or platform.processor() or platform.machine()
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"
