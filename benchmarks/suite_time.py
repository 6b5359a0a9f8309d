"""Run time and memory of the paper's attacks in the standard suite, LR-BCD and PR-BCD, on Citeseer.

    python benchmarks/suite_time.py                  results/benchmarks/suite_time-cpu.json
    python benchmarks/suite_time.py --device cuda    results/benchmarks/suite_time-cuda.json

``python studies/attack_strength.py`` renders the results. Run it alone on the machine.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer
from _runs import write_record

import edgeproof as ep
from edgeproof.attacks import LRBCD, PRBCD

RESULTS = Path(__file__).resolve().parent.parent / "results" / "benchmarks"
EPSILONS = (0.05, 0.1, 0.25)
# Number of steps of the short attack, for memory.
SHORT = 50

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def measure(device: Annotated[str, typer.Option(help="'cpu' or 'cuda'.")] = "cpu") -> None:
    """Measure seconds, phases, and peak memory after 50 and after all steps of each attack."""
    data = ep.datasets.load("citeseer")
    split = ep.splits.inductive(data, 0).to(device)
    graph, nodes = split.test.data, split.test.nodes
    rows = []
    for name in ("GCN", "GPRGNN"):
        model = ep.models.build(name, data.num_features, ep.num_classes(data), seed=0).to(device)
        ep.train(model, split, seed=0, progress=False)
        for attack, local in ((LRBCD(), 0.5), (PRBCD(), None)):
            for epsilon in EPSILONS:
                budget = ep.Budget.from_epsilon(graph, nodes, epsilon, local=local)
                short = type(attack)(steps=SHORT)
                # The first run compiles kernels.
                short(model, graph, nodes, budget)
                memory_short = peak_memory(device, partial(short, model, graph, nodes, budget))
                memory = peak_memory(device, partial(attack, model, graph, nodes, budget))
                start = time.perf_counter()
                result = attack(model, graph, nodes, budget)
                seconds = time.perf_counter() - start
                phases = {phase: spent for phase, spent in result.seconds.items() if phase != "total"}
                projection = phases["projection"] / sum(phases.values())
                rows.append(
                    {
                        "attack": repr(attack),
                        "model": name,
                        "epsilon": epsilon,
                        "seconds": seconds,
                        "phases": phases,
                        "projection_fraction": projection,
                        "peak_gib_50_steps": memory_short,
                        "peak_gib_all_steps": memory,
                    }
                )
                print(
                    f"{type(attack).__name__} {name} epsilon {epsilon}: {seconds:.2f} s, projection {projection:.0%}, "
                    f"peak {memory_short:.3f} GiB after {SHORT} steps, {memory:.3f} GiB after all",
                    flush=True,
                )
    write_record(RESULTS / f"suite_time-{torch.device(device).type}.json", device, rows=rows)


def peak_memory(device: str, call: Callable[[], object]) -> float:
    """Return the peak memory of a call in GiB: of tensors on a GPU, of the whole process so far on a CPU."""
    if torch.device(device).type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        call()
        return torch.cuda.max_memory_allocated() / 2**30
    call()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    app()
