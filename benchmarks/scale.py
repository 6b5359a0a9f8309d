"""Which accuracies under attack depend on the scale of the logits, behind which a model can hide without answering otherwise.

    python benchmarks/scale.py run [--jobs 2] [--device cuda]     attack what is not yet in results/scale
    python benchmarks/scale.py render                             write docs/scale.md from what is there

Models are trained as ``edgeproof reproduce`` trains them, strictly; one that it has kept is taken as it is. Each is attacked by
the protocol's attacks twice, with their own loss and with the one that does not depend on the scale.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import torch
import typer
from _runs import accuracies, check_choices, get_device, provenance_list, run_missing, summary, write_record

import edgeproof as ep
from edgeproof.experiments import Store
from edgeproof.experiments.execute import make_split, train_run
from edgeproof.experiments.graphs import load_graph
from edgeproof.experiments.worker import stored_model
from edgeproof.models import io as model_io
from edgeproof.paper import find_table
from edgeproof.paper.numbers import PaperColumn, PaperRow
from edgeproof.paper.recipes import SEEDS, PaperMeasurement, Recipe, seeds_of, training_name
from edgeproof.splits import Split
from edgeproof.training import remove_checkpoints

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results" / "scale"
PAGE = HERE.parent / "docs" / "scale.md"
STORE = Store(HERE.parent / "results" / "experiments")
# Tables whose rows are looked at: these models, and these trainings.
TABLES = ("main", "other-graphs", "arxiv-table-stand-in")
MODELS = {
    "citeseer": ("GCN", "GPRGNN"),
    "pubmed": ("GPRGNN",),
    "csbm": ("GPRGNN",),
    "squirrel": ("GCN", "GPRGNN"),
    "arxiv-stand-in": ("APPNP", "GPRGNN"),
}
TRAININGS = ("regular", "LRBCD", "PRBCD")
ATTACKS = ("LRBCD", "PRBCD")
LOSSES = ("tanh_margin", "scaled_margin")
# The largest so many of the protocol's.
BUDGETS = 2
# Where the tanh is flatter than this, a node has next to no part in the attack.
FLAT = 1e-4

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Unit:
    """One model, attacked with both losses."""

    row: PaperRow
    seed: int

    @property
    def path(self) -> Path:
        return RESULTS / f"{self.row.dataset}-{self.row.model}-{training_name(self.row)}-{self.seed}.json"

    @property
    def recipe(self) -> Recipe:
        return Recipe(self.row, self.seed)


def rows() -> list[PaperRow]:
    """In the order of the tables, which have one budget for each training."""
    listed = [row for table in TABLES for row in find_table(table).rows if row.model in MODELS.get(row.dataset, ())]
    return list(dict.fromkeys(row for row in listed if training_name(row) in TRAININGS))


def units() -> list[Unit]:
    return [Unit(row, seed) for row in rows() for seed in seeds_of(row.dataset)]


def measure(unit: Unit, device: str, threads: int) -> str:
    """Train if need be, attack and write the result."""
    torch.set_num_threads(threads)
    recipe = unit.recipe
    split = make_split(recipe.run, load_graph(*recipe.run.graph)).to(device)
    graph, nodes = split.test.data, split.test.nodes
    # Of its own: the store's is of a training that goes into the store.
    checkpoint = unit.path.with_suffix(f".{device}.checkpoint")
    model, best_epoch = trained(recipe, split, device, checkpoint)
    margins = ep.losses.margin(ep.models.predict(model, graph)[nodes], graph.y[nodes]).double()
    attacked = []
    for kind in ATTACKS:
        protocol = PaperMeasurement(recipe, kind)
        epsilons = protocol.epsilons[-BUDGETS:]
        budgets = ep.Budget.from_epsilons(graph, nodes, epsilons, local=protocol.local)
        for loss in LOSSES:
            found = replace(protocol.attack, loss=loss)(model, graph, nodes, budgets, seed=unit.seed)
            attacked += [
                {"attack": kind, "loss": loss, "epsilon": epsilon, "accuracy": 100 * one.accuracy}
                for epsilon, one in zip(epsilons, found, strict=True)
            ]
    write_record(
        unit.path,
        device,
        training=recipe.identity,
        best_epoch=best_epoch,
        clean=100 * float((margins > 0).double().mean()),
        median_margin=float(margins.abs().median()),
        flat=100 * float((1 - margins.tanh().square() < FLAT).double().mean()),
        rows=attacked,
    )
    remove_checkpoints(checkpoint)
    largest = max(row["epsilon"] for row in attacked)
    shown = (f"{one['attack']} {one['loss']} {one['accuracy']:.1f}" for one in attacked if one["epsilon"] == largest)
    return f"{unit.path.stem}, at {largest:g}: {', '.join(shown)}"


def trained(recipe: Recipe, split: Split, device: str, checkpoint: Path) -> tuple[ep.models.GraphModel, int]:
    """The model that is kept, or else a new one, and the epoch at which it was at its best."""
    record = STORE.get(recipe.identity)
    if record is not None and stored_model(recipe.run, STORE) is not None:
        return model_io.load(STORE.model_path(recipe.identity)).to(device), int(record.values["best_epoch"])
    model, history = train_run(recipe.run, split, device, checkpoint)
    return model, history.best_epoch


@app.command()
def run(
    dataset: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(MODELS)}; repeatable.")] = None,
    training: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(TRAININGS)}; repeatable.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Of these seeds alone; repeatable.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes at once.")] = 1,
    device: Annotated[str, typer.Option(help="'cpu' or 'cuda'; several processes can share one GPU.")] = "cpu",
    threads: Annotated[int, typer.Option(help="CPU threads per process.")] = 2,
    force: Annotated[bool, typer.Option("--force", help="Also what has a result.")] = False,
) -> None:
    """Attack every model that has no result yet."""
    get_device(device)
    check_choices(dataset or (), MODELS)
    check_choices(training or (), TRAININGS)
    check_choices(seed or (), dict.fromkeys(unit.seed for unit in units()))
    chosen = [
        unit
        for unit in units()
        if unit.row.dataset in (dataset or MODELS)
        and training_name(unit.row) in (training or TRAININGS)
        and unit.seed in (seed or [unit.seed])
    ]
    run_missing(chosen, measure, jobs=jobs, device=device, threads=threads, force=force)


PAGE_TEXT = """# What hides behind the scale of logits

