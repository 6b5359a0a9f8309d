"""Time and strength of each effort of ``ep.evaluate`` on Citeseer, with a GCN.

    python benchmarks/effort.py                  results/benchmarks/effort-cpu.json
    python benchmarks/effort.py --device cuda    results/benchmarks/effort-cuda.json

Prints the table of ``docs/how-to/evaluate.md``. Its CPU times, with one thread, hardly depend on other work on the machine.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import numba
import torch
import typer
from _runs import write_record

import edgeproof as ep
from edgeproof._catalog import EFFORTS

RESULTS = Path(__file__).resolve().parent.parent / "results" / "benchmarks"
EPSILONS = (0.05, 0.1)
LOCAL = 0.5

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def measure(device: Annotated[str, typer.Option(help="'cpu' or 'cuda'.")] = "cpu") -> None:
    """Evaluate one model with every effort; write times and accuracies, and print them as a table."""
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    data = ep.datasets.load("citeseer")
    split = ep.splits.inductive(data, 0).to(device)
    model = ep.models.build("GCN", data.num_features, ep.num_classes(data), seed=0).to(device)
    ep.train(model, split, seed=0, progress=False)
    graph, nodes = split.test.data, split.test.nodes
    # The first run compiles kernels.
    ep.attacks.LRBCD(steps=5)(model, graph, nodes, ep.Budget.from_epsilon(graph, nodes, 0.05, local=LOCAL))
    rows = []
    for effort in EFFORTS:
        start, cpu_start = time.perf_counter(), time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ep.evaluation.EvaluationWarning)
            scores = ep.evaluate(model, graph, nodes, EPSILONS, effort=effort, local=LOCAL)
        times = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu_start}
        accuracies = {str(epsilon): scores.accuracy(epsilon) for epsilon in EPSILONS}
        rows.append({"effort": effort, **times, "accuracy": accuracies, "clean": scores.clean_accuracy})
        print(f"{effort}: {times}, {accuracies}", flush=True)
    write_record(RESULTS / f"effort-{torch.device(device).type}.json", device, local=LOCAL, rows=rows)
    print(table(rows))


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table.

    >>> row = {"effort": "quick", "cpu_seconds": 6.04, "accuracy": {"0.05": 0.5888}, "clean": 0.7383}
    >>> print(table([row]))
    | effort | CPU time, s | accuracy at ε = 0.05, % |
    |---|---|---|
    | quick | 6 | 58.9 |
    """
    epsilons = list(rows[0]["accuracy"])
    head = ["effort", "CPU time, s", *(f"accuracy at ε = {epsilon}, %" for epsilon in epsilons)]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        accuracies = [f"{100 * row['accuracy'][epsilon]:.1f}" for epsilon in epsilons]
        lines.append([row["effort"], f"{row['cpu_seconds']:.0f}", *accuracies])
    return "\n".join(f"|{'|'.join(line)}|" if line[0] == "---" else f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    app()
