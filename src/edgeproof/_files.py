"""Atomic file replacement and checks of output paths."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from edgeproof._catalog import DATASETS, GRAPH_FILES


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path, and atomically replace ``path`` by that file on success.

    After a crash, a full disk or a kill, ``path`` still has its previous content.

    Raises:
        OSError: If the file cannot be written, as on a full disk; the message names ``path``.

    >>> target = getfixture("tmp_path") / "note.txt"
    >>> with replacing(target) as temporary:
    ...     _ = temporary.write_text("complete")
    >>> target.read_text()
    'complete'
    """
    path = Path(path)
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        temporary = Path(name)
        os.close(handle)
        yield temporary
        # mkstemp creates files that only the owner can read; use the permissions of an ordinary new file.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        kept = "; the previous file is unchanged" if path.is_file() else ""
        raise OSError(f"cannot write {path}: {error.strerror or error}{kept}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8, atomically."""
    write_bytes(path, text.encode())


def is_graph_file(name: str) -> bool:
    """Whether a dataset is a path: an existing one, or a name with a folder or the ending of a graph file.

    >>> is_graph_file("cora_ml"), is_graph_file("my/graph.csv"), is_graph_file("graph.npz")
    (False, True, True)
    """
    if name in DATASETS:
        return False
    path = Path(name)
    return len(path.parts) > 1 or path.suffix.lower() in GRAPH_FILES or path.exists()


def check_writable(path: Path) -> None:
    """Raise if ``path`` cannot be written; call this before long work."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"expected a file to write, got the folder {path}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error}") from error


def same_file(one: Path, other: Path) -> bool:
    """Whether two paths name one file; links are resolved, and neither path must exist.

    >>> same_file(Path("model.safetensors"), Path("runs/../model.safetensors"))
    True
    """
    try:
        return Path(one).samefile(other)
    except OSError:
        # Unlike Path.resolve, realpath does not raise for links that form a loop.
        return os.path.realpath(one) == os.path.realpath(other)


def check_outputs(outputs: Iterable[Path], inputs: Iterable[Path] = ()) -> None:
    """Raise unless a command can write its output files without changing a file that it reads; call this before long work.

    Args:
        outputs: Files that the command writes.
        inputs: Files that it reads, other than its own checkpoints.

    Raises:
        ValueError: If an output is also an input, two outputs are the same file, or an output cannot be written.

    >>> check_outputs([Path("model.safetensors")], [Path("./model.safetensors")])
    Traceback (most recent call last):
    ...
    ValueError: expected an output file other than model.safetensors, which this command reads
    """
    outputs, inputs = list(outputs), list(inputs)
    for number, path in enumerate(outputs):
        if any(same_file(path, read) for read in inputs):
            raise ValueError(f"expected an output file other than {path}, which this command reads")
        if any(same_file(path, other) for other in outputs[:number]):
            raise ValueError(f"expected different output files, got {path} twice")
    for path in outputs:
        check_writable(path)


def check_not_existing(outputs: Iterable[Path], *, force: bool) -> None:
    """Raise if an output of a command exists, unless ``force``; call this before long work.

    >>> path = getfixture("tmp_path") / "model.safetensors"
    >>> path.touch()
    >>> check_not_existing([path], force=True)
    >>> check_not_existing([path], force=False)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    FileExistsError: .../model.safetensors exists: pass --force to overwrite it, or write to another file
    """
    existing = [str(path) for path in outputs if Path(path).exists()]
    if existing and not force:
        verb, pronoun = ("exists", "it") if len(existing) == 1 else ("exist", "them")
        raise FileExistsError(
            f"{', '.join(existing)} {verb}: pass --force to overwrite {pronoun}, or write to another file"
        )
