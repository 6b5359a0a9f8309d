"""The ``edgeproof`` command: its subcommands, and how errors are printed."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Annotated

import typer

from edgeproof._version import __version__
from edgeproof.cli._lazy import LazyCommand, lazy_app
from edgeproof.cli._printing import print_error, print_warnings_in_one_line

SUMMARY = "Measure and improve the robustness of graph neural networks to edge perturbations."

COMMANDS = {
    "demo": LazyCommand("edgeproof.cli.demo:demo", "Train, attack and certify four models on a small graph."),
    "train": LazyCommand("edgeproof.cli.train:train", "Train a model, optionally with adversarial training."),
    "attack": LazyCommand("edgeproof.cli.attack:attack", "Attack a model with one attack."),
    "evaluate": LazyCommand("edgeproof.cli.evaluate:evaluate", "Measure robust accuracy with a suite of attacks."),
    "certify": LazyCommand("edgeproof.cli.certify:certify", "Certify predictions with sparse randomized smoothing."),
    "report": LazyCommand("edgeproof.cli.report:report", "Write an HTML report of saved results."),
    "sweep": LazyCommand("edgeproof.cli.sweep:sweep", "Run a sweep declared in a TOML file."),
    "reproduce": LazyCommand("edgeproof.cli.reproduce:app", "Reproduce the tables and figures of the paper."),
    "results": LazyCommand("edgeproof.cli.results:app", "Show, export and pack stored results."),
    "datasets": LazyCommand("edgeproof.cli.datasets:app", "List the datasets, or describe a graph."),
    "check-model": LazyCommand("edgeproof.cli.check_model:check_model", "Show what attacks can do with a model."),
    "info": LazyCommand("edgeproof.cli.info:info", "Show versions, devices and usable kernels."),
}

# Errors with a message for users; all others are bugs, or errors in the user's own model.
_USER_ERRORS = (ValueError, TypeError, OSError, ImportError, ArithmeticError, RuntimeError)

app = lazy_app("edgeproof", SUMMARY, COMMANDS, epilog="Start with: edgeproof demo")


def _show_version(requested: bool) -> None:
    if requested:
        print(f"edgeproof {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Measure and improve the robustness of graph neural networks to edge perturbations."""


def main() -> None:
    """Run the command line; an error is printed as one line on standard error.

    Set the environment variable ``EDGEPROOF_DEBUG`` to see tracebacks.
    """
    if threading.current_thread() is threading.main_thread():
        # Shells start background processes with SIGINT ignored, and Python then installs no handler.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    print_warnings_in_one_line()
    try:
        app()
    except Exception as error:
        if os.environ.get("EDGEPROOF_DEBUG"):
            raise
        print_error(str(error) if isinstance(error, _USER_ERRORS) and str(error) else repr(error))
        sys.exit(1)
