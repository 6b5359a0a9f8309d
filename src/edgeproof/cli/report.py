"""``edgeproof report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import edgeproof as ep
from edgeproof._files import check_not_existing, check_outputs
from edgeproof.cli._options import Force
from edgeproof.cli._printing import command_line


def report(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Files written by other commands: results (.json), models, certificates, or folders of them. Files of the "
            "same model are merged; models that differ only in their seed share one line with error bars. Prefix a name "
            "to label a run: robust=runs/robust.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="HTML file of the report.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Title of the report.")] = None,
    force: Force = False,
) -> None:
    """Write an HTML report of saved results, in one file that needs no network.

    It shows the threat model, robust accuracy and the attacks that reach it, misclassified nodes, certificates, learned
    filters, a comparison of the models, and the commands that reproduce all results.

    Example: [bold]edgeproof train --dataset cora_ml --model GPRGNN --out runs/model.safetensors[/], then
    [bold]edgeproof evaluate --model runs/model.safetensors --out runs/evaluation.json[/], then
    [bold]edgeproof report runs --out report.html[/]

    Two models: [bold]edgeproof report regular=runs/regular robust=runs/robust[/]
    """
    from edgeproof.experiments.report_runs import input_files, read_runs
    from edgeproof.report.page import TITLE

    check_outputs([out], input_files(runs))
    check_not_existing([out], force=force)
    parsed = read_runs(runs)
    ep.report.write(parsed, out, title=TITLE if title is None else title, command=command_line())
    size = out.stat().st_size / 1000
    models = f"{len(parsed)} model{'s' if len(parsed) > 1 else ''}"
    print(f"{models}   report: {out} ({size:.0f} kB)")
