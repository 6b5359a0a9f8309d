"""``edgeproof report``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import edgeproof as ep
from edgeproof._files import check_writable
from edgeproof.experiments.report_runs import input_files, read_runs
from edgeproof.report.page import TITLE


def report(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="What the other commands saved: result files (.json), models, certificates, or folders of them. Files about "
            "the same model are put together; models that differ in their seed only become one line with error bars. A name "
            "may stand in front: robust=runs/robust.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Where the page goes.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Of the page.")] = TITLE,
) -> None:
    """Make one page of all results: a file that opens in any browser, without a network.

    It says what was tested against whom, how much accuracy is left in the worst case, which attacks did it, which nodes fell
    and why, what is certified, what the models have learned, how they compare, and how to run all of it again.

    Example: [bold]edgeproof train --dataset cora_ml --model GPRGNN --out runs/model.safetensors[/], then
    [bold]edgeproof evaluate --model runs/model.safetensors --out runs/evaluation.json[/], then
    [bold]edgeproof report runs --out report.html[/]

    Two models: [bold]edgeproof report regular=runs/regular robust=runs/robust[/]
    """
    check_writable(out)
    if out.resolve() in input_files(runs):
        raise ValueError(f"expected another --out than the files to report on, got {out}")
    found = read_runs(runs)
    ep.report.write(found, out, title=title, command=shlex.join(["edgeproof", *sys.argv[1:]]))
    size = out.stat().st_size / 1000
    models = f"{len(found)} model{'s' if len(found) > 1 else ''}"
    Console().print(f"{models}   report: {out} ({size:.0f} kB)", highlight=False, soft_wrap=True, markup=False)
