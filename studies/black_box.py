"""Attacks from predictions alone, compared with the suite that uses gradients and with EvA at equal queries.

    python studies/black_box.py                                  write docs/black-box.md from the stored results
    python studies/black_box.py run                              run all cells without a stored result, into results/black_box
    python studies/black_box.py run --device cuda                the same on a GPU
    python studies/black_box.py run --graph csbm --model GCN --epsilon 0.05    one cell
    python studies/black_box.py run --smoke                      one short cell; nothing is stored

Each cell trains a model, evaluates it with the standard suite, hides its gradients, and evaluates it again. EvA then has the
queries that all attacks of the black-box suite had together.
"""

from __future__ import annotations

import datetime
import json
import shlex
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import torch
import typer
from _pages import DOCS, ROOT, table
from torch import Tensor, nn
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.attacks import EvA, QueryGain
from edgeproof.evaluation.result import describe_environment

RESULTS = ROOT / "results" / "black_box"
PAGE = DOCS / "black-box.md"
GRAPHS = ("citeseer", "csbm", "sbm")
MODELS = ("GCN", "GPRGNN")
EPSILONS = (0.05, 0.1)
# Populations of EvA; the lower accuracy counts.
POPULATIONS = (64, 512)

app = typer.Typer(add_completion=False, invoke_without_command=True, pretty_exceptions_enable=False)


class PredictionsOnly(nn.Module):
    """Model whose logits are computed without gradients and without edge weights."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    @torch.no_grad()
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        logits: Tensor = self.model(x, edge_index)
        return logits


def load(graph: str) -> Data:
    """Return a graph: Citeseer, or one of two generated ones."""
    if graph == "csbm":
        return ep.datasets.csbm("homophilous", num_nodes=1000, K=3.0, seed=0)
    if graph == "sbm":
        return ep.datasets.attributed_sbm(2000, 5, homophily=0.8, seed=0)
    return ep.datasets.load(graph)


def measure(
    graph: str, model: str, epsilon: float, device: str, *, max_epochs: int = 3000, effort: str = "standard"
) -> dict[str, Any]:
    """Return accuracies, queries and seconds of the suites and of EvA."""
    data = load(graph)
    split = ep.splits.inductive(data, seed=0).to(device)
    view = split.test
    network = ep.models.build(model, data.num_features, ep.num_classes(data), seed=0).to(device)
    ep.train(network, split, seed=0, max_epochs=max_epochs, progress=False)
    found: dict[str, Any] = {}
    for name, attacked in (("gradients", network), ("predictions", PredictionsOnly(network).eval())):
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ep.evaluation.EvaluationWarning)
            scores = ep.evaluate(attacked, view.data, view.nodes, [epsilon], effort=effort)
        found[name] = {
            "tier": scores.tier,
            "accuracy": scores.accuracy(epsilon),
            "clean": scores.clean_accuracy,
            "seconds": time.perf_counter() - start,
            "queries": sum(row.queries for row in scores.rows),
            "rows": {row.attack: [row.accuracy, row.queries, row.seconds] for row in scores.rows},
            "warnings": list(scores.warnings),
        }
        print(f"{graph}, {model}, {epsilon:g}, {name}: {scores.accuracy(epsilon):.1%}", flush=True)
    budget = ep.Budget.from_epsilon(view.data, view.nodes, epsilon)
    queries = {"suite": found["predictions"]["queries"]}
    alone = QueryGain()(network, view.data, view.nodes, budget)
    queries["QueryGain"] = alone.queries
    found["QueryGain"] = {"accuracy": alone.accuracy, "queries": alone.queries, "seconds": alone.seconds["total"]}
    for name, total in queries.items():
        results = [
            EvA(population=size, generations=max(1, -(-(total - size) // (size - max(1, round(0.1 * size))))))(
                network, view.data, view.nodes, budget
            )
            for size in POPULATIONS
            if size <= total
        ]
        best = min(results, key=lambda result: result.accuracy)
        found[f"EvA, queries of {name}"] = {
            "accuracy": best.accuracy,
            "queries": [result.queries for result in results],
            "accuracies": [result.accuracy for result in results],
        }
        print(f"{graph}, {model}, {epsilon:g}, EvA with {total:,} queries: {best.accuracy:.1%}", flush=True)
    return found


def path_of(graph: str, model: str, epsilon: float) -> Path:
    """Return the file of a cell."""
    return RESULTS / f"{graph}-{model}-{epsilon:g}.json"


def stored() -> dict[tuple[str, str, float], dict[str, Any]]:
    """Return all stored cells."""
    cells = [(graph, model, epsilon) for graph in GRAPHS for model in MODELS for epsilon in EPSILONS]
    return {cell: json.loads(path_of(*cell).read_text(encoding="utf-8")) for cell in cells if path_of(*cell).exists()}


def page(cells: Mapping[tuple[str, str, float], dict[str, Any]]) -> str:
    """Return the page."""
    rows, by_attack = [], []
    for (graph, model, epsilon), cell in cells.items():
        found = cell["results"]
        gradients, predictions = (100 * found[name]["accuracy"] for name in ("gradients", "predictions"))
        rows.append(
            [
                graph,
                model,
                f"{epsilon:g}",
                f"{100 * found['gradients']['clean']:.1f}",
                f"{gradients:.1f}",
                f"{predictions:.1f}",
                f"{predictions - gradients:+.1f}",
                f"{100 * found['EvA, queries of suite']['accuracy']:.1f}",
                f"{found['predictions']['queries']:,}",
                f"{found['predictions']['seconds']:.0f}",
            ]
        )
        by_attack.append(
            [
                graph,
                model,
                f"{epsilon:g}",
                *(f"{100 * found['predictions']['rows'][name][0]:.1f}" for name in _ATTACKS),
                f"{100 * found['EvA, queries of QueryGain']['accuracy']:.1f}",
                f"{found['QueryGain']['queries']:,}",
            ]
        )
    head = ["graph", "model", "ε", "clean", "gradients", "predictions", "difference", "EvA", "queries", "seconds"]
    return PAGE_TEXT.format(
        conclusion=conclusion(cells),
        cells=table(head, rows),
        attacks=table(["graph", "model", "ε", *_ATTACKS, "EvA, same queries", "queries of QueryGain"], by_attack),
        commands="\n".join(dict.fromkeys(_made_by(cell) for cell in cells.values())),
    )


_ATTACKS = ("RandomFlips", "DICE", "QueryGain, greedy", "QueryGain", "transfer", "local search")


def conclusion(cells: Mapping[tuple[str, str, float], dict[str, Any]]) -> str:
    """Return the first sentences of the page."""
    if not cells:
        return "No results are stored."
    found = [cell["results"] for cell in cells.values()]
    gaps = [100 * (each["predictions"]["accuracy"] - each["gradients"]["accuracy"]) for each in found]
    eva = [100 * (each["EvA, queries of suite"]["accuracy"] - each["predictions"]["accuracy"]) for each in found]
    within, below = sum(gap <= 6 + 1e-6 for gap in gaps), sum(gap > 0 for gap in eva)
    total = len(GRAPHS) * len(MODELS) * len(EPSILONS)
    return (
        f"From predictions alone, the black-box suite comes within {max(gaps):.1f} points of the suite that uses gradients and "
        f"exact gains ({fmean(gaps):+.1f} on average; within 6 points in {within} of {len(gaps)} cells). It is stronger than "
        f"EvA with the same number of queries in {below} of {len(eva)} cells, by {fmean(eva):.1f} points on average. Stored: "
        f"{len(cells)} of {total} cells."
    )


def _made_by(cell: Mapping[str, Any]) -> str:
    environment = dict(cell["environment"])
    machine = ", ".join(f"{name} {environment[name]}" for name in ("edgeproof", "torch", "device", "threads"))
    return f"- `{cell['command']}` on {machine}, on {cell['day']} with source {environment['source']}."


PAGE_TEXT = """# Black-box attacks

