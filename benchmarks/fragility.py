"""Run time of the fragility of all 214 test nodes of Citeseer: exact for one flip, greedy up to five.

    python benchmarks/fragility.py                  results/benchmarks/fragility-cpu.json
    python benchmarks/fragility.py --device cuda    results/benchmarks/fragility-cuda.json

Run it alone on the machine. The goal is 20 s on two CPU cores for a GCN.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import torch
import typer
from _runs import get_device, write_record

import edgeproof as ep
from edgeproof.evaluation import Fragility, fragility

RESULTS = Path(__file__).resolve().parent.parent / "results" / "benchmarks"
SCOPES = ("direct", "influence")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def measure(
    device: Annotated[str, typer.Option(help="'cpu' or 'cuda'.")] = "cpu",
    threads: Annotated[int, typer.Option(help="Number of CPU threads.")] = 2,
    model: Annotated[list[str], typer.Option(help="Model; repeatable.")] = ["GCN"],  # noqa: B006
    epochs: Annotated[int, typer.Option(help="Largest number of training epochs.")] = 3000,
    smoke: Annotated[bool, typer.Option("--smoke", help="Use a generated graph and write no file.")] = False,
) -> None:
    """Measure wall-clock and CPU time, and print the histogram of each search."""
    torch.set_num_threads(threads)
    torch_device = get_device(device)
    data = ep.datasets.load("csbm" if smoke else "citeseer")
    split = ep.splits.inductive(data, 0).to(torch_device)
    view, rows = split.test, []
    labels = view.data.y[view.nodes]
    for name in model:
        network = ep.models.build(name, data.num_features, ep.num_classes(data), seed=0).to(torch_device)
        ep.train(network, split, seed=0, max_epochs=epochs, progress=False)
        # The first run compiles kernels.
        fragility(network, view.data, view.nodes[:2], max_flips=1)
        for scope in SCOPES:
            start, cpu_start = time.perf_counter(), time.process_time()
            result = fragility(network, view.data, view.nodes, scope=scope, labels=labels)
            seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
            rows.append({"model": name, "seconds": seconds, "cpu_seconds": cpu_seconds, **_describe(result)})
            print(f"{name}, {scope}: {seconds:.1f} s, {cpu_seconds:.1f} s of CPU time\n{result}", flush=True)
    if not smoke:
        write_record(RESULTS / f"fragility-{torch_device.type}.json", torch_device, rows=rows)


def _describe(result: Fragility) -> dict[str, object]:
    one_flip = sum(entry.at_least >= 2 or (entry.exact and entry.flips.size(1) <= 1) for entry in result.nodes)
    return {"nodes": len(result.nodes), "exact_for_one_flip": one_flip, **result.summary()}


if __name__ == "__main__":
    app()
