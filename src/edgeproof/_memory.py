"""Free main memory and limits of declared sizes, to reject work and files that would exhaust the memory."""

from __future__ import annotations

import math
import os
from pathlib import Path

# Compressed data may declare at most this many times the size of its file; smaller data is never rejected.
MAX_EXPANSION = 200
_SMALL = 1 << 28


def free_main_memory(root: Path = Path("/")) -> float:
    """Return the main memory in bytes that this process may still allocate; infinity if nothing limits it.

    The minimum of the free memory of the machine, of the rest that the control group of a container or batch job allows, and of
    the rest that ``ulimit -v`` allows.

    Args:
        root: Folder with ``proc`` and ``sys``.
    """
    return min(_of_machine(root), _of_control_group(root), _of_address_space(root))


def _of_machine(root: Path) -> float:
    try:
        for line in (root / "proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return math.inf


def _of_control_group(root: Path) -> float:
    """Return the limit of the control group minus its use, without its file cache, which can be freed."""
    folder = root / "sys/fs/cgroup"
    # Version 2, then version 1.
    for where, limit, used, cache in (
        (folder, "memory.max", "memory.current", "inactive_file"),
        (folder / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            allowed = (where / limit).read_text(encoding="ascii").strip()
            if not allowed.isdigit():  # "max"
                return math.inf
            rows = (line.split() for line in (where / "memory.stat").read_text(encoding="ascii").splitlines())
            freeable = next((int(row[1]) for row in rows if row[0] == cache), 0)
            return max(0.0, float(int(allowed) - int((where / used).read_text(encoding="ascii")) + freeable))
        except (OSError, ValueError):
            continue
    return math.inf


def _of_address_space(root: Path) -> float:
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit == resource.RLIM_INFINITY:
            return math.inf
        pages = int((root / "proc/self/statm").read_text(encoding="ascii").split()[0])
        return max(0.0, float(limit - pages * resource.getpagesize()))
    except (ImportError, OSError, ValueError):
        return math.inf


def check_fits(num_bytes: float, what: str, available: float | None = None) -> None:
    """Raise if a tensor or array does not fit into main memory.

    Args:
        num_bytes: Its size.
        what: Its name in the error message.
        available: Available bytes. Default: :func:`free_main_memory`.

    Raises:
        ValueError: If it is larger than the available memory.

    >>> check_fits(8e9, "the features", available=1e9)
    Traceback (most recent call last):
    ...
    ValueError: expected the features to fit into 1.0 GB of free memory, got 8.0 GB
    """
    limit = free_main_memory() if available is None else available
    if num_bytes > limit:
        raise ValueError(
            f"expected {what} to fit into {limit / 1e9:.1f} GB of free memory, got {num_bytes / 1e9:.1f} GB"
        )


def check_expansion(num_bytes: float, path: Path, available: float | None = None) -> None:
    """Raise if the declared size of a compressed file exceeds :data:`MAX_EXPANSION` times its own size or the free memory.

    Args:
        num_bytes: Declared size.
        path: File.
        available: Available bytes. Default: :func:`free_main_memory`.

    Raises:
        ValueError: If the declared size is too large.
    """
    size = path.stat().st_size
    if num_bytes > max(_SMALL, MAX_EXPANSION * size):
        raise ValueError(
            f"{path} is rejected: it has {size:,} bytes and declares {num_bytes:,.0f}, over {MAX_EXPANSION} times as many. "
            "Store the data uncompressed, or sparse, if this is intended"
        )
    try:
        check_fits(num_bytes, "its content", available)
    except ValueError as error:
        raise ValueError(f"{path} is rejected: {error}") from error
