"""Damaged files: reading must reject them, or give the content that was written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from fuzz.files import KINDS, read_content
from fuzz.trial import Violation

Damage = Callable[[bytearray, np.random.Generator], None]


def _position(content: bytearray, random: np.random.Generator) -> int:
    return int(random.integers(len(content)))


def _flip_bit(content: bytearray, random: np.random.Generator) -> None:
    content[_position(content, random)] ^= 1 << int(random.integers(8))


def _set_byte(content: bytearray, random: np.random.Generator) -> None:
    content[_position(content, random)] = int(random.integers(256))


def _zero_run(content: bytearray, random: np.random.Generator) -> None:
    start = _position(content, random)
    stop = min(len(content), start + int(random.integers(1, 512)))
    content[start:stop] = bytes(stop - start)


def _truncate(content: bytearray, random: np.random.Generator) -> None:
    del content[_position(content, random) :]


def _delete_run(content: bytearray, random: np.random.Generator) -> None:
    start = _position(content, random)
    del content[start : start + int(random.integers(1, 64))]


def _insert_run(content: bytearray, random: np.random.Generator) -> None:
    start = _position(content, random)
    content[start:start] = random.bytes(int(random.integers(1, 64)))


def _copy_run(content: bytearray, random: np.random.Generator) -> None:
    start, target = _position(content, random), _position(content, random)
    run = content[start : start + int(random.integers(1, 64))]
    content[target : target + len(run)] = run


DAMAGES: Mapping[str, Damage] = {
    "bit flipped": _flip_bit,
    "byte changed": _set_byte,
    "zeros": _zero_run,
    "truncated": _truncate,
    "bytes deleted": _delete_run,
    "bytes inserted": _insert_run,
    "bytes copied": _copy_run,
}


def damaged_file(random: np.random.Generator, folder: Path) -> str:
    """Damage a random file of a random kind and read it.

    Returns:
        Kind of file and outcome.

    Raises:
        Violation: If the file is read with another content, or reading raises anything but ``ValueError``.
    """
    names, seed = list(KINDS), int(random.integers(1 << 31))
    name = names[int(random.integers(len(names)))]
    damage = list(DAMAGES)[int(random.integers(len(DAMAGES)))]
    path = folder / f"{seed}-file{KINDS[name].suffix}"
    KINDS[name].write(path, seed)
    expected, content = read_content(KINDS[name], path), bytearray(path.read_bytes())
    if expected is None:
        raise Violation(f"{name}: a sound file is rejected")
    DAMAGES[damage](content, random)
    path.write_bytes(content)
    try:
        found = read_content(KINDS[name], path)
    except Exception as error:
        raise Violation(f"{name}, {damage}: {type(error).__name__}: {error}") from error
    if found not in (None, expected):
        raise Violation(f"{name}, {damage}: read with another content")
    return f"{name}: {'rejected' if found is None else 'content unchanged'}"
