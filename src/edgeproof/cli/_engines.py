"""Options of the experiment engines: processes on this machine, or a Ray cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from edgeproof._files import check_writable
from edgeproof.cli._options import check_name, complete, parse_device

if TYPE_CHECKING:
    from edgeproof.experiments.engines import Engine

_ENGINES = ("local", "ray")

EngineName = Annotated[
    str,
    typer.Option(
        help="'local' (processes on this machine) or 'ray' (a Ray cluster).", autocompletion=complete(_ENGINES)
    ),
]
Address = Annotated[str | None, typer.Option(help="Ray: address of the cluster, as printed by ray start.")]
Cpus = Annotated[float | None, typer.Option(help="Ray: CPU cores of each task. Default: 1.")]
Gpus = Annotated[float | None, typer.Option(help="Ray: fraction of a GPU of each task, such as 0.1. Default: 0.")]
Jobs = Annotated[
    int | None, typer.Option(help="Local: number of processes. Default: chosen from this machine's cores and memory.")
]
EngineDevice = Annotated[str, typer.Option("--device", help="Local: 'cpu' or 'cuda'; processes share one GPU.")]
Threads = Annotated[int | None, typer.Option(help="Local: CPU threads of each process.")]


class EngineOptions(NamedTuple):
    """Values of the engine options, which :meth:`check` validates before any work."""

    name: str
    address: str | None
    cpus: float | None
    gpus: float | None
    jobs: int | None
    device: str
    threads: int | None

    def check(self) -> None:
        """Raise for invalid values, and for options without effect on the chosen engine."""
        from edgeproof.experiments.engines import LocalEngine

        check_name("engine", self.name, _ENGINES)
        if self.name == "ray":
            if self.device != "cpu":
                raise ValueError(
                    f"expected --gpus, the fraction of a GPU of each task, with --engine ray, got --device {self.device}"
                )
            if self.jobs is not None or self.threads is not None:
                raise ValueError("expected --cpus, the cores of each task, with --engine ray, got --jobs or --threads")
        elif self.address is not None or self.cpus is not None or self.gpus is not None:
            raise ValueError("expected --address, --cpus and --gpus with --engine ray only")
        LocalEngine(self.jobs, "cpu", self.threads)
        parse_device(self.device, check_available=False)

    def estimated_on(self) -> tuple[str, int | None]:
        """Return the device type and number of processes for time estimates; the number is None on a cluster."""
        from edgeproof.experiments.engines import LocalEngine

        if self.name == "ray":
            return ("cuda" if self.gpus else "cpu"), None
        device = str(parse_device(self.device, check_available=False))
        return device, LocalEngine(self.jobs, device).processes

    def build(self, log_dir: Path | None) -> Engine:
        """Return the engine."""
        from edgeproof.experiments.engines import LocalEngine, RayEngine
        from edgeproof.training.tensorboard import check_tensorboard

        if log_dir is not None:
            check_tensorboard()
            check_writable(log_dir / "events")
        if self.name == "ray":
            cpus, gpus = (1 if self.cpus is None else self.cpus), (0 if self.gpus is None else self.gpus)
            return RayEngine(self.address, cpus, gpus, log_dir)
        return LocalEngine(self.jobs, str(parse_device(self.device)), self.threads, log_dir)
