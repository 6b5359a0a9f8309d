"""One result, one small JSON file: what was run, with which command, and what came out.

The schema is documented in ``docs/results.md``; every command of the library writes it.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from dataclasses import asdict, dataclass, field, fields
from numbers import Real
from pathlib import Path
from typing import Any

import torch
import torch_geometric
from torch import nn

from edgeproof._files import replacing
from edgeproof._tensors import fingerprint
from edgeproof._version import __version__
from edgeproof.models import GraphModel
from edgeproof.splits import Split

SCHEMA = 2
# Keys that an earlier layout did not have yet; they then have their defaults.
_ADDED = {1: {"threat", "warnings"}, 2: set[str]()}
_TEXTS, _OBJECTS, _LISTS = (
    ("command", "dataset"),
    ("split", "model", "training", "environment", "threat"),
    ("scores", "warnings"),
)
_KINDS = {**dict.fromkeys(_TEXTS, str), **dict.fromkeys(_OBJECTS, dict), **dict.fromkeys(_LISTS, list)}


@dataclass(frozen=True)
class Score:
    """One accuracy.

    Args:
        nodes: whose accuracy, ``"train"``, ``"val"`` or ``"test"``.
        attack: what changed the graph; ``"clean"`` for nothing.
        epsilon: the attack's budget as a share of the edges; 0 for none.
        accuracy: share of these nodes that were classified correctly, between 0 and 1.
    """

    nodes: str
    attack: str
    epsilon: float
    accuracy: float

    def __post_init__(self) -> None:
        if not isinstance(self.epsilon, Real) or not 0 <= self.epsilon < math.inf:
            raise ValueError(f"expected a number epsilon >= 0, got {self.epsilon!r}")
        if not 0 <= self.accuracy <= 1:
            raise ValueError(f"expected 0 <= accuracy <= 1, got {self.accuracy}")


@dataclass(frozen=True)
class Result:
    """A run and its outcome.

    Args:
        command: what to type to get it again.
        dataset: the graph's name.
        split: see :func:`describe_split`.
        model: see :func:`describe_model`.
        training: see :meth:`edgeproof.training.History.summary`.
        seed: the run's seed.
        scores: what came out.
        environment: see :func:`describe_environment`.
        threat: what the attacks were allowed: ``local``, ``count``, the ``budgets`` by epsilon, and the ``attacks`` with all
            their settings; empty where nothing was attacked.
        warnings: reasons not to trust the scores.
        schema: version of this layout.
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
        """The accuracy of this kind; raises ``KeyError`` if it was not measured."""
        for score in self.scores:
            if (score.nodes, score.attack, score.epsilon) == (nodes, attack, epsilon):
                return score.accuracy
        raise KeyError(f"no accuracy of {nodes} nodes under {attack} at epsilon {epsilon}")

    def write(self, path: str | Path) -> None:
        """As a JSON file, which appears whole or not at all."""
        with replacing(Path(path)) as temporary:
            temporary.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: str | Path) -> Result:
        """From a JSON file; raises ``ValueError`` for anything that :meth:`write` would not have written."""
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is no JSON file: {error}") from error
        found = set(values) if isinstance(values, dict) else set()
        schema = values.get("schema", SCHEMA) if isinstance(values, dict) else SCHEMA
        if not isinstance(schema, int) or schema not in _ADDED:
            raise ValueError(f"{path} has schema {schema}, expected at most {SCHEMA}")
        expected = {entry.name for entry in fields(cls)} - _ADDED[schema]
        if found != expected:
            raise ValueError(f"{path} is no result: missing {sorted(expected - found)}, odd {sorted(found - expected)}")
        for name, kind in _KINDS.items():
            if name in values and not isinstance(values[name], kind):
                raise ValueError(f"{path} is no result: expected {name} as a {kind.__name__}, got {values[name]!r}")
        if not all(isinstance(warning, str) for warning in values.get("warnings", ())):
            raise ValueError(f"{path} is no result: expected warnings as texts, got {values['warnings']!r}")
        try:
            scores = tuple(Score(**score) for score in values["scores"])
            return cls(**{**values, "scores": scores, "warnings": tuple(values.get("warnings", ())), "schema": SCHEMA})
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path} is no result: {error}") from error


def describe_split(split: Split) -> dict[str, Any]:
    """Setting, rule, seed and sizes of a split."""
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


def describe_model(model: nn.Module) -> dict[str, Any]:
    """Name, settings, number and hash of the parameters of a model: what several results of one model have in common."""
    return {
        "name": type(model).__name__,
        "settings": model.settings if isinstance(model, GraphModel) else {},
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "fingerprint": fingerprint(model.state_dict().values()),
    }


def describe_environment(device: torch.device | str = "cpu") -> dict[str, str]:
    """Versions, code, machine and threads: with others of them roundings differ, and training takes another course."""
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
    """A hash of all of the library's code, which a commit changes only if it changes the code."""
    root, digest = Path(__file__).parent, hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(f"{file.relative_to(root)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:12]


# Of the code as it is imported: it may be edited while a long run goes on.
SOURCE = _source_hash()


def _cpu_name() -> str:
    """What a CPU calls itself, and the instructions that torch uses on it: roundings, and so results, depend on them."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text(encoding="utf-8").splitlines() if known.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    name = next(names, "") or platform.processor() or platform.machine()
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"
