"""The ``edgeproof`` command and its subcommands."""

from __future__ import annotations

from typing import Annotated

import typer

from edgeproof._version import __version__
from edgeproof.cli._lazy import LazyCommand, lazy_app
from edgeproof.cli._printing import print_warnings_in_one_line, replace_unprintable

SUMMARY = "Measure and improve the robustness of graph neural networks to edge perturbations."

COMMANDS = {
    "demo": LazyCommand("edgeproof.cli.demo:demo", "Train, attack and certify four models on a small graph."),
    "train": LazyCommand("edgeproof.cli.train:train", "Train a model, optionally with adversarial training."),
    "attack": LazyCommand("edgeproof.cli.attack:attack", "Attack a model with one attack."),
    "evaluate": LazyCommand("edgeproof.cli.evaluate:evaluate", "Measure robust accuracy with a suite of attacks."),
    "explain": LazyCommand("edgeproof.cli.explain:explain", "Explain which smallest change of edges flips a node."),
    "certify": LazyCommand("edgeproof.cli.certify:certify", "Certify predictions with sparse randomized smoothing."),
    "report": LazyCommand("edgeproof.cli.report:report", "Write an HTML report of saved results."),
    "sweep": LazyCommand("edgeproof.cli.sweep:sweep", "Run a sweep declared in a TOML file."),
    "reproduce": LazyCommand("edgeproof.cli.reproduce:app", "Reproduce the tables and figures of the paper."),
    "results": LazyCommand("edgeproof.cli.results:app", "Show, export and pack stored results."),
    "datasets": LazyCommand("edgeproof.cli.datasets:app", "List the datasets, or describe a graph."),
    "check-model": LazyCommand("edgeproof.cli.check_model:check_model", "Show what attacks can do with a model."),
    "info": LazyCommand("edgeproof.cli.info:info", "Show versions, devices and usable kernels."),
}

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


def run_app() -> None:
    """Run the command line; errors and interrupts are raised."""
    replace_unprintable()
    print_warnings_in_one_line()
    app()