{conclusion}

Each model is evaluated twice: as it is, with the standard suite, and with its gradients hidden, with the suite for black boxes.
The budget is a fraction ε of the edges at the test nodes, without local budgets; one model per cell, inductive split 0.
Accuracies in percent on the test nodes; *difference* is that of the two suites, and *EvA* the lower accuracy of EvA with a
population of 64 or 512, with as many queries as all attacks of the black-box suite together.

{cells}

Accuracy under each attack of the black-box suite, and EvA with the queries of QueryGain alone:

{attacks}

The attacks are described in [Attacks and evaluation](attacks.md#black-boxes).

## Reproduce

Written by `python studies/black_box.py` from `results/black_box`, computed by

{commands}
"""


@app.callback()
def write(context: typer.Context) -> None:
    """Write docs/black-box.md from the stored results."""
    if context.invoked_subcommand is None:
        PAGE.write_text(page(stored()), encoding="utf-8")
        print(f"wrote {PAGE}")


@app.command()
def run(
    device: Annotated[str, typer.Option(help="'cpu' or 'cuda'.")] = "cpu",
    threads: Annotated[int, typer.Option(help="Number of CPU threads.")] = 1,
    graph: Annotated[list[str], typer.Option(help="Graph; repeatable.")] = list(GRAPHS),  # noqa: B006
    model: Annotated[list[str], typer.Option(help="Model; repeatable.")] = list(MODELS),  # noqa: B006
    epsilon: Annotated[list[float], typer.Option(help="Budget; repeatable.")] = list(EPSILONS),  # noqa: B006
    smoke: Annotated[bool, typer.Option("--smoke", help="Run one short cell and store nothing.")] = False,
) -> None:
    """Run the cells without a stored result."""
    torch.set_num_threads(threads)
    if smoke:
        measure("csbm", "GCN", 0.05, device, max_epochs=20, effort="quick")
        return
    for cell in [(g, m, e) for g in graph for m in model for e in epsilon]:
        if path_of(*cell).exists():
            continue
        results = measure(*cell, device)
        record = {
            "command": f"python studies/{shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])}",
            "day": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "environment": describe_environment(device),
            "results": results,
        }
        RESULTS.mkdir(parents=True, exist_ok=True)
        path_of(*cell).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    app()
