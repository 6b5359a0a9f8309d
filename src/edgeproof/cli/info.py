"""``edgeproof info``."""

from __future__ import annotations

import torch
from rich.console import Console
from rich.table import Table

from edgeproof.evaluation.result import describe_environment
from edgeproof.kernels.dispatch import BACKENDS


def info() -> None:
    """Show versions, devices, and which kernels this machine can use."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    table = Table(title="This machine", show_header=False)
    for name, value in describe_environment(device).items():
        table.add_row(name, value)
    kernels = Table("kernels", "usable", "for", title="Kernel backends, fastest first")
    for backend in BACKENDS:
        reasons = backend.not_supported_reasons([])
        kernels.add_row(backend.name, "no: " + "; ".join(reasons) if reasons else "yes", backend.summary)
    console = Console()
    console.print(table)
    console.print(kernels)