A model whose logits are all multiplied by the same number answers as before, and is as robust as before. But how much LR-BCD
and PR-BCD with the paper's tanh margin find depends on that number: where logits are large, the tanh is flat, and nodes drop
out of the attack; where they are tiny, so are its gradients, for steps of a fixed length. What is not found can pass for
robustness. The scaled margin (`loss="scaled_margin"`) is the tanh margin of logits that are divided by the median size of the
margins at the attacked nodes, and else the same. It is one scale out of many, not the best one: where margins are neither
large nor small it may find more than the tanh margin itself, or less.

Accuracies in percent under the protocol's attacks with both losses, of the same models; means over seeds with their standard
errors, `strict` splits. *Margin*: the median size of the margins at test nodes of the clean graph, one figure per seed.
*Flat*: percent of these nodes at which the slope of the tanh is below {flat:g}. The models are trained as those of [our
tables](reproduction.md), and some are the same. The paper's figures for GPRGNN on Citeseer and Pubmed are of [test nodes that
were seen](what-reproduces.md). Made by `python benchmarks/scale.py render`.

{table}

## The same training, done again

Where a model was not kept, it was trained again: with the same settings, but by later code, on another machine or with another
number of threads. [Whatever changes a last bit](last-bits.md), or on a GPU the random numbers, may send a training another way.
Clean, and attacked with the tanh margin, the models above differ from those of our tables by up to

