"""One PR-BCD step (gradient of a block, update, projection, resampling) of edgeproof and of PyG's ``PRBCDAttack``.

    python benchmarks/attack_step.py cpu     Citeseer on the CPU: GPRGNN and GCN
    python benchmarks/attack_step.py cuda    Citeseer and an arXiv-sized random graph on the GPU; search over all pairs
    python benchmarks/attack_step.py scaling [--device cuda]    time and memory by nodes, edges, block size and K
    python benchmarks/attack_step.py render  write docs/benchmarks.md from the stored results

Both run in the same process on the same graph, weights, targets and block size. The PyG step calls four methods of
``PRBCDAttack``, without its monitoring and without the forward pass for its early stopping; times in brackets include both, as
the attack runs by default. Results are written to ``results/benchmarks``.
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
from _runs import get_device, provenance, write_record
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
# Target speed-up over PyG of each case.
GOALS = {
    "CPU, Citeseer, GPRGNN": 30,
    "CPU, Citeseer, GCN": 15,
    "GPU, Citeseer, GPRGNN": 12,
    "GPU, Citeseer, GCN": 12,
    "GPU, arXiv-sized, GPRGNN": 45,
}
console = Console(width=140)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class PygGPRGNN(MessagePassing):  # type: ignore[misc]
    """GPRGNN on PyG's ``MessagePassing``, with the weights of a library model."""

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


class PygGCN(nn.Module):
    """Two PyG convolutions with the weights of a library model."""

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


class EdgeproofAttack:
    """PR-BCD step of this library."""

    def __init__(self, model: nn.Module, data: Data, nodes: Tensor, budget: int, block_size: int) -> None:
        self.target = Target(model, data, nodes, data.y[nodes])
        self.engine = self.target.engine("tanh_margin")
        self.budget, self.block_size = budget, block_size
        self.lr = 100 * max(1.0, torch.tensor(num_pairs(data.num_nodes) / block_size).log2().item())
        self.lr *= budget / (2 * data.num_nodes)
        self.generator = torch.Generator(data.x.device).manual_seed(0)
        self.block = sample_block(data.num_nodes, block_size, generator=self.generator)

    def run(self, count: int) -> None:
        """Run ``count`` steps as an attack does: on small graphs on a GPU, as a CUDA graph."""
        steps = Steps(count, "tanh_margin", lambda step: self.lr, greedy=False, block_size=self.block_size)
        trace, budget = AttackTrace(self.target.device), ep.Budget(self.budget)
        self.block = ascend(self.target, self.block, budget, steps, generator=self.generator, trace=trace)

    def step(self, clock: Callable[[str], None]) -> None:
        """Run one step, and call ``clock`` with the name of each phase after it."""
        block = self.block
        gradient = self.engine(*block.flipped)
        clock("forward and backward")
        scores = gradient.at(block.pairs)
        clock("scores")
        flip = project_global(torch.add(block.flip, scores, alpha=self.lr), self.budget)
        clock("update and projection")
        self.block = resample(Block(block.number, block.pairs, flip), self.block_size, generator=self.generator)
        clock("resampling")


class PygAttack:
    """PR-BCD step of PyG, using the methods of ``PRBCDAttack``."""

    def __init__(self, model: nn.Module, data: Data, nodes: Tensor, budget: int, block_size: int) -> None:
        self.data, self.nodes, self.budget = data, nodes, budget
        self.attack = PRBCDAttack(model.eval(), block_size=block_size, loss="tanh_margin", log=False)
        self.attack.device = data.x.device
        self.attack.edge_index = data.edge_index.cpu().clone()
        self.attack.edge_weight = torch.ones(data.edge_index.size(1))
        self.attack.num_nodes = data.num_nodes
        self.attack._prepare(budget)

    def default_step(self) -> None:
        """Run one step with monitoring and the forward pass for early stopping, as the attack does by default."""
        attack = self.attack
        _, gradient = attack._forward_and_gradient(self.data.x, self.data.y, self.nodes)
        attack._update(0, gradient, self.data.x, self.data.y, self.budget, self.nodes)

    def step(self) -> None:
        """Run one step without monitoring and early stopping, as :meth:`EdgeproofAttack.step`."""
        attack = self.attack
        _, gradient = attack._forward_and_gradient(self.data.x, self.data.y, self.nodes)
        with torch.no_grad():
            weight = attack._update_edge_weights(self.budget, attack.block_edge_weight, 0, gradient)
            attack.block_edge_weight = attack._project(self.budget, weight, attack.coeffs["eps"])
            attack._resample_random_block(self.budget)


