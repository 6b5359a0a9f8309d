"""Compare the kernels of the fastest backend with the reference: time and difference.

    python benchmarks/kernels.py run --device cuda    time all kernels, write results/benchmarks/kernels-cuda.json
    python benchmarks/kernels.py render               write docs/kernels.md from the stored results

Inputs have two sizes: an attack step on Citeseer with a block of one million pairs, and one on a random graph of the size of
arXiv with three million.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
import typer
from _runs import get_device, provenance, write_record
from attack_step import arxiv_sized, citeseer
from rich.console import Console
from rich.table import Table
from torch import Tensor

from edgeproof.attacks import sample_block
from edgeproof.kernels import reference
from edgeproof.kernels.dispatch import choose
from edgeproof.propagation import Adjacency, Pairs

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results" / "benchmarks"
PAGE = HERE.parent / "docs" / "kernels.md"
UNIT = 1 << 36

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
console = Console(width=120)


@dataclass(frozen=True)
class Case:
    """Kernel with an input.

    Args:
        kernel: Name of the kernel.
        size: Description of the input.
        call: Function that runs the kernel, given a backend.
    """

    kernel: str
    size: str
    call: Callable[[Any], Any]


def cases(device: torch.device) -> Iterator[Case]:
    graphs = {"Citeseer": (citeseer(device), 1_000_000, 6, 2_000)}
    if device.type == "cuda":
        graphs["arXiv-sized"] = (arxiv_sized(device), 3_000_000, 40, 200_000)
    for name, (data, pairs, channels, flips) in graphs.items():
        yield from cases_of(name, Adjacency.from_data(data), pairs, channels, flips)


def cases_of(name: str, graph: Adjacency, pairs: int, channels: int, flips: int) -> Iterator[Case]:
    """Yield all kernels on a graph.

    Args:
        name: Name of the graph.
        graph: Graph.
        pairs: Size of the block.
        channels: Number of classes.
        flips: Number of flips.
    """
    n, device = graph.num_nodes, graph.weight.device
    generator = torch.Generator(device).manual_seed(0)
    block = sample_block(n, pairs, generator=generator).pairs
    pattern = graph.pattern
    x = torch.randn(n, channels, device=device, generator=generator)
    b, h = torch.randn(2, n, 10 * channels, device=device, generator=generator)
    node = torch.randn(n, device=device, generator=generator)
    values = torch.randn(len(block), device=device, generator=generator)
    total = torch.full((1,), flips // 4 * UNIT, device=device)
    local = (graph.degree / 2).long().clamp(max=flips // 4) * UNIT
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
    # The first steps of an attack insert many more pairs than its flips.
    for size in (flips, 8 * flips, 100 * flips):
        yield insertion(name, graph, min(size, pairs // 2), generator)
    # All backends use the reference for fewer numbers.
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

    def exact_pairs_above(to: Any) -> Tensor:
        """Search with a slightly lower threshold and filter, because backends round differently."""
        key, _ = to.pairs_above(b, h, node, threshold * (1 - 1e-4), 1 << 26)
        key = key.sort().values
        return key[reference.pair_scores(b, h, node, key // n, key % n) > threshold]

    yield Case("pairs_above", f"{name}, {n * (n - 1) // 2:,} pairs, {10 * channels} channels", exact_pairs_above)
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
        lambda to: to.take_largest(values[None], block.u, block.v, total, local, UNIT, whole=False),
    )
    yield Case("unrank_pairs", of_block, lambda to: to.unrank_pairs(block.number, n))
    if n <= 5000:
        table = torch.randn(n, n, device=device, generator=generator)
        yield Case("table_at", of_block, lambda to: to.table_at(table, node, block.u, block.v))
        edges = Pairs.of(torch.stack([pattern.row, pattern.col])[:, pattern.row < pattern.col], n)
        yield Case(
            *("sample_graphs", f"{name}, 16 samples"),
            lambda to: to.sample_graphs(edges.number, edges.u, edges.v, n, 0.001, 0.6, 0, 0, 16)[:3],
        )
    mask = values > 2

    def compacted(to: Any) -> tuple[Tensor, Tensor]:
        index, flip = block.number.new_zeros(len(block) // 16), values.new_zeros(len(block) // 16)
        to.compact(mask, block.number, values, index, flip)
        return index * (flip > 0), flip

    yield Case("compact", of_block, compacted)


def insertion(name: str, graph: Adjacency, flips: int, generator: torch.Generator) -> Case:
    """Return the case that inserts ``flips`` random pairs."""
    pattern, pairs = graph.pattern, sample_block(graph.num_nodes, flips, generator=generator).pairs
    flip = torch.rand(len(pairs), device=generator.device, generator=generator)
    matrix = (pattern.rowptr, pattern.col, pattern.key, graph.weight, pattern.diagonal)
    return Case(
        *("insert_pairs", f"{name}, {len(pairs):,} flips"), lambda to: to.insert_pairs(*matrix, pairs.u, pairs.v, flip)
    )


def milliseconds(call: Callable[[], Any], device: torch.device) -> float:
    """Return the median time of ten calls, after two warm-up calls."""
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


def difference(actual: Any, expected: Any) -> float:
    """Return the largest absolute difference between two results, relative to the largest number of the second."""
    if not isinstance(expected, Tensor):
        return max(difference(*items) for items in zip(actual, expected, strict=True))
    if not expected.numel():
        return 0.0
    largest = float(expected.double().abs().max())
    return float((actual.double() - expected.double()).abs().max()) / (largest or 1.0)


@app.command()
def run(device: Annotated[str, typer.Option(help="'cpu' or 'cuda'.")] = "cpu") -> None:
    """Time every kernel. Run it on an otherwise idle machine."""
    place = get_device(device)
    fast = choose([torch.zeros(1, device=place)])
    rows = []
    table = Table("kernel", "input", "reference, ms", f"{fast.name}, ms", "ratio", "difference")
    for case in cases(place):
        call = case.call
        differ = difference(call(fast), call(reference))
        reference_ms = milliseconds(lambda call=call: call(reference), place)  # type: ignore[misc]
        fast_ms = milliseconds(lambda call=call: call(fast), place)  # type: ignore[misc]
        rows.append(
            {"kernel": case.kernel, "input": case.size, "plain_ms": reference_ms, "ms": fast_ms, "differ": differ}
        )
        table.add_row(
            case.kernel,
            case.size,
            f"{reference_ms:.3f}",
            f"{fast_ms:.3f}",
            f"{reference_ms / fast_ms:.1f}",
            f"{differ:.0e}",
        )
    console.print(table)
    write_record(RESULTS / f"kernels-{place.type}.json", place, backend=fast.name, rows=rows)


@app.command()
def render() -> None:
    """Write the page from the stored results."""
    sections = []
    for path in sorted(RESULTS.glob("kernels-*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        lines = [f"## {record['backend']}", "", provenance(record), ""]
        lines += [
            "| kernel | input | reference, ms | this backend, ms | ratio | difference |",
            "|---|---|---:|---:|---:|---:|",
        ]
        for row in record["rows"]:
            ratio = row["plain_ms"] / row["ms"]
            numbers = f"{row['plain_ms']:.3f} | {row['ms']:.3f} | {ratio:.1f} | {row['differ']:.0e}"
            lines.append(f"| `{row['kernel']}` | {row['input']} | {numbers} |")
        sections.append("\n".join([*lines, ""]))
    PAGE.write_text(PAGE_TEXT.format(summary=summary()) + "\n".join(sections), encoding="utf-8")
    console.print(f"wrote {PAGE}")


def summary() -> str:
    """Return the largest and the median speed-up by backend as a Markdown table."""
    lines = ["| backend | median speed-up | largest speed-up | kernel | largest difference |", "|---|---|---|---|---|"]
    for path in sorted(RESULTS.glob("kernels-*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        ratios = {row["plain_ms"] / row["ms"]: row["kernel"] for row in record["rows"]}
        difference = max(row["differ"] for row in record["rows"])
        lines.append(
            f"| {record['backend']} | {median(ratios):.1f} | {max(ratios):.1f} | `{ratios[max(ratios)]}` | {difference:.0e} |"
        )
    return "\n".join(lines)


PAGE_TEXT = """# Speed of kernels

The backends `numba` (CPU) and `triton` (NVIDIA GPU) compute the same as the reference implementation (`kernels/reference.py`)
up to rounding. On a GPU most kernels are faster than the reference, on a CPU mainly those that score and select pairs:

{summary}

Times are medians of ten synchronized calls on the same input in the same run; short calls on a GPU consist mostly of kernel
launches. A ratio near 1 on a CPU means that the backend uses the reference. *Difference*: largest absolute difference, relative
to the largest number. Names of kernels are those at the time of the measurement.

Written by `python benchmarks/kernels.py render` from `results/benchmarks`.

"""


if __name__ == "__main__":
    app()
