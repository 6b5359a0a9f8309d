"""What an attack on SoftMedianGDC costs: its graph is diffused anew in every step, and every pair of the block is in it.

    python benchmarks/soft_median.py speed [--device cuda]     Citeseer, block 500,000
    python benchmarks/soft_median.py pubmed [--device cuda]    one step on pubmed, with its peak memory; block 10,000

Results go to ``results/benchmarks``.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
import typer
from _runs import write_record
from attack_step import RESULTS, citeseer, measure, peak_memory, targets
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.attacks import Block, sample_block
from edgeproof.propagation import Adjacency, EdgeGradientEngine, Pairs, top_ppr

Rows = list[dict[str, Any]]

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
    model = untrained(data)
    block, flips, flip = some_flips(data, block_size, budget)
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
        "part of that: diffusion of the graph with the block, forwards and backwards": diffusion,
        "part of that: layers over what was diffused, forwards and backwards": layers,
    }
    rows: Rows = []
    for name, part in parts.items():
        found = measure(part, place, steps, warmup=1)
        rows.append({"part": name, "ms": found["ms"], "ms_least": found["ms_least"]})
    table = Table("part", "ms", "least ms", title=f"Citeseer, {block_size:,} pairs, {place}")
    for row in rows:
        table.add_row(row["part"], f"{row['ms']:.0f}", f"{row['ms_least']:.0f}")
    console.print(table)
    write(f"soft-median-{place.type}", place, "citeseer", model, block_size, budget, rows)


@app.command()
def pubmed(
    device: Annotated[str, typer.Option(help="'cpu' or 'cuda'.")] = "cpu",
    block_size: Annotated[int, typer.Option(help="Pairs whose gradient the step asks for.")] = 10_000,
) -> None:
    """Seconds of one PR-BCD step's loss and gradient on a graph too large to be inverted, and the most memory held."""
    place = torch.device(device)
    data = ep.datasets.load("pubmed").to(place)
    nodes, budget = targets(data)
    model = untrained(data)
    block, flips, flip = some_flips(data, block_size, budget)
    engines: list[EdgeGradientEngine] = []

    def ready() -> None:
        engines.append(EdgeGradientEngine(model, data, nodes))

    def step() -> None:
        engines[0](flips, flip).at(block.pairs)

    before = peak_memory(place, reset=True)
    rows: Rows = []
    for name, part in (("engine made ready, once per attack", ready), ("loss, and gradient at the block", step)):
        found = measure(part, place, 1, warmup=0)
        rows.append({"part": name, "s": found["ms"] / 1000, "peak_gib_more": peak_memory(place) - before})
    table = Table("part", "s", "GiB", title=f"pubmed, {block_size:,} pairs, {engines[0].path}, {place}")
    for row in rows:
        table.add_row(row["part"], f"{row['s']:.1f}", f"{row['peak_gib_more']:.2f}")
    console.print(table)
    write(f"soft-median-pubmed-{place.type}", place, "pubmed", model, block_size, budget, rows, path=engines[0].path)


def untrained(data: Data) -> ep.models.SoftMedianGDC:
    model = ep.models.build("SoftMedianGDC", data.num_features, ep.num_classes(data), seed=0)
    assert isinstance(model, ep.models.SoftMedianGDC)
    return model.to(data.x.device).eval()


def some_flips(data: Data, block_size: int, budget: int) -> tuple[Block, Pairs, Tensor]:
    """A block, and as many of its pairs in part in the graph as the budget has flips."""
    device = data.x.device
    block = sample_block(data.num_nodes, block_size, generator=torch.Generator(device).manual_seed(0))
    return block, block.pairs[torch.arange(budget, device=device)], data.x.new_full((budget,), 0.5)


def write(
    name: str, place: torch.device, dataset: str, model: nn.Module, block: int, flips: int, rows: Rows, **more: str
) -> None:
    about = {"dataset": dataset, "model": repr(model), "block": block, "flips": flips, **more}
    write_record(RESULTS / f"{name}.json", place, **about, rows=rows)


def with_block(data: Data, pairs: Pairs) -> Adjacency:
    """The graph with every pair as an edge of weight 0 that needs a gradient, as the engine's autograd path builds it."""
    both = torch.cat([pairs.both, pairs.both.flip(0)], dim=1)
    weight = torch.cat([data.x.new_ones(data.edge_index.size(1)), data.x.new_zeros(both.size(1))]).requires_grad_()
    return Adjacency.from_edge_index(
        torch.cat([data.edge_index, both], dim=1), weight, num_nodes=data.num_nodes, dtype=data.x.dtype
    )


if __name__ == "__main__":
    app()
