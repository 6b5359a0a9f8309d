"""Every kernel that has a fast version, beside its plain one: milliseconds, and whether they agree.

    python benchmarks/kernels.py run --device cuda    on this machine, into results/benchmarks
    python benchmarks/kernels.py render               docs/kernels.md

Inputs are of two sizes: a step on Citeseer with a block of a million pairs, and one on a random graph of arXiv's size with
three million.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from _runs import get_device, provenance, write_record
from attack_step import arxiv_sized, citeseer
from rich.console import Console
from rich.table import Table
from torch import Tensor

import edgeproof as ep
from edgeproof.attacks import sample_block
from edgeproof.attacks.projections import boxes
from edgeproof.kernels import reference
from edgeproof.kernels.dispatch import BACKENDS, Backend
from edgeproof.propagation import Adjacency

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results" / "benchmarks"
PAGE = HERE.parent / "docs" / "kernels.md"
UNIT = 1 << 36

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
console = Console(width=120)


@dataclass(frozen=True)
class Case:
    """One kernel on one input.

    Args:
        kernel: its name.
        size: of what, in words.
        call: what to do with a backend.
    """

    kernel: str
    size: str
    call: Callable[[Backend], Any]


def cases(device: torch.device) -> Iterator[Case]:
    graphs = {"Citeseer": (citeseer(device), 1_000_000, 6, 2_000)}
    if device.type == "cuda":
        graphs["arXiv-sized"] = (arxiv_sized(device), 3_000_000, 40, 200_000)
    for name, (data, pairs, channels, flips) in graphs.items():
        yield from cases_of(name, Adjacency.from_data(data), pairs, channels, flips)


def cases_of(name: str, graph: Adjacency, pairs: int, channels: int, flips: int) -> Iterator[Case]:
    """All kernels on a graph, with a block of so many pairs, so many classes and so many flips."""
    n, device = graph.num_nodes, graph.weight.device
    generator = torch.Generator(device).manual_seed(0)
    block = sample_block(n, pairs, generator=generator).pairs
    pattern = graph.pattern
    x = torch.randn(n, channels, device=device, generator=generator)
    b, h = torch.randn(2, n, 10 * channels, device=device, generator=generator)
    node = torch.randn(n, device=device, generator=generator)
    values = torch.randn(len(block), device=device, generator=generator)
    total, room = boxes(budget_of(graph, flips // 4), n, len(block), device)
    thresholds = torch.linspace(0, 1, 64, dtype=torch.float64, device=device)
    limit = torch.full((1,), flips / 4, dtype=torch.float64, device=device)
    matrix = (pattern.rowptr, pattern.col)
    of_block = f"{name}, {len(block):,} pairs"
    entries = f"{name}, {pattern.col.numel():,} entries"

    yield Case(
        "spmm",
        f"{entries}, {channels} channels",
        lambda to: to.spmm(*pattern.indices, graph.weight, x, pattern.longest),
    )
    yield Case(
        *("normalize", entries),
        lambda to: to.normalize(*matrix, graph.weight, pattern.diagonal, self_loops=True, longest=pattern.longest),
    )
    # The first steps of an attack have many times as many.
    for size in (flips, 8 * flips, 100 * flips):
        yield insertion(name, graph, min(size, pairs // 2), generator)
    # Of fewer numbers all backends have the plain version.
    width = max(channels, 64)
    calls = [list(torch.randn(10, n, width, device=device, generator=generator)) for _ in range(4)]
    yield Case(
        *("normalized_terms", f"{name}, 10 calls, {width} channels"),
        lambda to: to.normalized_terms(*calls, node),
    )
    yield Case(
        *("gathered_dot", f"{of_block}, {channels} channels"), lambda to: to.gathered_dot(x, x, block.u, block.v)
    )
    yield Case(
        *("pair_scores", f"{of_block}, {10 * channels} channels"),
        lambda to: to.pair_scores(b, h, node, block.u, block.v),
    )
    sample = reference.pair_scores(b, h, node, block.u, block.v)
    threshold = sample.topk(max(1, len(block) // 1000)).values[-1:]

    def found_above(to: Backend) -> Tensor:
        """As the search asks: for a little more than is wanted, since backends add up in different orders."""
        key, _ = to.pairs_above(b, h, node, threshold * (1 - 1e-4), 1 << 26)
        key = key.sort().values
        return key[reference.pair_scores(b, h, node, key // n, key % n) > threshold]

    yield Case("pairs_above", f"{name}, {n * (n - 1) // 2:,} pairs, {10 * channels} channels", found_above)
    yield Case("bracket_threshold", of_block, lambda to: to.bracket_threshold(values, thresholds, limit))
    ends = torch.tensor([[0.5, 0.6], [1.1 * flips, 0.9 * flips]], dtype=torch.float64, device=device)
    yield Case("apply_threshold", of_block, lambda to: to.apply_threshold(values, ends, limit, values.amax(), 1024.0))
    few, many = block.number[::100] + 1, block.number
    yield Case("merge", f"{name}, {few.numel():,} numbers into {many.numel():,}", lambda to: to.merge(few, many))
    weight = torch.rand(n, 64, device=device, generator=generator)
    neighbours = torch.randint(0, n, (n, 64), device=device, generator=generator)
    yield Case(
        *("weighted_median", f"{name}, 64 neighbours, {channels} channels"),
        lambda to: to.weighted_median(x, weight, neighbours),
    )
    yield Case(
        *("take_largest", of_block),
        lambda to: to.take_largest(values[None], block.u, block.v, total, room, UNIT, whole=False),
    )
    yield Case("unrank_pairs", of_block, lambda to: to.unrank_pairs(block.number, n))
    if n <= 5000:
        table = torch.randn(n, n, device=device, generator=generator)
        yield Case("table_at", of_block, lambda to: to.table_at(table, node, block.u, block.v))
    there = values > 2

    def compacted(to: Backend) -> tuple[Tensor, Tensor]:
        kept = block.number.new_zeros(len(block) // 16), values.new_zeros(len(block) // 16)
        to.compact(there, block.number, values, *kept)
        return kept[0] * (kept[1] > 0), kept[1]

    yield Case("compact", of_block, compacted)


def insertion(name: str, graph: Adjacency, flips: int, generator: torch.Generator) -> Case:
    """So many pairs put into a matrix."""
    pattern, pairs = graph.pattern, sample_block(graph.num_nodes, flips, generator=generator).pairs
    flip = torch.rand(len(pairs), device=generator.device, generator=generator)
    matrix = (pattern.rowptr, pattern.col, pattern.key, graph.weight, pattern.diagonal)
    return Case(
        *("insert_pairs", f"{name}, {len(pairs):,} flips"), lambda to: to.insert_pairs(*matrix, pairs.u, pairs.v, flip)
    )


def budget_of(graph: Adjacency, total: int) -> ep.Budget:
    """So many flips in all, and half its degree at each node."""
    return ep.Budget(total, (graph.degree / 2).long())


def milliseconds(call: Callable[[], Any], device: torch.device) -> float:
    """The median of a few calls, after two for what is compiled."""
    times = []
    for _ in range(12):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
    return sorted(times[2:])[len(times[2:]) // 2]


def disagreement(found: Any, expected: Any) -> float:
    """The largest difference between two results, relative to the largest number of the second."""
    if isinstance(expected, Tensor):
        most = float(expected.double().abs().max()) if expected.numel() else 0.0
        return float((found.double() - expected.double()).abs().max()) / (most or 1.0) if expected.numel() else 0.0
    return max(disagreement(one, other) for one, other in zip(found, expected, strict=True))


@app.command()
def run(device: Annotated[str, typer.Option(help="'cpu' or 'cuda'.")] = "cpu") -> None:
    """Time every kernel. Run it alone on the machine."""
    place = get_device(device)
    fast = next(one for one in BACKENDS if not one.not_supported_reasons([torch.zeros(1, device=place)]))
    rows = []
    shown = Table("kernel", "input", "plain, ms", f"{fast.name}, ms", "ratio", "differ by")
    for case in cases(place):
        call = case.call
        differ = disagreement(call(fast), call(reference))
        plain = milliseconds(lambda call=call: call(reference), place)  # type: ignore[misc]
        ours = milliseconds(lambda call=call: call(fast), place)  # type: ignore[misc]
        rows.append({"kernel": case.kernel, "input": case.size, "plain_ms": plain, "ms": ours, "differ": differ})
        shown.add_row(case.kernel, case.size, f"{plain:.3f}", f"{ours:.3f}", f"{plain / ours:.1f}", f"{differ:.0e}")
    console.print(shown)
    write_record(RESULTS / f"kernels-{place.type}.json", place, backend=fast.name, rows=rows)


@app.command()
def render() -> None:
    """Write the page from the results that are there."""
    sections = []
    for path in sorted(RESULTS.glob("kernels-*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        lines = [f"## {record['backend']}", "", provenance(record), ""]
        lines += ["| kernel | input | plain, ms | ours, ms | ratio | differ by |", "|---|---|---:|---:|---:|---:|"]
        for row in record["rows"]:
            ratio = row["plain_ms"] / row["ms"]
            numbers = f"{row['plain_ms']:.3f} | {row['ms']:.3f} | {ratio:.1f} | {row['differ']:.0e}"
            lines.append(f"| `{row['kernel']}` | {row['input']} | {numbers} |")
        sections.append("\n".join([*lines, ""]))
    PAGE.write_text(PAGE_TEXT + "\n".join(sections), encoding="utf-8")
    console.print(f"wrote {PAGE}")


PAGE_TEXT = """# What each kernel brings

Every fast kernel beside the plain one that defines it (`propagation/kernels/reference.py`), on the same input, in the same run:
the median of ten calls, each waited for, so that on a GPU short ones are mostly the host's launches. A ratio near 1 on a CPU is
a kernel that has no version of its own there. *Differ by* is the largest difference, relative to the largest number.

Written by `python benchmarks/kernels.py render` from `results/benchmarks`.

"""


if __name__ == "__main__":
    app()
