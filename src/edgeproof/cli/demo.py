"""``edgeproof demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgeproof.cli._options import Force, Quiet


def demo(
    out: Annotated[Path, typer.Option(help="HTML file of the report.")] = Path("report.html"),
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Train GCN and GPRGNN with and without adversarial training, attack and certify them, and write a report.

    It takes one to three minutes and downloads nothing. The small generated graph is heterophilous (the paper's cSBM: most
    neighbours belong to the other class), so models that average over neighbours fail and models with a learned filter
    succeed. Adversarial training makes the learned filter depend less on edges.

    Example: [bold]edgeproof demo --out report.html[/]
    """
    from edgeproof._files import check_not_existing
    from edgeproof.cli._demo import DemoSettings, run_demo

    check_not_existing([out], force=force)
    run_demo(out, DemoSettings(), progress=not quiet)
