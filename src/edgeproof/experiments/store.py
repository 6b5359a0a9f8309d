"""Results on disk, each named by the hash of everything that determines it.

A result is one small JSON file, written whole or not at all, so several processes may write at once: whoever computes the same
thing writes the same file. A setting that changes changes the name, so an old result is never taken for a new one. A file that
is damaged or was changed, or whose content does not belong to its name, is reported and computed again.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgeproof._files import replacing
from edgeproof.experiments.values import check_values

SCHEMA = 2


class StoreWarning(UserWarning):
    """A file in the store cannot be trusted."""


@dataclass(frozen=True)
class Record:
    """One result.

    Args:
        identity: everything that determines it.
        values: what came out.
        command: what made it.
        environment: machine and versions.
        seconds: how long it took.
        notes: what else is worth knowing, such as how a training went; determines nothing.
    """

    identity: dict[str, Any]
    values: dict[str, Any]
    command: str
    environment: dict[str, str]
    seconds: float
    notes: dict[str, Any]

    @property
    def key(self) -> str:
        return key_of(self.identity)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Record:
        """From what a file says; raises if it is of another version, or has changed since it was written."""
        content = dict(content)
        if content.pop("schema", None) != SCHEMA:
            raise ValueError("it is stored in another version")
        if content.pop("digest", None) != digest_of(content):
            raise ValueError("its content has changed since it was written")
        return cls(**content)


def key_of(identity: Mapping[str, Any]) -> str:
    """The name of a result: a hash of its identity, however its entries are ordered.

    >>> key_of({"model": "GCN", "seed": 0}) == key_of({"seed": 0, "model": "GCN"})
    True
    >>> key_of({"model": "GCN", "seed": 0}) == key_of({"model": "GCN", "seed": 1})
    False
    """
    return hashlib.sha256(_canonical(identity).encode()).hexdigest()[:20]


class Store:
    """A folder of results, and of the models behind them.

    Args:
        root: the folder; made when something is first put into it.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    def path(self, identity: Mapping[str, Any]) -> Path:
        return self.root / f"{key_of(identity)}.json"

    def model_path(self, identity: Mapping[str, Any]) -> Path:
        """Where the model of this identity is kept."""
        return self.root / "models" / f"{key_of(identity)}.safetensors"

    def checkpoint_path(self, identity: Mapping[str, Any], device: str) -> Path:
        """Where the state of its training is kept until it is finished; on another device it cannot go on."""
        return self.root / "models" / f"{key_of(identity)}.{device.partition(':')[0]}.checkpoint"

    def votes_path(self, identity: Mapping[str, Any], model: str) -> Path:
        """Where votes for a certificate of this model, by its digest, are kept until they are all there."""
        return self.root / "models" / f"{key_of(identity)}.{model}.votes"

    def get(self, identity: Mapping[str, Any]) -> Record | None:
        """The result of this identity; none if there is none that can be trusted."""
        path = self.path(identity)
        if not path.exists():
            return None
        record = _read(path)
        if record is not None and _canonical(record.identity) != _canonical(identity):
            warnings.warn(
                f"{path} is about something else than its name says; it is not used", StoreWarning, stacklevel=2
            )
            return None
        return record

    def put(self, record: Record) -> Path:
        """Keep a result."""
        path = self.path(record.identity)
        with replacing(path) as temporary:
            # As it will be read: names of entries that are no text become such.
            content = json.loads(json.dumps(asdict(record)))
            whole = {"schema": SCHEMA, **content, "digest": digest_of(content)}
            temporary.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
        return path

    def records(self) -> Iterator[Record]:
        """All results that can be trusted, in the order of their names."""
        for path in sorted(self.root.glob("*.json")):
            record = _read(path)
            if record is None:
                continue
            if path.stem != record.key:
                warnings.warn(
                    f"{path} is about something else than its name says; it is not used", StoreWarning, stacklevel=2
                )
                continue
            yield record


def _read(path: Path) -> Record | None:
    try:
        record = Record.of(json.loads(path.read_text(encoding="utf-8")))
        types: dict[str, Any] = {
            "identity": dict,
            "values": dict,
            "command": str,
            "environment": dict,
            "seconds": (int, float),
            "notes": dict,
        }
        for name, kind in types.items():
            if not isinstance(getattr(record, name), kind):
                raise TypeError(f"{name} is {getattr(record, name)!r}")
        if not all(isinstance(value, str) for value in record.environment.values()):
            raise TypeError(f"environment is {record.environment!r}")
        if not 0 <= record.seconds < float("inf"):
            raise ValueError(f"seconds are {record.seconds}")
        # Raises for numbers in it that are none.
        _canonical(record.identity)
        check_values(record.identity, record.values)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        reason = f"there is no {error}" if isinstance(error, KeyError) else error
        warnings.warn(f"{path} is damaged and is not used: {reason}", StoreWarning, stacklevel=3)
        return None
    return record


def digest_of(content: Mapping[str, Any]) -> str:
    """A hash of all that a file says."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _canonical(identity: Mapping[str, Any]) -> str:
    return json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
