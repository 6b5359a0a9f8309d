"""Speed of exact incremental evaluation, and run time of attacks by exact gains, by size of the graph.

    python benchmarks/exact_gains.py                  results/benchmarks/exact_gains-cpu.json
    python benchmarks/exact_gains.py --device cuda    results/benchmarks/exact_gains-cuda.json

Models are untrained, because speed does not depend on the values of parameters; the targets are the labels that they predict.
``python studies/worst_case.py`` renders the results. Run it alone on the machine.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from _runs import write_record

import edgeproof as ep
from edgeproof.attacks import ExactGain
from edgeproof.experiments import DatasetSpec
from edgeproof.experiments.graphs import load_graph
from edgeproof.propagation import EdgeGradientEngine
from edgeproof.propagation.incremental import incremental_evaluator

RESULTS = Path(__file__).resolve().parent.parent / "results" / "benchmarks"
GRAPHS = ("citeseer", "cora_ml", "amazon_photo", "pubmed", "sbm-large", "arxiv-stand-in")
MODELS = ("GCN", "GPRGNN", "GAT")
NUM_CANDIDATES, NUM_FLIPS, TARGETS = 2_000, 20, 0.1

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def measure(
    device: Annotated[str, typer.Option(help="'cpu' or 'cuda'.")] = "cpu",
    dataset: Annotated[list[str] | None, typer.Option(help="Only this graph; repeatable.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = RESULTS,
) -> None:
    """Measure seconds per scanned candidate, and of ExactGain with a budget of 20 flips."""
    rows = []
    for graph in dataset or GRAPHS:
        data = load_graph(DatasetSpec(graph), graph in ("arxiv-stand-in", "csbm")).to(device)
        for name in MODELS:
            rows.append({"graph": graph, "model": name, **measured(name, data)})
            print(rows[-1], flush=True)
    write_record(out / f"exact_gains-{torch.device(device).type}.json", device, rows=rows)


def measured(name: str, data: Any) -> dict[str, Any]:
    """Return the measurements of one model on one graph."""
    device = data.x.device
    generator = torch.Generator().manual_seed(0)
    nodes = (
        torch.randperm(data.num_nodes, generator=generator)[: round(TARGETS * data.num_nodes)].sort().values.to(device)
    )
    model = ep.models.build(name, data.num_features, ep.num_classes(data), seed=0).to(device)
    labels = ep.models.predict(model, data)[nodes].argmax(dim=1)
    evaluator = incremental_evaluator(EdgeGradientEngine(model, data, nodes, labels=labels))
    ends = torch.randint(data.num_nodes, (2, NUM_CANDIDATES), generator=generator).to(device)
    ends[0] = nodes[ends[0] % nodes.numel()]
    ends = ends[:, ends[0] != ends[1]]
    evaluator.scan(ends[:, :64])
    scan = seconds_of(lambda: evaluator.scan(ends), device)
    attack = ExactGain()
    budget = ep.Budget(NUM_FLIPS)
    found = attack(model, data, nodes, budget, labels=labels)
    return {
        "nodes": data.num_nodes,
        "targets": nodes.numel(),
        "evaluator": evaluator.name,
        "candidate_seconds": scan / ends.size(1),
        "attack_seconds": found.seconds["total"],
        "queries": found.queries,
    }


def seconds_of(call: Any, device: torch.device) -> float:
    """Return the run time of a call."""
    start = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    app()
