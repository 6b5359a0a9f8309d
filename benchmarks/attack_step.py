"""One PR-BCD step (gradient of a block, update, projection, resampling): edgeproof beside PyG's ``PRBCDAttack``.

    python benchmarks/attack_step.py cpu     Citeseer on the CPU: GPRGNN and GCN
    python benchmarks/attack_step.py cuda    Citeseer and an arXiv-sized random graph on the GPU; search over all pairs
    python benchmarks/attack_step.py scaling [--device cuda]    time and memory against nodes, edges, block and K
    python benchmarks/attack_step.py render  write docs/benchmarks.md from the results that are there

Both run in this process on the same graph, weights, targets and block size. The peer's step is its own four methods,
without the monitoring and the extra forward pass of its early stopping; in brackets, with them, as its attack runs by default.
Results go to ``results/benchmarks``.
"""

from __future__ import annotations

import ctypes
import json
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from _runs import made_by, on, write_record
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch_geometric.contrib.nn import PRBCDAttack
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, MessagePassing
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_undirected

import edgeproof as ep
from edgeproof.attacks import Block, project_global, resample, sample_block
from edgeproof.attacks.base import AttackTrace, Target
from edgeproof.attacks.rbcd import Steps, ascend
from edgeproof.propagation import EdgeGradientEngine
from edgeproof.propagation.pairs import num_pairs

RESULTS = Path(__file__).resolve().parent.parent / "results" / "benchmarks"
# How many times as fast as the peer each case was to become.
GOALS = {
    "CPU, Citeseer, GPRGNN": 30,
    "CPU, Citeseer, GCN": 15,
    "GPU, Citeseer, GPRGNN": 12,
    "GPU, Citeseer, GCN": 12,
    "GPU, arXiv-sized, GPRGNN": 45,
}
console = Console(width=140)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class PeerGPRGNN(MessagePassing):  # type: ignore[misc]
    """GPRGNN as a PyG user writes it, with the weights of ours."""

    def __init__(self, model: ep.models.GPRGNN) -> None:
        super().__init__(aggr="add")
        self.mlp, self.gamma = model.mlp, model.gamma

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        h = self.mlp.encode(x)
        edge_index, norm = gcn_norm(edge_index, edge_weight, num_nodes=x.size(0))
        out = self.gamma[0] * h
        for k in range(1, self.gamma.numel()):
            h = self.propagate(edge_index, x=h, norm=norm)
            out = out + self.gamma[k] * h
        return out

    def message(self, x_j: Tensor, norm: Tensor) -> Tensor:
        return norm[:, None] * x_j


class PeerGCN(nn.Module):
    """Two of PyG's convolutions, with the weights of ours."""

    def __init__(self, model: ep.models.GCN) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for weight, bias in zip(model.weights, model.biases, strict=True):
            layer = GCNConv(*weight.shape)
            layer.lin.weight, layer.bias = nn.Parameter(weight.T.contiguous()), bias
            self.layers.append(layer)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        first, second = self.layers
        out: Tensor = second(first(x, edge_index, edge_weight).relu(), edge_index, edge_weight)
        return out


class Ours:
    """PR-BCD's step on the edge-gradient engine."""

    def __init__(self, model: nn.Module, data: Data, nodes: Tensor, budget: int, block_size: int) -> None:
        self.target = Target(model, data, nodes, data.y[nodes])
        self.engine = self.target.engine("tanh_margin")
        self.budget, self.block_size = budget, block_size
        self.lr = 100 * max(1.0, torch.tensor(num_pairs(data.num_nodes) / block_size).log2().item())
        self.lr *= budget / (2 * data.num_nodes)
        self.generator = torch.Generator(data.x.device).manual_seed(0)
        self.block = sample_block(data.num_nodes, block_size, generator=self.generator)

    def run(self, count: int) -> None:
        """So many steps as an attack makes them: on a small graph on a GPU, recorded."""
        steps = Steps(count, "tanh_margin", lambda step: self.lr, greedy=False, block_size=self.block_size)
        trace, budget = AttackTrace(self.target.device), ep.Budget(self.budget)
        self.block = ascend(self.target, self.block, budget, steps, generator=self.generator, trace=trace)

    def step(self, clock: Callable[[str], None]) -> None:
        """One step, in its parts."""
        block = self.block
        gradient = self.engine(*block.flipped)
        clock("forward and backward")
        scores = gradient.at(block.pairs)
        clock("scores")
        flip = project_global(torch.add(block.flip, scores, alpha=self.lr), self.budget)
        clock("update and projection")
        self.block = resample(Block(block.number, block.pairs, flip), self.block_size, generator=self.generator)
        clock("resampling")


