"""``edgeproof reproduce list``."""

from __future__ import annotations

from edgeproof.cli._engines import EngineDevice, Jobs, Threads
from edgeproof.cli._options import DEFAULT_STORE, StoreOption, check_store, parse_device
from edgeproof.cli._printing import print_table
from edgeproof.cli.reproduce._common import Fast


def list_all(
    fast: Fast = False,
    store: StoreOption = DEFAULT_STORE,
    jobs: Jobs = None,
    device: EngineDevice = "cpu",
    threads: Threads = None,
) -> None:
    """List all tables and figures: number of stored and missing results, and the estimated runtime of the missing ones.

    Example: [bold]edgeproof reproduce list --device cuda --jobs 4[/]
    """
    from edgeproof.cli.reproduce._plans import progress_table
    from edgeproof.experiments import Store
    from edgeproof.experiments.engines import LocalEngine

    if store.exists():
        check_store(store)
    engine = LocalEngine(jobs, str(parse_device(device, check_available=False)), threads)
    print_table(progress_table(Store(store), engine, fast=fast))
