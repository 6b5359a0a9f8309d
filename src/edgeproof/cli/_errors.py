"""Errors of commands, as one line."""

from __future__ import annotations

import linecache
import os
import sys
import traceback
from pathlib import Path

import edgeproof
from edgeproof.cli._printing import print_error

# Types of errors that the library raises with a message for users.
_USER_ERRORS = (ValueError, TypeError, OSError, ImportError, ArithmeticError, RuntimeError)
_PACKAGE = Path(edgeproof.__file__).parent


def exit_with_error(error: Exception) -> None:
    """Print an error as one line and exit with status 1; raise it if the environment variable ``EDGEPROOF_DEBUG`` is set."""
    if os.environ.get("EDGEPROOF_DEBUG"):
        raise error
    print_error(describe_error(error))
    sys.exit(1)


def describe_error(error: Exception) -> str:
    """Return the message of an error that the library raised; for other errors, also where it occurred.

    >>> print(describe_error(KeyError("rule")))
    KeyError: 'rule'; EDGEPROOF_DEBUG=1 shows the traceback
    """
    text = str(error)
    if text and isinstance(error, _USER_ERRORS) and _is_raised_by_library(error):
        return text
    if isinstance(error, OSError) and error.filename is not None:
        return f"cannot access {os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, MemoryError):
        text = text or "not enough memory"
    name = type(error).__name__
    return f"{name}{f': {text}' if text else ''}{_place(error)}; EDGEPROOF_DEBUG=1 shows the traceback"


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) or not frames:
        # The message of a syntax error has its place.
        return ""
    return f" (in {frames[-1].filename}, line {frames[-1].lineno})"


def _is_raised_by_library(error: Exception) -> bool:
    """Whether the error comes from a ``raise`` statement of the library, not from an operation that failed."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or _PACKAGE not in Path(frames[-1].filename).parents:
        return False
    return linecache.getline(frames[-1].filename, frames[-1].lineno or 0).lstrip().startswith("raise")
