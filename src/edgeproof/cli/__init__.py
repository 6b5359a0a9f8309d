"""Command line; one module per command, which imports torch only when it runs."""

from edgeproof.cli._interrupts import run_interruptible

__all__ = ["main"]


def main() -> None:
    """Run the command line; an error or an interrupt is printed as one line on standard error.

    Set the environment variable ``EDGEPROOF_DEBUG`` to see tracebacks.
    """
    run_interruptible(_run, _report)


def _run() -> None:
    # Interrupts during this import are handled, too.
    from edgeproof.cli.app import run_app

    run_app()


def _report(error: Exception) -> None:
    from edgeproof.cli._errors import exit_with_error

    exit_with_error(error)
