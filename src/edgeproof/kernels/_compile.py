"""Compilation by numba, whose cache on disk may be missing, read-only, full or damaged."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numba


class _OptionalCache:
    """Numba's cache of one function. A failure to read or to write it only costs the time to compile the function again.

    Args:
        cache: The cache.
    """

    def __init__(self, cache: Any) -> None:
        self.cache = cache

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return the compiled function; None if it is not in the cache or the cache is damaged."""
        # A damaged pickle raises anything.
        with suppress(Exception):
            return self.cache.load_overload(signature, context)
        return None

    def save_overload(self, signature: Any, compiled_function: Any) -> None:
        """Write the compiled function if possible."""
        with suppress(Exception):
            self.cache.save_overload(signature, compiled_function)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cache, name)


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function on first use, and cache it on disk if there is a writable folder.

    Numba looks for one in ``NUMBA_CACHE_DIR``, beside the source file, and in the user's cache. Without any, as in containers
    with a read-only file system, every process compiles again.

    Args:
        options: Options of ``numba.njit`` other than ``cache``.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(**options)(function)
        # Numba raises if no folder is writable.
        with suppress(RuntimeError, OSError):
            dispatcher.enable_caching()
            dispatcher._cache = _OptionalCache(dispatcher._cache)
        return dispatcher

    return decorate