class Peer:
    """PyG's own methods, in the order of its attack."""

    def __init__(self, model: nn.Module, data: Data, nodes: Tensor, budget: int, block_size: int) -> None:
        self.data, self.nodes, self.budget = data, nodes, budget
        self.attack = PRBCDAttack(model.eval(), block_size=block_size, loss="tanh_margin", log=False)
        self.attack.device = data.x.device
        self.attack.edge_index = data.edge_index.cpu().clone()
        self.attack.edge_weight = torch.ones(data.edge_index.size(1))
        self.attack.num_nodes = data.num_nodes
        self.attack._prepare(budget)

    def whole_step(self) -> None:
        """As its attack runs it by default: with monitoring, and a forward pass for early stopping."""
        attack = self.attack
        _, gradient = attack._forward_and_gradient(self.data.x, self.data.y, self.nodes)
        attack._update(0, gradient, self.data.x, self.data.y, self.budget, self.nodes)

    def step(self) -> None:
        """What ours does, and nothing else."""
        attack = self.attack
        _, gradient = attack._forward_and_gradient(self.data.x, self.data.y, self.nodes)
        with torch.no_grad():
            weight = attack._update_edge_weights(self.budget, attack.block_edge_weight, 0, gradient)
            attack.block_edge_weight = attack._project(self.budget, weight, attack.coeffs["eps"])
            attack._resample_random_block(self.budget)