{apart}

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
        "| graph | model | training | seeds | margin | flat | clean | attack | paper | tanh margin | scaled margin |"
    ]
    lines += ["|---|---|---|---|---|---|---|---|---|---|---|"]
    everything = []
    for row in rows():
        there = [unit for unit in units() if unit.row == row and unit.path.exists()]
        records = [read(unit) for unit in there]
        everything += records
        about = {
            "seeds": ", ".join(str(unit.seed) for unit in there),
            "margin": ", ".join(f"{record['median_margin']:.2g}" for record in records),
            "flat": ", ".join(f"{record['flat']:.0f}" for record in records),
            "clean": summary([record["clean"] for record in records]),
        }
        for attack, epsilon in sorted(
            {(one["attack"], one["epsilon"]) for record in records for one in record["rows"]}
        ):
            cells = [row.dataset, row.model, training_name(row), *about.values(), f"{attack} {epsilon:g}"]
            wanted = {"attack": attack, "epsilon": epsilon}
            found = [summary(accuracies(records, {**wanted, "loss": loss})) for loss in LOSSES]
            lines.append(f"| {' | '.join([*cells, paper(row, attack, epsilon), *found])} |")
    return PAGE_TEXT.format(
        flat=FLAT, table="\n".join(lines), apart="\n".join(largest_differences()), commands=provenance_list(everything)
    )


def differences() -> Iterator[tuple[str, int, float]]:
    """A cell of our tables, a seed, and by how much the accuracy with the tanh margin is above that in the store."""
    for unit in (unit for unit in units() if unit.path.exists()):
        record = read(unit)
        ours = {("clean", 0.0): record["clean"]} | {
            (one["attack"], one["epsilon"]): one["accuracy"] for one in record["rows"] if one["loss"] == "tanh_margin"
        }
        for kind in ("clean", *ATTACKS):
            stored = STORE.get(PaperMeasurement(unit.recipe, kind).identity)
            for epsilon, accuracy in stored.values["accuracy"] if stored else ():
                if (kind, epsilon) in ours:
                    measured = kind if kind == "clean" else f"{kind} {epsilon:g}"
                    cell = f"{unit.row.model}, {training_name(unit.row)}, on {unit.row.dataset}, {measured}"
                    yield cell, unit.seed, ours[kind, epsilon] - 100 * accuracy


def largest_differences() -> list[str]:
    """The largest differences, in size, on one split and in the mean over all seeds."""
    by_cell: dict[str, dict[int, float]] = {}
    for cell, seed, gap in differences():
        by_cell.setdefault(cell, {})[seed] = gap
    single = [(abs(gap), f"{cell}, split {seed}") for cell, found in by_cell.items() for seed, gap in found.items()]
    means = [(abs(fmean(found.values())), cell) for cell, found in by_cell.items() if len(found) == len(SEEDS)]
    if not single or not means:
        return ["*Not run yet.*"]
    (one, where), (mean, where_mean) = max(single), max(means)
    return [
        f"- {one:.1f} points on one split ({where}),",
        f"- {mean:.1f} in the mean over {len(SEEDS)} ({where_mean}).",
    ]


def read(unit: Unit) -> dict[str, Any]:
    """A record, if it is of what the protocol now trains."""
    record: dict[str, Any] = json.loads(unit.path.read_text())
    if record["training"] != json.loads(json.dumps(unit.recipe.identity)):
        raise ValueError(f"{unit.path} is of another training than the protocol's: run it with --force")
    return record


def paper(row: PaperRow, attack: str, epsilon: float) -> str:
    """What the paper prints, if it does."""
    cells = (cell for table in TABLES for cell in find_table(table).cells if cell.row == row)
    found = next((cell for cell in cells if cell.column == PaperColumn(attack, epsilon)), None)
    return "-" if found is None or found.mean is None else f"{found.mean:.1f} ± {found.error:.1f}"


if __name__ == "__main__":
    app()
