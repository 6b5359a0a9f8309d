"""Run time of one attack step on SoftMedianGDC, which recomputes the diffusion in every step.

    python benchmarks/soft_median.py speed [--device cuda]     Citeseer, block of 500,000 pairs
    python benchmarks/soft_median.py pubmed [--device cuda]    Pubmed, block of 10,000 pairs, with peak memory

Results are written to ``results/benchmarks``.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
import typer
from _runs import get_device, write_record
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
    """Measure the cost of one attack step on SoftMedianGDC."""


@app.command()
def speed(
    device: Annotated[str, typer.Option(help="'cpu' or 'cuda'.")] = "cpu",
    block_size: Annotated[int, typer.Option(help="Number of pairs per step.")] = 500_000,
    steps: Annotated[int, typer.Option(help="Number of timed steps, after one warm-up step.")] = 5,
) -> None:
    """Measure loss and gradient of one PR-BCD step on Citeseer, and their parts, in milliseconds."""
    run_on = get_device(device)
    data = citeseer(run_on)
    nodes, budget = targets(data)
    model = untrained(data)
    block, flips, flip = fractional_flips(data, block_size, budget)
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
        weights = values.clone().requires_grad_()
        logits = model.convolve(model.encode(data.x), weights, index)
        torch.autograd.grad(ep.losses.tanh_margin(logits[nodes], data.y[nodes]), weights)

    parts = {
        "loss, and gradient at the block": step,
        "the same with the block in the graph (autograd)": slow_step,
        "of which diffusion of the graph with the block, forward and backward": diffusion,
        "of which layers over the diffused graph, forward and backward": layers,
    }
    rows: Rows = []
    for name, part in parts.items():
        times = measure(part, run_on, steps, warmup=1)
        rows.append({"part": name, "ms": times["ms"], "ms_least": times["ms_least"]})
    table = Table("part", "ms", "minimum ms", title=f"Citeseer, {block_size:,} pairs, {run_on}")
    for row in rows:
        table.add_row(row["part"], f"{row['ms']:.0f}", f"{row['ms_least']:.0f}")
    console.print(table)
    write(f"soft-median-{run_on.type}", run_on, "citeseer", model, block_size, budget, rows)


@app.command()
def pubmed(
    device: Annotated[str, typer.Option(help="'cpu' or 'cuda'.")] = "cpu",
    block_size: Annotated[int, typer.Option(help="Number of pairs per step.")] = 10_000,
) -> None:
    """Measure time and peak memory of one PR-BCD step on Pubmed, which is too large for a matrix inverse."""
    run_on = get_device(device)
    data = ep.datasets.load("pubmed").to(run_on)
    nodes, budget = targets(data)
    model = untrained(data)
    block, flips, flip = fractional_flips(data, block_size, budget)
    engines: list[EdgeGradientEngine] = []

    def construct() -> None:
        engines.append(EdgeGradientEngine(model, data, nodes))

    def step() -> None:
        engines[0](flips, flip).at(block.pairs)

    before = peak_memory(run_on, reset=True)
    rows: Rows = []
    for name, part in (
        ("construction of the engine, once per attack", construct),
        ("loss, and gradient at the block", step),
    ):
        times = measure(part, run_on, 1, warmup=0)
        rows.append({"part": name, "s": times["ms"] / 1000, "peak_gib_more": peak_memory(run_on) - before})
    table = Table("part", "s", "GiB", title=f"Pubmed, {block_size:,} pairs, {engines[0].path}, {run_on}")
    for row in rows:
        table.add_row(row["part"], f"{row['s']:.1f}", f"{row['peak_gib_more']:.2f}")
    console.print(table)
    write(f"soft-median-pubmed-{run_on.type}", run_on, "pubmed", model, block_size, budget, rows, path=engines[0].path)


def untrained(data: Data) -> ep.models.SoftMedianGDC:
    """Return a model with initial parameters."""
    model = ep.models.build("SoftMedianGDC", data.num_features, ep.num_classes(data), seed=0)
    assert isinstance(model, ep.models.SoftMedianGDC)
    return model.to(data.x.device).eval()


def fractional_flips(data: Data, block_size: int, budget: int) -> tuple[Block, Pairs, Tensor]:
    """Return a block, and ``budget`` of its pairs with flip weight 0.5."""
    device = data.x.device
    block = sample_block(data.num_nodes, block_size, generator=torch.Generator(device).manual_seed(0))
    return block, block.pairs[torch.arange(budget, device=device)], data.x.new_full((budget,), 0.5)


def with_block(data: Data, pairs: Pairs) -> Adjacency:
    """Return the graph with every pair as an edge of weight 0 that requires a gradient, as on the autograd path."""
    both = torch.cat([pairs.both, pairs.both.flip(0)], dim=1)
    weight = torch.cat([data.x.new_ones(data.edge_index.size(1)), data.x.new_zeros(both.size(1))]).requires_grad_()
    return Adjacency.from_edge_index(
        torch.cat([data.edge_index, both], dim=1), weight, num_nodes=data.num_nodes, dtype=data.x.dtype
    )


def write(
    name: str, device: torch.device, dataset: str, model: nn.Module, block: int, flips: int, rows: Rows, **more: str
) -> None:
    """Write the rows and their settings as a JSON record."""
    settings = {"dataset": dataset, "model": repr(model), "block": block, "flips": flips, **more}
    write_record(RESULTS / f"{name}.json", device, **settings, rows=rows)


if __name__ == "__main__":
    app()