def measure(step: Callable[[], None], device: torch.device, steps: int, warmup: int, each: int = 1) -> dict[str, float]:
    """Median milliseconds of a step, and the most memory in GiB that it held (on a CPU: beyond what was held before).

    A call makes ``each`` steps; as many steps are timed in all, after so many for a warm-up.
    """
    for _ in range(warmup // each):
        step()
    before = peak_memory(device, reset=True)
    times = []
    for _ in range(steps // each):
        synchronize(device)
        start = time.perf_counter()
        step()
        synchronize(device)
        times.append(1000 * (time.perf_counter() - start) / each)
    return {"ms": sorted(times)[len(times) // 2], "ms_least": min(times), "gib": peak_memory(device) - before}


def in_turn(
    calls: dict[str, tuple[Callable[[], None], int]], device: torch.device, rounds: int
) -> dict[str, dict[str, float]]:
    """Milliseconds of a step of each, median and least: one call of each in every round, so that all see the same noise.

    Args:
        calls: what to call, and how many steps it makes.
        device: what to wait for.
        rounds: how many, after two for a warm-up.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 2):
        for name, (call, steps) in calls.items():
            synchronize(device)
            start = time.perf_counter()
            call()
            synchronize(device)
            if turn >= 2:
                times[name].append(1000 * (time.perf_counter() - start) / steps)
    return {name: {"ms": sorted(found)[len(found) // 2], "ms_least": min(found)} for name, found in times.items()}


def memory_of(call: Callable[[], None], device: torch.device) -> float:
    """The most GiB that a call held, after one for a warm-up; on a CPU, beyond what was held before."""
    call()
    before = peak_memory(device, reset=True)
    call()
    return peak_memory(device) - before


def phases(ours: Ours, device: torch.device, steps: int) -> dict[str, float]:
    """Mean milliseconds of each part of our step; waiting for the GPU after each part makes the sum larger than a step."""
    total: dict[str, float] = {}
    for _ in range(3):
        # What is compiled or recorded in the first steps is no part of a step.
        ours.step(lambda phase: None)
    for _ in range(steps):
        synchronize(device)
        last = time.perf_counter()

        def clock(phase: str) -> None:
            nonlocal last
            synchronize(device)
            now = time.perf_counter()
            total[phase] = total.get(phase, 0.0) + 1000 * (now - last) / steps
            last = now

        ours.step(clock)
    return total


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory(device: torch.device, *, reset: bool = False) -> float:
    """The most GiB that were held since the last reset; a reset gives what is held now, on a GPU nothing."""
    if device.type == "cuda":
        if reset:
            torch.cuda.reset_peak_memory_stats(device)
            return 0.0
        return torch.cuda.max_memory_allocated(device) / 2**30
    try:
        if reset:
            # What was freed but not given back would hide what is asked for again.
            ctypes.CDLL(None).malloc_trim(0)
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except (OSError, AttributeError):
        # Beside Linux there is only a peak that never falls.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    if not Path("/proc/self/status").exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    (held,) = (line.split()[1] for line in lines if line.startswith("VmRSS:" if reset else "VmHWM:"))
    return int(held) / 2**20


def bandwidth(device: torch.device) -> float:
    """GB/s of a large copy, counting bytes read and written."""
    size = 2**28 if device.type == "cuda" else 2**25
    source = torch.rand(size, device=device)
    target = torch.empty_like(source)
    best = 0.0
    for _ in range(5):
        synchronize(device)
        start = time.perf_counter()
        target.copy_(source)
        synchronize(device)
        best = max(best, 8 * size / (time.perf_counter() - start) / 1e9)
    return best


def floor_ms(engine: EdgeGradientEngine, block_size: int, K: int, gbps: float) -> float:
    """Milliseconds to move once what a step must move.

    What every node said, heard and was blamed for in each of K propagations, written and read; column and weight of every
    entry in each of K forward and K backward products; number, ends, weight, score and new weight of every pair of the block.
    """
    channels = sum(score.b.size(1) for score in engine().scores)
    nodes, entries = engine.num_nodes, engine.adjacency.pattern.col.numel()
    return (16 * nodes * channels + 2 * K * 12 * entries + 36 * block_size) / gbps / 1e6


def citeseer(device: torch.device) -> Data:
    return ep.datasets.load("citeseer").to(device)


def arxiv_sized(device: torch.device, nodes: int = 169_343, edges: int = 1_240_000) -> Data:
    """A uniform random graph with the size of ogbn-arxiv; random features and labels."""
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randint(0, nodes, (2, edges), generator=generator)
    pairs = pairs[:, pairs[0] != pairs[1]]
    return Data(
        x=torch.randn(nodes, 128, generator=generator),
        edge_index=to_undirected(pairs, num_nodes=nodes),
        y=torch.randint(0, 40, (nodes,), generator=generator),
    ).to(device)


def targets(data: Data) -> tuple[Tensor, int]:
    """A tenth of the nodes, and a tenth of the edges at them as budget."""
    nodes = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(0))[: data.num_nodes // 10]
    nodes = nodes.to(data.x.device)
    touched = torch.isin(data.edge_index, nodes).any(dim=0)
    return nodes, round(0.1 * int(touched.sum()) / 2)


def trained(name: str, data: Data, settings: dict[str, Any] | None = None) -> nn.Module:
    """A model after a hundred epochs of regular training: an untrained one has gradients of no realistic size."""
    split = ep.splits.inductive(data, 0)
    model = ep.models.build(name, data.num_features, ep.num_classes(data), settings, seed=0).to(data.x.device)
    ep.train(model, split, max_epochs=100, seed=0, progress=False)
    return model


def compare(name: str, data: Data, model: nn.Module, peer: nn.Module, block_size: int, steps: int) -> dict[str, Any]:
    device = data.x.device
    nodes, budget = targets(data)
    model = model.to(device).eval()
    each = 10 if device.type == "cpu" else 100
    # What one holds must not count for the other, so there is first one of them alone, then both.
    own = Ours(model, data, nodes, budget, block_size)
    held = {"ours": memory_of(partial(own.run, each), device)}
    parts = {} if own.engine.recordable else phases(own, device, steps)
    del own
    other = Peer(peer.to(device), data, nodes, budget, block_size)
    held |= {"peer": memory_of(other.step, device), "peer_default": memory_of(other.whole_step, device)}
    own = Ours(model, data, nodes, budget, block_size)
    calls = {"ours": (partial(own.run, each), each), "peer": (other.step, 1), "peer_default": (other.whole_step, 1)}
    times = in_turn(calls, device, steps)
    flips = len(own.block.flipped[0])
    ours, theirs, default = ({**times[name], "gib": held[name]} for name in calls)
    return {
        "case": name,
        "block": block_size,
        "budget": budget,
        "flips": flips,
        "ours": ours,
        "peer": theirs,
        "peer_default": default,
        "speedup": theirs["ms"] / ours["ms"],
        "speedup_default": default["ms"] / ours["ms"],
        "memory_ratio": theirs["gib"] / ours["gib"] if ours["gib"] else None,
        "phases_ms": parts,
    }


def search(data: Data, model: nn.Module, k: int, steps: int) -> dict[str, Any]:
    device = data.x.device
    nodes, _ = targets(data)
    gradient = EdgeGradientEngine(model.to(device).eval(), data, nodes)()
    found = measure(lambda: (gradient.top(k), None)[1], device, steps, warmup=1)
    return {"case": "exact top pairs", "k": k, "pairs": num_pairs(data.num_nodes), "ours": found}


def check_agreement(data: Data, model: nn.Module, peer: nn.Module) -> float:
    """Largest difference between our gradient and the peer's autograd on one block, relative to the largest gradient."""
    nodes, budget = targets(data)
    own = Ours(model.to(data.x.device).eval(), data, nodes, budget, 20_000)
    other = Peer(peer.to(data.x.device), data, nodes, budget, 20_000)
    _, theirs = other.attack._forward_and_gradient(data.x, data.y, nodes)
    ours = own.engine().at(other.attack.block_edge_index)
    # The peer starts every weight at its eps of 1e-7 instead of 0.
    return float((ours - theirs).abs().max() / theirs.abs().max())


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(
        "case",
        "block",
        "flips",
        "peer ms (default)",
        "ours ms",
        "speed-up (default)",
        "peer GiB",
        "ours GiB",
        "parts of ours, ms",
    )
    for row in rows:
        if "peer" in row:
            parts = ", ".join(f"{name} {ms:.2f}" for name, ms in row["phases_ms"].items())
            ours, peer = row["ours"], row["peer"]
            table.add_row(
                row["case"],
                f"{row['block']:,}",
                f"{row['flips']:,}",
                f"{peer['ms']:.1f} ({row['peer_default']['ms']:.1f})",
                f"{ours['ms']:.2f}",
                f"{row['speedup']:.1f}x ({row['speedup_default']:.1f}x)",
                f"{peer['gib']:.2f}",
                f"{ours['gib']:.2f}",
                parts,
            )
        elif "k" in row:
            table.add_row(
                f"exact top {row['k']:,} of {row['pairs']:,} pairs", "", "", "", f"{row['ours']['ms']:.1f}", "", "",
                f"{row['ours']['gib']:.2f}", "",
            )  # fmt: skip
    console.print(table)


@app.command()
def cpu(
    steps: Annotated[int, typer.Option(help="Steps of the peer that are timed; ours are ten times as many.")] = 3,
) -> None:
    """Citeseer on the CPU: GPRGNN and GCN, block 500,000."""
    device = torch.device("cpu")
    data = citeseer(device)
    rows = []
    for name, peer in (("GPRGNN", PeerGPRGNN), ("GCN", PeerGCN)):
        model = trained(name, data)
        console.print(f"{name}: gradients agree to {check_agreement(data, model, peer(model)):.1e} of the largest")
        rows.append(compare(f"CPU, Citeseer, {name}", data, model, peer(model), 500_000, steps))
    show(rows)
    write_record(RESULTS / "attack_step-cpu.json", device, rows=rows)


@app.command()
def cuda(
    steps: Annotated[int, typer.Option(help="Steps of the peer that are timed; ours are a hundred times as many.")] = 5,
) -> None:
    """Citeseer (block 500,000) and an arXiv-sized graph (block 3,000,000) on the GPU; exact search over all pairs."""
    device = on("cuda")
    rows = []
    data = citeseer(device)
    for name, peer in (("GPRGNN", PeerGPRGNN), ("GCN", PeerGCN)):
        model = trained(name, data)
        console.print(f"{name}: gradients agree to {check_agreement(data, model, peer(model)):.1e} of the largest")
        rows.append(compare(f"GPU, Citeseer, {name}", data, model, peer(model), 500_000, steps))
    show(rows)
    data = arxiv_sized(device)
    model = trained("GPRGNN", data, {"hidden_channels": 256})
    rows.append(search(data, model, 68_000, steps))
    rows.append(compare("GPU, arXiv-sized, GPRGNN", data, model, PeerGPRGNN(model), 3_000_000, steps))
    data = ep.datasets.arxiv_stand_in().to(device)
    model = trained("GPRGNN", data, {"hidden_channels": 256})
    rows.append(compare("GPU, arXiv stand-in, GPRGNN", data, model, PeerGPRGNN(model), 3_000_000, steps))
    show(rows)
    write_record(RESULTS / "attack_step-cuda.json", device, rows=rows)


@app.command()
def scaling(device: Annotated[str, typer.Option(help="'cpu' or 'cuda'.")] = "cpu") -> None:
    """How a step grows with nodes, edges, block and K, beside the time to move its data once."""
    place = on(device)
    small = place.type == "cpu"
    base = {"nodes": 10_000 if small else 100_000, "edges": 50_000 if small else 1_000_000}
    base |= {"block": 250_000 if small else 2_000_000, "K": 10}
    gbps = bandwidth(place)
    rows = []
    table = Table("nodes", "edges", "block", "K", "ms", "GiB", "floor ms", title=f"One step, {gbps:.0f} GB/s")
    variants = [base, *({**base, key: factor * base[key]} for key in base for factor in (2, 4))]
    for sizes in variants:
        data = arxiv_sized(place, sizes["nodes"], sizes["edges"])
        model = trained("GPRGNN", data, {"K": sizes["K"]})
        nodes, budget = targets(data)
        ours = Ours(model, data, nodes, budget, sizes["block"])
        found = measure(partial(ours.run, 30), place, 90, warmup=30, each=30)
        least = floor_ms(ours.engine, sizes["block"], sizes["K"], gbps)
        rows.append({**sizes, "ours": found, "floor_ms": least, "gbps": gbps})
        table.add_row(
            *(f"{sizes[key]:,}" for key in base), f"{found['ms']:.2f}", f"{found['gib']:.2f}", f"{least:.2f}"
        )  # fmt: skip
        del ours, data
    console.print(table)
    write_record(RESULTS / f"attack_step_scaling-{place.type}.json", place, rows=rows)


@app.command()
def render() -> None:
    """Write docs/benchmarks.md from the results that are there."""
    records = {
        path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("attack_step*.json"))
    }
    sections = []
    for name, record in records.items():
        lines = [f"## {name}", "", made_by(record), ""]
        table = scaling_lines(record["rows"]) if "scaling" in name else comparison_lines(record["rows"])
        sections.append("\n".join([*lines, *table, ""]))
    PAGE.write_text(PAGE_TEXT + "\n".join(sections), encoding="utf-8")
    console.print(f"wrote {PAGE}")


def comparison_lines(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| case | block | flips | peer, ms | by default | ours, ms | speed-up | by default | goal | peer, GiB | ours, GiB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        ours = row["ours"]
        if "k" in row:
            name = f"exact top {row['k']:,} of {row['pairs']:,} pairs"
            lines.append(f"| {name} | | | | | {ours['ms']:.1f} | | | | | {ours['gib']:.2f} |")
            continue
        peer, default = row["peer"], row["peer_default"]
        lines.append(
            f"| {row['case']} | {row['block']:,} | {row['flips']:,} | {peer['ms']:.1f} | {default['ms']:.1f} | "
            f"{ours['ms']:.2f} | {row['speedup']:.1f} | {row['speedup_default']:.1f} | {GOALS.get(row['case'], '')} | "
            f"{peer['gib']:.2f} | {ours['gib']:.2f} |"
        )
    lines += [
        "",
        "Parts of our step, in ms (on a GPU each part is waited for, so they add up to more than a step); steps that are "
        "recorded and replayed as a whole, as on small graphs on a GPU, have none:",
        "",
    ]
    for row in rows:
        if row.get("phases_ms"):
            parts = ", ".join(f"{name} {ms:.2f}" for name, ms in row["phases_ms"].items())
            lines.append(f"- {row['case']}: {parts}.")
    return lines


def scaling_lines(rows: list[dict[str, Any]]) -> list[str]:
    lines = [f"Copy bandwidth measured in the same run: {rows[0]['gbps']:.0f} GB/s.", ""]
    lines += ["| nodes | edges | block | K | ms | GiB | floor, ms |", "|---:|---:|---:|---:|---:|---:|---:|"]
    for row in rows:
        sizes = " | ".join(f"{row[key]:,}" for key in ("nodes", "edges", "block", "K"))
        lines.append(f"| {sizes} | {row['ours']['ms']:.2f} | {row['ours']['gib']:.2f} | {row['floor_ms']:.2f} |")
    return lines


PAGE = RESULTS.parent.parent / "docs" / "benchmarks.md"
PAGE_TEXT = """# One PR-BCD step beside PyG's

A step is: gradient of a block of pairs, update, projection, resampling. *Peer* is PyG's `PRBCDAttack` on PyG layers with the
same weights, targets and block, run in the same process, in turn with ours: its own four methods and nothing else; *by
default* adds its monitoring and the forward pass of its early stopping, as its `attack` runs. *Goal* is the speed-up that was
set when the engine was planned, by times of the peer on another machine with another PyG, several times longer than those
here: where the peer has become faster, so has ours to be. *Flips* are the pairs of non-zero weight after the timed steps.
Memory is the most that a step held on a GPU; on a CPU, what it held beyond the process before it. The *floor* is the time to
move once what a step must move, at the bandwidth measured. The arXiv-sized graph is random (169,343 nodes, about 1.24 million
edges, 40 classes, hidden width 256), as are its labels, so its gradients are of one size and nearly every pair of positive
gradient stays flipped a little: half a block, where real graphs keep a few thousand.

Written by `python benchmarks/attack_step.py render` from `results/benchmarks`.

"""


if __name__ == "__main__":
    app()
