"""Speed of sampling and certification: samples per second, and seconds for the radii.

    python benchmarks/certificates.py --device cuda

``studies/certified_accuracy.py`` shows the results.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from _runs import write_record

import edgeproof as ep
from edgeproof.certificates import SparseSmoothing
from edgeproof.certificates.sampling import Sampler

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results" / "certificates"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

SMOOTHING = SparseSmoothing(p_add=0.01, p_del=0.6)
SAMPLES, ALPHA = 100_000, 0.05


@app.command()
def speed(
    device: Annotated[str, typer.Option(help="Device: 'cpu' or 'cuda'.")] = "cpu",
    samples: Annotated[
        int | None, typer.Option(help="Number of samples. Default: 100,000 on a GPU, 2,000 on a CPU.")
    ] = None,
) -> None:
    """Measure samples per second and the seconds for all radii on Citeseer, with GPRGNN (K = 10) and GCN."""
    samples = samples or (SAMPLES if device == "cuda" else 2_000)
    data = ep.datasets.load("citeseer").to(device)
    nodes = torch.arange(data.x.size(0), device=device)
    rows: list[dict[str, Any]] = []
    for name in ("GPRGNN", "GCN"):
        model = ep.models.build(name, data.num_features, ep.num_classes(data), seed=0).to(device)
        SMOOTHING.sample_counts(model, data, nodes, 1_000, choosing_samples=1, progress=False)
        start = time.perf_counter()
        counts = SMOOTHING.sample_counts(model, data, nodes, samples, choosing_samples=1, progress=False)
        sampled = time.perf_counter()
        SMOOTHING.certify_counts(counts, ALPHA)
        certified = time.perf_counter()
        rows.append(
            {
                "model": name,
                "samples": samples,
                "samples_per_second": samples / (sampled - start),
                "radii_seconds": certified - sampled,
                "nodes": nodes.numel(),
            }
        )
        print(f"{name}: {rows[-1]['samples_per_second']:,.0f} samples/s, all radii in {certified - sampled:.3f} s")
    sampler = Sampler.of(data, ep.certificates.Noise(SMOOTHING.p_add, SMOOTHING.p_del), seed=0)
    batch = 512 if device == "cuda" else 16
    sampler.draw(0, batch)
    start = time.perf_counter()
    for first in range(10):
        sampler.draw(first * batch, batch)
    if device == "cuda":
        torch.cuda.synchronize()
    graphs_per_second = 10 * batch / (time.perf_counter() - start)
    print(f"drawing graphs only: {graphs_per_second:,.0f} samples/s")
    write_record(
        RESULTS / f"speed-{torch.device(device).type}.json", device, rows=rows, graphs_per_second=graphs_per_second
    )


if __name__ == "__main__":
    app()
