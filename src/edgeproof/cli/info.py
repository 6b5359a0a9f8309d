"""``edgeproof info``."""

from __future__ import annotations

from rich.table import Table

from edgeproof.cli._printing import print_table


def info() -> None:
    """Show versions, devices, and the kernel backends that this machine can use.

    Example: [bold]edgeproof info[/]
    """
    import torch

    from edgeproof.evaluation.result import describe_environment
    from edgeproof.kernels.dispatch import BACKENDS

    device = "cuda" if torch.cuda.is_available() else "cpu"
    environment = Table(title="This machine", show_header=False)
    for name, value in describe_environment(device).items():
        environment.add_row(name, value)
    kernels = Table("backend", "usable", "devices and operations", title="Kernel backends, fastest first")
    for backend in BACKENDS:
        reasons = backend.not_supported_reasons([])
        kernels.add_row(backend.name, "no: " + "; ".join(reasons) if reasons else "yes", backend.summary)
    print_table(environment)
    print_table(kernels)
