"""Results on disk, stored under the hash of their identity.

A store is a folder. New results are loose files, one small JSON file each, written atomically, so that several processes can
write at once. :meth:`Store.pack` merges them into packed files: sorted JSON Lines, one file per dataset and kind. Readers use
both forms, and a loose file takes precedence. Damaged entries are reported and ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgeproof._files import write_bytes, write_text
from edgeproof._warnings import EdgeproofWarning, warn
from edgeproof.experiments import analyses, comparisons, measurements, proven, worst_case  # noqa: F401 - registers
from edgeproof.experiments.identity import canonical, key_of
from edgeproof.experiments.schema import check_values
from edgeproof.serialization import json_digest

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no file locks of this kind
    fcntl = None  # type: ignore[assignment]

# Layout of stored records.
SCHEMA = 3
_TYPES: dict[str, Any] = {
    "identity": dict,
    "values": dict,
    "command": str,
    "environment": dict,
    "seconds": (int, float),
    "notes": dict,
}


class StoreWarning(EdgeproofWarning):
    """Warning about an unusable entry of a store."""


@dataclass(frozen=True)
class Record:
    """One result.

    Args:
        identity: All settings that determine the result; see :mod:`edgeproof.experiments.identity`.
        values: The result.
        command: The command that produced it.
        environment: Machine and versions.
        seconds: Run time.
        notes: Further information, such as settings and metrics of a training; not part of the identity.
    """

    identity: dict[str, Any]
    values: dict[str, Any]
    command: str
    environment: dict[str, str]
    seconds: float
    notes: dict[str, Any]

    @property
    def key(self) -> str:
        """The hash of the identity."""
        return key_of(self.identity)

    @property
    def kind(self) -> str:
        """``"training"`` or the kind of measurement."""
        return str(self.identity["kind"])

    @property
    def run(self) -> dict[str, Any]:
        """The ``"run"`` entry of the identity."""
        entries: dict[str, Any] = self.identity["run"]
        return entries

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Record:
        """Check stored content and return its record.

        Raises:
            ValueError: If the content is damaged, or of another version. ``TypeError``, ``KeyError`` and ``AttributeError``
                have the same meaning.
        """
        content = dict(content)
        schema = content.pop("schema", None)
        if schema != SCHEMA:
            raise ValueError(f"expected schema {SCHEMA}, got {schema!r}")
        if content.pop("digest", None) != json_digest(content):
            raise ValueError("its content has changed since it was written")
        record = cls(**content)
        for name, kind in _TYPES.items():
            if not isinstance(getattr(record, name), kind):
                raise TypeError(f"{name} is {getattr(record, name)!r}")
        if not all(isinstance(value, str) for value in record.environment.values()):
            raise TypeError(f"environment is {record.environment!r}")
        if not 0 <= record.seconds < float("inf"):
            raise ValueError(f"seconds are {record.seconds}")
        # Raises for NaN and infinity.
        canonical(record.identity)
        check_values(record.identity, record.values)
        return record

    def content(self) -> dict[str, Any]:
        """Return the serialized record."""
        # Convert as JSON does: keys that are not strings become strings.
        entries = json.loads(json.dumps(asdict(self)))
        return {"schema": SCHEMA, **entries, "digest": json_digest(entries)}


class Store:
    """A folder of results and trained models.

    Args:
        root: The folder; created on the first write.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        # Records of packed files already read, with the state of each file at that time.
        self._packed: dict[Path, tuple[object, dict[str, Record]]] = {}

    def path(self, identity: Mapping[str, Any]) -> Path:
        """Path of the loose file of a result."""
        return self.root / f"{key_of(identity)}.json"

    def packed_path(self, identity: Mapping[str, Any]) -> Path:
        """Path of the packed file of a result: one per dataset and kind."""
        dataset = re.sub(r"[^\w.-]+", "_", str(identity["run"]["dataset"]["name"]))
        return self.root / f"{dataset}-{identity['kind']}.jsonl"

    def model_path(self, identity: Mapping[str, Any]) -> Path:
        """Path of the model trained with this identity."""
        return self.root / "models" / f"{key_of(identity)}.safetensors"

    def checkpoint_path(self, identity: Mapping[str, Any], device: str) -> Path:
        """Path of the checkpoint of an unfinished training, which can only resume on the same kind of device."""
        return self.root / "models" / f"{key_of(identity)}.{device.partition(':')[0]}.checkpoint"

    def counts_path(self, identity: Mapping[str, Any], model: str) -> Path:
        """Path of the class counts of an unfinished certificate.

        Args:
            identity: Identity of the certificate.
            model: Digest of the model.
        """
        return self.root / "models" / f"{key_of(identity)}.{model}.counts"

    def get(self, identity: Mapping[str, Any]) -> Record | None:
        """Return the result with this identity, or None if there is no usable one."""
        # Check the loose file first: packing removes it only after the packed file is complete.
        record = _read_loose(self.path(identity))
        return self._read_packed(self.packed_path(identity)).get(key_of(identity)) if record is None else record

    def put(self, record: Record) -> Path:
        """Write a result as a loose file and return its path."""
        path = self.path(record.identity)
        self.root.mkdir(parents=True, exist_ok=True)
        with self._locked(exclusive=False):
            write_text(path, json.dumps(record.content(), indent=1) + "\n")
        return path

    def records(self) -> Iterator[Record]:
        """Yield all usable results in the order of their keys."""
        found = {record.key: record for record in map(_read_loose, self._loose_paths()) if record is not None}
        for path in sorted(self.root.glob("*.jsonl")):
            found = {**self._read_packed(path), **found}
        return iter([found[key] for key in sorted(found)])

    def pack(self) -> tuple[int, int]:
        """Merge all loose files into packed files. Their content does not depend on the order of writes.

        Damaged loose files are kept and damaged lines of packed files are dropped, both with a warning.

        Returns:
            The number of merged results, and of packed files.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        with self._locked(exclusive=True):
            loose = {path: record for path in self._loose_paths() if (record := _read_loose(path)) is not None}
            groups: dict[Path, dict[str, Record]] = {path: {} for path in self.root.glob("*.jsonl")}
            for path in groups:
                groups[path] = dict(self._read_packed(path))
            for record in loose.values():
                groups.setdefault(self.packed_path(record.identity), {})[record.key] = record
            for path, records in groups.items():
                _write_lines(path, (records[key] for key in sorted(records)))
            for path in loose:
                path.unlink()
        return len(loose), len(groups)

    def files(self) -> list[Path]:
        """Return all files with results."""
        return [*self._loose_paths(), *sorted(self.root.glob("*.jsonl"))]

    def packed_records(self, path: Path) -> list[Record]:
        """Return the usable results of one packed file of this store, in the order of their keys."""
        return list(self._read_packed(path).values())

    def _loose_paths(self) -> list[Path]:
        return sorted(self.root.glob("*.json"))

    def _read_packed(self, path: Path) -> dict[str, Record]:
        """Return the records of a packed file by key, read again only if the file has changed."""
        try:
            status = path.stat()
        except FileNotFoundError:
            return {}
        state = (status.st_ino, status.st_mtime_ns, status.st_size)
        if path not in self._packed or self._packed[path][0] != state:
            self._packed[path] = (state, dict(self._read_lines(path)))
        return self._packed[path][1]

    def _read_lines(self, path: Path) -> Iterator[tuple[str, Record]]:
        for number, line in enumerate(path.read_bytes().splitlines(), start=1):
            where = f"line {number} of {path}"
            record = _parse(line, where)
            if record is None:
                continue
            if self.packed_path(record.identity) == path:
                yield record.key, record
            else:
                _warn_misplaced(where)

    @contextmanager
    def _locked(self, *, exclusive: bool) -> Iterator[None]:
        """Lock packing against concurrent writes; the lock of a killed process is released by the system."""
        if fcntl is None:  # pragma: no cover
            yield
            return
        lock = self.root / "models" / ".lock"
        lock.parent.mkdir(exist_ok=True)
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
            yield


def _write_lines(path: Path, records: Iterable[Record]) -> None:
    lines = [json.dumps(record.content(), sort_keys=True, separators=(",", ":")) for record in records]
    content = "".join(f"{line}\n" for line in lines).encode()
    if path.exists() and path.read_bytes() == content:
        return
    write_bytes(path, content)


def _read_loose(path: Path) -> Record | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        _warn_damaged(str(path), error)
        return None
    record = _parse(content, str(path))
    if record is not None and path.stem != record.key:
        _warn_misplaced(str(path))
        return None
    return record


def _parse(content: bytes, where: str) -> Record | None:
    try:
        return Record.of(json.loads(content))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        _warn_damaged(where, error)
        return None


def _warn_damaged(where: str, error: Exception) -> None:
    reason = f"no entry {error}" if isinstance(error, KeyError) else error
    warn("EP201", f"{where} is damaged and is ignored: {reason}", StoreWarning, stacklevel=4)


def _warn_misplaced(where: str) -> None:
    warn("EP202", f"{where} does not belong to its file name and is ignored", StoreWarning, stacklevel=4)
