"""Certified accuracies, and how fast votes are counted.

    python benchmarks/certificates.py run --device cuda      train, or take what robust_training.py kept, and certify
    python benchmarks/certificates.py speed --device cuda    samples per second, and the time of the radii
    python benchmarks/certificates.py render                 docs/certified-accuracy.md

``run`` made the first results, which import_results.py put into the store of the experiments; newer ones are those of
``edgeproof reproduce certified-citeseer certified-cora certified-cora-ml``. The page shows all of them from there.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import robust_training
import torch
import typer
from _runs import run_missing

import edgeproof as ep
from edgeproof.certificates import SparseSmoothing
from edgeproof.certificates.sampling import Sampler
from edgeproof.experiments import Store, compare, find
from edgeproof.experiments.plan import measures
from edgeproof.experiments.render import export, training_of
from edgeproof.result import describe_environment, describe_model, describe_split

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results" / "certificates"
PAGE = ROOT / "docs" / "certified-accuracy.md"
TABLES = ("certified-citeseer", "certified-cora", "certified-cora-ml")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

SMOOTHING = SparseSmoothing(p_add=0.01, p_del=0.6)
SAMPLES, CHOOSING, ALPHA = 100_000, 1_000, 0.05
RADII = [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (0, 1), (0, 3), (0, 5), (0, 7)]
WAYS = ["GCN-regular", "APPNP-regular", "GPRGNN-regular", "ChebNetII-regular", "GPRGNN-LRBCD"]
DATASETS = ["citeseer", "cora_ml"]
SEEDS = (0, 1, 5)


@dataclass(frozen=True)
class Unit:
    """One model to certify."""

    dataset: str
    way: str
    protocol: str
    seed: int

    @property
    def path(self) -> Path:
        return RESULTS / f"{self.dataset}-{self.way}-{self.protocol}-{self.seed}.json"

    @property
    def training(self) -> robust_training.Unit:
        return robust_training.Unit("paper", self.dataset, self.way, self.seed, self.protocol)


def units(datasets: list[str], ways: list[str]) -> list[Unit]:
    """Models of all seeds; only for GPRGNN do the two protocols differ."""
    return [
        Unit(dataset, way, protocol, seed)
        for dataset in datasets
        for way in ways
        for protocol in (("strict", "as_released") if way.startswith("GPRGNN") else ("strict",))
        for seed in SEEDS
    ]


def measure(unit: Unit, device: str, threads: int) -> str:
    """Train, certify and write the result."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    model, split, training = robust_training.trained(unit.training, device)
    test = split.test
    start = time.perf_counter()
    certificate = SMOOTHING.certify(
        *(model, test.data, test.nodes, SAMPLES, ALPHA, unit.seed),
        choosing_samples=CHOOSING,
        memory=4.0,
        progress=False,
    )
    seconds = time.perf_counter() - start
    added, deleted = certificate.average_certifiable_radius
    record = {
        "command": f"python benchmarks/certificates.py run --device {device}",
        "dataset": unit.dataset,
        "protocol": unit.protocol,
        "seed": unit.seed,
        "split": describe_split(split),
        "model": describe_model(model),
        "training": training,
        "smoothing": {"p_add": SMOOTHING.p_add, "p_del": SMOOTHING.p_del, "alpha": ALPHA, "samples": SAMPLES},
        "clean_accuracy": ep.evaluation.clean_accuracy(model, test.data, test.nodes),
        "certified_accuracy": [[*radii, certificate.accuracy(*radii)] for radii in RADII],
        "joint": [[a, d, certificate.accuracy(a, d)] for a in range(1, 4) for d in range(1, 6)],
        "average_certifiable_radius": {"added": added, "deleted": deleted},
        "abstained": float(certificate.abstained.double().mean()),
        "seconds": round(seconds, 2),
        "environment": describe_environment(device),
    }
    unit.path.parent.mkdir(parents=True, exist_ok=True)
    unit.path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    shown = ", ".join(f"({a}, {d}): {accuracy:.1%}" for a, d, accuracy in record["certified_accuracy"])
    return f"{unit.path.stem} ({seconds:.1f} s): {shown}"


@app.command()
def run(
    dataset: Annotated[list[str] | None, typer.Option(help="Which graphs; repeatable.")] = None,
    way: Annotated[list[str] | None, typer.Option(help="Which of robust_training.py's ways; repeatable.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes at once.")] = 1,
    device: Annotated[str, typer.Option(help="'cpu' or 'cuda'.")] = "cpu",
    threads: Annotated[int, typer.Option(help="CPU threads per process.")] = 2,
    force: Annotated[bool, typer.Option("--force", help="Also what has a result.")] = False,
) -> None:
    """Train and certify every model that has no result yet."""
    run_missing(
        units(dataset or DATASETS, way or WAYS), measure, jobs=jobs, device=device, threads=threads, force=force
    )


