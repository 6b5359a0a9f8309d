"""How far a training goes another way if the model that it begins with differs in its last bits alone.

    python benchmarks/last_bits.py run [--jobs 2] [--device cuda]     train and attack what is not yet in results/last_bits
    python benchmarks/last_bits.py render                             write docs/last-bits.md from what is there

Models are regularly trained, as ``edgeproof reproduce`` trains them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from _runs import check_choices, get_device, provenance_list, run_missing, write_record
from torch import nn

import edgeproof as ep
from edgeproof.attacks import LRBCD
from edgeproof.experiments.execute import make_split
from edgeproof.experiments.graphs import load_graph
from edgeproof.paper.numbers import PaperRow
from edgeproof.paper.recipes import SEEDS, Recipe, local_factor

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results" / "last_bits"
PAGE = HERE.parent / "docs" / "last-bits.md"
DATASET, EPSILON = "citeseer", 0.25
MODELS = ("GCN", "GPRGNN")
DRAWS = 4
AS_IT_IS, OTHERWISE = "as it is", "first coefficients rounded otherwise"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
Change = Callable[[nn.Module], None]


@dataclass(frozen=True)
class Unit:
    """One kind of model on one split, begun in all ways."""

    model: str
    seed: int

    @property
    def path(self) -> Path:
        return RESULTS / f"{self.model}-{self.seed}.json"

    @property
    def recipe(self) -> Recipe:
        return Recipe(PaperRow("inductive", DATASET, self.model, False, None, None), self.seed)

    @property
    def ways(self) -> dict[str, Change]:
        """What is done to a new model, in words."""
        ways: dict[str, Change] = {AS_IT_IS: lambda model: None}
        if self.model == "GPRGNN":
            ways[OTHERWISE] = partial(round_coefficients, seed=self.seed)
        return ways | {f"last bits, draw {draw}": partial(change_last_bits, draw=draw) for draw in range(1, DRAWS + 1)}


def change_last_bits(model: nn.Module, draw: int) -> None:
    """Move every parameter by one unit of rounding, up, down or not at all."""
    generator = torch.Generator().manual_seed(draw)
    with torch.no_grad():
        for parameter in model.parameters():
            step = torch.randint(-1, 2, parameter.shape, generator=generator).to(parameter)
            parameter.mul_(1 + step * torch.finfo(parameter.dtype).eps)


def round_coefficients(model: nn.Module, seed: int) -> None:
    """The first coefficients without a bound that cancels out, as they were before commit 2aa1c74."""
    drawn = torch.from_numpy(np.random.RandomState(seed).uniform(-1, 1, model.gamma.numel())).to(model.gamma)
    with torch.no_grad():
        model.gamma.copy_(drawn / drawn.abs().sum())


def measure(unit: Unit, device: str, threads: int) -> str:
    """Train in all ways, attack and write the result."""
    torch.set_num_threads(threads)
    recipe = unit.recipe
    split = make_split(recipe.run, load_graph(*recipe.run.graph)).to(device)
    graph, nodes = split.test.data, split.test.nodes
    sizes = (graph.num_features, ep.num_classes(graph))
    budget = ep.Budget.from_epsilon(graph, nodes, EPSILON, local=local_factor(DATASET))
    rows = []
    for way, change in unit.ways.items():
        model = ep.models.build(unit.model, *sizes, recipe.model_settings, seed=unit.seed)
        before = [parameter.detach().clone() for parameter in model.parameters()]
        change(model)
        moved = max(float((now - then).abs().max()) for now, then in zip(model.parameters(), before, strict=True))
        history = ep.train(model.to(device), split, preset=recipe.config, progress=False)
        found = LRBCD()(model, graph, nodes, budget, seed=unit.seed)
        rows.append(
            {
                "way": way,
                "moved": moved,
                "best_epoch": history.best_epoch,
                "epochs": len(history.epochs),
                "clean": 100 * found.clean_accuracy,
                "attacked": 100 * found.accuracy,
            }
        )
    write_record(unit.path, device, training=recipe.identity, attack=repr(LRBCD()), epsilon=EPSILON, rows=rows)
    return f"{unit.path.stem}: " + ", ".join(f"{row['way']} {row['clean']:.1f}" for row in rows)


@app.command()
def run(
    model: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(MODELS)}; repeatable.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes at once.")] = 1,
    device: Annotated[str, typer.Option(help="'cpu' or 'cuda'; several processes can share one GPU.")] = "cpu",
    threads: Annotated[int, typer.Option(help="CPU threads per process.")] = 2,
    force: Annotated[bool, typer.Option("--force", help="Also what has a result.")] = False,
) -> None:
    """Train and attack every model that has no result yet."""
    get_device(device)
    check_choices(model or (), MODELS)
    chosen = [unit for unit in units() if unit.model in (model or MODELS)]
    run_missing(chosen, measure, jobs=jobs, device=device, threads=threads, force=force)


def units() -> list[Unit]:
    return [Unit(model, seed) for model in MODELS for seed in SEEDS]


PAGE_TEXT = """# What a last bit changes

A training rounds in every step, and early stopping picks an epoch by a loss that moves in its last digits. So two trainings
that begin with models that differ in last bits alone can end far apart, and so can one that is done again on another machine,
with another number of threads, or by code that has changed since. Regular training on Citeseer, `strict` splits, from a new
model as it is; from one whose parameters are each moved by a unit of rounding, up, down or not at all, in {draws} draws; and
for GPRGNN from the same first coefficients by another order of operations, as the code had it before commit 2aa1c74. *Moved*:
the largest change of a parameter. Accuracies are in percent, clean and under LR-BCD at ε = {epsilon:g}. Made by `python
benchmarks/last_bits.py render`.

{table}

The standard errors of [our tables](reproduction.md) are over splits with one training each, so one draw of this scatter is in
every split's figure.

## How these were made

{commands}
"""


@app.command()
def render() -> None:
    """Write the page from the results that are there."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")


def page() -> str:
    lines = [
        "| model | split | begun with | moved | best epoch | epochs | clean | attacked |",
        "|---|---|---|---|---|---|---|---|",
    ]
    records = []
    for unit in (unit for unit in units() if unit.path.exists()):
        records.append(json.loads(unit.path.read_text(encoding="utf-8")))
        for row in records[-1]["rows"]:
            about = f"{unit.model} | {unit.seed} | {row['way']} | {row['moved']:.1e} | {row['best_epoch']} | {row['epochs']}"
            lines.append(f"| {about} | {row['clean']:.1f} | {row['attacked']:.1f} |")
    return PAGE_TEXT.format(draws=DRAWS, epsilon=EPSILON, table="\n".join(lines), commands=provenance_list(records))


if __name__ == "__main__":
    app()
