"""Ctrl-C at any time, imports included: one line on standard error, and exit status 130. Imports nothing that takes time."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

# Exit status of interrupted commands, as in shells.
INTERRUPTED = 130
# Seconds until an interrupt is repeated.
_DELAY = 0.01


class _Interrupts:
    """Handler of SIGINT that counts interrupts: compiled modules may replace KeyboardInterrupt by another exception."""

    def __init__(self) -> None:
        self.count = 0

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt."""
        self.count += 1
        raise KeyboardInterrupt

    def unraisable(self, event: sys.UnraisableHookArgs, show: Callable[[Any], Any]) -> None:
        """Repeat an interrupt that arrived in a callback, where Python ignores exceptions; print other exceptions."""
        if isinstance(event.exc_value, KeyboardInterrupt):
            # After the callback.
            threading.Timer(_DELAY, _interrupt_main_thread).start()
        else:
            show(event)


def _interrupt_main_thread() -> None:
    if hasattr(signal, "pthread_kill"):
        # Unlike interrupt_main, it also ends system calls.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()


def run_interruptible(run: Callable[[], None], report: Callable[[Exception], None]) -> None:
    """Run a function; on SIGINT, print one line and exit with status :data:`INTERRUPTED`.

    After an interrupt, an exception other than ``OSError`` counts as its consequence.

    Args:
        run: The function.
        report: Called with other exceptions.
    """
    interrupts, is_main = _Interrupts(), threading.current_thread() is threading.main_thread()
    hook = sys.unraisablehook
    sys.unraisablehook = lambda event: interrupts.unraisable(event, hook)
    # Shells start background processes with SIGINT ignored, and Python then installs no handler.
    handler = signal.signal(signal.SIGINT, interrupts.handle) if is_main else None
    try:
        try:
            run()
        except Exception as error:
            if interrupts.count and not isinstance(error, OSError):
                raise KeyboardInterrupt from error
            report(error)
    except KeyboardInterrupt as interrupt:
        if os.environ.get("EDGEPROOF_DEBUG"):
            raise
        print(str(interrupt) or "interrupted", file=sys.stderr, flush=True)
        sys.exit(INTERRUPTED)
    finally:
        sys.unraisablehook = hook
        if is_main:
            signal.signal(signal.SIGINT, handler)
