"""Reading arrays of NumPy archives: nothing is unpickled, and declared sizes are checked before memory is allocated."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any

import numpy as np

from edgeproof._memory import check_expansion

Array = np.ndarray[Any, Any]

_DAMAGED = (OSError, EOFError, MemoryError, NotImplementedError, zipfile.BadZipFile, zlib.error)
# Longest header of an array, as in NumPy; headers are parsed as Python literals, which takes time.
_MAX_HEADER = 10_000


def read_arrays(
    path: Path, known: Collection[str], text: Collection[str] = (), available: float | None = None
) -> dict[str, Array]:
    """Read the arrays of an archive.

    Args:
        path: Archive.
        known: Names of arrays to read.
        text: Names of further arrays, which are skipped unless they contain text.
        available: Available memory in bytes. Default: the free main memory.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is no archive or is damaged, has arrays of other names, contains pickled objects, or declares
            arrays that its content or the memory cannot hold.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        archive = zipfile.ZipFile(path)
    except (ValueError, *_DAMAGED) as error:
        raise ValueError(
            f"{path} is not a NumPy archive, or is damaged: {error}; edgeproof.datasets.write_npz writes one"
            + _single_array_hint(path)
        ) from error
    arrays: dict[str, Array] = {}
    with archive:
        entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
        for key in entries:
            # An unknown entry can be a valid one with a corrupted name, so ignoring it could lose labels.
            if key not in known and key not in text:
                raise ValueError(f"{path} is not a graph archive, or is damaged: unknown entry {key!r}")
            # Other methods can declare a huge dictionary.
            if entries[key].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{path} is rejected: expected {key} stored or deflated, got another compression")
        check_expansion(sum(entry.file_size for entry in entries.values()), path, available)
        for key, entry in entries.items():
            try:
                with archive.open(entry) as file:
                    dtype = read_header(file, entry.file_size)
                if key in text and dtype.kind != "U":
                    continue
                if dtype.hasobject:
                    raise ValueError("Python objects are never unpickled")
                with archive.open(entry) as file:
                    arrays[key] = np.lib.format.read_array(file, allow_pickle=False)
            except ValueError as error:
                raise ValueError(
                    f"{path} is rejected: {key} contains pickled objects or is damaged ({error})"
                ) from error
            except (RuntimeError, *_DAMAGED) as error:
                raise ValueError(f"{path} is damaged: could not read {key} ({error})") from error
    return arrays


def read_header(file: IO[bytes], size: int) -> np.dtype[Any]:
    """Return the dtype of an array; raise unless its header declares as many bytes as follow it.

    Args:
        file: Content of an ``.npy`` file.
        size: Its size in bytes.
    """
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"expected version 1 or 2 of the array format, got {version}")
    shape, _, dtype = read(file, max_header_size=_MAX_HEADER)
    declared, found = math.prod(shape) * dtype.itemsize, size - file.tell()
    if declared != found and not dtype.hasobject:
        raise ValueError(f"it declares {declared:,} bytes, but holds {found:,}")
    return dtype


def _single_array_hint(path: Path) -> str:
    with path.open("rb") as file:
        return " (got a single array)" if file.read(6) == b"\x93NUMPY" else ""
