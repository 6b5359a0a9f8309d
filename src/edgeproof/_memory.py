"""Free main memory, to reject work that would exhaust it."""

from __future__ import annotations

import math
import os
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")


def free_main_memory() -> float:
    """Return the main memory in bytes that is free or can be freed; infinity if the operating system does not report it."""
    if _MEMINFO.exists():
        for line in _MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
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