def measure(step: Callable[[], None], device: torch.device, steps: int, warmup: int, each: int = 1) -> dict[str, float]:
    """Return the median and minimum milliseconds of a step, and its peak memory in GiB (on a CPU: the increase).

    Args:
        step: Function to time; a call runs ``each`` steps.
        device: Device to synchronize.
        steps: Number of timed steps.
        warmup: Number of steps before timing.
        each: Number of steps per call.
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


def measure_interleaved(
    calls: dict[str, tuple[Callable[[], None], int]], device: torch.device, rounds: int
) -> dict[str, dict[str, float]]:
    """Return the median and minimum milliseconds of a step of each function.

    Every round calls each function once, so that background load affects all of them alike.

    Args:
        calls: Functions, each with its number of steps per call.
        device: Device to synchronize.
        rounds: Number of timed rounds, after two rounds of warm-up.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for round_ in range(rounds + 2):
        for name, (call, steps) in calls.items():
            synchronize(device)
            start = time.perf_counter()
            call()
            synchronize(device)
            if round_ >= 2:
                times[name].append(1000 * (time.perf_counter() - start) / steps)
    return {name: {"ms": sorted(each)[len(each) // 2], "ms_least": min(each)} for name, each in times.items()}


def memory_of(call: Callable[[], None], device: torch.device) -> float:
    """Return the peak memory of a call in GiB, after one call of warm-up; on a CPU, the increase."""
    call()
    before = peak_memory(device, reset=True)
    call()
    return peak_memory(device) - before


def phases(ours: EdgeproofAttack, device: torch.device, steps: int) -> dict[str, float]:
    """Return the mean milliseconds of each phase of a step. On a GPU, the sum exceeds a step: each phase is synchronized."""
    total: dict[str, float] = {}
    for _ in range(3):
        # Exclude compilation and CUDA-graph recording.
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
    """Return the peak memory since the last reset in GiB; with ``reset``, the current memory (0 on a GPU)."""
    if device.type == "cuda":
        if reset:
            torch.cuda.reset_peak_memory_stats(device)
            return 0.0
        return torch.cuda.max_memory_allocated(device) / 2**30
    try:
        if reset:
            # Return freed memory to the system: otherwise its reuse would not count.
            ctypes.CDLL(None).malloc_trim(0)
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except (OSError, AttributeError):
        # Only Linux can reset the peak.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    if not Path("/proc/self/status").exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("VmRSS:" if reset else "VmHWM:"))
    return int(kilobytes) / 2**20


def bandwidth(device: torch.device) -> float:
    """Return the bandwidth of a large copy in GB/s, counting bytes read and written."""
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
    """Return a lower bound on the milliseconds of a step: the time to move its data once.

    Counted are each node's input, output and output gradient in each of K propagations, written and read; column and weight
    of every entry in each of K forward and K backward products; and id, ends, weight, score and new weight of every pair of
    the block.
    """
    channels = sum(score.b.size(1) for score in engine().scores)
    nodes, entries = engine.num_nodes, engine.adjacency.pattern.col.numel()
    return (16 * nodes * channels + 2 * K * 12 * entries + 36 * block_size) / gbps / 1e6


def citeseer(device: torch.device) -> Data:
    return ep.datasets.load("citeseer").to(device)


def arxiv_sized(device: torch.device, nodes: int = 169_343, edges: int = 1_240_000) -> Data:
    """Return a uniform random graph of the size of ogbn-arxiv, with random features and labels."""
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randint(0, nodes, (2, edges), generator=generator)
    pairs = pairs[:, pairs[0] != pairs[1]]
    return Data(
        x=torch.randn(nodes, 128, generator=generator),
        edge_index=to_undirected(pairs, num_nodes=nodes),
        y=torch.randint(0, 40, (nodes,), generator=generator),
    ).to(device)


def targets(data: Data) -> tuple[Tensor, int]:
    """Return a tenth of the nodes as targets, and a tenth of their edges as the budget."""
    nodes = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(0))[: data.num_nodes // 10]
    nodes = nodes.to(data.x.device)
    incident = torch.isin(data.edge_index, nodes).any(dim=0)
    return nodes, round(0.1 * int(incident.sum()) / 2)


def train_model(name: str, data: Data, settings: dict[str, Any] | None = None) -> nn.Module:
    """Return a model after 100 epochs of regular training: gradients of an untrained model have unrealistic sizes."""
    split = ep.splits.inductive(data, 0)
    model = ep.models.build(name, data.num_features, ep.num_classes(data), settings, seed=0).to(data.x.device)
    ep.train(model, split, max_epochs=100, seed=0, progress=False)
    return model


def compare(name: str, data: Data, model: nn.Module, peer: nn.Module, block_size: int, steps: int) -> dict[str, Any]:
    """Measure time and memory of a step of this library and of PyG."""
    device = data.x.device
    nodes, budget = targets(data)
    model = model.to(device).eval()
    each = 10 if device.type == "cpu" else 100
    # Measure memory while only one of the two exists.
    ours_attack = EdgeproofAttack(model, data, nodes, budget, block_size)
    memory = {"ours": memory_of(partial(ours_attack.run, each), device)}
    parts = {} if ours_attack.engine.recordable else phases(ours_attack, device, steps)
    del ours_attack
    peer_attack = PygAttack(peer.to(device), data, nodes, budget, block_size)
    memory |= {"peer": memory_of(peer_attack.step, device), "peer_default": memory_of(peer_attack.default_step, device)}
    ours_attack = EdgeproofAttack(model, data, nodes, budget, block_size)
    calls = {
        "ours": (partial(ours_attack.run, each), each),
        "peer": (peer_attack.step, 1),
        "peer_default": (peer_attack.default_step, 1),
    }
    times = measure_interleaved(calls, device, steps)
    flips = len(ours_attack.block.flipped[0])
    ours, theirs, default = ({**times[name], "gib": memory[name]} for name in calls)
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
    """Measure the exact search for the k best of all pairs."""
    device = data.x.device
    nodes, _ = targets(data)
    gradient = EdgeGradientEngine(model.to(device).eval(), data, nodes)()
    measured = measure(lambda: (gradient.top(k), None)[1], device, steps, warmup=1)
    return {"case": "exact top pairs", "k": k, "pairs": num_pairs(data.num_nodes), "ours": measured}


def check_agreement(data: Data, model: nn.Module, peer: nn.Module) -> float:
    """Return the largest difference from PyG's gradient on one block, relative to the largest gradient."""
    nodes, budget = targets(data)
    ours_attack = EdgeproofAttack(model.to(data.x.device).eval(), data, nodes, budget, 20_000)
    peer_attack = PygAttack(peer.to(data.x.device), data, nodes, budget, 20_000)
    _, theirs = peer_attack.attack._forward_and_gradient(data.x, data.y, nodes)
    ours = ours_attack.engine().at(peer_attack.attack.block_edge_index)
    # PyG's initial weights are 1e-7 instead of 0, hence the small difference.
    return float((ours - theirs).abs().max() / theirs.abs().max())


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print the results as a table."""
    table = Table(
        "case",
        "block",
        "flips",
        "PyG ms (default)",
        "edgeproof ms",
        "speed-up (default)",
        "PyG GiB",
        "edgeproof GiB",
        "phases, ms",
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
    steps: Annotated[
        int, typer.Option(help="Number of timed PyG steps; of edgeproof, ten times as many are timed.")
    ] = 3,
) -> None:
    """Citeseer on the CPU: GPRGNN and GCN, block 500,000."""
    device = torch.device("cpu")
    data = citeseer(device)
    rows = []
    for name, peer in (("GPRGNN", PygGPRGNN), ("GCN", PygGCN)):
        model = train_model(name, data)
        console.print(
            f"{name}: largest relative difference of the gradients {check_agreement(data, model, peer(model)):.1e}"
        )
        rows.append(compare(f"CPU, Citeseer, {name}", data, model, peer(model), 500_000, steps))
    print_table(rows)
    write_record(RESULTS / "attack_step-cpu.json", device, rows=rows)


@app.command()
def cuda(
    steps: Annotated[
        int, typer.Option(help="Number of timed PyG steps; of edgeproof, a hundred times as many are timed.")
    ] = 5,
) -> None:
    """Citeseer (block 500,000) and an arXiv-sized graph (block 3,000,000) on the GPU; exact search over all pairs."""
    device = get_device("cuda")
    rows = []
    data = citeseer(device)
    for name, peer in (("GPRGNN", PygGPRGNN), ("GCN", PygGCN)):
        model = train_model(name, data)
        console.print(
            f"{name}: largest relative difference of the gradients {check_agreement(data, model, peer(model)):.1e}"
        )
        rows.append(compare(f"GPU, Citeseer, {name}", data, model, peer(model), 500_000, steps))
    print_table(rows)
    data = arxiv_sized(device)
    model = train_model("GPRGNN", data, {"hidden_channels": 256})
    rows.append(search(data, model, 68_000, steps))
    rows.append(compare("GPU, arXiv-sized, GPRGNN", data, model, PygGPRGNN(model), 3_000_000, steps))
    data = ep.datasets.arxiv_stand_in().to(device)
    model = train_model("GPRGNN", data, {"hidden_channels": 256})
    rows.append(compare("GPU, arXiv stand-in, GPRGNN", data, model, PygGPRGNN(model), 3_000_000, steps))
    print_table(rows)
    write_record(RESULTS / "attack_step-cuda.json", device, rows=rows)


@app.command()
def scaling(device: Annotated[str, typer.Option(help="'cpu' or 'cuda'.")] = "cpu") -> None:
    """Measure a step by nodes, edges, block size and K, with its lower bound from the memory bandwidth."""
    target_device = get_device(device)
    small = target_device.type == "cpu"
    base = {"nodes": 10_000 if small else 100_000, "edges": 50_000 if small else 1_000_000}
    base |= {"block": 250_000 if small else 2_000_000, "K": 10}
    gbps = bandwidth(target_device)
    rows = []
    table = Table("nodes", "edges", "block", "K", "ms", "GiB", "floor ms", title=f"One step, {gbps:.0f} GB/s")
    variants = [base, *({**base, key: factor * base[key]} for key in base for factor in (2, 4))]
    for sizes in variants:
        data = arxiv_sized(target_device, sizes["nodes"], sizes["edges"])
        model = train_model("GPRGNN", data, {"K": sizes["K"]})
        nodes, budget = targets(data)
        ours = EdgeproofAttack(model, data, nodes, budget, sizes["block"])
        measured = measure(partial(ours.run, 30), target_device, 90, warmup=30, each=30)
        floor = floor_ms(ours.engine, sizes["block"], sizes["K"], gbps)
        rows.append({**sizes, "ours": measured, "floor_ms": floor, "gbps": gbps})
        table.add_row(
            *(f"{sizes[key]:,}" for key in base), f"{measured['ms']:.2f}", f"{measured['gib']:.2f}", f"{floor:.2f}"
        )  # fmt: skip
        del ours, data
    console.print(table)
    write_record(RESULTS / f"attack_step_scaling-{target_device.type}.json", target_device, rows=rows)


@app.command()
def render() -> None:
    """Write docs/benchmarks.md from the stored results."""
    records = {
        path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("attack_step*.json"))
    }
    sections = []
    for name, record in records.items():
        lines = [f"## {name}", "", provenance(record), ""]
        table = scaling_lines(record["rows"]) if "scaling" in name else comparison_lines(record["rows"])
        sections.append("\n".join([*lines, *table, ""]))
    PAGE.write_text(PAGE_TEXT + "\n".join(sections), encoding="utf-8")
    console.print(f"wrote {PAGE}")


def comparison_lines(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| case | block | flips | PyG, ms | default | edgeproof, ms | speed-up | default | goal | PyG, GiB | edgeproof, GiB |",
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
        "Phases of a step of edgeproof, in ms. On a GPU each phase is synchronized, so that the sum exceeds a step. Steps that "
        "run as one CUDA graph, as on small graphs on a GPU, have no phases:",
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
PAGE_TEXT = """# Speed of a PR-BCD step compared with PyG

A step is: gradient of a block of pairs, update, projection, resampling. Weights, targets and block size are the same for both.

| column | meaning |
|---|---|
| PyG | the four methods of a step of `PRBCDAttack`, on PyG layers, alternating with edgeproof in one process |
| default | with the monitoring and the forward pass for early stopping of PyG's `attack` |
| goal | target speed-up, set before the implementation from slower PyG times on another machine |
| flips | pairs of non-zero weight after the timed steps |
| GiB | peak memory of a step on a GPU; on a CPU, the increase over the memory of the process before |
| floor | time to move the data of a step once, at the measured bandwidth |

The arXiv-sized graph has random edges and labels (169,343 nodes, about 1.24 million edges, 40 classes, hidden width 256).
Therefore its gradients have similar sizes, and nearly every pair with a positive gradient keeps a small weight: half of a
block, compared with a few thousand pairs on real graphs.

Written by `python benchmarks/attack_step.py render` from `results/benchmarks`.

"""


if __name__ == "__main__":
    app()
