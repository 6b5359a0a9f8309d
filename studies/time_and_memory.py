"""Time and memory by size of the graph, from stored benchmarks.

python studies/time_and_memory.py    write docs/time-and-memory.md; runs nothing
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from _pages import DOCS, ROOT, command_line, table

PAGE = DOCS / "time-and-memory.md"
BENCHMARKS, CERTIFICATES = ROOT / "results" / "benchmarks", ROOT / "results" / "certificates"
DEVICES = ("cpu", "cuda")
GIB = 2**30
# Terms of the two formulas, from the sizes of a row.
Terms = Callable[[dict[str, Any]], list[float]]


def memory_terms(row: dict[str, Any]) -> list[float]:
    """Return nodes times steps, edges, and pairs of the block."""
    return [row["nodes"] * row["K"], row["edges"], row["block"]]


def time_terms(row: dict[str, Any]) -> list[float]:
    """Return nodes, edges and pairs of the block, each times steps."""
    return [row["K"] * row[size] for size in ("nodes", "edges", "block")]


def read(name: str) -> dict[str, Any]:
    """Return a stored benchmark."""
    content: dict[str, Any] = json.loads((BENCHMARKS / f"{name}.json").read_text(encoding="utf-8"))
    return content


def fit(rows: list[dict[str, Any]], terms: Terms, measured: str) -> tuple[list[float], float]:
    """Return the coefficients with the least squared relative errors, and the largest relative error."""
    targets = torch.tensor([row["ours"][measured] for row in rows], dtype=torch.double)
    relative = torch.tensor([terms(row) for row in rows], dtype=torch.double) / targets[:, None]
    coefficients = torch.linalg.lstsq(relative, torch.ones(len(rows), 1, dtype=torch.double)).solution[:, 0]
    return coefficients.tolist(), float((relative @ coefficients - 1).abs().max())


def page() -> str:
    """Return the page."""
    return PAGE_TEXT.format(
        memory=formula_table(memory_terms, "gib", GIB, "bytes"),
        time=formula_table(time_terms, "ms", 1e6, "ns"),
        steps=step_table(),
        attacks=attack_table(),
        efforts=effort_table(),
        training=training_table(),
        certificates=certificate_table(),
    )


def formula_table(terms: Terms, measured: str, unit: float, name: str) -> str:
    """Return the coefficients of a formula by device."""
    rows = []
    for device in DEVICES:
        record = read(f"attack_step_scaling-{device}")
        coefficients, error = fit(record["rows"], terms, measured)
        shown = [f"{unit * value:,.3g}" if unit * value < 100 else f"{unit * value:,.0f}" for value in coefficients]
        rows.append([_device(record), *shown, f"{error:.0%}"])
    return table(["device", *(f"{letter}, {name}" for letter in "abc"), "largest error"], rows)


def step_table() -> str:
    """Return the measured steps."""
    rows = []
    for device in DEVICES:
        record = read(f"attack_step_scaling-{device}")
        for row in record["rows"]:
            sizes = [f"{row[key]:,}" for key in ("nodes", "edges", "block", "K")]
            rows.append([_device(record), *sizes, f"{row['ours']['ms']:.0f}", f"{row['ours']['gib']:.2f}"])
    return table(["device", "nodes", "edges", "pairs", "K", "ms", "GiB"], rows)


def attack_table() -> str:
    """Return the times of whole attacks on Citeseer."""
    rows = []
    for device in DEVICES:
        record = read(f"suite_time-{device}")
        for row in (row for row in record["rows"] if row["epsilon"] == 0.1):
            rows.append([_device(record), row["attack"].partition("(")[0], row["model"], f"{row['seconds']:.1f}"])
    return table(["device", "attack", "model", "seconds"], rows)


def effort_table() -> str:
    """Return the times of evaluations by effort."""
    record = read("effort-cpu")
    rows = [[f"`{row['effort']}`", f"{row['cpu_seconds']:.0f}"] for row in record["rows"]]
    return table(["effort", "CPU time, s"], rows)


def training_table() -> str:
    """Return the times of epochs of adversarial training."""
    rows = []
    for device in DEVICES:
        record = read(f"training_epoch-{device}")
        for row in record["rows"]:
            memory = "-" if row["peak_gib"] is None else f"{row['peak_gib']:.2f}"
            rows.append([_device(record), row["case"], f"{row['ms_per_epoch']:.0f}", memory])
    return table(["device", "case", "ms per epoch", "GiB"], rows)


def certificate_table() -> str:
    """Return the number of samples per second of certificates."""
    rows = []
    for device in DEVICES:
        record = json.loads((CERTIFICATES / f"speed-{device}.json").read_text(encoding="utf-8"))
        rows += [[_device(record), row["model"], f"{row['samples_per_second']:,.0f}"] for row in record["rows"]]
    return table(["device", "model", "samples per second"], rows)


def _device(record: dict[str, Any]) -> str:
    environment = record["environment"]
    threads = f", {environment['threads']} threads" if "threads" in environment else ""
    return f"{environment['device']}{threads}"


PAGE_TEXT = """# Time and memory by size of the graph

A step of an attack costs time and memory proportional to nodes, edges and pairs of the block, times the number of propagation
steps, and never to the number of all pairs. For n nodes, E edges, a block of P pairs and K propagation steps:

    memory of a step = a · n · K + b · E + c · P
    time of a step   = a · n · K + b · E · K + c · P · K

An attack takes `steps` such steps, one epoch of adversarial training twice those of its attack (training and validation graph).

## Coefficients

Fitted to the measured steps below: PR-BCD, GPRGNN, 40 classes. *Largest error*: largest relative error on these steps. Use the
formulas for orders of magnitude on other machines, models and numbers of classes.

Memory:

{memory}

Time:

{time}

The formulas hold where `result.path` is `"propagate"`. On the path `"autograd"` all P pairs join the graph; see
[Use my model](your-model.md).

## Measured steps

{steps}

## Whole attacks

Citeseer, ε = 0.1, default settings (400 steps, PR-BCD 100 more, 500,000 pairs):

{attacks}

## Evaluations

`ep.evaluate` of a GCN on Citeseer at two budgets, one CPU thread:

{efforts}

## Adversarial training

{training}

The graph of arXiv's size has 169,343 nodes and about 1.24 million edges. Times of whole runs:
[Robust training](robust-training.md#time).

## Certificates

Citeseer, all nodes:

{certificates}

## Reproduce

    python benchmarks/attack_step.py scaling
    python benchmarks/suite_time.py
    python benchmarks/effort.py
    python benchmarks/training_epoch.py epoch
    python benchmarks/certificates.py
    python studies/time_and_memory.py

The last command runs nothing. It writes this page from `results/benchmarks` and `results/certificates`, which record command,
machine and versions. Comparison with PyG: [Speed of attacks](benchmarks.md).
"""


if __name__ == "__main__":
    command_line(PAGE, page)()
