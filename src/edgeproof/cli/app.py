"""The verbs, and what happens when one of them fails."""

from __future__ import annotations

import sys
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.markup import escape

from edgeproof._version import __version__
from edgeproof.cli import attack, certify, datasets, demo, evaluate, info, report, reproduce, results, sweep, train
from edgeproof.cli._printing import warn_in_one_line
from edgeproof.experiments.engines import JobFailedError

_FAILURES = (torch.OutOfMemoryError, JobFailedError)

app = typer.Typer(
    name="edgeproof",
    help="Makes graph neural networks proof against changed edges, and shows how proof they are.",
    epilog="Start with: edgeproof demo",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("train")(train.train)
app.command("attack")(attack.attack)
app.command("evaluate")(evaluate.evaluate)
app.command("certify")(certify.certify)
app.command("report")(report.report)
app.command("reproduce")(reproduce.reproduce)
app.command("sweep")(sweep.sweep)
app.add_typer(results.app)
app.command("datasets")(datasets.datasets)
app.command("info")(info.info)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"edgeproof {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Makes graph neural networks proof against changed edges, and shows how proof they are."""


def main() -> None:
    """Run the command line; what a user can mend is one line on standard error, not a traceback."""
    warn_in_one_line()
    try:
        app()
    except (ValueError, TypeError, OSError, ImportError, FloatingPointError, *_FAILURES) as error:
        Console(stderr=True, highlight=False).print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(1)
