"""Files that are either whole or absent."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write to the temporary path given; on success it takes the place of ``path`` in one step.

    A crash, a full disk or a kill leaves the previous file, if any, untouched.

    >>> target = getfixture("tmp_path") / "note.txt"
    >>> with replacing(target) as temporary:
    ...     _ = temporary.write_text("whole")
    >>> target.read_text()
    'whole'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes private files; a result should be as readable as any other file of the user's.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Raise now, rather than after the long work, if ``path`` could not be written."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"expected a file to write, got the folder {path}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error}") from error
