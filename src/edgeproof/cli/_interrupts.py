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


class CommandInterruptedError(Exception):
    """A command was interrupted. The message states what is kept, if anything."""


class _Interrupts:
    """Handler of SIGINT.

    It counts interrupts, because compiled modules may replace KeyboardInterrupt by another exception. During an import it waits
    for the end of the import, because compiled modules may abort the process if they are imported again after an exception; a
    second interrupt ends the process at once.
    """

    def __init__(self) -> None:
        self.count = 0
        self._timer: threading.Timer | None = None
        self._is_repeated = False

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt, or repeat the signal later during an import."""
        is_repeated, self._is_repeated = self._is_repeated, False
        self.count += not is_repeated
        self.cancel()
        if not _is_importing(frame):
            raise KeyboardInterrupt
        if self.count > 1 and not is_repeated:
            os.write(2, b"interrupted\n")
            os._exit(INTERRUPTED)
        self._repeat_later()

    def unraisable(self, event: sys.UnraisableHookArgs, show: Callable[[Any], Any]) -> None:
        """Repeat an interrupt that arrived in a callback, where Python ignores exceptions; print other exceptions."""
        if isinstance(event.exc_value, KeyboardInterrupt):
            self._repeat_later()
        else:
            show(event)

    def _repeat_later(self) -> None:
        self._timer = threading.Timer(_DELAY, self._repeat)
        self._timer.daemon = True
        self._timer.start()

    @property
    def is_pending(self) -> bool:
        """Whether an interrupt will be repeated."""
        return self._timer is not None

    def cancel(self) -> None:
        """Repeat no interrupt."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _repeat(self) -> None:
        self._is_repeated = True
        if hasattr(signal, "pthread_kill"):
            # Unlike interrupt_main, it also ends system calls.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        else:
            _thread.interrupt_main()


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


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
        except CommandInterruptedError as error:
            raise KeyboardInterrupt(*error.args) from error
        except SystemExit as stop:
            # Typer ends with this status, without a message, if the interrupt arrived before the command started.
            if interrupts.is_pending or (interrupts.count and stop.code == INTERRUPTED):
                raise KeyboardInterrupt from stop
            raise
        except Exception as error:
            if interrupts.is_pending or (interrupts.count and not isinstance(error, OSError)):
                raise KeyboardInterrupt from error
            report(error)
    except KeyboardInterrupt as interrupt:
        # A repeated interrupt may still arrive.
        interrupts.cancel()
        if is_main:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        if os.environ.get("EDGEPROOF_DEBUG"):
            raise
        print(str(interrupt) or "interrupted", file=sys.stderr, flush=True)
        sys.exit(INTERRUPTED)
    finally:
        interrupts.cancel()
        sys.unraisablehook = hook
        if is_main:
            signal.signal(signal.SIGINT, handler)