@app.command()
def speed(
    device: Annotated[str, typer.Option(help="'cpu' or 'cuda'.")] = "cpu",
    samples: Annotated[int | None, typer.Option(help="100,000 on a GPU, 2,000 on a CPU by default.")] = None,
) -> None:
    """Samples per second on Citeseer with GPRGNN (K = 10), and the time of all radii. Run it alone on the machine."""
    samples = samples or (SAMPLES if device == "cuda" else 2_000)
    data = ep.datasets.load("citeseer").to(device)
    nodes = torch.arange(data.x.size(0), device=device)
    rows: list[dict[str, Any]] = []
    for name in ("GPRGNN", "GCN"):
        model = ep.models.build(name, data.num_features, ep.num_classes(data), seed=0).to(device)
        SMOOTHING.vote(model, data, nodes, 1_000, choosing_samples=1, progress=False)
        start = time.perf_counter()
        votes = SMOOTHING.vote(model, data, nodes, samples, choosing_samples=1, progress=False)
        voted = time.perf_counter()
        SMOOTHING.decide(votes, ALPHA)
        decided = time.perf_counter()
        rows.append(
            {
                "model": name,
                "samples": samples,
                "samples_per_second": samples / (voted - start),
                "radii_seconds": decided - voted,
                "nodes": nodes.numel(),
            }
        )
        print(f"{name}: {rows[-1]['samples_per_second']:,.0f} samples/s, all radii in {decided - voted:.3f} s")
    sampler = Sampler.of(data, ep.certificates.Noise(SMOOTHING.p_add, SMOOTHING.p_del), seed=0)
    batch = 512 if device == "cuda" else 16
    sampler.draw(0, batch)
    start = time.perf_counter()
    for first in range(10):
        sampler.draw(first * batch, batch)
    if device == "cuda":
        torch.cuda.synchronize()
    drawn = 10 * batch / (time.perf_counter() - start)
    print(f"graphs alone: {drawn:,.0f} samples/s")
    path = RESULTS / f"speed-{torch.device(device).type}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "command": f"python benchmarks/certificates.py {' '.join(sys.argv[1:])}",
        "environment": describe_environment(device),
        "threads": torch.get_num_threads(),
        "rows": rows,
        "graphs_per_second": drawn,
    }
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {path}")


@app.command()
def render() -> None:
    """Write the page from the results that are there."""
    parts = {"accuracy": accuracy(), "by_split": "\n".join(split_rows()), "speed": "\n".join(speed_rows())}
    PAGE.write_text(PAGE_TEXT.format(**parts), encoding="utf-8")
    print(f"wrote {PAGE}")


def accuracy() -> str:
    """Every cell of the paper's tables of certificates that has been run."""
    store, parts = Store(ROOT / "results" / "experiments"), []
    for name in TABLES:
        comparison = compare(find(name), store)
        run = tuple(cell for cell in comparison.cells if any(figure is not None for figure in cell.ours.values()))
        if run:
            parts.append(export(replace(comparison, cells=run), "markdown"))
    return "\n".join(parts) or "*Not run yet.*\n"


def split_rows() -> list[str]:
    """What is certified of every GPRGNN with no edge changed, one line per kind of training."""
    store, found = Store(ROOT / "results" / "experiments"), {}
    for measure in measures([find(name) for name in TABLES]):
        recipe = measure.recipe
        record, trained = store.get(measure.identity), store.get(recipe.identity)
        if recipe.row.model != "GPRGNN" or record is None:
            continue
        accuracy = {tuple(radii): value for *radii, value in record.values["certified_accuracy"]}[0, 0]
        epoch = "" if trained is None else f" (epoch {trained.values['best_epoch']})"
        row = (recipe.row.dataset, training_of(recipe.row), recipe.protocol)
        found.setdefault(row, []).append(f"{recipe.seed}: {100 * accuracy:.1f}{epoch}")
    lines = [f"| {' | '.join(row)} | {', '.join(shown)} |" for row, shown in found.items()]
    return ["| graph | training | protocol | split: accuracy of the smoothed model |", "|---|---|---|---|", *lines]


def speed_rows() -> list[str]:
    lines = ["| device | model | samples | samples per second | all radii, s |", "|---|---|---|---|---|"]
    for path in sorted(RESULTS.glob("speed-*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        device = record["environment"]["device"]
        for row in record["rows"]:
            lines.append(
                f"| {device} | {row['model']} | {row['samples']:,} | {row['samples_per_second']:,.0f} | "
                f"{row['radii_seconds']:.3f} ({row['nodes']:,} nodes) |"
            )
        lines.append(f"| {device} | only drawing graphs | - | {record['graphs_per_second']:,.0f} | - |")
    return lines if len(lines) > 2 else ["*Not run yet.*"]


PAGE_TEXT = """# Certified accuracy

Share of test nodes, in percent, that the smoothed model classifies correctly and whose answer no change of so many edges can
alter: `+1 -0` is one added edge, `+0 -3` are three deleted ones, `+0 -0` is the accuracy of the smoothed model.
Noise p_add = 0.01, p_del = 0.6; 1,000 samples choose, 100,000 bound (10,000 for SoftMedian GDC, which diffuses every random
graph anew: valid, and a little less is certified); alpha = 0.05. Mean and standard error over the splits 0, 1, 5. Made by
`edgeproof reproduce certified-citeseer certified-cora certified-cora-ml` and `python benchmarks/certificates.py render`; every
model's figures, also for additions and deletions together, are in `results/experiments`, with the command that made them. Only
for GPRGNN do the protocols differ: `as_released` has seen most of its test nodes, `strict` none.

{accuracy}
## GPRGNN, split by split

Random graphs around Citeseer have six times its edges, nearly all of them random, and how well a GPRGNN does there may scatter
widely. `+0 -0` by split, with the best epoch of a training with the same settings, where one is in the store:

{by_split}

Models trained against LR-BCD on Citeseer are the paper's now that their warm-up is a run of its own; before, they were at
53.1 ± 12.1 `as_released` and at their best after 10 to 21 epochs (commit 41ab90e has the records). Regular models still have
their warm-up as part of the run, and are below the paper's; whether for the same reason has not been measured.

## Time

Citeseer, GPRGNN with K = 10; every node is certified. `python benchmarks/certificates.py speed`. The released implementation of
the method, abojchevski/sparse_smoothing, was measured earlier, outside this repository, at 2,322 samples per second on an H200
in batches of 10, and at 6,364 in batches of 50.

{speed}
"""

if __name__ == "__main__":
    app()
