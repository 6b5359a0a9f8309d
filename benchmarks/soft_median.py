"""What an attack on SoftMedianGDC costs: its graph is diffused anew in every step, and every pair of the block is in it.

    python benchmarks/soft_median.py speed [--device cuda]    Citeseer, block 500,000

Results go to ``results/benchmarks``.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import torch
import typer
from attack_step import RESULTS, citeseer, measure, targets
from rich.console import Console
from rich.table import Table
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.attacks import sample_block
from edgeproof.propagation import Adjacency, EdgeGradientEngine, Pairs, top_ppr
from edgeproof.result import describe_environment

console = Console(width=140)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def main() -> None:
    """What an attack on SoftMedianGDC costs."""


@app.command()
def speed(
    device: Annotated[str, typer.Option(help="'cpu' or 'cuda'.")] = "cpu",
    block_size: Annotated[int, typer.Option(help="Pairs whose gradient a step asks for.")] = 500_000,
    steps: Annotated[int, typer.Option(help="How many of each are timed, after one that is not.")] = 5,
) -> None:
    """Milliseconds of one PR-BCD step's loss and gradient, and of its parts."""
    place = torch.device(device)
    data = citeseer(place)
    nodes, budget = targets(data)
    model = ep.models.build("SoftMedianGDC", data.num_features, ep.num_classes(data), seed=0).to(place).eval()
    assert isinstance(model, ep.models.SoftMedianGDC)
    block = sample_block(data.num_nodes, block_size, generator=torch.Generator(place).manual_seed(0))
    # As many pairs in part in the graph as the budget has flips.
    flips = block.pairs[torch.arange(budget, device=place)]
    flip = data.x.new_full((budget,), 0.5)
    engine = EdgeGradientEngine(model, data, nodes)
    slow = EdgeGradientEngine(model, data, nodes, path="autograd")
    assert engine.path == "propagate"
    values, index = top_ppr(engine.adjacency.normalized(self_loops=True), model.alpha, model.k)
    values = values / values.sum(dim=1, keepdim=True)

    def step() -> None:
        engine(flips, flip).at(block.pairs)

    def slow_step() -> None:
        slow(flips, flip).at(block.pairs)

    def diffusion() -> None:
        kept, _ = top_ppr(with_block(data, block.pairs).normalized(self_loops=True), model.alpha, model.k)
        kept.sum().backward()

    def layers() -> None:
        shares = values.clone().requires_grad_()
        logits = model.convolve(model.encode(data.x), shares, index)
        torch.autograd.grad(ep.losses.tanh_margin(logits[nodes], data.y[nodes]), shares)

    parts = {
        "loss, and gradient at the block": step,
        "the same with the block in the graph (autograd)": slow_step,
        "diffusion of the graph with the block, forwards and backwards": diffusion,
        "layers with the diffusion given, forwards and backwards": layers,
    }
    rows: list[dict[str, Any]] = []
    for name, part in parts.items():
        found = measure(part, place, steps, warmup=1)
        rows.append({"part": name, "ms": found["ms"], "ms_least": found["ms_least"]})
    table = Table("part", "ms", "least ms", title=f"Citeseer, {block_size:,} pairs, {place}")
    for row in rows:
        table.add_row(row["part"], f"{row['ms']:.0f}", f"{row['ms_least']:.0f}")
    console.print(table)
    path = RESULTS / f"soft-median-{place.type}.json"
    record = {
        "command": f"python benchmarks/soft_median.py {' '.join(sys.argv[1:])}",
        "environment": describe_environment(place),
        "threads": torch.get_num_threads(),
        "dataset": "citeseer",
        "model": repr(model),
        "block": block_size,
        "flips": budget,
        "rows": rows,
    }
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    console.print(f"wrote {path}")


def with_block(data: Data, pairs: Pairs) -> Adjacency:
    """The graph with every pair as an edge of weight 0 that needs a gradient, as the engine's autograd path builds it."""
    both = torch.cat([pairs.both, pairs.both.flip(0)], dim=1)
    weight = torch.cat([data.x.new_ones(data.edge_index.size(1)), data.x.new_zeros(both.size(1))]).requires_grad_()
    return Adjacency.from_edge_index(
        torch.cat([data.edge_index, both], dim=1), weight, num_nodes=data.num_nodes, dtype=data.x.dtype
    )


if __name__ == "__main__":
    app()
